"""Validation distinguishes impossible messages from unusual ones."""

import re
from dataclasses import replace

import pytest
from tests.kit.raft_member import data, voter, voters

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.config import EPOCH_JUMP_MAX, EPOCH_MAX
from quorumlog.raftlog.log_view import LogEnd, SnapshotId
from quorumlog.raftlog.messages import (
    AppendRequest,
    AppendResponse,
    FollowRequest,
    Heartbeat,
    HeartbeatResponse,
    Message,
    SnapshotChunk,
    TimeoutNow,
    validate_message,
)

ME, PEER = voter(1), voter(2)
LOG_END = Offset(10)


def problem(message: Message, *, epoch: int = 5) -> str:
    return validate_message(message, me=ME, epoch=Epoch(epoch), log_end=LOG_END)


def append(*entries: tuple[int, int], prev: tuple[int, int] = (4, 2)) -> AppendRequest:
    """Build a request; `prev` and the entries are (offset, epoch)."""
    return AppendRequest(
        sender=PEER,
        receiver=ME,
        epoch=Epoch(5),
        prev=LogEnd(Epoch(prev[1]), Offset(prev[0])),
        entries=tuple(data(offset, epoch) for offset, epoch in entries),
        high_watermark=Offset(0),
    )


def acknowledged(match_end: int, received_end: int, *, epoch: int = 5) -> AppendResponse:
    return AppendResponse(
        sender=PEER,
        receiver=ME,
        epoch=Epoch(epoch),
        match_end=Offset(match_end),
        received_end=Offset(received_end),
    )


def answered(match_end: int | None, received_end: int | None) -> HeartbeatResponse:
    return HeartbeatResponse(
        sender=PEER,
        receiver=ME,
        epoch=Epoch(5),
        round=1,
        match_end=None if match_end is None else Offset(match_end),
        received_end=None if received_end is None else Offset(received_end),
    )


CHUNK = SnapshotChunk(
    sender=PEER,
    receiver=ME,
    epoch=Epoch(5),
    snapshot=SnapshotId(Offset(8), Epoch(4)),
    voters=voters(1, 2),
    size=10,
    position=4,
    content=b"abc",
)


@pytest.mark.parametrize(
    "message",
    [
        append(),
        append((4, 2), (5, 2), (6, 5)),
        append(prev=(0, 0)),
        acknowledged(0, 0),
        acknowledged(3, 10),
        acknowledged(3, 11, epoch=4),
        answered(None, None),
        answered(None, 7),
        answered(7, 7),
        CHUNK,
        replace(CHUNK, content=b"abcdef"),
        TimeoutNow(sender=PEER, receiver=ME, epoch=Epoch(0)),
        TimeoutNow(sender=PEER, receiver=ME, epoch=Epoch(5 + EPOCH_JUMP_MAX)),
        FollowRequest(sender=PEER, receiver_address="anywhere", epoch=Epoch(2**40), address=""),
    ],
)
def test_valid_messages_have_no_problem(message: Message) -> None:
    assert problem(message) == ""


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (append(prev=(-1, 0)), "the entries begin at"),
        (append(prev=(0, -1)), "the entries begin at"),
        (append((5, 2)), "an entry at 5 follows offset 4"),
        (append((4, 2), (6, 2)), "an entry at 6 follows offset 5"),
        (append((4, 1)), "an entry of epoch 1 follows epoch 2"),
        (append((4, 3), (5, 2)), "an entry of epoch 2 follows epoch 3"),
        (append((4, 6)), "an entry of epoch 6"),
        (acknowledged(4, 3), r"match end 4 is not in \[0, received end 3\]"),
        (acknowledged(-1, 3), "match end -1"),
        (acknowledged(4, 11), "received end 11 is above the log end 10"),
        (answered(4, 11), "received end 11"),
        (answered(4, None), r"match end 4 is not in \[0, received end 0\]"),
        (replace(CHUNK, position=-1), r"chunk \[-1, 2\) of 10 bytes"),
        (replace(CHUNK, content=b""), r"chunk \[4, 4\) of 10"),
        (replace(CHUNK, content=b"1234567"), r"chunk \[4, 11\) of 10"),
        (replace(CHUNK, snapshot=SnapshotId(Offset(0), Epoch(0))), "chunk of"),
        (replace(CHUNK, snapshot=SnapshotId(Offset(8), Epoch(6))), "chunk of"),
        (TimeoutNow(sender=ME, receiver=ME, epoch=Epoch(5)), "the sender is this node"),
        (TimeoutNow(sender=PEER, receiver=voter(1, 1), epoch=Epoch(5)), "receiver is node 1 with"),
        (TimeoutNow(sender=PEER, receiver=ME, epoch=Epoch(-1)), "epoch -1 is out of bounds"),
        (TimeoutNow(sender=PEER, receiver=ME, epoch=Epoch(6 + EPOCH_JUMP_MAX)), "is out of bounds"),
        (FollowRequest(sender=ME, receiver_address="", epoch=Epoch(1), address=""), "this node"),
    ],
)
def test_impossible_messages_have_a_problem(message: Message, why: str) -> None:
    assert re.search(why, problem(message))


def test_the_last_epoch_is_the_last_one() -> None:
    late = TimeoutNow(sender=PEER, receiver=ME, epoch=Epoch(EPOCH_MAX + 1))
    assert "out of bounds" in problem(late, epoch=EPOCH_MAX)
    assert problem(replace(late, epoch=EPOCH_MAX), epoch=EPOCH_MAX) == ""


def test_an_entry_without_records_is_none() -> None:
    request = append((4, 2))
    empty = replace(request, entries=(replace(request.entries[0], count=0),))
    assert "follows offset" in problem(empty)


def test_a_heartbeat_is_always_sound() -> None:
    beat = Heartbeat(
        sender=PEER, receiver=ME, epoch=Epoch(5), high_watermark=Offset(10**12), round=0
    )
    assert problem(beat) == ""
