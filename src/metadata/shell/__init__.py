"""Connects the metadata to the quorum's log and the network: the controller role, the broker's
session with the controller, and the publisher of changes within the node."""

from .command_queue import Outcome
from .controller import ControllerShell
from .controller_calls import ControllerLocator
from .publisher import MetadataPublisher, Subscriber
from .session import BrokerSession, BrokerSessionConfig
from .state_machine import MetadataStateMachine

__all__ = [
    "BrokerSession",
    "BrokerSessionConfig",
    "ControllerShell",
    "ControllerLocator",
    "MetadataPublisher",
    "MetadataStateMachine",
    "Outcome",
    "Subscriber",
]
