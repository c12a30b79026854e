"""A compacted log, with gaps and with batches without records, can be read and truncated."""

from typing import Any

import pytest
from tests.unit.storage.log_truncation import truncate

from quorumlog.records.batch import iterate_batches
from quorumlog.records.codec import decode_all
from quorumlog.runtime import Runtime
from quorumlog.storage import Log, LogConfig
from quorumlog.storage.checkpoints import encode_offsets
from quorumlog.storage.file_pool import FilePool
from quorumlog.storage.index import IndexCache
from quorumlog.storage.inspect.log_check import LogContext, check_log
from quorumlog.storage.layout import CLEANER_OFFSETS
from quorumlog.storage.recovery import Recovery, recover
from quorumlog.storage.small_files import write_file

from ..conftest import Kit
from .compacted_log import Shelf, pairs


@pytest.fixture
def cleaned(shelf: Shelf) -> Shelf:
    """Return three cleaned segments with gaps and empty batches, and an active segment."""
    for segment in range(3):
        for at in range(12):
            key = b"%d" % (at % 4 + segment % 2)
            shelf.append((key, b"v" * 200), (b"k%d" % (segment * 12 + at), None), producer=at % 5)
        shelf.append((b"0", b"v"), (b"1", b"v"))
        shelf.roll()
    for wait in (10**6, 10**6):
        shelf.wall_ms += wait
        shelf.append((b"0", b"v" * 300))
        shelf.roll()
        shelf.clean(segment_bytes=1_500)
    shelf.append(*pairs(b"0", b"1"))
    shelf.roll()
    bases = [segment.base_offset for segment in shelf.segments]
    assert len(bases) > 2
    headers = shelf.headers()
    assert any(not header.record_count for header in headers)
    ends = {header.next_offset for header in headers}
    assert not set(bases[1:]) <= ends, "there is a gap between two segments"
    return shelf


def opened(shelf: Shelf, **changes: Any) -> Log:
    settings: dict[str, Any] = {
        "folder": shelf.folder,
        "config": LogConfig(compacted=True, index_interval_bytes=64),
        "is_clean": False,
        "recovery_point": 0,
        "log_start_offset": 0,
        "torn_bytes_max": None,
        "wall_ms": 0,
        "cleaned_to": shelf.first_dirty,
        **changes,
    }
    recovery = Recovery(**settings)
    return Log(
        FilePool(shelf.files, open_files_max=10),
        IndexCache(1 << 20),
        name="t-0",
        folder=shelf.folder,
        config=recovery.config,
        topic_id=None,
        state=recover(shelf.files, recovery),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"is_clean": True},
        {"config": LogConfig(index_interval_bytes=64)},
        {"config": LogConfig(index_interval_bytes=64), "is_clean": True},
    ],
    ids=["unclean", "clean", "unclean, no longer compacted", "clean, no longer compacted"],
)
def test_every_offset_of_a_cleaned_log_can_be_read_from(
    cleaned: Shelf, changes: dict[str, Any]
) -> None:
    log = opened(cleaned, **changes)
    assert (log.log_start_offset, log.log_end_offset) == (0, cleaned.next_offset)
    offsets = cleaned.offsets()
    for start in range(cleaned.next_offset):
        found: list[int] = []
        offset = start
        while offset < log.log_end_offset:
            taken = log.read(offset, max_bytes=400)
            assert taken is not None
            batches = taken.read()
            assert taken.next_offset > offset
            found += [r.offset for r in decode_all(batches, start_offset=start)]
            offset = taken.next_offset
            taken.release()
        assert found == [each for each in offsets if each >= start]
    log.close("done")


@pytest.mark.slow
def test_read_range_ends_at_a_batch_and_reads_few_headers(cleaned: Shelf) -> None:
    log = opened(cleaned, is_clean=True)
    gaps = walks = 0
    for start in range(cleaned.next_offset):
        for most in (1, 100, 333, 700, 10_000):
            for end in (start + 1, start + 9, cleaned.next_offset):
                taken = log.read(start, max_bytes=most, end_offset=min(end, log.log_end_offset))
                if taken is None:
                    continue
                batches = taken.read()
                ends = [header.next_offset for _, header in iterate_batches(batches)]
                assert taken.end_of(batches) == (ends[-1] if ends else taken.next_offset)
                gaps += bool(ends) and ends[-1] < taken.next_offset
                at = taken.tail - taken.position
                near = sum(position >= at for position, _ in iterate_batches(batches))
                walks = max(walks, near)
                taken.release()
    assert gaps > 100
    assert walks <= 5, "an index interval is 64 bytes, a header 61"
    log.close("done")


@pytest.mark.slow
def test_compacted_log_can_be_truncated_at_any_offset(cleaned: Shelf) -> None:
    offsets = cleaned.offsets()
    for end in range(cleaned.next_offset, 0, -3):
        log = opened(cleaned)
        truncate(log, cleaned.files, end)
        assert log.log_end_offset <= end
        last = max((offset for offset in offsets if offset < log.log_end_offset), default=-1)
        assert log.log_end_offset > last
        log.close("done")


def test_check_of_a_compacted_log_has_no_findings(cleaned: Shelf) -> None:
    around = LogContext(cleaner_offset=cleaned.first_dirty, is_compacted=True)
    check = check_log(cleaned.files, cleaned.folder, around)
    findings = [(finding.kind.value, finding.what) for finding in check.report.findings]
    assert findings == [
        ("metadata-missing", "it is missing"),
        ("epoch-file-missing", "it is missing"),
    ]


def test_log_in_the_cleaner_checkpoint_counts_as_compacted(kit: Kit, run: Any) -> None:
    """The gaps stay valid, whatever the cleanup policy is now."""

    async def main(runtime: Runtime, path: str) -> None:
        config = LogConfig()
        for was_compacted in (False, True):
            async with kit.opened(runtime, path) as directory:
                log = await directory.open_log("t-0", config, topic_id=None)
                assert log.was_compacted is was_compacted
            content = encode_offsets({"t-0": 0})
            write_file(runtime.files, f"{path}/{CLEANER_OFFSETS}", content)

    run(main)
