"""A blocking Arrow scan: a `pa.RecordBatchReader` over the I/O thread."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..consumer.arrow_reader import ArrowScan
from ..log import AsyncLog

if TYPE_CHECKING:
    import pyarrow as pa

    from .log import Log


def open_reader(log: "Log", make: Callable[[AsyncLog], ArrowScan]) -> "pa.RecordBatchReader":
    """Return a reader of a scan's batches; each batch is fetched when it is read."""
    import pyarrow as pa

    async def begin(client: AsyncLog) -> ArrowScan:
        return make(client)

    scan = log.call(begin)
    return pa.RecordBatchReader.from_batches(scan.schema, _batches(log, scan))


def _batches(log: "Log", scan: ArrowScan) -> Iterator["pa.RecordBatch"]:
    io, _ = log.opened()
    try:
        while (batch := io.wait(scan.next_batch())) is not None:
            yield batch
    finally:  # may run in the garbage collector on any thread: must not wait
        if not io.loop.is_closed():
            io.loop.call_soon_threadsafe(scan.close)
