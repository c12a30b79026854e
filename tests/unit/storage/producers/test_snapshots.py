"""The snapshot of a log's producers: Kafka's layout, this project's extension, and invalid
files."""

from struct import pack, unpack_from

import pytest
from crc32c import crc32c

from quorumlog.errors import CorruptionError
from quorumlog.records import MarkerType
from quorumlog.storage.producer_snapshot import (
    KEPT,
    ProducerSnapshot,
    SnapshotRetention,
    decode_snapshot,
    encode_snapshot,
    store_snapshot,
)
from quorumlog.storage.producer_state import ProducerLimits, ProducerStates, StoredBatch

from ..conftest import Place
from .producer_batches import START_MS, Producers, data

HOUR_MS = 3_600_000


def snapshot_of(producers: Producers) -> ProducerSnapshot:
    return ProducerSnapshot(
        end_offset=producers.end,
        entries=tuple(producers.states.entries()),
        unreplicated=tuple(producers.states.undecided.unreplicated()),
        age_ms=producers.states.age_ms,
    )


def busy() -> Producers:
    producers = Producers()
    for sequence in range(7):
        producers.now_ms += 500
        producers.write(data(2 * sequence, count=2, producer=4, epoch=3))
    producers.write(data(2**31 - 1, count=3, producer=5))
    producers.mark(MarkerType.COMMIT, producer=6, epoch=2, coordinator=9)
    producers.write(data(0, producer=8, txn=True))
    producers.mark(MarkerType.ABORT, producer=8, coordinator=9)
    producers.write(data(0, producer=7, txn=True))
    return producers


def test_snapshot_restores_all_producers() -> None:
    before = snapshot_of(busy())
    after = decode_snapshot(encode_snapshot(before), end_offset=before.end_offset)
    assert after == before


def test_restored_producers_continue_their_sequences() -> None:
    before = snapshot_of(busy())
    states = ProducerStates(ProducerLimits(), wall_ms=START_MS)
    states.load(
        before.entries,
        unreplicated=before.unreplicated,
        age_ms=before.age_ms,
        end_offset=before.end_offset,
    )
    states.check_invariants(before.end_offset)
    assert states.undecided.first_offset == before.end_offset - 1
    assert states.undecided.last_stable_offset(before.end_offset) < before.end_offset - 2


def test_first_part_has_the_layout_of_kafka() -> None:
    """Version, CRC-32C of the rest, count; id, epoch, last sequence, last offset, offset
    delta, timestamp, coordinator epoch, first offset of the open transaction."""
    producers = Producers()
    producers.end = 40
    producers.write(data(0, count=3, producer=9, epoch=2))
    producers.write(data(3, count=2, producer=9, epoch=2, txn=True))
    content = encode_snapshot(snapshot_of(producers))
    assert unpack_from(">hIi", content) == (1, crc32c(content[6:]), 1)
    assert unpack_from(">qhiqiqiq", content, 10) == (9, 2, 4, 44, 1, 1_000, -1, 43)


def test_snapshot_of_kafka_restores_the_last_batch_of_each_producer() -> None:
    rest = pack(">i", 2)
    rest += pack(">qhiqiqiq", 9, 2, 4, 44, 1, 1_000, -1, -1)
    rest += pack(">qhiqiqiq", 10, 0, -1, -1, 0, -1, 6, -1)
    content = pack(">hI", 1, crc32c(rest)) + rest
    (_, nine), (_, ten) = decode_snapshot(content).entries
    assert nine.batches == (StoredBatch(3, 4, 43, 44, 1_000),)
    assert (nine.epoch, nine.next_sequence, nine.transaction_start) == (2, 5, -1)
    assert (ten.batches, ten.next_sequence, ten.coordinator_epoch) == ((), -1, 6)


def test_any_flipped_byte_of_a_snapshot_is_detected() -> None:
    content = encode_snapshot(snapshot_of(busy()))
    for at in range(len(content)):
        flipped = bytearray(content)
        flipped[at] ^= 0x10
        with pytest.raises(CorruptionError):
            decode_snapshot(bytes(flipped))


def test_any_torn_snapshot_is_detected() -> None:
    content = encode_snapshot(snapshot_of(busy()))
    for size in range(len(content)):
        with pytest.raises(CorruptionError):
            decode_snapshot(content[:size])


@pytest.mark.parametrize("count", [-1, 1, 2**31 - 1])
def test_a_count_that_does_not_fit_is_corruption(count: int) -> None:
    rest = pack(">i", count)
    with pytest.raises(CorruptionError):
        decode_snapshot(pack(">hI", 1, crc32c(rest)) + rest)


def test_idle_time_is_kept_over_a_restart() -> None:
    producers = Producers(expiration_ms=2 * HOUR_MS)
    producers.write(data(0))
    producers.now_ms += HOUR_MS
    producers.write(data(0, producer=2))
    before = decode_snapshot(encode_snapshot(snapshot_of(producers)))
    later_ms = START_MS + 1_000 * HOUR_MS  # the time without a running process does not count
    states = ProducerStates(ProducerLimits(expiration_ms=2 * HOUR_MS), wall_ms=later_ms)
    states.load(before.entries, unreplicated=(), age_ms=before.age_ms, end_offset=2)
    assert states.expire(later_ms + HOUR_MS - 1) == 0
    assert states.expire(later_ms + HOUR_MS) == 1
    assert [producer_id for producer_id, _ in states.entries()] == [2]


def test_newest_snapshots_are_kept() -> None:
    shelf = SnapshotRetention([10, 30, 20])
    assert shelf.put(40) == (10,)
    assert shelf.put(40) == ()
    assert shelf.offsets == [20, 30, 40]
    assert len(shelf.offsets) == KEPT


def test_snapshots_at_the_starts_of_the_newest_segments_stay() -> None:
    """Snapshots of a growing segment must not evict them (R22)."""
    shelf = SnapshotRetention([0, 10, 18], bases=[0, 10])
    shelf.roll(20)
    for offset in (20, 21, 22, 23, 24):
        shelf.put(offset)
    assert shelf.offsets == [10, 20, 22, 23, 24]
    shelf.roll(25)  # its snapshot could not be stored
    assert shelf.put(26) == (10, 22)
    assert shelf.offsets == [20, 23, 24, 26]


def test_a_snapshot_is_stored_under_its_offset(place: Place) -> None:
    snapshot = ProducerSnapshot(end_offset=70, entries=(), unreplicated=(), age_ms=0)
    store_snapshot(place.files, place.folder, snapshot)
    assert place.files.names(place.folder) == ["00000000000000000070.snapshot"]
