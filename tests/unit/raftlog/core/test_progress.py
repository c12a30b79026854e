"""The leader's progress of one peer: states, window, losses."""

import pytest

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.log_view import SnapshotId
from quorumlog.raftlog.progress import ROUNDS_MAX, Progress, ProgressState

SNAPSHOT = SnapshotId(Offset(50), Epoch(2))


def replicating(next_offset: int = 0, *, sent: tuple[tuple[int, int], ...] = ()) -> Progress:
    progress = Progress(Offset(100), now_ms=7)
    progress.become_replicate(Offset(next_offset))
    for end, size in sent:
        progress.sent(Offset(end), size)
    progress.check_invariants(Offset(100))
    return progress


def test_a_new_peer_is_probed_from_the_end_of_the_log() -> None:
    progress = Progress(Offset(100), now_ms=7)
    assert (progress.state, progress.next_offset, progress.match_end) == (
        ProgressState.PROBE,
        100,
        0,
    )
    assert progress.contact_ms == 7
    assert not progress.is_waiting


def test_the_window_counts_requests_and_bytes() -> None:
    progress = replicating(sent=((10, 5), (20, 6)))
    assert (progress.next_offset, progress.inflight_bytes) == (20, 11)
    assert progress.is_full(requests_max=2, bytes_max=100)
    assert progress.is_full(requests_max=9, bytes_max=11)
    assert not progress.is_full(requests_max=3, bytes_max=12)


def test_an_acknowledgement_empties_the_window_up_to_it() -> None:
    """B26: a byte counter that leaks stalls the peer forever."""
    progress = replicating(sent=((10, 5), (20, 6), (30, 7)))
    assert progress.acknowledge(Offset(20))
    assert (progress.match_end, progress.inflight_bytes) == (20, 7)
    assert progress.acknowledge(Offset(30))
    assert progress.inflight_bytes == 0
    progress.check_invariants(Offset(100))


def test_an_acknowledgement_inside_a_request_keeps_it_in_the_window() -> None:
    progress = replicating(sent=((10, 5), (20, 6)))
    assert progress.acknowledge(Offset(15))
    assert (progress.match_end, progress.inflight_bytes) == (15, 6)


@pytest.mark.parametrize("late", [0, 10, 20])
def test_late_acknowledgement_changes_nothing(late: int) -> None:
    progress = replicating(sent=((10, 5), (20, 6)))
    progress.acknowledge(Offset(20))
    assert not progress.acknowledge(Offset(late))
    assert progress.match_end == 20


def test_an_acknowledgement_beyond_what_was_sent_moves_the_next_request() -> None:
    progress = replicating(10)
    assert progress.acknowledge(Offset(40))
    assert progress.next_offset == 40


def test_lost_requests_leave_the_window_and_are_sent_again() -> None:
    progress = replicating(sent=((10, 5), (20, 6), (30, 7)))
    progress.rewind(Offset(10))
    assert (progress.next_offset, progress.inflight_bytes) == (10, 5)
    progress.check_invariants(Offset(100))


def test_matching_entries_are_never_sent_again() -> None:
    progress = replicating(sent=((10, 5), (20, 6)))
    progress.acknowledge(Offset(10))
    progress.rewind(Offset(0))
    assert progress.next_offset == 10
    progress.become_probe(Offset(3))
    assert progress.next_offset == 10
    progress.become_replicate(Offset(3))
    assert progress.next_offset == 10


@pytest.mark.parametrize("into", ["probe", "replicate", "snapshot"])
def test_another_state_begins_with_an_empty_window(into: str) -> None:
    """B26."""
    progress = replicating(sent=((10, 5), (20, 6)))
    progress.is_waiting = True
    if into == "probe":
        progress.become_probe(Offset(10))
    elif into == "replicate":
        progress.become_replicate(Offset(10))
    else:
        progress.become_snapshot(SNAPSHOT)
    assert progress.state == into
    assert (progress.inflight_bytes, len(progress.inflight), progress.is_waiting) == (0, 0, False)
    assert (progress.snapshot is not None) == (into == "snapshot")
    progress.check_invariants(Offset(100))


def test_a_snapshot_is_sent_from_its_start() -> None:
    progress = replicating(10)
    progress.become_snapshot(SNAPSHOT)
    progress.position = 30
    progress.become_snapshot(SNAPSHOT)
    assert progress.position == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("match_end", Offset(11)),
        ("next_offset", Offset(101)),
        ("inflight_bytes", 1),
        ("snapshot", SNAPSHOT),
    ],
)
def test_violations_of_the_invariants_raise(field: str, value: object) -> None:
    progress = replicating(10)
    setattr(progress, field, value)
    with pytest.raises(AssertionError):
        progress.check_invariants(Offset(100))


def test_heartbeat_response_confirms_the_requests_before_it() -> None:
    progress = replicating(sent=((10, 5),))
    progress.heartbeat_sent(1)
    progress.sent(Offset(20), 6)
    progress.heartbeat_sent(2)
    progress.heartbeat_sent(3)
    assert progress.sent_before(2) == 20
    assert progress.sent_before(2) is None, "the second response of one round"
    assert progress.sent_before(1) is None, "an overtaken response"
    assert progress.sent_before(3) == 20


def test_responses_in_flight_find_a_loss_once() -> None:
    progress = replicating(sent=((10, 5),))
    progress.heartbeat_sent(1)
    progress.heartbeat_sent(2)
    assert progress.sent_before(1) == 10
    progress.rewind(Offset(0))
    assert progress.sent_before(2) is None
    progress.heartbeat_sent(3)
    assert progress.sent_before(3) == 0


def test_number_of_remembered_heartbeats_is_bounded() -> None:
    progress = replicating()
    for number in range(1, ROUNDS_MAX + 2):
        progress.heartbeat_sent(number)
    assert progress.sent_before(ROUNDS_MAX) == 0
    assert progress.sent_before(ROUNDS_MAX + 1) is None, "the earliest heartbeats are kept"
    progress.heartbeat_sent(ROUNDS_MAX + 2)
    assert progress.sent_before(ROUNDS_MAX + 2) == 0
