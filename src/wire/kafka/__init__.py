"""The Kafka front door: framing, dispatch by key and version, translation of messages.

No semantics live here: what a request means is decided by the calls behind it, which are those of
the gRPC front door. Nothing in this room knows sockets, and the simulation runs it as it is.
"""

from .api import Door
from .figures import ENDS_OF_BAD_INPUT
from .server import KafkaServer
from .settings import KafkaSettings

__all__ = ["ENDS_OF_BAD_INPUT", "Door", "KafkaServer", "KafkaSettings"]
