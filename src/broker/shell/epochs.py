"""Where leader epochs end in a replica's log, for readers who look whether their past is its past.

The log knows an epoch from its first batch on. A leadership begins before that, at the log's end;
so a reader who heard of it and read nothing in it is answered as if it had an entry (KIP-320).
"""

from collections.abc import Sequence
from typing import Final

from ...errors import QuorumlogError
from ..requests import EpochEndOutcome, EpochEndSpec
from .replica import Find, Replica

UNKNOWN: Final = (-1, -1)


def end_offset_for(replica: Replica, epoch: int) -> tuple[int, int]:
    """Return the largest epoch of an open log that is not above `epoch`, and its end, exclusive.

    An epoch older than all that is left is answered with where the log's first one starts, a newer
    one than the present with `UNKNOWN`.
    """
    log, leadership = replica.log, replica.partition.leadership
    if leadership is None or epoch <= log.latest_epoch:
        return log.end_offset_for(epoch)
    if epoch > leadership.state.leader_epoch:
        return UNKNOWN
    # Nothing is written since the epoch began: the one before ends where the log does.
    is_present = epoch == leadership.state.leader_epoch
    known = epoch if is_present or log.latest_epoch < 0 else log.latest_epoch
    return known, log.log_end_offset


async def epoch_ends(find: Find, specs: Sequence[EpochEndSpec]) -> list[EpochEndOutcome]:
    """Look epochs up in the logs that this node leads, in the order of `specs`."""
    outcomes = []
    for spec in specs:
        try:
            replica = find(spec.topic, spec.partition, spec.topic_id)
            await replica.opened()
            replica.partition.check_leader(spec.current_leader_epoch)
            epoch, end_offset = end_offset_for(replica, spec.leader_epoch)
            outcomes.append(EpochEndOutcome(spec, epoch, end_offset))
        except QuorumlogError as error:
            outcomes.append(EpochEndOutcome(spec, -1, -1, error))
    return outcomes
