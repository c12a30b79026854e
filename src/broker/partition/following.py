"""What a follower does with its leader's answer, and where a leader sees that logs part.

Truncation goes by the ends of leader epochs and never by the high watermark (KIP-101, KIP-279);
each step may need another round until both logs agree.
"""

from collections.abc import Callable
from typing import TypeAlias

from ...ids import NO_EPOCH, Epoch, Offset
from .states import Append, FollowAnswer, FollowStep, Nothing, Reset, Truncate

EndOffsetFor: TypeAlias = Callable[[int], tuple[int, int]]
"""(largest epoch of a log that is not above the one asked for, its exclusive end); (-1, -1) where
the one asked for is newer than all of the log's."""


def divergence(
    last_epoch: int,
    log_end_offset: int,
    *,
    end_offset_for: EndOffsetFor,
    latest_epoch: int,
    leader_end_offset: int,
) -> tuple[Epoch, Offset] | None:
    """Where the leader's log parts from a follower's that ends at `log_end_offset` with a batch of
    `last_epoch` (-1: it has none); None: it is a beginning of the leader's. A log without batches
    parts only where it would go on beyond the leader's end.

    The rest is the leader's: its epochs, the newest of them and its log end. An epoch that is newer
    than all of the leader's, which an unclean election can bring, ends where its log ends.
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
    """What the follower's log, of which the offsets are, must do next."""
    if answer.diverging is not None:
        epoch, end = answer.diverging
        target = min(end, log_end_offset)
        if epoch != NO_EPOCH:
            own_epoch, own_end = end_offset_for(epoch)
            # Without that epoch the own end of the next older one is what can be shared at most;
            # whether it is shared shows in the next round.
            if own_epoch != NO_EPOCH:
                target = min(target, own_end)
        if target < log_start_offset:
            return Reset(answer.log_start_offset)
        return Truncate(Offset(target)) if target < log_end_offset else Nothing()
    if answer.log_start_offset > log_end_offset:
        return Reset(answer.log_start_offset)  # what would come next is deleted there (KAFKA-9491)
    if answer.first_offset is None:
        return Nothing()
    if answer.first_offset < log_end_offset:
        if log_start_offset == log_end_offset:
            # The leader's log starts within a batch, or before the start of the empty one here, and
            # batches come whole: the empty log begins with it, and its start moves to the leader's
            # behind that.
            return Reset(answer.first_offset)
        return Nothing(f"records from {answer.first_offset} on, the log ends at {log_end_offset}")
    return Append()
