"""Reads a partition of an internal topic in slices, between which the event loop runs."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
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

Entry: TypeAlias = tuple[Any, ProducerIdentity | None] | TransactionMarker
"""A decoded record with the producer of its transactional batch, or a control batch."""


class ShardLoader:
    """Reads the records of [log start, `end_offset`) of a partition, in order.

    A damaged record or batch is logged and skipped.
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
    ) -> None:
        """`kind` is the prefix of log events. `decode` returns the decoded record, or None to skip
        it; it raises CorruptionError."""
        self._reader = directory.reader
        self._log = log
        self._end_offset = end_offset
        self._partition = partition
        self._kind = kind
        self._logger = logging.getLogger(f"quorumlog.{kind}")
        self._decode = decode
        self._offset: int = log.log_start_offset
        self._read: deque[tuple[Record, ProducerIdentity | None] | TransactionMarker] = deque()

    async def take(self) -> list[Entry] | None:
        """Return the next entries, possibly none, and None at the end. Each call yields to the
        event loop.

        Raises DiskFailed, Overloaded.
        """
        await asyncio.sleep(0)
        if not self._read and not await self._fill():
            return None
        entries: list[Entry] = []
        for _ in range(min(RECORDS_A_STEP, len(self._read))):
            taken = self._read.popleft()
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
        self._offset = max(self._offset + 1, end)
        return True

    def _read_content(self, content: bytes) -> None:
        """Queue the entries of the batches, without those of a damaged batch."""
        start, end = self._offset, self._end_offset
        try:
            if not _has_transactions(content):
                found = decode_all(content, start_offset=start, end_offset=end)
                self._read.extend([(record, None) for record in found])
                return
        except CorruptionError:
            pass  # the good batches are read one by one
        view = memoryview(content)
        try:
            for position, header in iterate_batches(view):
                batch = view[position : position + header.size]
                try:
                    self._read.extend(_entries(batch, header, start, end))
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


def _has_transactions(content: bytes) -> bool:
    """Return True if a batch is transactional; raise CorruptionError for an invalid header."""
    bits = TRANSACTIONAL_BIT | CONTROL_BIT
    return any(header.attributes & bits for _, header in iterate_batches(content))


def _entries(
    batch: memoryview, header: BatchHeader, start: int, end: int
) -> Iterator[tuple[Record, ProducerIdentity | None] | TransactionMarker]:
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
