"""Reads a partition of an internal topic in slices, between which the event loop runs.

A record replaces the earlier records of its key, and only the newest one is decoded: a segment that
is not compacted yet may hold many records of a key. The search for newer records is limited to a
window of entries.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from ....errors import CorruptionError
from ....ids import ProducerIdentity
from ....records import Record, decode_all, iterate_batches
from ....records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from ....records.control import MarkerType, TransactionMarker, parse_marker
from ....storage import Log
from ....storage.shell.data_directory import DataDirectory

READ_BYTES: Final = 256 << 10
"""The size of one read; a larger batch is read whole."""
RECORDS_A_STEP: Final = 200
"""Records decoded in one slice: about two milliseconds."""
WINDOW_RECORDS: Final = 50_000
"""Entries kept undecoded; a replaced record is not counted. Only the sizes of the records limit
the bytes of the window."""

Undecoded: TypeAlias = tuple[Record, ProducerIdentity | None] | TransactionMarker
"""A record with the producer of its transactional batch, or a control batch."""
Entry: TypeAlias = tuple[Any, ProducerIdentity | None] | TransactionMarker
"""The same with a decoded record."""


class RecordWindow:
    """Records in log order, without those that a later one replaces.

    A record is replaced by a later one of its key if neither is in a transaction. All others stay.
    """

    def __init__(self) -> None:
        self._entries: dict[bytes | int, Undecoded] = {}  # by key; by number without a key
        self._unkeyed = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, found: Iterable[Undecoded]) -> None:
        """Add the next entries of the log."""
        entries = self._entries
        for entry in found:
            key = None
            if not isinstance(entry, TransactionMarker) and entry[1] is None:
                key = entry[0].key
            if key is None:
                self._unkeyed += 1
                entries[self._unkeyed] = entry
            else:
                entries.pop(key, None)  # the new record is the last one
                entries[key] = entry

    def take(self) -> deque[Undecoded]:
        """Return all entries and remove them."""
        taken = deque(self._entries.values())
        self._entries.clear()
        return taken


class ShardLoader:
    """Reads the newest records of [log start, `end_offset`) of a partition, in order.

    Records that are replaced within a window of WINDOW_RECORDS are not decoded; see `RecordWindow`.
    """

    def __init__(
        self,
        directory: DataDirectory,
        log: Log,
        *,
        end_offset: int,
        partition: int,
        kind: str,
        decode: Callable[[Record], Any],
        skips_damage: bool = True,
    ) -> None:
        """`kind` is the prefix of log events. `decode` returns the decoded record, or None to skip
        it; it raises CorruptionError. A damaged record or batch is logged, and skipped or
        raised."""
        self._reader = directory.reader
        self._log = log
        self._end_offset = end_offset
        self._partition = partition
        self._kind = kind
        self._logger = logging.getLogger(f"quorumlog.{kind}")
        self._decode = decode
        self._skips_damage = skips_damage
        self._damage: CorruptionError | None = None  # of a batch
        self._offset: int = log.log_start_offset
        self._window = RecordWindow()
        self._due: deque[Undecoded] = deque()  # to be decoded

    async def take(self) -> list[Entry] | None:
        """Return the next entries, possibly none, and None at the end. Each call yields to the
        event loop.

        Raises DiskFailed, Overloaded, and CorruptionError unless damage is skipped.
        """
        await asyncio.sleep(0)
        entries: list[Entry] = []
        if not self._due:
            if len(self._window) < WINDOW_RECORDS and await self._fill():
                return entries
            self._due = self._window.take()
            if not self._due:
                return None
        for _ in range(min(RECORDS_A_STEP, len(self._due))):
            taken = self._due.popleft()
            if isinstance(taken, TransactionMarker):
                entries.append(taken)
            elif (record := self._decoded(taken[0])) is not None:
                entries.append((record, taken[1]))
        return entries

    def _decoded(self, record: Record) -> Any:
        try:
            return self._decode(record)
        except CorruptionError as error:
            self._logger.error(
                "%s.damaged_record partition=%d offset=%d error=%s",
                self._kind,
                self._partition,
                record.offset,
                error,
            )
            if not self._skips_damage:
                raise
            return None

    async def _fill(self) -> bool:
        """Read the next bytes; return False at the end."""
        if self._offset >= self._end_offset:
            return False
        found = self._log.read(
            self._offset, max_bytes=READ_BYTES, end_offset=self._end_offset, min_one=True
        )
        if found is None:
            return False
        content = await self._reader.read(found)
        # The content may be empty: the read may find that compaction has removed everything up to
        # the next segment.
        end = found.end_of(content) if content else found.next_offset
        self._read_content(content)
        if self._damage is not None and not self._skips_damage:
            raise self._damage
        self._offset = max(self._offset + 1, end)
        return True

    def _read_content(self, content: bytes) -> None:
        """Add the entries of the batches to the window, without those of a damaged batch."""
        start, end = self._offset, self._end_offset
        try:
            if not _has_transactions(content):
                found = decode_all(content, start_offset=start, end_offset=end)
                self._window.add([(record, None) for record in found])
                return
        except CorruptionError:
            pass  # the good batches are read one by one
        view = memoryview(content)
        try:
            for position, header in iterate_batches(view):
                batch = view[position : position + header.size]
                try:
                    self._window.add(list(_entries(batch, header, start, end)))
                except CorruptionError as error:
                    self._report_damage(header.base_offset, error)
        except CorruptionError as error:
            self._report_damage(start, error)

    def _report_damage(self, offset: int, error: CorruptionError) -> None:
        self._logger.error(
            "%s.damaged_batch partition=%d offset=%d error=%s",
            self._kind,
            self._partition,
            offset,
            error,
        )
        self._damage = error


def _has_transactions(content: bytes) -> bool:
    """Return True if a batch is transactional; raise CorruptionError for an invalid header."""
    bits = TRANSACTIONAL_BIT | CONTROL_BIT
    return any(header.attributes & bits for _, header in iterate_batches(content))


def _entries(batch: memoryview, header: BatchHeader, start: int, end: int) -> Iterator[Undecoded]:
    """Yield the entries of one batch in [start, end); raise CorruptionError."""
    producer = ProducerIdentity(header.producer_id, header.producer_epoch)
    if header.is_control:
        marker = parse_marker(batch, 0, header)
        if marker is not None and start <= header.base_offset < end:
            is_commit = marker.kind is MarkerType.COMMIT
            yield TransactionMarker(producer, marker.coordinator_epoch, is_commit, 0)
        return
    written_by = producer if header.is_transactional else None
    for record in decode_all(batch, start_offset=start, end_offset=end):
        yield record, written_by
