"""The pure follower: truncation by epochs, resets, and the high watermark.

KIP-101, KIP-279; R1 to R3, R12 to R16, R26.
"""

import pytest

from quorumlog.broker.partition import Partition
from quorumlog.broker.partition_follower import (
    Append,
    FollowAnswer,
    FollowerState,
    FollowStep,
    Reset,
    Skip,
    Truncate,
    divergence,
)
from quorumlog.errors import NotLeaderOrFollower
from quorumlog.ids import Epoch, NodeId, Offset
from quorumlog.storage.leader_epochs import EpochCache

ME, LEADER = NodeId(1), NodeId(2)


def following(*, epoch: int = 5) -> Partition:
    partition = Partition("t", 0, ME, waits_max=1)
    state = FollowerState(leader_id=LEADER, leader_epoch=Epoch(epoch), partition_epoch=0)
    partition.become_follower(state, NotLeaderOrFollower("node 2 leads"))
    return partition


def take(
    answer: FollowAnswer,
    *,
    epochs: list[tuple[int, int]],
    end: int,
    start: int = 0,
) -> FollowStep:
    cache = EpochCache(epochs)
    return following().take(
        answer,
        log_start_offset=Offset(start),
        log_end_offset=Offset(end),
        end_offset_for=lambda epoch: cache.end_offset_for(epoch, end),
    )


def answer(
    *,
    diverging: tuple[int, int] | None = None,
    first: int | None = None,
    start: int = 0,
    mark: int = 0,
    epoch: int = 5,
) -> FollowAnswer:
    return FollowAnswer(
        leader_epoch=Epoch(epoch),
        high_watermark=Offset(mark),
        log_start_offset=Offset(start),
        first_offset=None if first is None else Offset(first),
        diverging=None if diverging is None else (Epoch(diverging[0]), Offset(diverging[1])),
    )


def parts(
    last_epoch: int,
    end: int,
    *,
    leader: list[tuple[int, int]],
    leader_start: int = 0,
    leader_end: int,
) -> tuple[int, int] | None:
    cache = EpochCache(leader)
    return divergence(
        last_epoch,
        end,
        end_offset_for=lambda epoch: cache.end_offset_for(epoch, leader_end),
        latest_epoch=cache.latest,
        leader_start_offset=leader_start,
        leader_end_offset=leader_end,
    )


def test_prefix_of_the_leaders_log_does_not_diverge() -> None:
    assert parts(3, 10, leader=[(1, 0), (3, 5)], leader_end=20) is None
    assert parts(1, 5, leader=[(1, 0), (3, 5)], leader_end=20) is None


def test_log_without_batches_never_diverges_below_the_leaders_end() -> None:
    assert parts(-1, 7, leader=[(1, 0)], leader_end=20) is None


@pytest.mark.parametrize("leader", [[(1, 0)], []])
def test_empty_log_beyond_the_leaders_end_is_reset(
    leader: list[tuple[int, int]],
) -> None:
    """Otherwise it would miss later records of the leader and count as caught up. An unclean
    election may bring a shorter leader after all records of the longer log were deleted."""
    diverging = parts(-1, 100, leader=leader, leader_end=50)
    assert diverging is not None
    step = take(answer(diverging=diverging, start=10), epochs=[], start=100, end=100)
    assert step == Reset(Offset(10))


def test_log_below_the_leaders_start_does_not_diverge() -> None:
    """The leader's log may have restarted there without any epoch."""
    assert parts(2, 15, leader=[], leader_start=122, leader_end=122) is None
    assert parts(2, 122, leader=[], leader_start=122, leader_end=122) is None
    assert take(answer(start=122), epochs=[(2, 6)], start=6, end=15) == Reset(Offset(122))


def test_records_beyond_the_end_of_an_epoch_diverge_there() -> None:
    assert parts(1, 8, leader=[(1, 0), (3, 5)], leader_end=20) == (1, 5)


def test_epoch_unknown_to_the_leader_diverges_at_the_end_of_the_previous_one() -> None:
    """R3: the follower's last epoch is unknown to the leader."""
    assert parts(2, 8, leader=[(1, 0), (3, 5)], leader_end=20) == (1, 5)


def test_epoch_newer_than_the_leaders_diverges_at_the_leaders_end() -> None:
    assert parts(4, 8, leader=[(1, 0), (3, 5)], leader_end=7) == (3, 7)


def test_an_epoch_that_was_deleted_at_the_leader_is_shared_up_to_its_first_one() -> None:
    assert parts(1, 4, leader=[(3, 5)], leader_end=9) is None
    assert parts(1, 8, leader=[(3, 5)], leader_end=9) == (1, 5)


@pytest.mark.parametrize(
    ("diverging", "epochs", "end", "target"),
    [
        ((1, 5), [(1, 0), (2, 8)], 12, 5),  # the leader left epoch 1 earlier
        ((1, 20), [(1, 0), (2, 8)], 12, 8),  # the follower left it earlier
        ((3, 9), [(1, 0), (4, 6)], 12, 6),  # unknown epoch: use the one before it, and ask again
        ((-1, 0), [(1, 0)], 12, 0),  # the leader's log is empty
    ],
)
def test_diverging_log_is_truncated_at_the_lower_end_of_the_epoch(
    diverging: tuple[int, int], epochs: list[tuple[int, int]], end: int, target: int
) -> None:
    assert take(answer(diverging=diverging), epochs=epochs, end=end) == Truncate(Offset(target))


def test_other_fields_of_a_diverging_response_are_ignored() -> None:
    """R12: its high watermark covers records that this log does not have."""
    step = take(answer(diverging=(1, 5), mark=12, first=12), epochs=[(1, 0)], end=12)
    assert step == Truncate(Offset(5))


def test_log_that_diverges_below_its_own_start_is_reset_to_the_leaders_start() -> None:
    step = take(answer(diverging=(1, 5), start=2), epochs=[(1, 8)], end=12, start=8)
    assert step == Reset(Offset(2))


def test_follower_below_the_leaders_start_is_reset_to_it() -> None:
    """R26: log start, log end and high watermark move together."""
    assert take(answer(start=30), epochs=[(1, 0)], end=12) == Reset(Offset(30))
    partition = following()
    partition.restarted(Offset(30))
    assert partition.high_watermark == 30


def test_records_at_the_log_end_or_behind_a_gap_are_appended() -> None:
    assert take(answer(first=12), epochs=[(1, 0)], end=12) == Append()
    assert take(answer(first=15), epochs=[(1, 0)], end=12) == Append(), "compaction leaves gaps"
    step = take(answer(first=10), epochs=[(1, 0)], end=12)
    assert step == Skip("records start at offset 10, the log ends at 12")


def test_empty_log_starts_with_the_batch_that_contains_the_leaders_start() -> None:
    """Records are deleted up to any offset, but batches are sent whole."""
    assert take(answer(first=10, start=12), epochs=[], start=12, end=12) == Reset(Offset(10))
    step = take(answer(first=10, start=11), epochs=[], start=12, end=12)
    assert step == Reset(Offset(10)), "the leader does not have the last deletion yet"
    step = take(answer(first=10, start=11), epochs=[(1, 11)], start=11, end=12)
    assert isinstance(step, Skip), "the log is not empty"


@pytest.mark.parametrize("epoch", [4, 6])
def test_an_answer_of_another_leader_epoch_changes_nothing(epoch: int) -> None:
    """R14: the response belongs to a leader that was followed before."""
    step = take(answer(diverging=(1, 0), epoch=epoch), epochs=[(1, 0)], end=12)
    assert isinstance(step, Skip)
    assert step.reason.startswith(f"the answer has leader epoch {epoch}")
    progress = following().replicated(
        leader_epoch=epoch, leader_high_watermark=9, log_end_offset=12
    )
    assert not progress.high_watermark_moved


def test_high_watermark_follows_the_leaders_up_to_the_own_end_and_never_decreases() -> None:
    partition = following()
    for leaders, moved in ((9, True), (4, False)):
        progress = partition.replicated(
            leader_epoch=5, leader_high_watermark=leaders, log_end_offset=6
        )
        assert (progress.high_watermark_moved, partition.high_watermark) == (moved, 6)


def test_truncation_below_the_high_watermark_lowers_it() -> None:
    """Only an unclean election causes this."""
    partition = following()
    partition.replicated(leader_epoch=5, leader_high_watermark=9, log_end_offset=9)
    partition.truncated(Offset(4))
    assert partition.high_watermark == 4
