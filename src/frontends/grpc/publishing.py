"""Partitioning of the records of a Publish request: the named partition, key hashes, or round
robin.

Records of different keys may go to different partitions; each partition gets one batch. Records
without a key go to one of the partitions that this broker leads, the next one with each request. So
small batches of one caller are not split, and a caller without metadata always reaches a leader.
Pure.

This module also derives the error of a partly stored request: it fails unless its caller reads the
results.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ...errors import PartlyStored, QuorumlogError, TimedOut
from ...proto import log_pb2
from ...records import partition_for_key
from . import validation as check

TOPICS_MAX: Final = 10_000  # with a stored round-robin position; beyond it the oldest is dropped


class PartitionLayout(Protocol):
    """The part of the replica manager that partitioning uses."""

    def partition_count(self, topic: str) -> int: ...
    def led_here(self, topic: str, start: int) -> int: ...


@dataclass(frozen=True, slots=True)
class PartitionShare:
    """The records of a request that go to one partition."""

    partition: int
    indexes: list[int]  # into the request's records, ascending


class PublishPartitioner:
    """The partitioner of Publish requests, with its round-robin positions."""

    def __init__(self, layout: PartitionLayout) -> None:
        self._layout = layout
        # round-robin positions by topic, the latest used at the end
        self._turns: dict[str, int] = {}

    def shares(self, request: log_pb2.PublishRequest) -> list[PartitionShare]:
        """Return one share for each partition, in the order of their first records.

        Raises InvalidRequest, UnknownTopicOrPartition, and NotLeaderOrFollower for records without
        a key if this broker leads no partition of the topic.
        """
        topic = request.topic
        if request.HasField("partition"):
            check.check_partition(topic, request.partition)
            return [PartitionShare(request.partition, list(range(len(request.records))))]
        count = self._layout.partition_count(topic)
        keyless: int | None = None
        shares: dict[int, PartitionShare] = {}
        for index, record in enumerate(request.records):
            if record.HasField("key"):
                partition = partition_for_key(record.key, count)
            else:
                if keyless is None:
                    keyless = self._next(topic)
                partition = keyless
            share = shares.get(partition)
            if share is None:
                share = shares[partition] = PartitionShare(partition, [])
            share.indexes.append(index)
        return list(shares.values())

    def _next(self, topic: str) -> int:
        """Return the topic's next partition that this broker leads."""
        partition = self._layout.led_here(topic, self._turns.pop(topic, 0))
        self._turns[topic] = partition + 1
        if len(self._turns) > TOPICS_MAX:
            del self._turns[next(iter(self._turns))]
        return partition


def failure_of(
    topic: str, shares: Sequence[PartitionShare], errors: Sequence[QuorumlogError | None]
) -> QuorumlogError | None:
    """Return the error of a call from those of its shares, None if all are stored.

    If none is stored: the first error, but an error with unknown outcome takes precedence.
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
        f"{count - missing} of {count} records are stored; the others failed with {first.name}:"
        f" {first.message}; a retry of the whole request duplicates records; set errors_in_results"
        " to get the error of each partition",
        topic=topic,
        partition=share.partition,
    )
