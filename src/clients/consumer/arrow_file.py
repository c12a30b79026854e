"""Consumed records as a file of Parquet or of Arrow."""

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any, Final

from .record import ConsumerRecord

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_RECORDS: Final = 65_536  # per row group or record batch
GROUP_BYTES: Final = 32 << 20


class ArrowFileWriter:
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

    def write(self, records: Sequence[ConsumerRecord]) -> None:
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

    def _timestamps(self, records: Sequence[ConsumerRecord]) -> "pa.Array":
        import pyarrow as pa

        most = 2**63 // 1000 - 1  # the largest milliseconds that fit in 64-bit microseconds
        micros = [
            min(r.timestamp_ms, most) * 1000 if r.timestamp_ms >= 0 else None for r in records
        ]
        return pa.array(micros, pa.int64()).cast(self._type("timestamp"))

    def _type(self, name: str) -> "pa.DataType":
        return self._schema.field(name).type
