"""A follower's processing of the results of one partition, on a simulated node."""

from collections.abc import Callable

import pytest
from tests.kit.replica_cluster import Cluster, world

from quorumlog.broker.shell.replica import Replica
from quorumlog.broker.shell.replication.follower import FollowedPartition
from quorumlog.proto import errors_pb2
from quorumlog.proto import replica_pb2 as pb
from quorumlog.records import Record, encode_batch
from quorumlog.records.batch import BatchHeader, parse_header, stamp
from quorumlog.runtime import Runtime

Check = Callable[[FollowedPartition, pb.FollowResult], None]


def batch(replica: Replica, value: bytes) -> memoryview:
    """Build the next batch of the leader."""
    raw = encode_batch([Record(0, 1, None, value)])
    header: BatchHeader = parse_header(raw)
    epoch = replica.partition.leader_epoch
    prefix = stamp(header, base_offset=replica.log.log_end_offset, leader_epoch=epoch)
    return memoryview(prefix + raw[len(prefix) :])


def on_follower(check: Check, **configs: str) -> None:
    """Call `check` with the partition on node 2 and a result of its leader without records."""
    with world() as sim:
        cluster = Cluster(sim)
        cluster.start()
        cluster.create(1, 2, **configs)
        cluster.send(b"a")
        cluster.everywhere(1, 2)
        replica, directory = cluster.replica(2, "t"), cluster.nodes[2].parts.directory
        assert directory is not None
        result = pb.FollowResult(
            topic_id=replica.topic_id,
            leader_epoch=replica.partition.leader_epoch,
            high_watermark=replica.log.log_end_offset,
        )

        async def main(runtime: Runtime) -> None:
            async with runtime.tasks.scope("test") as scope:
                followed = FollowedPartition(
                    replica, runtime.clock, scope, directory, lambda _: None
                )
                check(followed, result)
                followed.unfollow()

        task = cluster.machine(2).attach(main, name="follow")
        cluster.until(task.done)
        task.result()


def test_small_records_are_in_the_log_when_the_call_returns() -> None:
    def check(followed: FollowedPartition, result: pb.FollowResult) -> None:
        records = batch(followed.replica, b"b")
        assert followed.take(result, records) is None
        assert (followed.delay_ms, followed.received_bytes) == (0, len(records))
        assert followed.replica.log.log_end_offset == 2
        assert not followed.is_unchanged, "the leader waits for the acknowledgement"

    on_follower(check)


def test_the_rest_of_an_answer_follows_its_usual_batches() -> None:
    """The producer of the second batch is new, so the queue creates its state."""

    def check(followed: FollowedPartition, result: pb.FollowResult) -> None:
        replica, epoch = followed.replica, followed.replica.partition.leader_epoch
        usual = batch(replica, b"b")
        raw = encode_batch(
            [Record(0, 1, None, b"c")], producer_id=7, producer_epoch=0, base_sequence=0
        )
        prefix = stamp(parse_header(raw), base_offset=2, leader_epoch=epoch)
        before = replica.figures.replicated_bytes
        records = memoryview(bytes(usual) + prefix + raw[len(prefix) :])
        assert followed.take(result, records) is None
        assert (replica.log.log_end_offset, followed.delay_ms) == (3, 0)
        assert replica.figures.replicated_bytes - before == len(records)
        entry = replica.log.producers.states.entry(7)
        assert entry is not None
        assert entry.next_sequence == 1

    on_follower(check)


def test_large_records_of_an_fsync_log_are_queued() -> None:
    def check(followed: FollowedPartition, result: pb.FollowResult) -> None:
        work = followed.take(result, batch(followed.replica, bytes(200_000)))
        assert work is not None
        assert followed.replica.log.log_end_offset == 1
        work.close()  # type: ignore[attr-defined]

    on_follower(check, flush_policy="fsync")


def test_damaged_records_are_not_stored_and_delay_the_next_fetch() -> None:
    def check(followed: FollowedPartition, result: pb.FollowResult) -> None:
        records = bytearray(batch(followed.replica, b"b"))
        records[-1] ^= 1
        assert followed.take(result, memoryview(records)) is None
        assert followed.delay_ms > 0
        assert followed.replica.log.log_end_offset == 1
        assert not followed.is_unchanged

    on_follower(check)


@pytest.mark.parametrize(
    ("fields", "is_unchanged"),
    [
        ({}, True),
        ({"leader_epoch": 99}, False),
        ({"diverging": pb.EpochEnd(epoch=0, end_offset=1)}, False),
        ({"error": errors_pb2.Error(name="UNKNOWN_SERVER_ERROR")}, False),
    ],
)
def test_only_an_applied_result_without_records_needs_no_request(
    fields: dict[str, object], is_unchanged: bool
) -> None:
    """The leader waits for a request after it sent records, a divergence or an error."""

    def check(followed: FollowedPartition, result: pb.FollowResult) -> None:
        result.MergeFrom(pb.FollowResult(**fields))  # type: ignore[arg-type]
        assert followed.take(result, memoryview(b"")) is None
        assert followed.is_unchanged is is_unchanged

    on_follower(check)
