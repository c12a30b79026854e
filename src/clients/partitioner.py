"""Which partition a record goes to.

A key decides by murmur2, as the field's clients compute it, so that equal keys meet in one
partition whichever client sent them. Records without a key stick to one partition until a batch is
full and then move on (KIP-480): larger batches, and an even spread over time.
"""

from collections.abc import Callable
from typing import TypeAlias

from ..records.codec import murmur2

Partitioner: TypeAlias = Callable[[bytes | None, int], int | None]
"""(key, number of partitions) -> partition of [0, number), or None: any, the producer sticks to
one."""

CACHED_KEYS_MAX = 10_000


class KeyPartitioner:
    """The default: murmur2 for keys, None without one.

    Remembers the hashes of recent keys, at most `CACHED_KEYS_MAX`: streams repeat their keys.
    """

    __slots__ = ("_hashes",)

    def __init__(self) -> None:
        self._hashes: dict[bytes, int] = {}

    def __call__(self, key: bytes | None, partitions: int) -> int | None:
        if key is None:
            return None
        known = self._hashes.get(key)
        if known is None:
            if len(self._hashes) >= CACHED_KEYS_MAX:
                self._hashes.clear()
            known = self._hashes[key] = murmur2(key) & 0x7FFFFFFF
        return known % partitions
