"""Repetition of the single request of the states probe and snapshot."""

import pytest

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.log_view import SnapshotId
from quorumlog.raftlog.progress import RETRY_TICKS_MAX, Progress, ProgressState

SNAPSHOT = SnapshotId(Offset(9), Epoch(1))


def waiting(*, position: int = 0) -> Progress:
    """Return progress with a chunk in flight since round 5 and tick 3."""
    progress = Progress(Offset(0), 0)
    progress.become_snapshot(SNAPSHOT)
    progress.position = position
    progress.request_sent(number=5, tick=3)
    return progress


def received(progress: Progress, position: int, *, beat: int = 3) -> None:
    progress.chunk_received(SNAPSHOT, position, number=5, tick=beat)


def given_up(progress: Progress, beat: int) -> bool:
    """Return True if the response to a later round repeats the chunk. If so, send it again."""
    progress.allow_retry(number=1_000, tick=beat)
    is_over = not progress.is_waiting
    if is_over:
        progress.request_sent(number=999, tick=beat)
    return is_over


def beats_waited(progress: Progress, *, since: int) -> int:
    """Return the number of ticks until the chunk is sent again."""
    beat = since
    while not given_up(progress, beat):
        beat += 1
    return beat - since


def test_new_peer_has_no_request_in_flight() -> None:
    progress = Progress(Offset(7), 0)
    assert (progress.request_round, progress.request_tick, progress.retry_ticks) == (0, 0, 1)
    assert (progress.was_repeated, progress.restarts, progress.position) == (False, 0, 0)
    assert progress.is_waiting is False
    assert (progress.round_acked, progress.sent_high_watermark, progress.match_end) == (0, 0, 0)


@pytest.mark.parametrize("state", list(ProgressState))
def test_change_of_state_drops_the_remembered_heartbeats(
    state: ProgressState,
) -> None:
    progress = Progress(Offset(7), 0)
    progress.heartbeat_sent(5)
    match state:
        case ProgressState.PROBE:
            progress.become_probe(Offset(3))
        case ProgressState.REPLICATE:
            progress.become_replicate(Offset(3))
        case ProgressState.SNAPSHOT:
            progress.become_snapshot(SNAPSHOT)
    assert progress.sent_before(5) is None


@pytest.mark.parametrize(
    ("number", "beat", "is_over"), [(5, 9, False), (4, 9, False), (6, 3, False), (6, 4, True)]
)
def test_only_a_later_round_at_a_later_tick_repeats_the_chunk(
    number: int, beat: int, is_over: bool
) -> None:
    progress = waiting()
    progress.allow_retry(number=number, tick=beat)
    assert progress.is_waiting is not is_over
    assert progress.was_repeated is is_over


def test_peer_without_a_request_in_flight_has_nothing_to_repeat() -> None:
    progress = waiting()
    received(progress, 8)
    progress.allow_retry(number=6, tick=9)
    assert (progress.retry_ticks, progress.was_repeated) == (1, False)


def test_chunks_are_repeated_with_backoff_and_probes_without() -> None:
    progress = waiting()
    beats = 3
    waited = []
    for _ in range(8):
        waited.append(beats_waited(progress, since=beats))
        beats += waited[-1]
    assert waited == [1, 2, 4, 8, 16, 32, RETRY_TICKS_MAX, RETRY_TICKS_MAX]
    progress.become_probe(Offset(3))
    progress.request_sent(number=5, tick=0)
    assert [beats_waited(progress, since=beats) for beats in (0, 1, 2)] == [1, 1, 1]
    assert progress.was_repeated is False or progress.state is ProgressState.PROBE


def test_backoff_is_halved_by_each_unrepeated_chunk() -> None:
    progress = waiting()
    for _ in range(3):
        beats_waited(progress, since=progress.request_tick)
    assert (progress.retry_ticks, progress.was_repeated) == (8, True)
    seen = []
    for position in range(1, 7):
        received(progress, position)
        assert (progress.position, progress.is_waiting) == (position, False)
        assert progress.was_repeated is False
        seen.append(progress.retry_ticks)
        progress.request_sent(number=5, tick=3)
    assert seen == [8, 4, 2, 1, 1, 1]


@pytest.mark.parametrize("position", [1, 7])
def test_an_earlier_answer_and_one_about_another_snapshot_change_nothing(position: int) -> None:
    progress = waiting(position=8)
    received(progress, position)
    progress.chunk_received(SnapshotId(Offset(8), Epoch(1)), 12, number=6, tick=4)
    received(progress, 8)
    assert (progress.position, progress.is_waiting, progress.restarts) == (8, True, 0)
    assert (progress.request_round, progress.request_tick, progress.retry_ticks) == (5, 3, 1)


def test_late_response_to_a_repeated_chunk_counts() -> None:
    """The chunk or the next one is sent again, and the late response still counts."""
    progress = waiting(position=8)
    progress.allow_retry(number=6, tick=4)
    received(progress, 8)
    assert (progress.position, progress.is_waiting, progress.was_repeated) == (8, False, False)


def test_each_restart_of_a_snapshot_increases_the_backoff() -> None:
    progress = waiting(position=8)
    seen = []
    for count in range(1, 8):
        progress.position = 8
        received(progress, 0, beat=10 * count)
        assert (progress.position, progress.is_waiting) == (0, True)
        assert (progress.restarts, progress.request_tick) == (count, 10 * count)
        seen.append(progress.retry_ticks)
    assert seen == [2, 4, 8, 16, 32, RETRY_TICKS_MAX, RETRY_TICKS_MAX]
    progress.become_snapshot(SNAPSHOT)
    assert (progress.restarts, progress.retry_ticks, progress.was_repeated) == (0, 1, False)


def test_another_snapshot_starts_without_backoff() -> None:
    progress = waiting()
    assert given_up(progress, 4)
    assert progress.was_repeated
    progress.become_snapshot(SnapshotId(Offset(12), Epoch(1)))
    assert progress.was_repeated is False
