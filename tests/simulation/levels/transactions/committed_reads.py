"""Reading committed data, as Kafka's clients do it."""

from dataclasses import dataclass, field
from typing import Any

from quorumlog.records.control import MarkerType

from ...checkers.transaction_logs import batches_of

READ_UNCOMMITTED, READ_COMMITTED = 0, 1


@dataclass(slots=True)
class CommittedPart:
    """The committed records of one response, and the next position."""

    position: int
    records: list[tuple[int, bytes]] = field(default_factory=list)  # offset, value


def committed_part(part: Any, position: int) -> CommittedPart:
    """Return the committed records of a partition's response from `position` on.

    A client drops the batches of the transactions that the response lists as aborted, from their
    first offset to their abort marker.
    """
    found = CommittedPart(position)
    listed = part.aborted_transactions or ()
    aborted = sorted((one.first_offset, one.producer_id) for one in listed)
    active: set[int] = set()
    for batch in batches_of(part.records or b""):
        while aborted and aborted[0][0] <= batch.last_offset:
            active.add(aborted.pop(0)[1])
        if batch.marker is MarkerType.ABORT:
            active.discard(batch.producer_id)
        elif batch.marker is None and not (batch.is_transactional and batch.producer_id in active):
            found.records += [
                (offset, value) for offset, _, value in batch.records if offset >= position
            ]
        found.position = max(found.position, batch.last_offset + 1)
    return found
