"""Detection of divergence between a copy and its source."""

import struct

import pytest

from quorumlog.clients.log import AsyncLog
from quorumlog.clients.mirror import Target
from quorumlog.clients.mirror.batches import Divergence, find_divergence, overlap, prepare
from quorumlog.clients.mirror.target import CopyChunk
from quorumlog.errors import CorruptionError
from quorumlog.records import Record, decode_all, encode_batch, iterate_batches
from quorumlog.records.batch import BATCHES_MAX
from quorumlog.records.checksum import crc32c

from .clusters import Clusters, contents


def theirs(*offsets: int, epoch: int, value: bytes = b"v") -> bytes:
    """Build a batch as the source has it."""
    records = [Record(offset, 1, b"k", value) for offset in offsets]
    return encode_batch(
        records,
        base_offset=offsets[0],
        leader_epoch=epoch,
        producer_id=4,
        producer_epoch=0,
        base_sequence=9,
        keep_offsets=True,
    )


def copied(*offsets: int, epoch: int, value: bytes = b"v") -> bytes:
    """Return the same batch as in a copy."""
    return prepare(theirs(*offsets, epoch=epoch, value=value), offsets[0]).records


def test_copied_batch_has_the_source_epoch_and_no_producer() -> None:
    sent = prepare(theirs(0, 1, epoch=7) + theirs(2, 3, epoch=8), 1)
    found = [
        (head.base_offset, head.producer_id, head.producer_epoch, head.base_sequence)
        for _, head in iterate_batches(sent.records)
    ]
    assert found == [(1, -1, -1, 7), (2, -1, -1, 8)]
    assert [record.offset for record in decode_all(sent.records)] == [1, 2, 3]


def test_a_copy_continues_after_as_many_batches_as_an_append_may_have() -> None:
    batches = b"".join(theirs(at, epoch=7) for at in range(BATCHES_MAX + 2))
    sent = prepare(batches, 1)
    assert len(list(iterate_batches(sent.records))) == BATCHES_MAX
    assert (sent.next_offset, sent.end_offset) == (BATCHES_MAX + 1, BATCHES_MAX + 1)
    assert prepare(batches, sent.next_offset).next_offset == BATCHES_MAX + 2


@pytest.mark.parametrize("position", [30, 47, 62, -1])
def test_damaged_batch_gets_no_new_checksum(position: int) -> None:
    """The copy removes the producer, which the checksum covers. A new checksum must not hide
    damage."""
    damaged = bytearray(theirs(0, 1, epoch=7))
    damaged[position] ^= 0x10
    with pytest.raises(CorruptionError, match="CRC"):
        prepare(bytes(damaged), 0)


def test_shortened_batch_ends_at_its_last_record() -> None:
    """Compaction removed its last record, but the batch still spans that offset."""
    batch = bytearray(theirs(0, 1, 2, epoch=7))
    struct.pack_into(">i", batch, 23, 3)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    whole, cut = prepare(bytes(batch), 0), prepare(bytes(batch), 1)
    assert (whole.next_offset, whole.end_offset) == (4, 4)
    assert (cut.next_offset, cut.end_offset) == (4, 3), "the copy ends there once it has the batch"
    nothing = prepare(bytes(batch), 3)
    assert (nothing.next_offset, nothing.end_offset, nothing.records) == (4, 3, b"")


@pytest.mark.parametrize(
    ("source", "where"),
    [
        (theirs(4, 5, 6, epoch=3), None),
        (theirs(4, epoch=3) + theirs(5, 6, epoch=3), None),
        (theirs(4, 5, 6, epoch=4), 4),
        (theirs(6, 7, epoch=5), 6),
        (theirs(7, epoch=3), None),
        (theirs(7, epoch=9), None),
        (theirs(7, epoch=2), 7),
        (theirs(1, epoch=3), None),
        (theirs(1, epoch=0), None),
        (theirs(1, epoch=4), 1),
        (theirs(4, 5, 6, epoch=-1), None),
    ],
)
def test_divergence_is_found_by_epochs_without_records(source: bytes, where: int | None) -> None:
    found = find_divergence(copied(4, 5, 6, epoch=3), source)
    assert (found and found.offset) == where
    assert find_divergence(theirs(4, 5, 6, epoch=3), source) is None, "a copy without stored epochs"


def test_divergence_is_found_by_records_first() -> None:
    found = find_divergence(copied(4, 5, epoch=3), theirs(5, epoch=4, value=b"w"))
    assert found == Divergence(5, "another record")


def test_batches_are_compared_from_their_first_common_offset() -> None:
    assert overlap(copied(4, 6, epoch=3), theirs(5, 9, epoch=3))
    assert not overlap(copied(4, 6, epoch=3), theirs(7, epoch=3))
    assert not overlap(copied(4, 6, epoch=3), b"")


def append(clusters: Clusters, *, to_source: bool, source: str, batches: bytes) -> None:
    """Append a batch to the copy, whatever the source has."""

    async def work(log: AsyncLog) -> None:
        await log.admin.create_topic("t", partitions=1, configs={"mirror.source": source})
        target = Target(log._connection)
        address = await target.leader(("t", 0))
        (done,) = await target.append(address, [CopyChunk(("t", 0), source, 0, [batches])])
        assert done.error is None

    (clusters.in_source if to_source else clusters.in_target)(work)


def test_equal_records_of_another_leader_epoch_count_as_divergence(
    clusters: Clusters,
) -> None:
    clusters.create("t")
    clusters.send("t", b"a", b"b")
    clusters.once()
    source = clusters.in_target(lambda log: log.admin.describe_topic("t")).configs["mirror.source"]
    clusters.in_target(lambda log: log.admin.delete_topic("t"))
    records = [
        Record(offset, time_ms, key, value)
        for offset, key, value, time_ms in contents(clusters.source, "t")
    ]
    batch = encode_batch(records, base_sequence=99)
    append(clusters, to_source=False, source=source, batches=batch)
    report = clusters.once()
    assert (report.diverged, report.records) == (1, 0)
    assert "another leader epoch" in report.problems[0]


def test_mirror_compares_across_compacted_ranges_of_the_source(clusters: Clusters) -> None:
    append(
        clusters,
        to_source=True,
        source="x/y",
        batches=theirs_plain(0, value=b"a") + theirs_plain(100),
    )
    clusters.once()
    source = clusters.in_target(lambda log: log.admin.describe_topic("t")).configs["mirror.source"]
    clusters.in_target(lambda log: log.admin.delete_topic("t"))
    batches = theirs_plain(0, value=b"other") + theirs_plain(50) + theirs_plain(60)
    append(clusters, to_source=False, source=source, batches=batches)
    report = clusters.once()
    assert report.diverged == 1
    assert "another record than the copy at offset 0" in report.problems[0]


def theirs_plain(offset: int, *, value: bytes = b"v") -> bytes:
    return encode_batch([Record(offset, 1, b"k", value)], base_offset=offset)
