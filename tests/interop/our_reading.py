"""A data folder of Kafka opened by the storage of quorumlog."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from quorumlog.runtime import Runtime, real
from quorumlog.storage import Log, LogConfig
from quorumlog.storage.shell import DataDirectory

T = TypeVar("T")
READ_BYTES = 1 << 20


def opened(folder: Path, work: Callable[[DataDirectory], Awaitable[T]]) -> T:
    """Open the folder, run the work, close it in order, and return the result."""

    async def main(runtime: Runtime) -> T:
        async with runtime.tasks.scope("life") as scope:
            directory = await DataDirectory.open(runtime, scope, str(folder))
            try:
                result = await work(directory)
                await directory.close()
            finally:
                scope.cancel()
        return result

    return real.run(main)


async def open_log(directory: DataDirectory, name: str) -> Log:
    """Open a log with the topic id of its folder."""
    config = LogConfig(compacted=name.startswith("compacted"))
    return await directory.open_log(name, config, topic_id=await directory.folders.topic_of(name))


async def content(directory: DataDirectory, log: Log) -> bytes:
    """Return every batch from the log's start to its end, as stored."""
    parts = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, max_bytes=READ_BYTES)
        if found is None:
            break
        parts.append(await directory.reader.read(found))
        assert found.next_offset > offset, f"{log.name} has no batch at {offset}"
        offset = found.next_offset
    return b"".join(parts)
