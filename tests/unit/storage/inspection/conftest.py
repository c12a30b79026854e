"""Data directories for inspection, written by the production code and kept as plain bytes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from quorumlog import simulation
from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records.codec import encode_batch
from quorumlog.records.compression import Codec
from quorumlog.records.control import MarkerType, encode_marker
from quorumlog.records.record import Record
from quorumlog.runtime import Files, Runtime
from quorumlog.simulation import SimWorld
from quorumlog.storage import AppendOrigin, FlushPolicy, Log, LogConfig
from quorumlog.storage.shell import DataDirectory
from quorumlog.storage.small_files import read_file, write_file

CLUSTER, ONE = ClusterId("c" * 22), NodeId(1)
TOPIC, COMPACTED = TopicId(bytes(range(16))), TopicId(bytes(range(1, 17)))
DATA = "/data"
Contents = dict[str, bytes]


@dataclass
class Tree:
    """A directory on a simulated file system that tests can damage and restore."""

    files: Files
    contents: Contents
    path: str = DATA

    def __post_init__(self) -> None:
        for path, content in self.contents.items():
            self.write(path, content)

    def write(self, path: str, content: bytes) -> None:
        """Replace the content of a file."""
        self.files.make_folder(path.rpartition("/")[0])
        write_file(self.files, path, content)

    def read(self, path: str) -> bytes:
        """Return a file's content."""
        return read_file(self.files, path)

    def flip(self, path: str, position: int, mask: int) -> None:
        """Flip the bits of the mask in one byte. A second call restores them."""
        file = self.files.open(path)
        byte = file.read(position, 1)[0]
        file.write(position, [bytes([byte ^ mask])])
        file.close()

    def all_paths(self, folder: str | None = None) -> list[str]:
        """Return the paths of all files below a folder."""
        found = []
        top = folder or self.path
        for name in self.files.names(top):
            path = f"{top}/{name}"
            found += self.all_paths(path) if self.files.is_folder(path) else [path]
        return found

    def all_contents(self) -> Contents:
        """Return the content of every file by path."""
        return {path: self.read(path) for path in self.all_paths()}


@pytest.fixture
def plant() -> Iterator[Callable[[Contents], Tree]]:
    """Write contents to a simulated file system."""
    with SimWorld(0) as world:
        node = world.node("node")
        node.start_process()
        files = node.runtime().files
        files.make_folder(DATA)
        yield lambda contents: Tree(files, contents)


@dataclass
class Script:
    """The appends to a log, batch by batch."""

    directory: DataDirectory
    log: Log
    epoch: int = 0
    clock: int = 1_000
    sequences: dict[int, int] = field(default_factory=dict)

    async def append(
        self,
        *values: str,
        codec: Codec = Codec.NONE,
        producer: int = -1,
        is_transactional: bool = False,
        key: bytes | None = b"k",
    ) -> None:
        """Append a batch of these values."""
        self.clock += 7
        records = [
            Record(0, self.clock + at, key, value.encode(), (("h", b"x"),) if at else ())
            for at, value in enumerate(values)
        ]
        sequence = self.sequences.get(producer, 0)
        batch = encode_batch(
            records,
            codec=codec,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence if producer >= 0 else -1,
            is_transactional=is_transactional,
        )
        if producer >= 0:
            self.sequences[producer] = sequence + len(values)
        # Clients may not append transactional batches by this call; a leader's batches are
        # accepted.
        await self._append(batch, AppendOrigin.CLIENT)

    async def end(self, producer: int, kind: MarkerType) -> None:
        """End a producer's transaction."""
        marker = encode_marker(
            producer_id=producer,
            producer_epoch=0,
            kind=kind,
            coordinator_epoch=0,
            timestamp_ms=self.clock,
        )
        await self._append(marker, AppendOrigin.INTERNAL)

    async def replicate(self, batch: bytes) -> None:
        """Append a batch as a follower does."""
        await self._append(batch, AppendOrigin.REPLICATED)

    async def _append(self, batch: bytes, origin: AppendOrigin) -> None:
        await self.directory.append(
            self.log, batch, leader_epoch=self.epoch, origin=origin, flush=False
        )


async def _fill(script: Script) -> None:
    """Append several epochs, codecs and segments, by idempotent and transactional producers."""
    await script.append("a", "b", "c")
    await script.append("d", codec=Codec.GZIP, producer=5)
    await script.append("e", "f", codec=Codec.ZSTD, producer=5)
    script.epoch = 3
    await script.append("t1", producer=9, is_transactional=True)
    await script.append("g", "h", codec=Codec.SNAPPY)
    await script.end(9, MarkerType.ABORT)
    await script.append("i", codec=Codec.LZ4, producer=5)
    script.epoch = 4
    await script.append("t2", producer=9, is_transactional=True)
    await script.end(9, MarkerType.COMMIT)
    await script.append("j", "k")


async def _fill_compacted(script: Script) -> None:
    """Append batches with the gaps that compaction leaves inside and between batches."""
    for offsets in ((0, 2), (5, 6, 9), (20,), (21, 30)):
        records = [Record(offset, 2_000 + offset, b"k%d" % offset, b"v") for offset in offsets]
        await script.replicate(
            encode_batch(records, base_offset=offsets[0], leader_epoch=0, keep_offsets=True)
        )


async def build(runtime: Runtime, *, is_closed: bool) -> Contents:
    """Build a directory with two logs. Return its contents after the stop."""
    await DataDirectory.format(runtime, DATA, cluster_id=CLUSTER, node_id=ONE)
    async with runtime.tasks.scope("life") as scope:
        directory = await DataDirectory.open(runtime, scope, DATA)
        config = LogConfig(
            segment_bytes=420, index_interval_bytes=0, flush_policy=FlushPolicy.FSYNC
        )
        log = await directory.open_log("t-0", config, topic_id=TOPIC)
        await _fill(Script(directory, log))
        compacted = LogConfig(segment_bytes=220, index_interval_bytes=0, compacted=True)
        gappy = await directory.open_log("c-0", compacted, topic_id=COMPACTED)
        await _fill_compacted(Script(directory, gappy))
        await directory.checkpoints.checkpoint()
        if is_closed:
            await directory.close()
        scope.cancel()
    contents = Tree(runtime.files, {}).all_contents()
    contents[f"{DATA}/cleaner-offset-checkpoint"] = b"0\n1\nc 0 31\n"
    return contents


@pytest.fixture(scope="session")
def closed_contents() -> Contents:
    """The contents of a directory after a clean stop."""
    return simulation.run(lambda runtime: build(runtime, is_closed=True))


@pytest.fixture(scope="session")
def killed_contents() -> Contents:
    """The contents of a directory after a kill, with everything flushed."""
    return simulation.run(lambda runtime: build(runtime, is_closed=False))
