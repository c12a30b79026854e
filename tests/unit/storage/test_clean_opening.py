"""Opening after a clean stop detects files that contradict each other."""

from collections.abc import Callable
from typing import Any

import pytest

from quorumlog.errors import CorruptionError

Bench = Any  # conftest.Bench
MakeBench = Callable[..., Bench]
MakeBatch = Callable[..., bytes]

LOG = f"{0:020d}.log"


def closed(bench: MakeBench, batch: MakeBatch, *, count: int = 40) -> Bench:
    """Return a log of batches of 4 records, closed cleanly."""
    b = bench(index_interval_bytes=100)
    for number in range(count):
        b.append(batch(4, size=50, timestamp=1_000 + number))
    b.close()
    return b


def change(b: Bench, name: str, position: int, content: bytes) -> None:
    file = b.place.files.open(f"{b.folder}/{name}")
    file.write(position, [content])
    file.close()


def content_of(b: Bench, name: str) -> bytes:
    file = b.place.files.open_readonly(f"{b.folder}/{name}")
    content: bytes = file.read(0, file.size())
    file.close()
    return content


@pytest.mark.parametrize(
    ("column", "value"),
    [(4, 3), (4, -1), (0, 1), (0, -1)],
    ids=["further", "before", "offset above", "offset below"],
)
def test_index_whose_last_entry_is_no_batch_is_rebuilt(
    bench: MakeBench, batch: MakeBatch, column: int, value: int
) -> None:
    """It is no damage of the log: the index is derived from it."""
    b = closed(bench, batch)
    name = LOG.replace(".log", ".index")
    index = content_of(b, name)
    at = len(index) - 8 + column
    number = int.from_bytes(index[at : at + 4], "big") + value
    change(b, name, at, number.to_bytes(4, "big"))
    log = b.open(recovery_point=160)
    assert log.log_end_offset == 160
    assert log._segments.active.index.encode_offsets() == index
    for offset in range(160):
        found = log.read(offset, max_bytes=1)
        assert found is not None
        assert found.next_offset == offset // 4 * 4 + 4
        found.release()


@pytest.mark.parametrize("delta", [1, -1, 256])
@pytest.mark.parametrize("at", [23, 0])
def test_log_end_other_than_the_recovery_point_is_checked(
    bench: MakeBench, batch: MakeBatch, delta: int, at: int
) -> None:
    """A flip in the last batch's offsets would change the offsets of later appends or hide them."""
    b = closed(bench, batch)
    content = content_of(b, LOG)
    last = len(content) * 39 // 40
    size = 4 if at else 8
    number = int.from_bytes(content[last + at : last + at + size], "big") + delta
    change(b, LOG, last + at, number.to_bytes(size, "big", signed=True))
    with pytest.raises(CorruptionError):
        b.open(recovery_point=160)


def test_batches_that_another_program_appended_are_kept(bench: MakeBench, batch: MakeBatch) -> None:
    """A folder that is longer than at its recovery point."""
    b = closed(bench, batch)
    assert b.open(recovery_point=156).log_end_offset == 160
    assert b.open(recovery_point=4).log_end_offset == 160


def test_folder_without_a_recovery_point_opens(bench: MakeBench, batch: MakeBatch) -> None:
    b = closed(bench, batch)
    assert b.open(recovery_point=0).log_end_offset == 160


def test_a_log_that_lost_its_last_batches_is_damaged(bench: MakeBench, batch: MakeBatch) -> None:
    b = closed(bench, batch)
    file = b.place.files.open(f"{b.folder}/{LOG}")
    file.truncate(file.size() * 39 // 40)
    file.close()
    with pytest.raises(CorruptionError, match="160"):
        b.open(recovery_point=160)
