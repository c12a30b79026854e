"""The partition of a key, a group id or a transactional id, in an internal topic, by Kafka's rule,
so that Kafka's data can be moved over unchanged."""

from functools import lru_cache
from typing import Final

CACHED_LENGTH_MAX: Final = 256
"""The hash of shorter keys is cached."""


def java_hash(text: str) -> int:
    """Return Java's String.hashCode as an unsigned 32-bit number, over UTF-16 units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key, given the number of partitions."""
    hashed = _cached_hash(key) if len(key) <= CACHED_LENGTH_MAX else java_hash(key)
    return (hashed & 0x7FFFFFFF) % partitions


_cached_hash = lru_cache(maxsize=4_096)(java_hash)  # each request needs it
