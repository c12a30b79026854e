"""End offsets of leader epochs, for readers that check for log truncation (KIP-320).

The log has an epoch from its first batch on. A leadership starts earlier, at the log's end. A
reader that knows its epoch without a record of it is answered as if the log had that epoch.
"""

from collections.abc import Sequence
from typing import Final

from ...errors import QuorumlogError
from ..requests import EpochEndOutcome, EpochEndSpec
from .replica import Find, Replica

UNKNOWN: Final = (-1, -1)


def end_offset_for(replica: Replica, epoch: int) -> tuple[int, int]:
    """Return the largest epoch of an open log that is not above `epoch`, and its end, exclusive.

    For an epoch older than the log, the end is the start of the log's first epoch; for an epoch
    newer than the current one, the result is `UNKNOWN`.
    """
    log, leadership = replica.log, replica.partition.leadership
    if leadership is None or epoch <= log.latest_epoch:
        return log.end_offset_for(epoch)
    if epoch > leadership.state.leader_epoch:
        return UNKNOWN
    # No record of the epoch yet, so the previous one ends at the log end.
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
