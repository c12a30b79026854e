"""A recovery skips the start of a segment whose stored index covers it."""

from collections.abc import Callable
from typing import Any

import pytest

from quorumlog.storage import Log, LogConfig
from quorumlog.storage.checkpoints import encode_epochs
from quorumlog.storage.config import MIB
from quorumlog.storage.file_pool import FilePool
from quorumlog.storage.index import IndexCache
from quorumlog.storage.layout import LEADER_EPOCHS
from quorumlog.storage.recovery import Recovery, recover
from quorumlog.storage.small_files import replace_file

Bench = Any  # conftest.Bench
MakeBench = Callable[..., Bench]
MakeBatch = Callable[..., bytes]

SEGMENT = 32 * MIB  # its index is stored every 4 MiB
BATCHES = 290
WHOLE = 11 * MIB  # of 14: headers of the whole log, and the bytes above the recovery point


class CountedFiles:
    """A files port that counts the bytes read from .log files."""

    def __init__(self, files: Any) -> None:
        self._files = files
        self.read_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open(self, path: str, *, create: bool = False) -> Any:
        return CountedFile(self, self._files.open(path, create=create))

    def open_readonly(self, path: str) -> Any:
        return CountedFile(self, self._files.open_readonly(path))


class CountedFile:
    def __init__(self, counted: CountedFiles, file: Any) -> None:
        self._counted = counted
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, position: int, size: int) -> bytes:
        content: bytes = self._file.read(position, size)
        if self._file.path.endswith(".log"):
            self._counted.read_bytes += len(content)
        return content


def grown(bench: MakeBench, batch: MakeBatch) -> tuple[Bench, int]:
    """Return a log of 14 MiB in one segment and its recovery point.

    It is flushed at intervals, but not at its end.
    """
    b = bench(segment_bytes=SEGMENT)
    for number in range(BATCHES):
        b.append(batch(2, size=25_000, timestamp=1_000 + (number * 7) % 50), epoch=number // 99)
        if number % 20 == 19 and number < BATCHES - 20:
            b.flush()
    epochs = encode_epochs(b.log.epochs.entries())
    replace_file(b.place.files, b.folder, LEADER_EPOCHS, epochs)
    point = b.log.flushed_end_offset
    assert point < b.log.log_end_offset
    b.log.close("crash")
    return b, point


def recovered(b: Bench, point: int) -> tuple[Log, int]:
    """Recover as after a crash. Return the log and the number of log bytes read."""
    counted = CountedFiles(b.place.files)
    recovery = Recovery(
        folder=b.folder,
        config=LogConfig(segment_bytes=SEGMENT),
        is_clean=False,
        recovery_point=point,
        log_start_offset=0,
        torn_bytes_max=None,
        wall_ms=0,
    )
    state = recover(counted, recovery)
    assert state.log_end_offset == b.open().log_end_offset
    b.log = Log(
        FilePool(b.place.files, open_files_max=4),
        IndexCache(1 << 20),
        name=b.name,
        folder=b.folder,
        config=b.config,
        topic_id=None,
        state=state,
    )
    return b.log, counted.read_bytes


def knowledge(log: Log) -> object:
    index = log._segments.active.index
    assert index is not None
    active = log._segments.active
    times = [log.time_lookup(time).run(log._segments._pool.files) for time in range(990, 1_060)]
    about = (log.log_end_offset, log.size_bytes, active.first_timestamp, index.max_timestamp)
    return about, times, log.epochs.entries()


def test_recovery_reads_little_below_the_recovery_point(bench: MakeBench, batch: MakeBatch) -> None:
    b, point = grown(bench, batch)
    log, read = recovered(b, point)
    above = (log.log_end_offset - point) * 25_100
    # Headers from the last stored index on; above the recovery point headers, CRCs and rewrites.
    assert read < 4 * MIB + 3 * above + MIB < log.size_bytes - MIB


def test_state_from_the_stored_index_equals_state_from_the_batches(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b, point = grown(bench, batch)
    spared, spared_bytes = recovered(b, point)
    for suffix in ("index", "timeindex"):
        b.place.files.remove(f"{b.folder}/{0:020d}.{suffix}")
    read, read_bytes = recovered(b, point)
    assert spared_bytes < read_bytes
    assert knowledge(spared) == knowledge(read)


def snapshots(b: Bench) -> list[str]:
    return [name for name in b.place.files.names(b.folder) if name.endswith(".snapshot")]


def test_index_without_its_snapshot_is_not_used(bench: MakeBench, batch: MakeBatch) -> None:
    b, point = grown(bench, batch)
    assert snapshots(b)
    for name in snapshots(b):
        b.place.files.remove(f"{b.folder}/{name}")
    _, read = recovered(b, point)
    assert read > WHOLE


def test_torn_snapshot_is_not_used(bench: MakeBench, batch: MakeBatch) -> None:
    b, point = grown(bench, batch)
    for name in snapshots(b):
        file = b.place.files.open(f"{b.folder}/{name}")
        file.truncate(file.size() - 1)
        file.close()
    _, read = recovered(b, point)
    assert read > WHOLE


@pytest.mark.parametrize("damage", ["torn", "of another past"])
def test_invalid_index_is_not_used(bench: MakeBench, batch: MakeBatch, damage: str) -> None:
    b, point = grown(bench, batch)
    path = f"{b.folder}/{0:020d}.index"
    file = b.place.files.open(path)
    if damage == "torn":
        file.truncate(file.size() - 3)
    else:
        content = file.read(0, file.size())
        shifted = b"".join(
            (int.from_bytes(content[at : at + 4], "big") + 1).to_bytes(4, "big")
            + content[at + 4 : at + 8]
            for at in range(0, len(content), 8)
        )
        file.write(0, [shifted])
    file.close()
    log, read = recovered(b, point)
    assert read > WHOLE
    assert log.log_end_offset == BATCHES * 2


def test_index_of_truncated_batches_is_not_used(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(segment_bytes=SEGMENT)
    for _ in range(20):
        b.append(batch(4, size=65_000))
    b.flush()
    assert b.place.files.exists(f"{b.folder}/{0:020d}.index")
    b.truncate(40)
    assert not b.place.files.exists(f"{b.folder}/{0:020d}.index")
    for _ in range(20):
        b.append(batch(1, size=65_000))
    b.log.close("crash")
    log, _ = recovered(b, 40)
    assert log.log_end_offset == 60
    assert log.read(50, max_bytes=1) is not None
