"""Connects the metadata to the quorum's log and the network: the controller role, the broker's
session with the controller, and the publisher of changes within the node."""

from .controller import ControllerShell, ControllerShellConfig
from .controllers import Controllers
from .deciding import Outcome
from .following import MetadataFollower
from .publisher import MetadataPublisher, Subscriber
from .session import BrokerSession, BrokerSessionConfig

__all__ = [
    "BrokerSession",
    "BrokerSessionConfig",
    "ControllerShell",
    "ControllerShellConfig",
    "Controllers",
    "MetadataFollower",
    "MetadataPublisher",
    "Outcome",
    "Subscriber",
]
