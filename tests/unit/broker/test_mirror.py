"""Mirror appends store the batches of another cluster at their offsets."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.broker import Acks
from quorumlog.broker.partition_follower import divergence
from quorumlog.broker.shell.mirror import MirrorOutcome, MirrorSpec, MirrorWriter, has_gap
from quorumlog.errors import (
    CorruptionError,
    DiskFull,
    InvalidRecord,
    MirrorOutOfPlace,
    MirrorTopic,
    NotMirror,
)
from quorumlog.proto import metadata_records_pb2 as pb
from quorumlog.records import Record, decode_all, encode_batch, iterate_batches
from quorumlog.records.batch import BATCHES_MAX, check_crc, without_records
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode
from quorumlog.storage import DirectoryConfig

from .lone_broker import ME, OTHER, LoneBroker, T, broker, simulate, topic

SOURCE = "cluster-a/topic-id"


def batch(*offsets: int, epoch: int = 7) -> bytes:
    """Build a batch of a source: epoch 7 there, consecutive offsets."""
    first = offsets[0]
    records = [Record(offset, 1000 + offset, b"k", b"v%d" % offset) for offset in offsets]
    return encode_batch(records, base_offset=first, leader_epoch=epoch)


def mirror(*, source: str = SOURCE) -> list[pb.MetadataRecord]:
    return topic("t", T, mirror_source=source)


def promotion() -> pb.MetadataRecord:
    return pb.MetadataRecord(
        topic_config=pb.TopicConfigRecord(topic_id=T, name="mirror.source", value=None)
    )


async def copy(
    b: LoneBroker, records: bytes = b"", *, end: int = 0, source: str = SOURCE
) -> MirrorOutcome:
    mirroring = MirrorWriter(b.runtime.clock, b.directory, b.replicas.hosted.replica_of)
    spec = MirrorSpec(topic="t", partition=0, source=source, log_end_offset=end, records=records)
    return await mirroring.append(spec, b.runtime.clock.now_ms() + 10_000)


async def stored(b: LoneBroker, offset: int = 0) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    while True:
        (outcome,) = await b.fetch(offset=offset)
        assert outcome.error is None, outcome
        if not outcome.records:
            return found
        found += [(record.offset, record.value) for record in decode_all(outcome.records)]
        offset = outcome.next_offset


def test_copy_has_the_offsets_of_its_source_and_the_epoch_of_this_leader() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*mirror())
            outcome = await copy(b, batch(0, 1) + batch(2))
            assert (outcome.error, outcome.log_end_offset, outcome.high_watermark) == (None, 3, 3)
            assert await stored(b) == [(0, b"v0"), (1, b"v1"), (2, b"v2")]
            (outcome_read,) = await b.fetch()
            assert {header.leader_epoch for _, header in iterate_batches(outcome_read.records)} == {
                0
            }

    simulate(main)


def test_producers_are_refused_until_the_promotion_and_mirrors_after_it() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*mirror())
            await copy(b, batch(0))
            for acks in Acks:
                with pytest.raises(MirrorTopic, match="quorumlog mirror promote t"):
                    await b.append(b"mine", acks=acks)
            with pytest.raises(MirrorTopic):
                b.replicas.writer.submit_nowait(
                    "t", 0, encode_batch([Record(0, 1, None, b"x")]), Acks.ALL
                )
            b.apply(promotion())
            assert await b.append(b"mine") == 1
            outcome = await copy(b, batch(2), end=2)
            assert isinstance(outcome.error, NotMirror)
            assert await stored(b) == [(0, b"v0"), (1, b"mine")]

    simulate(main)


def test_a_topic_that_is_no_mirror_or_one_of_another_source_takes_no_copies() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*mirror(source="cluster-b"))
            outcome = await copy(b, batch(0))
            assert isinstance(outcome.error, NotMirror)
            assert "cluster-b, not cluster-a" in str(outcome.error)

    simulate(main)


@pytest.mark.parametrize("end", [0, 1, 3, 100])
def test_batches_for_another_log_end_are_refused_with_the_actual_end(end: int) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*mirror())
            await copy(b, batch(0, 1))
            outcome = await copy(b, batch(end), end=end)
            assert isinstance(outcome.error, MirrorOutOfPlace)
            assert outcome.log_end_offset == 2
            assert await stored(b) == [(0, b"v0"), (1, b"v1")]

    simulate(main)


def test_unacknowledged_records_before_a_gap_and_a_new_epoch_are_truncated() -> None:
    """Its unacknowledged offsets may have been compacted at the source since. The end of its epoch
    shows them, not only the start of the next batch."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T, replicas=(ME, OTHER), isr=(ME,), mirror_source=SOURCE))
            await copy(b, batch(0, 1))
            lead_again(b)
            outcome = await copy(b, batch(8, 9) + batch(20), end=2)
            assert (outcome.error, outcome.log_end_offset) == (None, 21)
            log = b.replicas.hosted.replica_of("t", 0).log
            assert log.epochs.latest == 2
            parted = divergence(
                0,
                10,
                end_offset_for=lambda epoch: log.epochs.end_offset_for(epoch, log.log_end_offset),
                latest_epoch=log.epochs.latest,
                leader_start_offset=0,
                leader_end_offset=21,
            )
            assert parted == (0, 2), "a log of epoch 0 with 10 offsets is truncated at 2"
            (outcome_read,) = await b.fetch(offset=2)
            first, *rest = [header for _, header in iterate_batches(outcome_read.records)]
            assert (first.base_offset, first.next_offset, first.leader_epoch) == (2, 8, 2)
            assert [header.base_offset for header in rest] == [8, 20], "later gaps are valid"
            kept = await stored(b)
            assert [offset for offset, _ in kept] == [0, 1, 8, 9, 20]

    simulate(main)


def lead_again(b: LoneBroker) -> None:
    """Let another node lead, and then this one in epoch 2."""
    for leader, isr in ((OTHER, (ME, OTHER)), (ME, (ME,))):
        change = pb.PartitionChangeRecord(topic_id=T, partition=0, leader=leader)
        change.isr.ids.extend(isr)
        b.apply(pb.MetadataRecord(partition_change=change))


@given(st.integers(0, 2**62), st.integers(1, 2**31 - 1))
def test_empty_batch_spans_its_offsets_without_records(first: int, count: int) -> None:
    nothing = without_records(first, first + count)
    ((_, header),) = iterate_batches(nothing)
    check_crc(nothing, 0, header)
    assert (header.base_offset, header.next_offset) == (first, first + count)
    assert decode_all(nothing) == []
    assert not has_gap(nothing, first)


def test_gaps_of_the_source_stay_and_are_no_damage_after_a_crash() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*mirror())
            await copy(b, batch(5))
            await copy(b, batch(100) + batch(107) + batch(1_000), end=6)
            log = b.replicas.hosted.replica_of("t", 0).log
            assert log.was_compacted
            assert log.gaps_below is not None, "partition.metadata has the gaps"
            kept = await stored(b)
            assert kept == [(5, b"v5"), (100, b"v100"), (107, b"v107"), (1_000, b"v1000")]

    simulate(main)


@pytest.mark.parametrize(
    "bad",
    [
        batch(3) + batch(3),
        batch(3) + batch(1),
        encode_batch([Record(0, 1, None, b"x")], producer_id=4, producer_epoch=0, base_sequence=0),
    ],
)
def test_invalid_mirror_requests_are_refused(bad: bytes) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*mirror())
            outcome = await copy(b, bad)
            assert isinstance(outcome.error, InvalidRecord)
            assert (outcome.log_end_offset, await stored(b)) == (0, [])

    simulate(main)


def test_batch_damaged_in_transit_is_refused() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*mirror())
            torn = bytearray(batch(0))
            torn[-1] ^= 1
            outcome = await copy(b, bytes(torn))
            assert isinstance(outcome.error, CorruptionError)
            outcome = await copy(b, batch(0)[:-1])
            assert isinstance(outcome.error, CorruptionError)
            assert outcome.log_end_offset == 0

    simulate(main)


def test_mirror_appends_are_refused_below_the_reserve_of_free_space() -> None:
    """A mirror is a client: it must not use the space that the node itself needs."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        node.device.disk.capacity_bytes = 64 << 20
        async with broker(runtime, config=DirectoryConfig(reserve_bytes=1 << 20)) as b:
            b.apply(*mirror())
            await copy(b, batch(0))
            filler = runtime.files.open("/filler", create=True)
            filler.write(0, [bytes((63 << 20) + (1 << 19))])
            b.directory.space.check()
            outcome = await copy(b, batch(1), end=1)
            assert isinstance(outcome.error, DiskFull)
            assert outcome.log_end_offset == 1
            runtime.files.remove("/filler")
            b.directory.space.check()
            outcome = await copy(b, batch(1), end=1)
            assert (outcome.error, outcome.log_end_offset) == (None, 2)

    simulate(main)


Steps = Sequence[tuple[int, int, int]]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(-3, 3)), min_size=1, max_size=12
    )
)
def test_copy_equals_the_source_under_duplicate_late_or_early_batches(steps: Steps) -> None:
    """Each step: a gap before a batch of some records, and the sender's error about the log end."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*mirror())
            source: list[tuple[int, bytes | None]] = []
            end = 0
            for gap, count, wrong in steps:
                offsets = range(end + gap, end + gap + count)
                said = max(0, end + wrong)
                outcome = await copy(b, batch(*offsets), end=said)
                if said != end:
                    assert outcome.error is not None
                    assert outcome.log_end_offset == end
                    outcome = await copy(b, batch(*offsets), end=outcome.log_end_offset)
                assert outcome.error is None
                source += [(offset, b"v%d" % offset) for offset in offsets]
                end = offsets[-1] + 1
                again = await copy(b, batch(*offsets), end=end)
                assert isinstance(again.error, InvalidRecord | MirrorOutOfPlace)
                assert again.log_end_offset == outcome.log_end_offset == end
            assert await stored(b) == source

    simulate(main)


def test_gaps_are_detected_before_and_between_batches_only() -> None:
    assert not has_gap(batch(4, 5) + batch(6), 4)
    with pytest.raises(InvalidRecord, match="more than 1000 batches"):
        has_gap(b"".join(without_records(at, at + 1) for at in range(BATCHES_MAX + 1)), 0)
    assert has_gap(batch(4), 3)
    assert has_gap(batch(4) + batch(6), 4)
