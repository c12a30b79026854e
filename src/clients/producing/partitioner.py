"""Which partition a record goes to.

By default a key decides by murmur2, as the field's Java client computes it, so that equal keys meet
in one partition whichever client sent them; records without a key stick to one partition until a
batch is full and then move on (KIP-480): larger batches, and an even spread over time.

Others go by name, or are any callable of the form of `Partitioner`. A partition that the caller
names goes before every partitioner.
"""

from collections.abc import Callable
from operator import index
from typing import Final, Protocol
from zlib import crc32

from ...errors import InvalidConfig, PartitionerFailed
from ...records.codec import murmur2

CACHED_KEYS_MAX = 10_000
CACHED_KEY_BYTES_MAX = 256  # a longer key is hashed each time


class Partitioner(Protocol):
    """Chooses partitions, for one record at a time, in the thread that sends it; for the rows of
    `send_arrow` in one of the client's, beside the others.

    It must be quick and must not use the producer that asks it. What it raises, or an answer that
    is no partition of the topic, refuses that record alone (PartitionerFailed).
    """

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: int
    ) -> int | None:
        """Return a partition of [0, partitions), or None: any, the producer sticks to one."""


class KeyPartitioner:
    """The murmur2 of the key, modulo the partitions; None without a key.

    Remembers the hashes of recent keys, at most `CACHED_KEYS_MAX` of `CACHED_KEY_BYTES_MAX`:
    streams repeat their keys.
    """

    __slots__ = ("_hashes",)

    def __init__(self) -> None:
        self._hashes: dict[bytes, int] = {}

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: int
    ) -> int | None:
        if key is None:
            return None
        known = self._hashes.get(key)
        if known is None:
            known = murmur2(key) & 0x7FFFFFFF
            if len(key) <= CACHED_KEY_BYTES_MAX:
                if len(self._hashes) >= CACHED_KEYS_MAX:
                    self._hashes.clear()
                self._hashes[key] = known
        return known % partitions


class RoundRobinPartitioner:
    """Each record of a topic to the next partition, whatever its key: an even spread at once, and
    the smallest batches."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: dict[str, int] = {}  # by topic; bounded by the topics written to

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: int
    ) -> int | None:
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        return turn % partitions


def stick(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int | None:
    """Stick to a partition whatever the key (the Java client's partitioner.ignore.keys)."""
    return None


class CrcPartitioner:
    """CRC-32 of the key as librdkafka's default computes it; None without a key or with an empty
    one."""

    __slots__ = ()

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: int
    ) -> int | None:
        return crc32(key) % partitions if key else None


PARTITIONERS: Final[dict[str, Callable[[], Partitioner]]] = {
    "murmur2": KeyPartitioner,  # the Java client's default; without a key: sticky
    "sticky": lambda: stick,  # whatever the key
    "round_robin": RoundRobinPartitioner,  # whatever the key
    "crc32": CrcPartitioner,  # librdkafka's default (consistent_random); without a key: sticky
}
"""By the name that `producer(partitioner=...)` takes."""


def choose(
    partitioner: Partitioner, topic: str, key: bytes | None, value: bytes | None, partitions: int
) -> int | None:
    """Ask a partitioner; raises PartitionerFailed for what it raises and for a wrong answer."""
    try:
        answer = partitioner(topic, key, value, partitions)
    except Exception as error:
        raise PartitionerFailed(
            f"the partitioner raised {type(error).__name__}: {error}", topic=topic
        ) from error
    if answer is None:
        return None
    if type(answer) is not bool and hasattr(answer, "__index__"):
        partition = index(answer)
        if 0 <= partition < partitions:
            return partition
    raise PartitionerFailed(
        f"the partitioner answered {answer!r}: it must be None or one of the {partitions} "
        "partitions, numbered from 0",
        topic=topic,
    )


def partitioner_of(partitioner: str | Partitioner) -> Partitioner:
    """Return the partitioner of a name, or the callable itself; raises InvalidConfig."""
    if isinstance(partitioner, str):
        make = PARTITIONERS.get(partitioner)
        if make is not None:
            return make()
    elif callable(partitioner):
        return partitioner
    raise InvalidConfig(
        f"partitioner is {partitioner!r}: give one of {', '.join(PARTITIONERS)}, or a callable of "
        "(topic, key, value, partitions)"
    )
