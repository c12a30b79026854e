"""One write runs at a time, and its completion confirms only its own entries (B22)."""

import pytest
from tests.kit.raft_member import voter, voters

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.log_view import Entry, EntryKind, SnapshotId
from quorumlog.raftlog.messages import SnapshotChunk
from quorumlog.raftlog.ready import Token
from quorumlog.raftlog.writes import PendingWrite, WriteQueue

STATE = HardState(Epoch(1), None)
SNAPSHOT = SnapshotId(Offset(50), Epoch(2))


def entry(base: int, epoch: int = 1, *, size: int = 10) -> Entry:
    return Entry(
        kind=EntryKind.DATA,
        epoch=Epoch(epoch),
        base_offset=Offset(base),
        count=1,
        payload=bytes(size),
    )


def chunk(position: int = 0) -> SnapshotChunk:
    return SnapshotChunk(
        sender=voter(1),
        receiver=voter(2),
        epoch=Epoch(1),
        snapshot=SNAPSHOT,
        voters=voters(1, 2),
        size=100,
        position=position,
        content=b"x" * 10,
    )


def writes(*appended: Entry, durable: int = 0) -> WriteQueue:
    made = WriteQueue(STATE, Offset(durable))
    for each in appended:
        made.append(each)
    return made


def begin(of: WriteQueue, state: HardState = STATE, *, bytes_max: int = 1000) -> PendingWrite:
    assert of.has_write(state)
    return of.begin(state, bytes_max=bytes_max)


def test_nothing_to_write_is_no_write() -> None:
    assert not writes().has_write(STATE)


def test_everything_gathered_goes_into_one_write() -> None:
    of = writes(entry(0), entry(1))
    of.add_chunk(chunk())
    write = begin(of, HardState(Epoch(2), voter(1)))
    assert write.hard_state == HardState(Epoch(2), voter(1))
    assert [each.base_offset for each in write.entries] == [0, 1]
    assert write.chunks == (chunk(),)
    assert (of.durable_end, of.durable_epoch) == (0, 1), "nothing is durable yet"
    of.complete(write.token)
    assert (of.durable_end, of.durable_epoch) == (2, 2)
    assert not of.has_write(HardState(Epoch(2), voter(1)))


def test_what_comes_during_a_write_waits_for_the_next() -> None:
    of = writes(entry(0))
    first = begin(of)
    of.append(entry(1))
    of.complete(first.token)
    assert of.durable_end == 1
    second = begin(of)
    assert second.token == first.token + 1
    assert [each.base_offset for each in second.entries] == [1]


def test_a_write_is_bounded_but_takes_one_entry_at_least() -> None:
    of = writes(entry(0, size=50), entry(1, size=50), entry(2, size=500), entry(3))
    counts = []
    while of.has_write(STATE):
        write = begin(of, bytes_max=100)
        counts.append(len(write.entries))
        of.complete(write.token)
    assert counts == [2, 1, 1]


def test_two_writes_are_never_in_flight() -> None:
    of = writes(entry(0))
    begin(of)
    of.append(entry(1))
    with pytest.raises(AssertionError, match="two writes"):
        of.begin(STATE, bytes_max=100)


@pytest.mark.parametrize("token", [0, 2])
def test_a_token_confirms_its_own_write_only(token: int) -> None:
    of = writes(entry(0))
    with pytest.raises(AssertionError, match="none is in flight"):
        of.complete(Token(token))
    begin(of)
    with pytest.raises(AssertionError, match="1 is in flight"):
        of.complete(Token(token))


def test_a_late_completion_does_not_confirm_what_was_overwritten() -> None:
    """B22: 0, 1 and 2 are being written when another leader overwrites 1 and 2."""
    of = writes(entry(0), entry(1), entry(2))
    first = begin(of)
    of.truncate_to(Offset(1))
    of.append(entry(1, 2))
    of.append(entry(2, 2))
    of.complete(first.token)
    assert of.durable_end == 1, "the disk has other entries at 1 and 2 than the log"
    second = begin(of)
    assert second.truncate_to == 1
    assert [(each.base_offset, each.epoch) for each in second.entries] == [(1, 2), (2, 2)]
    of.complete(second.token)
    assert of.durable_end == 3


def test_overwritten_twice_under_one_write() -> None:
    """B22: A, B and A again at one offset."""
    of = writes(entry(0), entry(1))
    first = begin(of)
    of.truncate_to(Offset(1))
    of.append(entry(1, 2))
    of.truncate_to(Offset(0))
    of.append(entry(0, 3))
    of.append(entry(1, 3))
    of.complete(first.token)
    assert of.durable_end == 0
    second = begin(of)
    assert second.truncate_to == 0
    assert [each.epoch for each in second.entries] == [3, 3]


def test_entries_that_were_never_handed_out_need_no_truncation() -> None:
    of = writes(entry(0), entry(1))
    of.truncate_to(Offset(0))
    assert not of.has_write(STATE)
    of.append(entry(0, 2))
    write = begin(of)
    assert write.truncate_to is None
    assert [each.epoch for each in write.entries] == [2]


def test_truncated_entries_are_not_durable() -> None:
    of = writes(durable=5)
    of.truncate_to(Offset(3))
    assert of.durable_end == 3
    write = begin(of)
    assert (write.truncate_to, write.entries) == (3, ())
    of.complete(write.token)
    assert of.durable_end == 3


def test_the_lowest_truncation_counts() -> None:
    of = writes(durable=5)
    of.truncate_to(Offset(3))
    of.append(entry(3, 2))
    of.append(entry(4, 2))
    of.truncate_to(Offset(4))
    of.truncate_to(Offset(2))
    assert begin(of).truncate_to == 2


def test_an_install_is_written_without_entries() -> None:
    of = writes(entry(0), durable=0)
    of.add_chunk(chunk())
    of.install(SNAPSHOT)
    write = begin(of)
    assert (write.install, write.entries, write.truncate_to) == (SNAPSHOT, (), None)
    of.complete(write.token)
    of.reset(Offset(50))
    assert of.durable_end == 50
    assert not of.has_write(STATE), "entries gathered behind the old log are dropped"


def test_a_refused_install_keeps_the_hard_state_and_the_log() -> None:
    of = writes(durable=3)
    of.install(SNAPSHOT)
    write = begin(of, HardState(Epoch(2), None))
    of.refuse(write.token)
    assert (of.durable_epoch, of.durable_end) == (2, 3)
    of.install(SNAPSHOT)
    of.refuse(begin(of, HardState(Epoch(2), None)).token)
    assert of.durable_epoch == 2


def test_only_an_install_can_be_refused() -> None:
    of = writes(entry(0))
    with pytest.raises(AssertionError, match="installs nothing"):
        of.refuse(begin(of).token)


def test_nothing_is_reset_under_a_write() -> None:
    of = writes(entry(0))
    begin(of)
    with pytest.raises(AssertionError, match="reset under a write"):
        of.reset(Offset(50))


def test_pieces_of_another_snapshot_are_forgotten() -> None:
    of = writes()
    of.add_chunk(chunk())
    of.drop_chunks()
    assert not of.has_write(STATE)


def test_the_epoch_on_the_disk_never_goes_back() -> None:
    of = writes()
    write = of.begin(HardState(Epoch(0), voter(1)), bytes_max=1)
    with pytest.raises(AssertionError, match=r"epoch . after ."):
        of.complete(write.token)
