"""ListOffsets at a leader whose high watermark is behind (KIP-207)."""

import pytest

from quorumlog.broker import LATEST, MAX_TIMESTAMP, Acks, OffsetOutcome, OffsetSpec
from quorumlog.errors import OffsetNotAvailable
from quorumlog.ids import Offset
from quorumlog.proto import metadata_records_pb2 as pb
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode
from quorumlog.storage import AppendOrigin

from .lone_broker import ME, OTHER, LoneBroker, T, broker, simulate, topic


async def new_leader(b: LoneBroker) -> None:
    """Lead a log of records at times 0, 1 and 2, all acknowledged by the previous leader.

    Only the first is below the high watermark.
    """
    b.apply(*topic("t", T, replicas=(ME, OTHER)))
    for time_ms in range(3):
        batch = encode_batch([Record(0, time_ms, None, b"v")])
        append = await b.replicas.writer.submit("t", 0, batch, acks=Acks.LEADER, leader_epoch=None)
        await append.wait_until(b.runtime.clock, b.runtime.clock.now_ms() + 1_000)
    partition = b.replicas.hosted.local_replica("t", 0).partition
    for leader in (OTHER, ME):
        change = pb.PartitionChangeRecord(topic_id=T, partition=0, leader=leader)
        b.apply(pb.MetadataRecord(partition_change=change))
        if leader == OTHER:
            partition.high_watermark = Offset(1)
    await b.replicas.hosted.local_replica("t", 0).opened()
    assert partition.is_leader
    assert partition.high_watermark == 1


async def offset(b: LoneBroker, time_ms: int, *, committed_only: bool = False) -> OffsetOutcome:
    spec = OffsetSpec("t", 0, time_ms, committed_only=committed_only)
    (outcome,) = await b.replicas.reader.list_offsets([spec])
    return outcome


@pytest.mark.parametrize("time_ms", [1, 2, 3, LATEST, MAX_TIMESTAMP])
@pytest.mark.parametrize("committed_only", [False, True])
def test_offset_above_the_high_watermark_is_not_available_before_the_epochs_start_is_committed(
    time_ms: int, committed_only: bool
) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            await new_leader(b)
            outcome = await offset(b, time_ms, committed_only=committed_only)
            assert isinstance(outcome.error, OffsetNotAvailable)

    simulate(main)


def test_offset_below_the_high_watermark_is_known_at_once() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            await new_leader(b)
            outcome = await offset(b, 0)
            assert (outcome.error, outcome.offset, outcome.timestamp_ms) == (None, 0, 0)

    simulate(main)


def test_all_offsets_are_known_once_the_epochs_start_is_committed() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            await new_leader(b)
            change = pb.PartitionChangeRecord(topic_id=T, partition=0)
            change.isr.ids.append(ME)
            b.apply(pb.MetadataRecord(partition_change=change))
            found = [(await offset(b, time_ms)).offset for time_ms in (1, 3, LATEST, MAX_TIMESTAMP)]
            assert found == [1, -1, 3, 2]

    simulate(main)


def test_offset_by_time_of_committed_records_is_below_the_last_stable_offset() -> None:
    """As in Kafka: for such a reader a record of an open transaction does not exist yet."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T))
            log = await b.replicas.hosted.local_replica("t", 0).opened()
            await b.append(b"plain")
            records = encode_batch(
                [Record(0, 5, None, b"v")],
                producer_id=7,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
            await b.directory.append(
                log, records, leader_epoch=0, origin=AppendOrigin.INTERNAL, flush=True
            )
            assert (log.high_watermark, log.last_stable_offset) == (2, 1)
            assert (await offset(b, 5)).offset == 1
            assert (await offset(b, 5, committed_only=True)).offset == -1

    simulate(main)
