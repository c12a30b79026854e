"""The cost of opening and of lookups with many segments and logs."""

import errno
from collections import Counter
from collections.abc import Callable
from timeit import repeat
from typing import Any

from quorumlog.ids import TopicId
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode
from quorumlog.storage import LogConfig
from quorumlog.storage.checkpoints import encode_epochs
from quorumlog.storage.file_pool import FilePool
from quorumlog.storage.flush import Unflushed
from quorumlog.storage.index import IndexCache
from quorumlog.storage.layout import LEADER_EPOCHS
from quorumlog.storage.recovery import Recovery, recover
from quorumlog.storage.segment import Segment
from quorumlog.storage.segments import Segments
from quorumlog.storage.small_files import replace_file

from .simulated_node import run_on_node

MakeBatch = Callable[..., bytes]
MakeBench = Callable[..., Any]
Kit = Any  # conftest.Kit

TOPIC = TopicId(b"t" * 16)


class TracedFiles:
    """A files port that records every call."""

    def __init__(self, files: Any) -> None:
        self._files = files
        self.calls: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._files, name)

        def traced(path: str, *arguments: Any, **options: Any) -> Any:
            self.calls.append((name, path))
            return call(path, *arguments, **options)

        return traced


def test_a_segment_is_found_among_ten_thousand_in_less_than_ten_microseconds() -> None:
    found = [Segment("/t-0", base * 100) for base in range(10_000)]
    segments = Segments(
        FilePool(None, open_files_max=1),  # type: ignore[arg-type] # no file is opened
        IndexCache(1),
        Unflushed(),
        folder="/t-0",
        found=found,
    )
    assert [segments.find(offset) for offset in (-1, 0, 99, 100, 777_777, 10**9)] == [
        -1,
        0,
        0,
        1,
        7_777,
        9_999,
    ]
    best = min(repeat(lambda: segments.find(777_777), number=100, repeat=20)) / 100
    assert best < 10e-6


def test_the_bytes_and_bases_of_segments_are_kept_as_they_change(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench(segment_bytes=300)

    def check() -> None:
        segments = b.log._segments
        assert segments.bases == [segment.base_offset for segment in segments]
        assert segments.size_bytes == sum(segment.size for segment in segments) == b.log.size_bytes

    for number in range(30):
        b.append(batch(1 + number % 3))
        check()
        if number % 7 == 6:
            b.truncate(b.log.log_end_offset - 5)
            check()
    b.flush()
    b.log.close("crash")
    b.open(is_clean=False)
    check()


def test_clean_opening_stats_each_segment_once_and_opens_the_last(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench(segment_bytes=100)
    for _ in range(60):
        b.append(batch(1))
    b.close()
    epochs = encode_epochs(b.log.epochs.entries())
    replace_file(b.place.files, b.folder, LEADER_EPOCHS, epochs)
    traced = TracedFiles(b.place.files)
    recovery = Recovery(
        folder=b.folder,
        config=b.config,
        is_clean=True,
        recovery_point=60,
        log_start_offset=0,
        torn_bytes_max=None,
        wall_ms=0,
    )
    state = recover(traced, recovery)
    assert (len(state.segments), state.log_end_offset) == (60, 60)
    looks = Counter(traced.calls)
    logs = Counter(call for call in traced.calls if call[1].endswith(".log"))
    assert looks["names", b.folder] == 1
    assert set(logs.values()) == {1}
    assert [path for call, path in logs if call != "size"] == [f"{b.folder}/{59:020d}.log"]
    others = [call for call in traced.calls if not call[1].endswith(".log")]
    assert len(others) < 10


def test_opening_a_directory_or_a_log_reads_no_other_log(kit: Kit, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            for number in range(30):
                log = await directory.open_log(f"t-{number}", LogConfig(), topic_id=TOPIC)
                await kit.append(directory, log, batch(1))
        for number in range(30):
            if number != 7:
                node.device.fail("", errno.EIO, path_part=f"/data/t-{number}/", times=1_000_000)
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-7", LogConfig(), topic_id=TOPIC)
            await kit.append(directory, log, batch(1))
            assert log.log_end_offset == 2

    run_on_node(main)
