"""Transaction metadata of a cleaning run: aborted batches, and markers without batches.

A log is read from its start, so a marker before which no batch of its transaction was found has
outlived all of them. Batches without records count: they prove that the producer wrote.
"""

from bisect import bisect_right
from collections.abc import Iterable

from ..errors import CorruptionError
from ..records.batch import BatchHeader
from ..records.control import Marker, MarkerType
from .transaction_index import AbortedTransaction


class EndedTransactions:
    """The transactions met while reading a log, in the order of its batches."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted: dict[int, list[AbortedTransaction]] = {}  # by producer, by first offset
        for entry in sorted(aborted, key=lambda entry: entry.first_offset):
            self._aborted.setdefault(entry.producer_id, []).append(entry)
        self._met: set[AbortedTransaction] = set()
        # producers with batches of an undecided or committed transaction
        self._open: set[int] = set()

    def on_batch(self, header: BatchHeader) -> bool:
        """Process a data batch; return True if its records were aborted."""
        if not header.is_transactional:
            return False
        entry = self._entry_at(header)
        if entry is None:
            self._open.add(header.producer_id)
            return False
        self._met.add(entry)
        return True

    def on_marker(self, header: BatchHeader, marker: Marker) -> bool:
        """Process a marker; return True if no batch of its transaction is left.

        Raises CorruptionError if it aborts batches that are missing in the transaction index: they
        would be treated as committed.
        """
        was_open = header.producer_id in self._open
        self._open.discard(header.producer_id)
        match marker.kind:
            case MarkerType.COMMIT:
                return not was_open
            case MarkerType.ABORT:
                if was_open:
                    raise CorruptionError(
                        f"the marker at offset {header.base_offset} aborts a transaction of "
                        f"producer {header.producer_id} that is not in the transaction index"
                    )
                entry = self._entry_at(header)
                return entry is None or entry not in self._met

    def is_left(self, entry: AbortedTransaction) -> bool:
        """Return True if a batch of an aborted transaction was found."""
        return entry in self._met

    def _entry_at(self, header: BatchHeader) -> AbortedTransaction | None:
        entries = self._aborted.get(header.producer_id, ())
        at = bisect_right(entries, header.base_offset, key=_first_offset)
        if at and header.last_offset <= entries[at - 1].last_offset:
            return entries[at - 1]
        return None


def _first_offset(entry: AbortedTransaction) -> int:
    return entry.first_offset
