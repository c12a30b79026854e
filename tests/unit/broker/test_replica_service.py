"""Responses of a leader to followers and tools, and its refusals, on simulated nodes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from tests.kit.replica_cluster import CLUSTER, Cluster, world

from quorumlog.broker.replication_frames import (
    ReplicationFrame,
    ReplicationFrameFormat,
    encode_frame,
)
from quorumlog.broker.shell.replication.leader import (
    HIGH_WATERMARK_DELAY_MS,
    SHARED_BYTES_MAX,
    SharedReads,
)
from quorumlog.errors import (
    FencedLeaderEpoch,
    InconsistentClusterId,
    InvalidRequest,
    QuorumlogError,
    StaleBrokerEpoch,
    TimedOut,
    UnknownTopicOrPartition,
)
from quorumlog.ids import Epoch, Offset
from quorumlog.proto import replica_pb2 as pb
from quorumlog.runtime import Runtime
from quorumlog.runtime.error_detail import decode_error
from quorumlog.runtime.frame_stream import FrameReader, FrameStream, open_stream
from quorumlog.services import REPLICA_ENDPOINT, REPLICA_EPOCH_END_OFFSETS
from quorumlog.simulation import SimWorld

T = TypeVar("T")


def led_by_one(sim: SimWorld, *replicas: int) -> Cluster:
    cluster = Cluster(sim)
    cluster.start()
    cluster.create(*(replicas or (1, 2)))
    return cluster


def ask(cluster: Cluster, work: Callable[[Runtime], Awaitable[T]]) -> T:
    """Call node 1 as a client that is not a broker."""
    task = cluster.world.node("stranger").spawn(work)  # type: ignore[arg-type]
    cluster.world.run_until(task, virtual_ms=20_000)
    result: T = task.result()
    return result


class Follower:
    """A replication stream to node 1 that the test drives by hand."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[pb.FollowResponse | QuorumlogError | None] = asyncio.Queue()
        self.records: list[bytes] = []
        self.stream: FrameStream[ReplicationFrame[pb.FollowResponse]]

    @classmethod
    async def connect(cls, runtime: Runtime) -> "Follower":
        channel = runtime.network.channel("n1:9093")
        request = pb.ReplicaEndpointRequest(cluster_id=CLUSTER, leader_id=1)
        endpoint = await channel.call(REPLICA_ENDPOINT, request, timeout_ms=5_000)
        follower = cls()
        follower.stream = await open_stream(
            runtime.network,
            f"n1:{endpoint.port}",
            FrameReader(ReplicationFrameFormat(pb.FollowResponse, is_unidentified=False)),
            take=follower.take,
            ended=follower.answers.put_nowait,
        )
        return follower

    def take(self, frame: ReplicationFrame[pb.FollowResponse]) -> None:
        self.records.append(bytes(frame.records))
        self.answers.put_nowait(frame.message)

    async def answer(self) -> pb.FollowResponse:
        """Return the next response. Raise the error that ended the stream."""
        found = await self.answers.get()
        if isinstance(found, QuorumlogError):
            raise found
        assert found is not None, "the leader closed the connection"
        return found


def hello(cluster: Cluster, *, broker_id: int = 3, leader_id: int = 1) -> pb.FollowRequest:
    """Return the first request of node 3, which has no records."""
    image = cluster.nodes[1].parts.publisher
    assert image is not None
    broker = image.image.broker(broker_id)
    return pb.FollowRequest(
        cluster_id=CLUSTER,
        broker_id=broker_id,
        broker_epoch=broker.epoch if broker is not None else 0,
        leader_id=leader_id,
        max_bytes=1 << 20,
    )


def partition(cluster: Cluster, **fields: int) -> pb.FollowPartition:
    replica = cluster.replica(1, "t")
    part = pb.FollowPartition(
        topic_id=replica.topic_id, last_epoch=-1, leader_epoch=replica.partition.leader_epoch
    )
    for name, value in fields.items():
        setattr(part, name, value)
    return part


def caught_up(cluster: Cluster) -> pb.FollowPartition:
    """Return the partition of a follower with all records of node 1."""
    log = cluster.replica(1, "t").log
    return partition(
        cluster,
        log_end_offset=log.log_end_offset,
        flushed_end_offset=log.log_end_offset,
        last_epoch=log.epochs.latest,
    )


def answered(cluster: Cluster, request: pb.FollowRequest) -> pb.FollowResponse:
    async def follow(runtime: Runtime) -> pb.FollowResponse:
        follower = await Follower.connect(runtime)
        follower.stream.send(encode_frame(request))
        return await follower.answer()

    return ask(cluster, follow)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"cluster_id": "d" * 22}, InconsistentClusterId, "the request is for"),
        ({"leader_id": 2}, InvalidRequest, "the request is for node 2"),
        ({"broker_id": 1}, InvalidRequest, "node 1 cannot follow node 1"),
        ({"broker_id": -1}, InvalidRequest, "node -1 cannot follow"),
    ],
)
def test_request_for_another_broker_or_cluster_is_refused(
    change: dict[str, str | int], error: type[QuorumlogError], says: str
) -> None:
    with world() as sim:
        cluster = led_by_one(sim)
        request = hello(cluster)
        for name, value in change.items():
            setattr(request, name, value)
        with pytest.raises(error, match=says):
            answered(cluster, request)


def test_old_broker_epoch_is_refused() -> None:
    """KIP-903: its records may be lost with the disk that the current process has."""
    with world() as sim:
        cluster = led_by_one(sim, 1, 3)
        request = hello(cluster)
        request.broker_epoch -= 1
        request.partitions.append(partition(cluster))
        with pytest.raises(StaleBrokerEpoch):
            answered(cluster, request)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"leader_epoch": -1}, FencedLeaderEpoch),
        ({"partition": 7}, UnknownTopicOrPartition),
        ({}, InvalidRequest),
    ],
)
def test_partition_that_cannot_be_followed_has_its_error_and_the_stream_continues(
    fields: dict[str, int], error: type[QuorumlogError]
) -> None:
    """The last partition: node 3 is no replica of it."""
    with world() as sim:
        cluster = led_by_one(sim)
        request = hello(cluster)
        request.partitions.append(partition(cluster, **fields))
        (result,) = answered(cluster, request).results
        assert isinstance(decode_error(result.error), error)


def test_request_without_new_records_is_answered_after_its_wait() -> None:
    with world() as sim:
        cluster = led_by_one(sim)
        request = hello(cluster)
        request.max_wait_ms = 700
        begun_ms = sim.now_ms()
        assert len(answered(cluster, request).results) == 0
        assert 700 <= sim.now_ms() - begun_ms < 900


def test_a_high_watermark_without_records_is_sent_after_its_delay() -> None:
    with world() as sim:
        cluster = led_by_one(sim, 1, 3)
        cluster.send(b"a", b"b")
        cluster.crash(3)
        request = hello(cluster)
        request.max_wait_ms = 700
        request.partitions.append(caught_up(cluster))
        begun_ms = sim.now_ms()
        (result,) = answered(cluster, request).results
        assert (result.high_watermark, result.records_len) == (2, 0)
        assert HIGH_WATERMARK_DELAY_MS <= sim.now_ms() - begun_ms < 350


def test_a_high_watermark_whose_delay_is_over_is_sent_at_once() -> None:
    with world() as sim:
        cluster = led_by_one(sim, 1, 3)
        cluster.send(b"a", b"b")
        cluster.crash(3)
        report = hello(cluster)
        report.max_bytes = 0
        report.partitions.append(caught_up(cluster))

        async def follow(runtime: Runtime) -> pb.FollowResponse:
            follower = await Follower.connect(runtime)
            follower.stream.send(encode_frame(report))
            await asyncio.sleep(0.3)
            follower.stream.send(encode_frame(pb.FollowRequest(max_wait_ms=700, max_bytes=1000)))
            begun_ms = sim.now_ms()
            answer = await follower.answer()
            assert sim.now_ms() - begun_ms < 350
            return answer

        (result,) = ask(cluster, follow).results
        assert (result.high_watermark, result.records_len) == (2, 0)


def test_a_read_is_shared_at_its_offset_and_log_end_in_its_leader_epoch() -> None:
    with world() as sim:
        cluster = led_by_one(sim)
        cluster.send(b"a", b"b")
        replica, shared = cluster.replica(1, "t"), SharedReads()
        shared.keep(replica, Offset(1), b"batch")
        assert shared.find(replica, Offset(1), 5) == b"batch"
        assert shared.find(replica, Offset(1), 4) is None
        assert shared.find(replica, Offset(0), 5) is None
        replica.partition.leader_epoch = Epoch(replica.partition.leader_epoch + 1)
        assert shared.find(replica, Offset(1), 5) is None
        replica.partition.leader_epoch = Epoch(replica.partition.leader_epoch - 1)
        cluster.append(1, "t", b"c")
        cluster.until(lambda: replica.log.log_end_offset == 3)
        assert shared.find(replica, Offset(1), 5) is None


def test_shared_reads_have_a_limit_in_bytes() -> None:
    with world() as sim:
        cluster = led_by_one(sim)
        ours, theirs, shared = cluster.replica(1, "t"), cluster.replica(2, "t"), SharedReads()
        shared.keep(ours, Offset(0), b"a")
        shared.keep(theirs, Offset(0), bytes(SHARED_BYTES_MAX))
        assert shared.find(ours, Offset(0), 1) is None
        assert shared.find(theirs, Offset(0), SHARED_BYTES_MAX) is not None
        shared.keep(ours, Offset(0), b"b")
        assert shared.find(theirs, Offset(0), SHARED_BYTES_MAX) is None
        assert shared.find(ours, Offset(0), 1) == b"b"


def test_each_request_is_answered_after_its_own_wait() -> None:
    with world() as sim:
        cluster = led_by_one(sim)
        first = hello(cluster)
        first.max_wait_ms = 600

        async def follow(runtime: Runtime) -> list[int]:
            follower = await Follower.connect(runtime)
            waits = []
            for request in (first, pb.FollowRequest(max_bytes=1, max_wait_ms=60_000)):
                follower.stream.send(encode_frame(request))
                await asyncio.sleep(0.1)
            for max_wait_ms in (200, 1_500):
                follower.stream.send(
                    encode_frame(pb.FollowRequest(max_bytes=1, max_wait_ms=max_wait_ms))
                )
                begun_ms = sim.now_ms()
                await follower.answer()
                waits.append(sim.now_ms() - begun_ms)
            return waits

        shorter, longer = ask(cluster, follow)
        assert 200 <= shorter < 500
        assert 1_500 <= longer < 1_800


def test_a_newer_stream_of_a_follower_ends_the_older_one() -> None:
    with world() as sim:
        cluster = led_by_one(sim)
        request = hello(cluster)

        async def twice(runtime: Runtime) -> None:
            first = await Follower.connect(runtime)
            first.stream.send(encode_frame(request))
            assert await first.answer() is not None
            second = await Follower.connect(runtime)
            second.stream.send(encode_frame(request))
            assert await second.answer() is not None
            with pytest.raises(StaleBrokerEpoch, match="newer stream"):
                await first.answer()

        ask(cluster, twice)


def test_full_response_continues_with_the_next_partition() -> None:
    with world() as sim:
        cluster = led_by_one(sim, 1, 3)
        cluster.crash(3)
        for _ in range(3):
            cluster.append(1, "t", b"x" * 1_000)
        cluster.until(lambda: cluster.ends("t")[1] == 3)
        request = hello(cluster)
        request.max_bytes = 1_500
        request.partitions.append(partition(cluster))
        (result,) = answered(cluster, request).results
        assert 1_000 < result.records_len < 1_500
        assert (result.high_watermark, result.log_start_offset) == (0, 0)


def test_ends_of_leader_epochs_are_returned_for_led_partitions() -> None:
    with world() as sim:
        cluster = led_by_one(sim)
        cluster.send(b"a", b"b")
        replica = cluster.replica(1, "t")
        epoch = replica.partition.leader_epoch

        async def end_offsets(runtime: Runtime) -> pb.EpochEndOffsetsResponse:
            channel = runtime.network.channel("n1:9093")
            request = pb.EpochEndOffsetsRequest(cluster_id=CLUSTER)
            for partition, asked in ((0, epoch), (0, epoch + 1), (9, epoch)):
                request.partitions.add(
                    topic_id=replica.topic_id, partition=partition, leader_epoch=epoch, epoch=asked
                )
            return await channel.call(REPLICA_EPOCH_END_OFFSETS, request, timeout_ms=5_000)

        known, newer, unknown = ask(cluster, end_offsets).results
        assert (known.epoch, known.end_offset) == (epoch, 2)
        assert (newer.epoch, newer.end_offset) == (-1, -1)
        assert unknown.error.name == "UNKNOWN_TOPIC_ID"


def test_silent_connection_is_closed() -> None:
    with world() as sim:
        cluster = led_by_one(sim)

        async def say_nothing(runtime: Runtime) -> None:
            follower = await Follower.connect(runtime)
            with pytest.raises(TimedOut, match="the stream was not identified in time"):
                await follower.answer()

        ask(cluster, say_nothing)


def test_port_is_returned_for_this_broker_of_this_cluster_only() -> None:
    with world() as sim:
        cluster = led_by_one(sim)

        async def wrong(runtime: Runtime) -> None:
            channel = runtime.network.channel("n1:9093")
            for request, error in (
                (pb.ReplicaEndpointRequest(cluster_id="x", leader_id=1), InconsistentClusterId),
                (pb.ReplicaEndpointRequest(cluster_id=CLUSTER, leader_id=2), InvalidRequest),
            ):
                with pytest.raises(error):
                    await channel.call(REPLICA_ENDPOINT, request, timeout_ms=1_000)

        ask(cluster, wrong)
