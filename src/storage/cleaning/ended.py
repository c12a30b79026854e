"""Transactions as the cleaner meets them: whose batches were aborted, and which markers are left
without any.

A log is walked from its start, so a marker behind no batch of its transaction has outlived them
all. Batches without records count as batches: they say that a producer was there.
"""

from bisect import bisect_right
from collections.abc import Iterable

from ...errors import CorruptionError
from ...records.batch import BatchHeader
from ...records.control import Marker, MarkerType
from ..producers.transactions import AbortedTransaction


class EndedTransactions:
    """The transactions of one walk over a log, in the order of its batches."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted: dict[int, list[AbortedTransaction]] = {}  # by producer, by first offset
        for entry in sorted(aborted, key=lambda entry: entry.first_offset):
            self._aborted.setdefault(entry.producer_id, []).append(entry)
        self._met: set[AbortedTransaction] = set()
        self._open: set[int] = set()  # producers of batches whose transaction was not aborted

    def on_batch(self, header: BatchHeader) -> bool:
        """Take in a data batch; return whether its records were aborted."""
        if not header.is_transactional:
            return False
        entry = self._entry_at(header)
        if entry is None:
            self._open.add(header.producer_id)
            return False
        self._met.add(entry)
        return True

    def on_marker(self, header: BatchHeader, marker: Marker) -> bool:
        """Take in a marker; return whether no batch of its transaction is left.

        Raises CorruptionError when it aborts batches of which the index knows nothing: they would
        pass for committed.
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
        """Whether a batch of an aborted transaction was met."""
        return entry in self._met

    def _entry_at(self, header: BatchHeader) -> AbortedTransaction | None:
        entries = self._aborted.get(header.producer_id, ())
        at = bisect_right(entries, header.base_offset, key=_first_offset)
        if at and header.last_offset <= entries[at - 1].last_offset:
            return entries[at - 1]
        return None


def _first_offset(entry: AbortedTransaction) -> int:
    return entry.first_offset
