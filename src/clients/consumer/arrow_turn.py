"""One Arrow poll of a consumer: rows of several partitions, limited by number and size."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import QuorumlogError
from ..offsets import Place
from .arrow_rows import decode_rows, table_schema
from .partition_reader import Chunk, PartitionReader, window

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows decoded in one step, to be delivered by several polls: row i has the offset `first` +
    i."""

    rows: "pa.RecordBatch"
    first: int

    def has(self, schema: "pa.Schema", start: int, end: int) -> bool:
        """Return True if they contain these columns of [start, end)."""
        behind = self.first + self.rows.num_rows
        return self.first <= start and end <= behind and bool(self.rows.schema == schema)


class ArrowTurn:
    """The rows of one poll; see `AsyncConsumer.poll_arrow`."""

    def __init__(self, columns: Sequence[str], *, max_records: int | None, max_bytes: int) -> None:
        self._schema = table_schema(columns)
        self._batches: list[pa.RecordBatch] = []
        self._records_left = max_records  # None: no limit
        self._bytes_left = max_bytes
        self.rows = 0
        self.starts: dict[Place, int] = {}  # position of each partition before its first row

    @property
    def is_full(self) -> bool:
        """True if a limit is reached."""
        return self._bytes_left <= 0 or self._records_left == 0

    def take(self, reader: PartitionReader) -> bool:
        """Take rows of one chunk of a partition; return True if there were any.

        A batch that cannot be decoded ends the partition's reading, see `PartitionReader.cut`.
        """
        rows = 0
        self.starts.setdefault((reader.topic, reader.partition), reader.position)
        while reader.chunks and not rows and not self.is_full:
            rows = self._take(reader, reader.chunks[0])
        return rows > 0

    def table(self) -> "pa.Table":
        """Return the rows as a table."""
        import pyarrow as pa

        return pa.Table.from_batches(self._batches, schema=self._schema)

    def _take(self, reader: PartitionReader, chunk: Chunk) -> int:
        start, end, size = window(chunk, reader.position, self._bytes_left)
        whole = end
        if self._records_left is not None:
            end = min(end, start + self._records_left)
        try:
            rows = self._kept(reader, chunk, start, end, whole)
            if rows is None:
                rows = self._decode(reader, chunk, start, end)
        except QuorumlogError as error:
            end = min(end, reader.cut(chunk, error))
            reader.fetch_offset = reader.position  # in case that decoding fails again
            rows = self._decode(reader, chunk, start, end)
            reader.fetch_offset = end
        reader.skip_to(end)
        if rows.num_rows:
            self._batches.append(rows)
            self.rows += rows.num_rows
            self._bytes_left -= size
            if self._records_left is not None:
                self._records_left -= rows.num_rows
        return int(rows.num_rows)

    def _kept(
        self, reader: PartitionReader, chunk: Chunk, start: int, end: int, whole: int
    ) -> "pa.RecordBatch | None":
        """Return the rows of [start, end) from a slice of the rows up to `whole`, decoded once.

        None if that is not possible: offsets are missing in the range, or a batch cannot be
        decoded.
        """
        end, whole = reader.wanted(end), reader.wanted(whole)
        kept = reader.rows if isinstance(reader.rows, KeptRows) else None
        if kept is None or not kept.has(self._schema, start, end):
            if end >= whole:
                return None  # one poll takes all
            try:
                kept = KeptRows(self._decode(reader, chunk, start, whole), start)
            except QuorumlogError:
                return None  # raised when the batch is reached
            if kept.rows.num_rows != whole - start:
                return None
            reader.rows = kept
        return kept.rows.slice(start - kept.first, end - start)

    def _decode(
        self, reader: PartitionReader, chunk: Chunk, start: int, end: int
    ) -> "pa.RecordBatch":
        return decode_rows(
            chunk.batches,
            self._schema,
            topic=reader.topic,
            partition=reader.partition,
            start_offset=start,
            end_offset=reader.wanted(end),
        )
