"""The queue of one stream: order, bounds and replacement of messages."""

import pytest

from quorumlog.errors import InvalidRequest
from quorumlog.ids import Epoch, Offset
from quorumlog.proto import raft_pb2 as pb
from quorumlog.raftlog.codec import decode_message
from quorumlog.raftlog.log_view import Entry, LogEnd
from quorumlog.raftlog.messages import (
    AppendRequest,
    AppendResponse,
    EndEpoch,
    Heartbeat,
    HeartbeatResponse,
    Message,
)
from quorumlog.raftlog.shell.outbox import Outbox, OutboxLimits

from .conftest import batch, voter

ONE, TWO = voter(1), voter(2)


def heartbeat(round_: int, *, epoch: int = 1, high_watermark: int = 0) -> Heartbeat:
    return Heartbeat(
        sender=ONE,
        receiver=TWO,
        epoch=Epoch(epoch),
        high_watermark=Offset(high_watermark),
        round=round_,
    )


def append(*entries: Entry, high_watermark: int = 0) -> AppendRequest:
    start = entries[0].base_offset
    return AppendRequest(
        sender=ONE,
        receiver=TWO,
        epoch=Epoch(1),
        prev=LogEnd(Epoch(1 if start else 0), start),
        entries=entries,
        high_watermark=Offset(high_watermark),
    )


def answer(match_end: int, received_end: int, epoch: int = 1) -> AppendResponse:
    return AppendResponse(
        sender=ONE,
        receiver=TWO,
        epoch=Epoch(epoch),
        match_end=Offset(match_end),
        received_end=Offset(received_end),
    )


def echo(round_: int, received_end: int | None) -> HeartbeatResponse:
    end = None if received_end is None else Offset(received_end)
    return HeartbeatResponse(
        sender=ONE, receiver=TWO, epoch=Epoch(1), round=round_, match_end=end, received_end=end
    )


def frames(outbox: Outbox) -> list[list[Message]]:
    """Return the outgoing messages, frame by frame."""
    sent: list[list[Message]] = []
    while len(outbox):
        frame = pb.RaftFrame()
        outbox.fill(frame)
        sent.append([decode_message(m, sender=ONE, receiver=TWO) for m in frame.messages])
    assert outbox.size == 0
    return sent


def test_entries_replace_heartbeats_that_they_include() -> None:
    outbox = Outbox(OutboxLimits())
    outbox.put(heartbeat(0, high_watermark=7))
    outbox.put(append(batch(9), high_watermark=7))
    assert frames(outbox) == [[append(batch(9), high_watermark=7)]]


@pytest.mark.parametrize(
    "first",
    [
        heartbeat(0, high_watermark=8),
        heartbeat(0, high_watermark=7, epoch=2),
        heartbeat(3, high_watermark=7),
    ],
)
def test_heartbeats_that_entries_do_not_include_precede_them(first: Heartbeat) -> None:
    outbox = Outbox(OutboxLimits())
    outbox.put(first)
    outbox.put(append(batch(9), high_watermark=7))
    assert frames(outbox) == [[first, append(batch(9), high_watermark=7)]]


@pytest.mark.parametrize(
    ("put", "expected"),
    [
        ([], False),
        ([heartbeat(0)], True),
        ([heartbeat(0), heartbeat(0)], True),
        ([heartbeat(1)], False),
        ([heartbeat(0), heartbeat(1)], False),
        ([append(batch(9))], False),
    ],
)
def test_only_a_lone_high_watermark_may_wait(put: list[Message], expected: bool) -> None:
    outbox = Outbox(OutboxLimits())
    assert all([outbox.put(message) for message in put])
    assert outbox.has_update_only is expected


def test_messages_leave_in_order_and_share_a_frame() -> None:
    outbox = Outbox(OutboxLimits())
    put: list[Message] = [append(batch(0)), heartbeat(1), append(batch(1)), heartbeat(2)]
    assert all([outbox.put(message) for message in put])
    assert frames(outbox) == [put]


def test_a_frame_ends_before_its_bytes_are_too_many_but_takes_one_larger_message() -> None:
    outbox = Outbox(OutboxLimits(frame_bytes_max=1_000))
    small, large = [append(batch(n, size=300)) for n in range(3)], append(batch(3, size=5_000))
    put: list[Message] = [*small, large, heartbeat(1)]
    for message in put:
        outbox.put(message)
    ahead = heartbeat(0)  # its copy
    assert frames(outbox) == [[ahead, *small[:2]], [small[2]], [large], [heartbeat(1)]]


def test_heartbeat_behind_much_data_sends_a_copy_ahead_without_a_response() -> None:
    """In its own position it confirms the messages before it, so it stays there."""
    outbox = Outbox(OutboxLimits(frame_bytes_max=1_000))
    entries = [append(batch(n, size=600)) for n in range(4)]
    for message in entries:
        outbox.put(message)
    outbox.put(heartbeat(7, high_watermark=5))
    outbox.put(heartbeat(8, high_watermark=6))
    everything = [message for frame in frames(outbox) for message in frame]
    assert everything == [
        heartbeat(0, high_watermark=6),
        *entries,
        heartbeat(8, high_watermark=6),
    ]


def test_heartbeat_replaces_the_one_right_before_it() -> None:
    outbox = Outbox(OutboxLimits())
    for message in (heartbeat(3), heartbeat(4), heartbeat(0, high_watermark=9)):
        outbox.put(message)
    assert frames(outbox) == [[heartbeat(4, high_watermark=9)]], "a response is still requested"


def test_nothing_of_another_epoch_is_replaced() -> None:
    outbox = Outbox(OutboxLimits())
    put: list[Message] = [heartbeat(3), heartbeat(1, epoch=2), answer(5, 5), answer(6, 6, epoch=2)]
    for message in put:
        outbox.put(message)
    assert frames(outbox) == [put]


def test_cumulative_responses_replace_only_lower_ones() -> None:
    outbox = Outbox(OutboxLimits())
    for message in (answer(1, 4), answer(4, 4), answer(4, 9), answer(4, 8)):
        outbox.put(message)
    for reply in (echo(1, 4), echo(2, None), echo(2, 3)):
        outbox.put(reply)
    assert frames(outbox) == [[answer(4, 9), answer(4, 8), echo(2, 3)]]


def test_full_queue_accepts_only_heartbeats() -> None:
    outbox = Outbox(OutboxLimits(messages_max=3, bytes_max=3_000, frame_bytes_max=1_000))
    assert [outbox.put(append(batch(n, size=1_000))) for n in range(4)] == [
        True,
        True,
        False,
        False,
    ]
    assert outbox.put(heartbeat(5)), "its copy is sent ahead, and it fits itself"
    assert not outbox.put(append(batch(2)))
    assert outbox.size <= 3_000
    assert outbox.clear() == 4
    assert frames(outbox) == []


def test_one_message_larger_than_the_bound_passes_alone() -> None:
    outbox = Outbox(OutboxLimits(bytes_max=100))
    assert outbox.put(append(batch(0, size=1_000)))
    assert not outbox.put(append(batch(1, size=1_000)))


def test_frame_states_if_a_response_is_due() -> None:
    end = EndEpoch(sender=ONE, receiver=TWO, epoch=Epoch(1), successors=())
    for message, expected in (
        (heartbeat(1), True),
        (heartbeat(0), False),
        (append(batch(0)), True),
        (end, False),
    ):
        outbox = Outbox(OutboxLimits())
        outbox.put(message)
        assert outbox.fill(pb.RaftFrame()) is expected, message


def test_bounds_are_at_least_one() -> None:
    with pytest.raises(InvalidRequest):
        OutboxLimits(bytes_max=0)
