"""Partitioners: the choice of a record's partition.

The default is the murmur2 hash of the key, as in Kafka's Java client, so that all clients send
equal keys to the same partition. Records without a key stick to one partition until its batch is
full (KIP-480), which makes larger batches and an even spread over time.

Other partitioners are chosen by name, or are callables of the form of `Partitioner`. An explicit
partition takes precedence.
"""

from collections.abc import Callable
from operator import index
from typing import Final, Protocol
from zlib import crc32

from ...errors import InvalidConfig, PartitionerFailed
from ...records.codec import murmur2

CACHED_KEYS_MAX = 10_000
CACHED_KEY_BYTES_MAX = 256  # longer keys are not cached


class Partitioner(Protocol):
    """Chooses the partition of one record.

    It runs in the sending thread; for the rows of `send_arrow` in a worker thread of the client,
    maybe concurrently. It must be quick and must not call its producer. If it raises, or returns
    an invalid partition, only that record is refused (PartitionerFailed).
    """

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: int
    ) -> int | None:
        """Return a partition of [0, partitions), or None for the producer's sticky partition."""


class KeyPartitioner:
    """The murmur2 hash of the key, modulo the partitions; None without a key.

    Caches the hashes of recent keys: at most `CACHED_KEYS_MAX` keys of up to
    `CACHED_KEY_BYTES_MAX`.
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
    """Each record of a topic goes to the next partition, whatever its key.

    The spread is even at once, the batches are the smallest.
    """

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
    """Return None: the sticky partition, whatever the key (partitioner.ignore.keys in Java)."""
    return None


class CrcPartitioner:
    """The CRC-32 of the key, as librdkafka's default; None without a key or with an empty one."""

    __slots__ = ()

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: int
    ) -> int | None:
        return crc32(key) % partitions if key else None


PARTITIONERS: Final[dict[str, Callable[[], Partitioner]]] = {
    "murmur2": KeyPartitioner,  # the Java client's default; without a key: sticky
    "sticky": lambda: stick,
    "round_robin": RoundRobinPartitioner,
    "crc32": CrcPartitioner,  # librdkafka's default (consistent_random); without a key: sticky
}
"""The partitioners by their names in `producer(partitioner=...)`."""


def choose(
    partitioner: Partitioner, topic: str, key: bytes | None, value: bytes | None, partitions: int
) -> int | None:
    """Call a partitioner; raise PartitionerFailed if it raises or returns an invalid partition."""
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
        f"the partitioner returned {answer!r}: it must be None or one of the {partitions} "
        "partitions, numbered from 0",
        topic=topic,
    )


def resolve_partitioner(partitioner: str | Partitioner) -> Partitioner:
    """Return the partitioner of a name, or the callable itself; raise InvalidConfig for others."""
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
