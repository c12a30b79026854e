"""Log truncation by leader epochs: a follower's handling of an answer, and the leader's detection
of divergence.

A follower truncates to epoch end offsets and never to the high watermark (KIP-101, KIP-279).
Several rounds may be needed until both logs agree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ..ids import NO_EPOCH, Epoch, NodeId, Offset

EndOffsetFor: TypeAlias = Callable[[int], tuple[int, int]]
"""Returns the largest epoch of a log up to the requested one, and its exclusive end offset; (-1,
-1) if the requested epoch is newer than all epochs of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerState:
    """The metadata of a partition that this node follows."""

    leader_id: NodeId  # NO_NODE: no leader
    leader_epoch: Epoch
    partition_epoch: int


@dataclass(unsafe_hash=True, slots=True)
class FollowAnswer:
    """A leader's answer to a follower's fetch. Treated as immutable. `__init__` is written by hand
    because every answer creates one, and that of a frozen dataclass is slow."""

    leader_epoch: Epoch
    high_watermark: Offset
    log_start_offset: Offset
    first_offset: Offset | None = None  # of the received records; None: no records
    # Set if the logs diverge before the follower's end: the largest epoch of the leader's log up to
    # the requested one, and its end there. The other fields are then ignored (KAFKA-14704).
    diverging: tuple[Epoch, Offset] | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """No change of the log; `reason` explains a dropped answer, else ""."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log to the offset, then fetch again."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class Reset:
    """Delete the log and restart it, empty, at the offset. Then append the received records if they
    start there, else fetch again."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class Append:
    """Append the received records, then call `replicated`."""


FollowStep: TypeAlias = Skip | Truncate | Reset | Append


def divergence(
    last_epoch: int,
    log_end_offset: int,
    *,
    end_offset_for: EndOffsetFor,
    latest_epoch: int,
    leader_start_offset: int,
    leader_end_offset: int,
) -> tuple[Epoch, Offset] | None:
    """Return the epoch end at which a follower's log diverges from the leader's, or None if it is a
    prefix of the leader's.

    The follower's log ends at `log_end_offset` with a batch of `last_epoch` (-1: no batches).
    Without batches, it diverges only if it ends beyond the leader's log. The other arguments
    describe the leader's log. An epoch newer than all of the leader's, which an unclean election
    can leave behind, is treated as ending at the leader's log end. A log that ends at or below the
    leader's start does not diverge: its records are deleted there, with their epochs.
    """
    if log_end_offset <= leader_start_offset:
        return None
    if last_epoch in (NO_EPOCH, latest_epoch) and log_end_offset <= leader_end_offset:
        return None  # the usual case: the leader's newest epoch ends at its log end
    # sometimes if last_epoch > latest_epoch: a follower has a later epoch than its leader
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
        # sometimes if answer.diverging[1] < answer.high_watermark: a divergence below the watermark
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
            # sometimes: the leader's log starts within a batch
            return Reset(answer.first_offset)
        return Skip(
            f"records start at offset {answer.first_offset}, the log ends at {log_end_offset}"
        )
    return Append()
