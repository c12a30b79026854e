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

from ...clients.consumer.arrow_file import ArrowFileWriter
from ...clients.consumer.record_json import MEMBERS, record_json, record_line
from ...errors import DiskFailed, InvalidRequest
from ..output import time_text

if TYPE_CHECKING:
    from ...clients.consumer.record import ConsumerRecord

ENDINGS = (".parquet", ".arrow", ".csv", ".jsonl")
ARROW_ENDINGS = (".parquet", ".arrow")


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
            self._sink = ArrowFileWriter(self._file, is_parquet=self._ending == ".parquet")
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
