"""Both implementations of the files port, and batches for logs."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.unit.storage.log_truncation import truncate

from quorumlog import simulation
from quorumlog.ids import ClusterId, NodeId
from quorumlog.records.codec import decode_all, encode_batch
from quorumlog.records.compression import Codec
from quorumlog.records.record import Record
from quorumlog.runtime import Files, Runtime, real
from quorumlog.runtime.files import RealFiles
from quorumlog.simulation import SimWorld
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, Log, LogConfig
from quorumlog.storage.append import write_fully
from quorumlog.storage.file_pool import FilePool
from quorumlog.storage.flush import perform_flush
from quorumlog.storage.index import IndexCache
from quorumlog.storage.recovery import Recovery, recover
from quorumlog.storage.shell import Appended, DataDirectory

Main = Callable[[Runtime, str], Coroutine[Any, Any, Any]]
MakeBatch = Callable[..., bytes]

CLUSTER, ONE = ClusterId("c" * 22), NodeId(1)


@pytest.fixture(params=["real", "simulated"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Main], Any]:
    """Run `main(runtime, data_dir)` on either runtime. The runs of one test share their files."""
    if request.param == "real":
        return lambda main: real.run(lambda runtime: main(runtime, str(tmp_path / "data")))
    return lambda main: simulation.run(lambda runtime: main(runtime, "/data"))


@dataclass(frozen=True)
class Place:
    """A file system and a folder in it."""

    files: Files
    folder: str


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A folder on either file system, for code without an event loop."""
    if request.param == "real":
        yield Place(RealFiles(), str(tmp_path))
        return
    with SimWorld(0) as world:
        node = world.node("node")
        node.start_process()
        files = node.runtime().files
        files.make_folder("/data")
        yield Place(files, "/data")


def make_batch(
    count: int = 1,
    *,
    value: bytes = b"v",
    size: int = 0,
    timestamp: int = 1_000,
    step: int = 1,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Build a batch of `count` records; `size` pads each value."""
    records = [
        Record(
            offset=0,
            timestamp_ms=timestamp + index * step,
            key=None,
            value=(value + b"-%d" % index).ljust(size, b"."),
            headers=(),
        )
        for index in range(count)
    ]
    return encode_batch(records, codec=codec, base_offset=base_offset, leader_epoch=leader_epoch)


@pytest.fixture
def batch() -> MakeBatch:
    return make_batch


class Bench:
    """A log on a file system without a data directory, for tests of the pure code."""

    def __init__(self, place: Place, config: LogConfig, *, name: str = "t-0") -> None:
        self.place = place
        self.config = config
        self.name = name
        self.folder = f"{place.folder}/{name}"
        self.log = self.open()

    def open(
        self,
        *,
        is_clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        torn_bytes_max: int = 2**21,
    ) -> Log:
        """Open the log, also again after a close or a simulated crash."""
        recovery = Recovery(
            folder=self.folder,
            config=self.config,
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            torn_bytes_max=torn_bytes_max
            if self.config.flush_policy is FlushPolicy.FSYNC
            else None,
            wall_ms=0,
        )
        self.log = Log(
            FilePool(self.place.files, open_files_max=4),
            IndexCache(1 << 20),
            name=self.name,
            folder=self.folder,
            config=self.config,
            topic_id=None,
            state=recover(self.place.files, recovery),
        )
        return self.log

    def append(
        self,
        batches: bytes,
        *,
        epoch: int = 0,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        wall_ms: int = 0,
    ) -> int:
        """Write the append at once. Return its base offset."""
        write = self.log.appender.prepare(
            batches, leader_epoch=epoch, wall_ms=wall_ms, origin=origin
        )
        assert write is not None, "no write is outstanding"
        write_fully(write.file, write.position, write.buffers)
        self.log.appender.complete(write)
        return write.base_offset

    def flush(self, *, is_last: bool = False) -> None:
        """Flush at once."""
        flush = self.log.flusher.begin(is_last=is_last)
        perform_flush(self.place.files, flush)
        self.log.flusher.complete(flush)

    def truncate(self, offset: int) -> None:
        """Truncate at once."""
        truncate(self.log, self.place.files, offset)

    def close(self) -> None:
        """Close as in a clean stop."""
        self.flush(is_last=True)
        self.log.close("closed")

    def read(self, offset: int, *, max_bytes: int = 1 << 20, **options: Any) -> bytes:
        """Read one range from its file."""
        found = self.log.read(offset, max_bytes=max_bytes, **options)
        if found is None:
            return b""
        content = found.read()
        found.release()
        return content


@pytest.fixture
def bench(place: Place) -> Callable[..., Bench]:
    """Create a log on either file system. Keyword arguments are fields of `LogConfig`."""
    return lambda **config: Bench(place, LogConfig(**config))


class Kit:
    """Operations that the tests of a data directory share."""

    @staticmethod
    @asynccontextmanager
    async def opened(
        runtime: Runtime, path: str, *, config: DirectoryConfig | None = None, close: bool = True
    ) -> AsyncIterator[DataDirectory]:
        """Open the directory, formatted if it is new, and close it at the end if asked."""
        await DataDirectory.format(runtime, path, cluster_id=CLUSTER, node_id=ONE)
        async with runtime.tasks.scope("life") as scope:
            directory = await DataDirectory.open(runtime, scope, path, config=config)
            try:
                yield directory
                if close:
                    await directory.close()
            finally:
                scope.cancel()

    @staticmethod
    async def append(
        directory: DataDirectory, log: Log, batches: bytes, *, epoch: int = 0, flush: bool = True
    ) -> Appended:
        """Append with the origin of a client."""
        return await directory.append(
            log, batches, leader_epoch=epoch, origin=AppendOrigin.CLIENT, flush=flush
        )

    @staticmethod
    async def values(directory: DataDirectory, log: Log) -> list[bytes | None]:
        """Read all values of a log."""
        found: list[bytes | None] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            taken = log.read(offset, max_bytes=5_000)
            assert taken is not None
            found += [record.value for record in decode_all(await directory.reader.read(taken))]
            offset = taken.next_offset
        return found


@pytest.fixture
def kit() -> Kit:
    return Kit()
