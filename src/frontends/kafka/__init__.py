"""The Kafka front end: framing, dispatch by key and version, translation of messages.

A handler decides nothing: it calls the same operations of `quorumlog.api` as the gRPC front end.
No module of this package imports sockets, so the simulation runs it unchanged.
"""

from .api import BrokerContext
from .config import KafkaConfig
from .metrics import ENDS_OF_BAD_INPUT
from .server import KafkaServer

__all__ = ["ENDS_OF_BAD_INPUT", "BrokerContext", "KafkaServer", "KafkaConfig"]
