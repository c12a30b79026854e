"""Where the records of one Publish go: by the partition asked for, by each key's hash, or in turn.

Records of different keys may belong to different partitions; each partition gets one batch. Keyless
requests go round the partitions that this broker leads, one partition a request: small batches of
one caller are not torn apart, and a caller that knows nothing of leaders never meets a wrong one.
No waiting.
"""

from dataclasses import dataclass
from typing import Final, Protocol

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
