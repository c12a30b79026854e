"""The topics of a consumer's subscription; the coordinator decodes no more of it.

All versions of ConsumerProtocolSubscription start alike: version int16, number of topics int32,
each topic a string after its int16 length; big-endian. The rest is ignored.
"""

from struct import Struct
from typing import Final

HEAD: Final = Struct(">hi")  # version, number of topics
LENGTH: Final = Struct(">h")


def topics_of(subscription: bytes) -> frozenset[str] | None:
    """Return the topics, or None if the bytes are not a subscription."""
    if len(subscription) < HEAD.size:
        return None
    version, count = HEAD.unpack_from(subscription)
    position = HEAD.size
    if version < 0 or not 0 <= count <= (len(subscription) - position) // LENGTH.size:
        return None
    topics = set()
    for _ in range(count):
        if position + LENGTH.size > len(subscription):
            return None
        (length,) = LENGTH.unpack_from(subscription, position)
        position += LENGTH.size
        if length < 0 or position + length > len(subscription):
            return None
        try:
            topics.add(subscription[position : position + length].decode())
        except UnicodeDecodeError:
            return None
        position += length
    return frozenset(topics)
