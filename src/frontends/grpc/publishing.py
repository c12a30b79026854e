"""Where the records of one Publish go: by the partition asked for, by each key's hash, or in turn.

Records of different keys may belong to different partitions; each partition gets one batch. Keyless
requests go round the partitions that this broker leads, one partition a request: small batches of
one caller are not torn apart, and a caller that knows nothing of leaders never meets a wrong one.
No waiting.

What a call comes to that stored some of its records only is decided here too: it fails, unless its
caller has said that it reads the results.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ...errors import PartlyStored, QuorumlogError, TimedOut
from ...proto import log_pb2
from ...records import partition_for_key
from . import validation as check

TOPICS_MAX: Final = 10_000  # whose turn is remembered; beyond them the oldest begins anew


class Layout(Protocol):
    """What it asks of the replica manager."""

    def partition_count(self, topic: str) -> int: ...
    def led_here(self, topic: str, start: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Share:
    """The records of a request that go to one partition."""

    partition: int
    indexes: list[int]  # into the request's records, ascending


class Spread:
    """Splits requests by partition, and remembers whose turn it is."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._turns: dict[str, int] = {}  # by topic, the one used last at the end

    def shares(self, request: log_pb2.PublishRequest) -> list[Share]:
        """Return one share for each partition concerned, in the order of their first records.

        Raises InvalidRequest, UnknownTopicOrPartition, and NotLeaderOrFollower when a keyless
        request meets a broker that leads nothing of the topic.
        """
        topic = request.topic
        if request.HasField("partition"):
            check.check_partition(topic, request.partition)
            return [Share(request.partition, list(range(len(request.records))))]
        count = self._layout.partition_count(topic)
        keyless: int | None = None
        shares: dict[int, Share] = {}
        for index, record in enumerate(request.records):
            if record.HasField("key"):
                partition = partition_for_key(record.key, count)
            else:
                if keyless is None:
                    keyless = self._next(topic)
                partition = keyless
            share = shares.get(partition)
            if share is None:
                share = shares[partition] = Share(partition, [])
            share.indexes.append(index)
        return list(shares.values())

    def _next(self, topic: str) -> int:
        """Take the turn of a topic's next partition that is led here."""
        partition = self._layout.led_here(topic, self._turns.pop(topic, 0))
        self._turns[topic] = partition + 1
        if len(self._turns) > TOPICS_MAX:
            del self._turns[next(iter(self._turns))]
        return partition


def failure_of(
    topic: str, shares: Sequence[Share], errors: Sequence[QuorumlogError | None]
) -> QuorumlogError | None:
    """Return what a call fails with whose shares ended so, None when all are stored.

    When none is: the first error, rather one that leaves the outcome unknown.
    """
    ends = zip(shares, errors, strict=True)
    failed = [(share, error) for share, error in ends if error is not None]
    if not failed:
        return None
    share, first = failed[0]
    if len(failed) == len(shares):
        return next((error for _, error in failed if isinstance(error, TimedOut)), first)
    count = sum(len(share.indexes) for share in shares)
    missing = sum(len(share.indexes) for share, _ in failed)
    return PartlyStored(
        f"{count - missing} of {count} records are stored, others are not: {first.name}: "
        f"{first.message}; repeating all stores them twice: set errors_in_results to learn which",
        topic=topic,
        partition=share.partition,
    )
