"""The partition of a key, a group id or a transactional id, in an internal topic, by Kafka's rule,
so that Kafka's data can be moved over unchanged."""

import sys
from functools import lru_cache
from typing import Final

CACHED_LENGTH_MAX: Final = 256
"""The hash of shorter keys is cached."""
_UTF_16: Final = f"utf-16-{sys.byteorder[0]}e"  # of this machine


def java_hash(text: str) -> int:
    """Return Java's String.hashCode as an unsigned 32-bit number, over UTF-16 units."""
    value = 0
    for unit in memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key, given the number of partitions."""
    hashed = _cached_hash(key) if len(key) <= CACHED_LENGTH_MAX else java_hash(key)
    return (hashed & 0x7FFFFFFF) % partitions


_cached_hash = lru_cache(maxsize=4_096)(java_hash)  # each request needs it
