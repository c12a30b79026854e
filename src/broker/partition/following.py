"""Log truncation by leader epochs: a follower's handling of an answer, and the leader's detection
of divergence.

A follower truncates to epoch end offsets and never to the high watermark (KIP-101, KIP-279).
Several rounds may be needed until both logs agree.
"""

from collections.abc import Callable
from typing import TypeAlias

from ...ids import NO_EPOCH, Epoch, Offset
from .states import Append, FollowAnswer, FollowStep, Reset, Skip, Truncate

EndOffsetFor: TypeAlias = Callable[[int], tuple[int, int]]
"""Returns the largest epoch of a log up to the requested one, and its exclusive end offset; (-1,
-1) if the requested epoch is newer than all epochs of the log."""


def divergence(
    last_epoch: int,
    log_end_offset: int,
    *,
    end_offset_for: EndOffsetFor,
    latest_epoch: int,
    leader_end_offset: int,
) -> tuple[Epoch, Offset] | None:
    """Return the epoch end at which a follower's log diverges from the leader's, or None if it is a
    prefix of the leader's.

    The follower's log ends at `log_end_offset` with a batch of `last_epoch` (-1: no batches).
    Without batches, it diverges only if it ends beyond the leader's log. The other arguments
    describe the leader's log. An epoch newer than all of the leader's, which an unclean election
    can leave behind, is treated as ending at the leader's log end.
    """
    if last_epoch == NO_EPOCH and log_end_offset <= leader_end_offset:
        return None
    if last_epoch == NO_EPOCH or last_epoch > latest_epoch:
        return Epoch(latest_epoch), Offset(leader_end_offset)
    epoch, end = end_offset_for(last_epoch)
    if epoch == last_epoch and end >= log_end_offset:
        return None
    return Epoch(epoch), Offset(end)


def follow(
    answer: FollowAnswer,
    *,
    log_start_offset: int,
    log_end_offset: int,
    end_offset_for: EndOffsetFor,
) -> FollowStep:
    """Return the follower's next step; the offsets are those of its log."""
    if answer.diverging is not None:
        epoch, end = answer.diverging
        target = min(end, log_end_offset)
        if epoch != NO_EPOCH:
            own_epoch, own_end = end_offset_for(epoch)
            # Without that epoch, at most the part up to the end of the next older epoch is shared.
            # The next round checks that part.
            if own_epoch != NO_EPOCH:
                target = min(target, own_end)
        if target < log_start_offset:
            return Reset(answer.log_start_offset)
        return Truncate(Offset(target)) if target < log_end_offset else Skip()
    if answer.log_start_offset > log_end_offset:
        # The leader has deleted the next records (KAFKA-9491).
        return Reset(answer.log_start_offset)
    if answer.first_offset is None:
        return Skip()
    if answer.first_offset < log_end_offset:
        if log_start_offset == log_end_offset:
            # The leader's log starts within a batch, or before the start of the empty log here, and
            # batches are sent whole. The empty log restarts at that batch, and its start moves to
            # the leader's after the append.
            return Reset(answer.first_offset)
        return Skip(
            f"records start at offset {answer.first_offset}, the log ends at {log_end_offset}"
        )
    return Append()
