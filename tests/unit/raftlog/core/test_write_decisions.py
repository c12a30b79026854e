"""Contents of the writes after truncations and snapshot chunks."""

from tests.kit.raft_member import data, voter, voters

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.log_view import SnapshotId
from quorumlog.raftlog.messages import SnapshotChunk
from quorumlog.raftlog.writes import WriteQueue

STATE = HardState(Epoch(1), None)
PIECE = SnapshotChunk(
    sender=voter(1),
    receiver=voter(2),
    epoch=Epoch(1),
    snapshot=SnapshotId(Offset(3), Epoch(1)),
    voters=voters(1, 2),
    size=8,
    position=0,
    content=b"half",
)


def test_a_truncation_keeps_what_was_gathered_below_it() -> None:
    writes = WriteQueue(STATE, Offset(0))
    entries = [data(base, 1) for base in range(3)]
    for entry in entries:
        writes.append(entry)
    writes.truncate_to(Offset(2))
    assert list(writes.unwritten) == entries[:2]
    write = writes.begin(STATE, bytes_max=100)
    assert (write.truncate_to, write.entries) == (None, tuple(entries[:2]))


def test_truncation_of_gathered_entries_keeps_the_truncation_below() -> None:
    """The disk is truncated at 5 and written from there, whatever was at 7 before."""
    writes = WriteQueue(STATE, Offset(10))
    writes.truncate_to(Offset(5))
    entries = [data(base, 2) for base in range(5, 8)]
    for entry in entries:
        writes.append(entry)
    writes.truncate_to(Offset(7))
    write = writes.begin(STATE, bytes_max=100)
    assert (write.truncate_to, write.entries) == (5, tuple(entries[:2]))


def test_each_kind_of_work_alone_is_a_write() -> None:
    writes = WriteQueue(STATE, Offset(10))
    assert not writes.has_write(STATE)
    assert writes.has_write(HardState(Epoch(1), voter(1)))
    writes.add_chunk(PIECE)
    assert writes.has_write(STATE)
    writes.drop_chunks()
    assert not writes.has_write(STATE)
    writes.install(PIECE.snapshot)
    assert writes.has_write(STATE)
    writes.complete(writes.begin(STATE, bytes_max=100).token)
    writes.truncate_to(Offset(9))
    assert writes.has_write(STATE)
    writes.complete(writes.begin(STATE, bytes_max=100).token)
    writes.append(data(9, 1))
    assert writes.has_write(STATE)
    writes.complete(writes.begin(STATE, bytes_max=100).token)
    assert not writes.has_write(STATE)


def test_an_install_goes_without_entries_and_they_follow() -> None:
    writes = WriteQueue(STATE, Offset(10))
    writes.truncate_to(Offset(9))
    writes.append(data(9, 1))
    writes.add_chunk(PIECE)
    writes.install(PIECE.snapshot)
    first = writes.begin(STATE, bytes_max=100)
    assert (first.chunks, first.install) == ((PIECE,), PIECE.snapshot)
    assert (first.truncate_to, first.entries) == (None, ())
    writes.refuse(first.token)
    second = writes.begin(STATE, bytes_max=100)
    assert (second.chunks, second.install) == ((), None)
    assert (second.truncate_to, second.entries) == (9, (data(9, 1),))


def test_pieces_wait_until_they_are_on_the_disk() -> None:
    writes = WriteQueue(STATE, Offset(10))
    writes.append(data(10, 1))
    first = writes.begin(STATE, bytes_max=100)
    waits = [writes.has_chunks]  # entries alone are being written
    writes.add_chunk(PIECE)
    waits.append(writes.has_chunks)
    writes.complete(first.token)
    second = writes.begin(STATE, bytes_max=100)
    waits.append(writes.has_chunks)
    writes.complete(second.token)
    waits.append(writes.has_chunks)
    assert waits == [False, True, True, False]


def test_entries_gathered_before_a_snapshot_are_not_written_behind_it() -> None:
    writes = WriteQueue(STATE, Offset(10))
    writes.truncate_to(Offset(9))
    writes.append(data(9, 1))
    writes.add_chunk(PIECE)
    writes.install(PIECE.snapshot)
    writes.complete(writes.begin(STATE, bytes_max=100).token)
    writes.reset(Offset(20))
    assert not writes.has_write(STATE)
    writes.append(data(20, 1))
    write = writes.begin(STATE, bytes_max=100)
    assert (write.truncate_to, write.entries) == (None, (data(20, 1),))
