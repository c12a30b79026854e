"""Files of records in Parquet, Arrow, CSV or JSON lines, by the suffix of the name.

Columns: topic, partition, offset, timestamp, key, value, headers. Parquet and Arrow have binary
keys and values, and timestamps in microseconds (UTC), as `read_arrow` returns them. CSV has text,
base64 for content that is not UTF-8 (marked in the encoding columns), and headers as JSON.
"""

import csv
import json
import os
from collections.abc import Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol

from ...errors import DiskFailed, InvalidRequest
from ..output import time_text
from ..record_json import MEMBERS, record_json, record_line

if TYPE_CHECKING:
    import pyarrow as pa

    from ...clients.consumer.record import ConsumerRecord

ENDINGS = (".parquet", ".arrow", ".csv", ".jsonl")
ARROW_ENDINGS = (".parquet", ".arrow")
GROUP_RECORDS = 65_536  # per row group or record batch
GROUP_BYTES = 32 << 20


class Sink(Protocol):
    """A writer of one file format."""

    def write(self, records: "Sequence[ConsumerRecord]") -> None:
        """Write or buffer records."""

    def close(self) -> None:
        """Write buffered records and the footer."""


class RecordFile:
    """A file of records. Leaving the context completes it, also after an error.

    Raises InvalidRequest for an unknown suffix and for an existing file (unless `overwrite`), and
    DiskFailed if writing fails.
    """

    def __init__(self, path: str, *, overwrite: bool) -> None:
        ending = os.path.splitext(path)[1].lower()
        if ending not in ENDINGS:
            raise InvalidRequest(f"{path}: unknown suffix; use one of {', '.join(ENDINGS)}")
        if os.path.exists(path) and not overwrite:
            raise InvalidRequest(f"{path} exists; --overwrite replaces it")
        self.path = path
        self.count = 0
        self.is_whole = False  # closed, with every record of `count`
        self.ends: dict[tuple[str, int], int] = {}  # next offset of each partition
        self._ending = ending
        # Parquet and Arrow files are readable only with their footer.
        self.is_read_when_closed = ending in ARROW_ENDINGS
        self._mode: Literal["wb", "xb"] = "wb" if overwrite else "xb"
        self._file: IO[bytes]
        self._sink: Sink

    def __enter__(self) -> "RecordFile":
        try:
            self._file = open(self.path, self._mode)  # closed in __exit__
        except OSError as error:
            raise self._failed(error) from None
        if self._ending in ARROW_ENDINGS:
            self._sink = ArrowSink(self._file, is_parquet=self._ending == ".parquet")
        else:
            self._sink = TextSink(self._file, is_csv=self._ending == ".csv")
        return self

    def write(self, records: "Sequence[ConsumerRecord]") -> None:
        """Write records; raise DiskFailed if the file cannot be written."""
        try:
            self._sink.write(records)
        except OSError as error:
            raise self._failed(error) from None
        self.count += len(records)
        self.ends |= {(each.topic, each.partition): each.offset + 1 for each in records}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            try:
                self._sink.close()
            finally:
                self._file.close()
        except OSError as failure:
            if not isinstance(error, DiskFailed):
                raise self._failed(failure) from None
        else:
            self.is_whole = not isinstance(error, DiskFailed)

    def _failed(self, error: OSError) -> DiskFailed:
        return DiskFailed(f"{self.path} cannot be written: {error.strerror or error}")


class TextSink:
    """The writer of JSON lines and CSV."""

    def __init__(self, file: IO[bytes], *, is_csv: bool) -> None:
        self._file = file
        self._is_csv = is_csv
        if is_csv:
            self._write_rows([dict.fromkeys(MEMBERS)], header=True)

    def write(self, records: "Sequence[ConsumerRecord]") -> None:
        """Write and flush records, so that a reader of the growing file sees them."""
        if self._is_csv:
            self._write_rows([record_json(record) for record in records], header=False)
        else:
            self._file.write("".join(record_line(r) + "\n" for r in records).encode())
        self._file.flush()

    def close(self) -> None:
        """Flush the file."""
        self._file.flush()

    def _write_rows(self, rows: list[dict[str, Any]], *, header: bool) -> None:
        from io import StringIO

        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if header:
            writer.writerow(MEMBERS)
        else:
            for row in rows:
                row["timestamp"] = time_text(row["timestamp"])
                row["headers"] = json.dumps(row["headers"], ensure_ascii=False)
                writer.writerow([row.get(name) for name in MEMBERS])
        self._file.write(text.getvalue().encode())


class ArrowSink:
    """The writer of Parquet and of Arrow's file format, in row groups of bounded size."""

    def __init__(self, file: IO[bytes], *, is_parquet: bool) -> None:
        import pyarrow as pa

        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        self._schema = pa.schema(
            [
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("us", tz="UTC")),
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("headers", pa.list_(header)),
            ]
        )
        self._held: list[ConsumerRecord] = []
        self._held_bytes = 0
        self._writer: Any
        if is_parquet:
            from pyarrow import parquet

            self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        else:
            self._writer = pa.ipc.new_file(file, self._schema)

    def write(self, records: "Sequence[ConsumerRecord]") -> None:
        """Buffer records; write a full row group."""
        self._held.extend(records)
        self._held_bytes += sum(len(r.key or b"") + len(r.value or b"") for r in records)
        if len(self._held) >= GROUP_RECORDS or self._held_bytes >= GROUP_BYTES:
            self._write_held()

    def close(self) -> None:
        """Write the last row group and the footer."""
        if self._held:
            self._write_held()
        self._writer.close()

    def _write_held(self) -> None:
        import pyarrow as pa

        records, self._held, self._held_bytes = self._held, [], 0
        self._writer.write_batch(
            pa.RecordBatch.from_arrays(
                [
                    pa.array([r.topic for r in records], self._type("topic")),
                    pa.array([r.partition for r in records], self._type("partition")),
                    pa.array([r.offset for r in records], self._type("offset")),
                    self._timestamps(records),
                    pa.array([r.key for r in records], self._type("key")),
                    pa.array([r.value for r in records], self._type("value")),
                    pa.array(
                        [[{"key": k, "value": v} for k, v in r.headers] for r in records],
                        self._type("headers"),
                    ),
                ],
                schema=self._schema,
            )
        )

    def _timestamps(self, records: "Sequence[ConsumerRecord]") -> "pa.Array":
        import pyarrow as pa

        most = 2**63 // 1000 - 1  # the largest milliseconds that fit in 64-bit microseconds
        micros = [
            min(r.timestamp_ms, most) * 1000 if r.timestamp_ms >= 0 else None for r in records
        ]
        return pa.array(micros, pa.int64()).cast(self._type("timestamp"))

    def _type(self, name: str) -> "pa.DataType":
        return self._schema.field(name).type
