"""DescribeReplicas: the progress of a partition's replicas according to its leader."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...errors import NotLeaderOrFollower, QuorumlogError
from ...proto import admin_pb2 as pb
from ...runtime.error_detail import decode_error
from ...services import ADMIN_DESCRIBE_REPLICAS
from ..answers import senseless
from ..connection import Connection
from ..offsets import Place

PARTS_MAX: Final = 1_000  # partitions per request


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica of a partition."""

    broker: int
    log_end_offset: int | None  # at its last fetch; None: no fetch in this leader epoch
    caught_up_ms_ago: int | None  # since it had the leader's whole log; None: never in this epoch
    in_sync: bool
    reason: str  # the reason if it is not in sync, a sentence; else empty


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReplicas:
    """The replicas of one partition according to its leader."""

    topic: str
    partition: int
    leader: int | None  # the answering leader; None if there is none
    high_watermark: int | None  # None on an error
    min_isr: int | None  # None on an error
    replicas: tuple[Replica, ...]  # the leader included, in the order of the assignment
    error: QuorumlogError | None  # the reason if the other fields are unknown


async def describe_replicas(
    connection: Connection, leaders: Mapping[Place, int | None]
) -> list[PartitionReplicas]:
    """Query all leaders concurrently, each once; return the results in the given order.

    If a leader does not answer, its partitions carry the error.
    """
    led: dict[int, list[Place]] = defaultdict(list)
    for place, leader in leaders.items():
        if leader is not None:
            led[leader].append(place)
    calls = [
        _ask(connection, leader, places[first : first + PARTS_MAX])
        for leader, places in led.items()
        for first in range(0, len(places), PARTS_MAX)
    ]
    found = {
        (each.topic, each.partition): each
        for answers in await asyncio.gather(*calls)
        for each in answers
    }
    return [
        found[place] if place in found else _unknown(place, None, _leaderless(place))
        for place in leaders
    ]


async def _ask(
    connection: Connection, leader: int, places: Sequence[Place]
) -> list[PartitionReplicas]:
    request = pb.DescribeReplicasRequest(
        partitions=[
            pb.TopicPartition(topic=topic, partition=partition) for topic, partition in places
        ],
        min_metadata_offset=connection.topology.metadata_offset,
    )
    try:
        answer = await connection.call_broker(
            leader, ADMIN_DESCRIBE_REPLICAS, request, retry_on=lambda _: False
        )
        described = {
            (each.topic, each.partition): _replicas(each, leader) for each in answer.partitions
        }
        if described.keys() != set(places):
            raise senseless(f"returned {len(described)} results for {len(places)} partitions")
    except QuorumlogError as error:
        return [_unknown(place, leader, error) for place in places]
    connection.topology.saw_offset(answer.metadata_offset)
    return list(described.values())


def _replicas(each: pb.ReplicasDescription, leader: int) -> PartitionReplicas:
    if each.HasField("error"):
        return _unknown((each.topic, each.partition), leader, decode_error(each.error))
    return PartitionReplicas(
        topic=each.topic,
        partition=each.partition,
        leader=leader,
        high_watermark=each.high_watermark,
        min_isr=each.min_isr,
        replicas=tuple(_all(each.replicas)),
        error=None,
    )


def _all(replicas: Iterable[pb.ReplicaDescription]) -> Iterable[Replica]:
    for each in replicas:
        yield Replica(
            broker=each.broker,
            log_end_offset=None if each.log_end_offset < 0 else each.log_end_offset,
            caught_up_ms_ago=None if each.caught_up_ms_ago < 0 else each.caught_up_ms_ago,
            in_sync=each.in_sync,
            reason=each.reason,
        )


def _unknown(place: Place, leader: int | None, error: QuorumlogError) -> PartitionReplicas:
    topic, partition = place
    return PartitionReplicas(
        topic=topic,
        partition=partition,
        leader=leader,
        high_watermark=None,
        min_isr=None,
        replicas=(),
        error=error,
    )


def _leaderless(place: Place) -> NotLeaderOrFollower:
    topic, partition = place
    return NotLeaderOrFollower(
        "the partition has no leader to query", topic=topic, partition=partition
    )
