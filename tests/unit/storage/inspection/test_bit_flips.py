"""A check reports a flipped bit anywhere in a data directory, and no reader accepts it.

`unseen` lists the bytes whose flips are undetectable; docs/checking.md gives the reasons.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from quorumlog.errors import QuorumlogError
from quorumlog.records.arrow import decode_arrow
from quorumlog.records.codec import decode_all, decode_parts
from quorumlog.records.record import Record
from quorumlog.storage import LogConfig, TimedOffset
from quorumlog.storage.file_pool import FilePool
from quorumlog.storage.index import IndexCache
from quorumlog.storage.inspect.directory_check import check
from quorumlog.storage.log import Log
from quorumlog.storage.recovery import Recovery, recover

from .conftest import DATA, Contents, Tree

Plant = Callable[[Contents], Tree]


@dataclass(frozen=True)
class Bytes:
    """A byte range of a file."""

    path: str
    first: int
    end: int


def unseen(contents: Contents, *, is_closed: bool) -> list[Bytes]:
    """Return the ranges where a flip turns one valid value into another valid value."""
    meta = contents[f"{DATA}/meta.properties"]
    cluster, directory = meta.index(b"=") + 1, meta.index(b"directory.id=") + 13
    node = meta.index(b"node.id=") + 8
    found = [
        # Random ids: any value is valid. The metadata log holds them as well.
        Bytes(f"{DATA}/meta.properties", cluster, cluster + 22),
        Bytes(f"{DATA}/meta.properties", directory, directory + 22),
        Bytes(f"{DATA}/meta.properties", node, node + 1),
        Bytes(f"{DATA}/c-0/partition.metadata", 21, 43),
        Bytes(f"{DATA}/t-0/partition.metadata", 21, 43),
        # A bound without a second copy.
        Bytes(f"{DATA}/t-0/partition.metadata", 64, 71),
        # The end of the possible gaps, without a second copy.
        Bytes(f"{DATA}/c-0/partition.metadata", 56, 60),
        # The cleaner's checkpoint: any offset of the log is valid.
        Bytes(f"{DATA}/cleaner-offset-checkpoint", 8, 10),
        # An offset next to a gap, in a compacted log.
        Bytes(f"{DATA}/c-0/00000000000000000000.log", 4, 8),
        Bytes(f"{DATA}/c-0/00000000000000000010.log", 4, 8),
    ]
    if not is_closed:
        # After an unclean stop any offset up to the log end is a valid recovery point.
        found.append(Bytes(f"{DATA}/recovery-point-offset-checkpoint", 8, 10))
        found.append(Bytes(f"{DATA}/recovery-point-offset-checkpoint", 15, 17))
        found.append(Bytes(f"{DATA}/c-0/00000000000000000010.log", 76, 80))
    return found


def flips(contents: Contents, *, bits: int, stride: int = 1) -> Iterator[tuple[str, int, int]]:
    """Flip `bits` bits in every `stride`-th byte of every file, other bits for each byte."""
    for path, content in contents.items():
        for position in range(0, len(content), stride):
            for bit in range(bits):
                yield path, position, 1 << (position + bit) % 8


def unreported(tree: Tree, contents: Contents, *, bits: int, stride: int = 1) -> list[Bytes]:
    """Flip, check and restore for each flip. Return the flips that no finding reports."""
    missed = []
    for path, position, mask in flips(contents, bits=bits, stride=stride):
        tree.flip(path, position, mask)
        if not any(check(tree.files, tree.path).all_findings()):
            missed.append(Bytes(path, position, position + 1))
        tree.flip(path, position, mask)
    return missed


def are_within(missed: list[Bytes], allowed: list[Bytes]) -> list[Bytes]:
    """Return the flips outside of the allowed ranges."""
    return [
        one
        for one in missed
        if not any(one.path == part.path and part.first <= one.first < part.end for part in allowed)
    ]


@pytest.mark.long
def test_a_flip_of_any_byte_after_a_clean_stop_is_reported(
    plant: Plant, closed_contents: Contents
) -> None:
    missed = unreported(plant(closed_contents), closed_contents, bits=1)
    assert not are_within(missed, unseen(closed_contents, is_closed=True))


@pytest.mark.slow
def test_a_flip_of_any_byte_after_a_kill_is_reported(
    plant: Plant, killed_contents: Contents
) -> None:
    missed = unreported(plant(killed_contents), killed_contents, bits=1, stride=3)
    assert not are_within(missed, unseen(killed_contents, is_closed=False))


@pytest.mark.long
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_flip_of_any_bit_is_reported(
    plant: Plant, closed_contents: Contents, killed_contents: Contents, is_closed: bool
) -> None:
    contents = closed_contents if is_closed else killed_contents
    missed = unreported(plant(contents), contents, bits=8)
    assert not are_within(missed, unseen(contents, is_closed=is_closed))


# --- readers -------------------------------------------------------------------------------------

Content = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def content_of(records: list[Record]) -> list[Content]:
    """Return the content of a record without its offset, which the CRC does not cover."""
    return [(r.timestamp_ms, r.key, r.value, r.headers) for r in records]


def log_of(tree: Tree) -> Log:
    """Open the log as after a clean stop."""
    config = LogConfig(segment_bytes=420, index_interval_bytes=0)
    recovery = Recovery(
        folder=f"{tree.path}/t-0",
        config=config,
        is_clean=True,
        recovery_point=0,
        log_start_offset=0,
        torn_bytes_max=None,
        wall_ms=0,
    )
    return Log(
        FilePool(tree.files, open_files_max=4),
        IndexCache(1 << 20),
        name="t-0",
        folder=f"{tree.path}/t-0",
        config=config,
        topic_id=None,
        state=recover(tree.files, recovery),
    )


def by_the_log(tree: Tree) -> list[Content]:
    """Read the log from start to end, range by range, as a consumer does."""
    log = log_of(tree)
    offset, records = log.log_start_offset, []
    while offset < log.log_end_offset:
        found = log.read(offset, max_bytes=1 << 20)
        if found is None:
            break
        for part in decode_parts(found.read(), start_offset=offset):
            records += part
        found.release()
        offset = max(offset + 1, found.next_offset)
    log.close("read")
    return content_of(records)


def by_time(tree: Tree, timestamp_ms: int) -> TimedOffset | None:
    """Look up a timestamp in the log after opening it."""
    log = log_of(tree)
    try:
        return log.time_lookup(timestamp_ms).run(tree.files)
    finally:
        log.close("looked up")


@pytest.mark.slow
def test_decoders_reject_a_flipped_record(plant: Plant, closed_contents: Contents) -> None:
    for path, content in closed_contents.items():
        if not path.endswith(".log"):
            continue
        original, table = content_of(decode_all(content)), decode_arrow(content)
        columns = [name for name in table.column_names if name != "offset"]
        for position in range(len(content)):
            flipped = bytearray(content)
            flipped[position] ^= 1 << position % 8
            with suppress(QuorumlogError):
                assert content_of(decode_all(bytes(flipped))) == original
            with suppress(QuorumlogError):
                decoded = decode_arrow(bytes(flipped))
                assert decoded.select(columns).equals(table.select(columns))


@pytest.mark.slow
def test_reopened_log_returns_no_corrupt_record(plant: Plant, closed_contents: Contents) -> None:
    tree = plant(closed_contents)
    original = by_the_log(tree)
    assert original
    for path, content in closed_contents.items():
        if "/t-0/" not in path or not path.endswith((".log", "index")):
            continue
        for position in range(0, len(content), 2):
            tree.flip(path, position, 1 << position // 2 % 8)
            try:
                read = by_the_log(tree)
            except QuorumlogError:
                read = []
            tree.flip(path, position, 1 << position // 2 % 8)
            strange = [one for one in read if one not in original]
            assert not strange, f"{path} at {position}"


@pytest.mark.slow
def test_lookup_by_time_returns_no_corrupt_record(plant: Plant, closed_contents: Contents) -> None:
    tree = plant(closed_contents)
    times = {record.timestamp_ms for record in decode_all(_whole_log(closed_contents))}
    path = f"{DATA}/t-0/00000000000000000007.log"
    target = min(times) + (max(times) - min(times)) // 2
    for position in range(len(closed_contents[path])):
        tree.flip(path, position, 1 << position % 8)
        try:
            found = by_time(tree, target)
        except QuorumlogError:
            found = None
        tree.flip(path, position, 1 << position % 8)
        assert found is None or found.timestamp in times, f"{path} at {position}"


def _whole_log(contents: Contents) -> bytes:
    return b"".join(
        content for path, content in contents.items() if "/t-0/" in path and path.endswith(".log")
    )
