"""Groups by gRPC at any broker, and shared with Kafka clients."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from google.protobuf.message import Message
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.simulated_cluster import Play, cluster

from quorumlog import simulation
from quorumlog.errors import GroupNotFound, InvalidRequest, UnknownMember
from quorumlog.proto import groups_pb2 as pb
from quorumlog.runtime import Method, Runtime
from quorumlog.services import (
    GROUPS_COMMIT_OFFSETS,
    GROUPS_DELETE,
    GROUPS_DELETE_OFFSETS,
    GROUPS_DESCRIBE,
    GROUPS_FETCH_OFFSETS,
    GROUPS_HEARTBEAT,
    GROUPS_LIST,
)

from .grpc_requests import asked
from .kafka import group_calls as calls
from .kafka.admin_calls import create_topic
from .kafka.three_nodes import create


def joining(group: str = "g", member: str = "me") -> pb.GroupHeartbeatRequest:
    """Return the first heartbeat of a member that subscribes to topic `t`."""
    return pb.GroupHeartbeatRequest(
        group=group,
        member_id=member,
        subscription=pb.GroupSubscription(topics=["t"]),
        owned=pb.GroupPartitions(),
        rebalance_timeout_ms=10_000,
        client_id="tests",
    )


def places(parts: Any) -> list[tuple[str, int]]:
    return [(part.topic, part.partition) for part in parts]


def on_a_node(folder: str, main: Callable[[KafkaNode], Awaitable[None]]) -> None:
    async def serve(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder, group_initial_rebalance_delay_ms=0) as kafka:
            await create_topic(kafka.channel, "t", partitions=2)
            await main(kafka)

    simulation.run(serve)


def test_a_member_joins_owns_commits_and_leaves(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        channel = kafka.channel
        first = await asked(channel, GROUPS_HEARTBEAT, joining())
        assert (first.member_epoch, first.heartbeat_interval_ms) == (1, 5_000)
        assert places(first.assignment.partitions) == [("t", 0), ("t", 1)]
        staying = pb.GroupHeartbeatRequest(
            group="g", member_id="me", member_epoch=1, owned=first.assignment, client_id="tests"
        )
        again = await asked(channel, GROUPS_HEARTBEAT, staying)
        assert (again.member_epoch, again.HasField("assignment")) == (1, False)
        offsets = [
            pb.CommittedOffset(topic="t", partition=1, offset=7, leader_epoch=0, note="n"),
            pb.CommittedOffset(topic="t", partition=9, offset=7),
            pb.CommittedOffset(topic="t", partition=0, offset=7, topic_id=bytes(15) + b"x"),
        ]
        stored = await asked(
            channel,
            GROUPS_COMMIT_OFFSETS,
            pb.CommitOffsetsRequest(group="g", member_id="me", member_epoch=1, offsets=offsets),
        )
        names = [each.error.name for each in stored.results]
        assert names == ["", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"]
        found = await asked(channel, GROUPS_FETCH_OFFSETS, pb.FetchOffsetsRequest(group="g"))
        (one,) = found.results
        assert (one.offset.partition, one.offset.offset, one.offset.note) == (1, 7, "n")
        assert one.offset.HasField("leader_epoch")
        assert one.offset.commit_ms > 0
        leaving = pb.GroupHeartbeatRequest(group="g", member_id="me", member_epoch=-1)
        assert (await asked(channel, GROUPS_HEARTBEAT, leaving)).member_epoch == -1
        with pytest.raises(UnknownMember):
            await asked(channel, GROUPS_HEARTBEAT, staying)

    on_a_node(folder, main)


def test_empty_group_can_be_reset_and_deleted(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        channel = kafka.channel
        reset = pb.CommitOffsetsRequest(
            group="g", offsets=[pb.CommittedOffset(topic="t", partition=0, offset=3)]
        )
        assert not (await asked(channel, GROUPS_COMMIT_OFFSETS, reset)).results[0].error.name
        part = pb.GroupPartition(topic="t", partition=0)
        named = pb.FetchOffsetsRequest(
            group="g", partitions=[pb.GroupPartition(topic="t", partition=1), part]
        )
        found = await asked(channel, GROUPS_FETCH_OFFSETS, named)
        assert [(each.offset.partition, each.offset.offset) for each in found.results] == [
            (1, -1),
            (0, 3),
        ]
        forget = pb.DeleteOffsetsRequest(group="g", partitions=[part])
        done = await asked(channel, GROUPS_DELETE_OFFSETS, forget)
        assert [each.name for each in done.errors] == [""]
        await asked(channel, GROUPS_COMMIT_OFFSETS, reset)
        delete = pb.DeleteGroupsRequest(groups=["nope", "g"])
        gone = await asked(channel, GROUPS_DELETE, delete)
        assert [each.name for each in gone.errors] == ["GROUP_ID_NOT_FOUND", ""]
        assert not (await asked(channel, GROUPS_LIST, pb.ListGroupsRequest())).groups
        with pytest.raises(GroupNotFound):
            await asked(channel, GROUPS_DELETE_OFFSETS, forget)

    on_a_node(folder, main)


def test_both_front_ends_return_the_same_groups_members_and_offsets(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        channel, client = kafka.channel, kafka.client
        member = await calls.alone(client)  # a classic member in "g" that owns partition 0
        await asked(channel, GROUPS_HEARTBEAT, joining("other"))
        topic_id = b""
        member_fields = {"member_id": member.member_id, "generation_id_or_member_epoch": 1}
        assert await calls.committed(client, 9, topic_id, (0, 5), **member_fields) == [(0, 0)]

        listed = await asked(channel, GROUPS_LIST, pb.ListGroupsRequest())
        listing = [(each.group, each.type, each.state) for each in listed.groups]
        assert listing == [("g", "classic", "Stable"), ("other", "consumer", "Stable")]
        there = await client.ask(calls.LIST_GROUPS, 5, states_filter=(), types_filter=())
        assert [(each.group_id, each.group_type.lower()) for each in there.groups] == [
            (group, kind) for group, kind, _ in listing
        ]
        found = await asked(channel, GROUPS_FETCH_OFFSETS, pb.FetchOffsetsRequest(group="g"))
        assert [(each.offset.partition, each.offset.offset) for each in found.results] == [(0, 5)]
        described = await asked(
            channel, GROUPS_DESCRIBE, pb.DescribeGroupsRequest(groups=["other", "nope", "g"])
        )
        other, nope, classic = described.groups
        assert nope.error.name == "GROUP_ID_NOT_FOUND"
        assert [each.member_id for each in other.members] == ["me"]
        assert places(other.members[0].target) == [("t", 0), ("t", 1)]
        (one,) = classic.members
        assert (one.member_id, one.is_classic, one.client_id) == (member.member_id, True, "raw")
        assert (places(one.owned), list(one.subscription.topics)) == ([("t", 0)], ["t"])
        only = await asked(channel, GROUPS_LIST, pb.ListGroupsRequest(types=["classic"]))
        assert [each.group for each in only.groups] == ["g"]

    on_a_node(folder, main)


def test_members_of_both_front_ends_share_one_group(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        channel, client = kafka.channel, kafka.client
        await asked(channel, GROUPS_HEARTBEAT, joining())
        kafka_member = {"group_id": "g", "member_id": "kafka", "rebalance_timeout": 10_000}
        joined = await client.ask(
            calls.CONSUMER_HEARTBEAT,
            1,
            **kafka_member,
            member_epoch=0,
            subscribed_topic_names=("t",),
            topic_partitions=(),
        )
        assert not joined.error_code
        ours = pb.GroupHeartbeatRequest(group="g", member_id="me", member_epoch=1)
        listing = await asked(channel, GROUPS_HEARTBEAT, ours)
        (kept,) = listing.assignment.partitions
        ours.owned.partitions.append(kept)  # the other partition is revoked
        assert (await asked(channel, GROUPS_HEARTBEAT, ours)).member_epoch == 2
        staying = {"rebalance_timeout": -1, "subscribed_topic_names": None}
        got = await client.ask(
            calls.CONSUMER_HEARTBEAT, 1, **{**kafka_member, **staying}, member_epoch=2
        )
        ((part,),) = [got.assignment.topic_partitions]
        assert {*part.partitions, kept.partition} == {0, 1}
        assert part.topic_id.bytes == kept.topic_id

    on_a_node(folder, main)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        (GROUPS_HEARTBEAT, pb.GroupHeartbeatRequest(group="g")),
        (GROUPS_HEARTBEAT, pb.GroupHeartbeatRequest(group="g", member_id="x" * 40_000)),
        (
            GROUPS_HEARTBEAT,
            pb.GroupHeartbeatRequest(group="g", member_id="m", rebalance_timeout_ms=-5),
        ),
        (
            GROUPS_HEARTBEAT,
            pb.GroupHeartbeatRequest(
                group="g",
                member_id="m",
                owned=pb.GroupPartitions(partitions=[pb.GroupPartition(topic_id=b"short")]),
            ),
        ),
        (GROUPS_COMMIT_OFFSETS, pb.CommitOffsetsRequest(group="g")),
        (
            GROUPS_COMMIT_OFFSETS,
            pb.CommitOffsetsRequest(
                group="g", offsets=[pb.CommittedOffset(topic="t", partition=0, offset=-1)]
            ),
        ),
        (GROUPS_DELETE_OFFSETS, pb.DeleteOffsetsRequest(group="g")),
        (GROUPS_DESCRIBE, pb.DescribeGroupsRequest()),
        (GROUPS_DELETE, pb.DeleteGroupsRequest(groups=["g", "g"])),
    ],
)
def test_invalid_request_is_refused_before_any_effect(
    folder: str, method: Method[Any, Any], request_: Message
) -> None:
    async def main(kafka: KafkaNode) -> None:
        with pytest.raises(InvalidRequest):
            await asked(kafka.channel, method, request_)

    on_a_node(folder, main)


# --- several brokers -----------------------------------------------------------------------------


@pytest.fixture
def play() -> Iterator[Play]:
    """Start nodes 1 to 3 with topic `t` of two partitions."""
    with cluster(brokers=3, combined=True, kafka=("{}:9092",)) as play:
        create(play, "t", (1, 2, 3), (2, 3, 1))
        yield play


def test_any_broker_serves_requests_about_any_group(play: Play) -> None:
    """Different brokers coordinate the groups, and each broker forwards for all of them."""
    names = [f"group {number}" for number in range(9)]

    async def main(runtime: Runtime) -> None:
        channels = [runtime.network.channel(f"n{node}:9094") for node in (1, 2, 3)]
        for number, name in enumerate(names):
            joined = await asked(channels[number % 3], GROUPS_HEARTBEAT, joining(name))
            assert places(joined.assignment.partitions) == [("t", 0), ("t", 1)]
        coordinators = set[int]()
        for channel in channels:
            listed = await asked(channel, GROUPS_LIST, pb.ListGroupsRequest())
            assert not listed.errors
            assert [each.group for each in listed.groups] == names
            described = await asked(
                channel, GROUPS_DESCRIBE, pb.DescribeGroupsRequest(groups=names)
            )
            assert [each.listing.group for each in described.groups] == names
            assert [each.members[0].member_id for each in described.groups] == ["me"] * len(names)
            assert {each.members[0].host for each in described.groups} == {
                described.groups[0].members[0].host
            }
            coordinators.update(each.listing.coordinator for each in described.groups)
        assert coordinators == {1, 2, 3}
        for channel in channels:
            await channel.close()

    play.ask(main)
