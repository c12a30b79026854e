"""Connects the metadata to the quorum's log and the network: the controller role, the broker's
session with the controller, and the publisher of changes within the node."""

from .command_queue import Outcome
from .controller import ControllerShell
from .controller_locator import ControllerLocator
from .metadata_follower import MetadataFollower
from .publisher import MetadataPublisher, Subscriber
from .session import BrokerSession, BrokerSessionConfig

__all__ = [
    "BrokerSession",
    "BrokerSessionConfig",
    "ControllerShell",
    "ControllerLocator",
    "MetadataFollower",
    "MetadataPublisher",
    "Outcome",
    "Subscriber",
]
