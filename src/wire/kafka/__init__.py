"""The Kafka front door: framing, dispatch by key and version, translation of messages.

No semantics live here: what a request means is decided by the calls behind it, which are those of
the gRPC front door. Nothing in this room knows sockets, and the simulation runs it as it is.
"""

from .api import Door
from .server import KafkaServer
from .settings import KafkaSettings

__all__ = ["Door", "KafkaServer", "KafkaSettings"]
