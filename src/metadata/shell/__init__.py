"""Hangs the metadata on the quorum's log and on the network: the controller role, the broker's
session with it, and the publisher that hands changes to whatever lives in this node."""

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
