"""The simulated disk: the possible states after a power cut."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.simulation.disk import SECTOR, Disk, DiskTruncation, DiskWrite, FileBody
from quorumlog.simulation.entropy import SimEntropy

SEEDS = range(200)


def body_of(disk: Disk, path: str) -> FileBody:
    return disk.file(path)


def durable_disk(path: str = "/d/f") -> Disk:
    """Return a disk whose folder and file have durable names."""
    disk = Disk()
    disk.make_folder("/d")
    disk.sync_folder("/")
    disk.create(path)
    disk.sync_folder("/d")
    return disk


def test_a_synced_write_survives_every_power_cut() -> None:
    for seed in SEEDS:
        disk = durable_disk()
        body_of(disk, "/d/f").change(DiskWrite(0, b"kept"))
        body_of(disk, "/d/f").sync()
        disk.cut_power(SimEntropy(f"{seed}"))
        assert bytes(body_of(disk, "/d/f").content) == b"kept"


def test_an_unsynced_small_write_is_kept_or_dropped_whole() -> None:
    seen = set()
    for seed in SEEDS:
        disk = durable_disk()
        body_of(disk, "/d/f").change(DiskWrite(0, b"maybe"))
        disk.cut_power(SimEntropy(f"{seed}"))
        seen.add(bytes(body_of(disk, "/d/f").content))
    assert seen == {b"", b"maybe"}


@pytest.mark.long
def test_an_unsynced_large_write_is_torn_at_sector_boundaries_only() -> None:
    data = bytes(1 + number % 255 for number in range(4 * SECTOR + 100))
    seen = set()
    for seed in SEEDS:
        disk = durable_disk()
        body_of(disk, "/d/f").change(DiskWrite(10, data))
        disk.cut_power(SimEntropy(f"{seed}"))
        content = bytes(body_of(disk, "/d/f").content)
        lost = [at for at, byte in enumerate(content) if at >= 10 and byte == 0]
        kept = [at for at, byte in enumerate(content) if at >= 10 and byte != 0]
        assert all(content[at] == data[at - 10] for at in kept)
        borders = [at for at in kept if at + 1 in lost or (at + 1 == len(content) and at < 2157)]
        borders += [at for at in lost if at + 1 in kept]
        assert all((at + 1) % SECTOR == 0 for at in borders), borders
        seen.add((len(kept), len(content)))
    assert len(seen) > 6, "kept, dropped, torn in several places, with and without zeros behind"


def test_later_writes_may_survive_earlier_ones() -> None:
    seen = set()
    for seed in SEEDS:
        disk = durable_disk()
        for number in range(3):
            body_of(disk, "/d/f").change(DiskWrite(number, b"abc"[number : number + 1]))
        disk.cut_power(SimEntropy(f"{seed}"))
        seen.add(bytes(body_of(disk, "/d/f").content))
    assert {b"", b"a", b"abc", b"\x00\x00c", b"\x00bc", b"a\x00c"} <= seen


def test_a_truncation_is_kept_or_never_happened() -> None:
    seen = set()
    for seed in SEEDS:
        disk = durable_disk()
        body_of(disk, "/d/f").change(DiskWrite(0, b"0123456789"))
        body_of(disk, "/d/f").sync()
        body_of(disk, "/d/f").change(DiskTruncation(4))
        disk.cut_power(SimEntropy(f"{seed}"))
        seen.add(bytes(body_of(disk, "/d/f").content))
    assert seen == {b"0123", b"0123456789"}


def test_sync_after_a_failed_one_succeeds_although_the_bytes_are_lost() -> None:
    disk = durable_disk()
    body_of(disk, "/d/f").change(DiskWrite(0, b"lost"))
    body_of(disk, "/d/f").sync_failed()
    body_of(disk, "/d/f").sync()
    assert bytes(body_of(disk, "/d/f").content) == b"lost", "the page cache still has them"
    disk.cut_power(SimEntropy("any"))
    assert bytes(body_of(disk, "/d/f").content) == b""


def test_an_unsynced_name_is_kept_or_dropped_even_when_its_bytes_are_durable() -> None:
    seen = set()
    for seed in SEEDS:
        disk = Disk()
        body = disk.create("/f")
        body.change(DiskWrite(0, b"durable"))
        body.sync()
        disk.cut_power(SimEntropy(f"{seed}"))
        seen.add(disk.exists("/f"))
        if disk.exists("/f"):
            assert bytes(body_of(disk, "/f").content) == b"durable"
    assert seen == {True, False}


def test_a_rename_is_atomic_over_a_power_cut() -> None:
    """The name has the old file or the new one, and is never missing."""
    seen = set()
    for seed in SEEDS:
        disk = durable_disk("/d/f")
        body_of(disk, "/d/f").change(DiskWrite(0, b"old"))
        body_of(disk, "/d/f").sync()
        new = disk.create("/d/f.tmp")
        new.change(DiskWrite(0, b"new"))
        new.sync()
        disk.rename("/d/f.tmp", "/d/f")
        disk.cut_power(SimEntropy(f"{seed}"))
        seen.add(bytes(body_of(disk, "/d/f").content))
    assert seen == {b"old", b"new"}


def test_renamed_folder_keeps_its_files_under_either_name() -> None:
    seen = set()
    for seed in SEEDS:
        disk = durable_disk("/d/f")
        disk.rename("/d", "/gone")
        disk.cut_power(SimEntropy(f"{seed}"))
        seen.add((disk.exists("/d/f"), disk.exists("/gone/f")))
    assert seen == {(True, False), (False, True)}


def test_syncing_one_folder_of_a_rename_makes_it_durable_in_both() -> None:
    for seed in SEEDS:
        disk = Disk()
        disk.make_folder("/a")
        disk.make_folder("/b")
        disk.sync_folder("/")
        disk.create("/a/f")
        disk.rename("/a/f", "/b/f")
        disk.sync_folder("/b")
        disk.cut_power(SimEntropy(f"{seed}"))
        assert (disk.exists("/a/f"), disk.exists("/b/f")) == (False, True)


def test_a_removed_name_may_come_back_until_its_folder_is_synced() -> None:
    seen = set()
    for seed in SEEDS:
        disk = durable_disk()
        disk.remove("/d/f")
        if seed % 2:
            disk.sync_folder("/d")
        disk.cut_power(SimEntropy(f"{seed}"))
        seen.add((seed % 2, disk.exists("/d/f")))
    assert seen == {(0, True), (0, False), (1, False)}


@pytest.mark.parametrize(
    ("path", "number"),
    [("/none/f", errno.ENOENT), ("/d/f/g", errno.ENOTDIR), ("/d", errno.EISDIR)],
)
def test_errors_are_those_of_the_kernel(path: str, number: int) -> None:
    disk = durable_disk()
    with pytest.raises(OSError, match=path) as raised:
        disk.create(path)
    assert raised.value.errno == number
    assert raised.value.filename == path


def test_a_folder_with_files_cannot_be_removed() -> None:
    disk = durable_disk()
    with pytest.raises(OSError, match="/d") as raised:
        disk.remove("/d")
    assert raised.value.errno == errno.ENOTEMPTY


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(0, 3000), st.binary(min_size=1, max_size=1500)),
            st.tuples(st.just("cut"), st.integers(0, 3000), st.just(b"")),
            st.tuples(st.just("sync"), st.just(0), st.just(b"")),
        ),
        max_size=20,
    ),
    st.integers(0, 1000),
)
def test_bytes_synced_and_unchanged_since_survive(
    steps: list[tuple[str, int, bytes]], seed: int
) -> None:
    """Model test: bytes without an unsynced change equal those of the last sync."""
    disk = durable_disk()
    body = disk.file("/d/f")
    synced, touched_from, touched = b"", 1 << 30, set[int]()
    for kind, position, data in steps:
        if kind == "write":
            body.change(DiskWrite(position, data))
            touched |= set(range(position, position + len(data)))
        elif kind == "cut":
            body.change(DiskTruncation(position))
            touched_from = min(touched_from, position)
        else:
            body.sync()
            synced, touched_from, touched = bytes(body.content), 1 << 30, set()
    disk.cut_power(SimEntropy(f"{seed}"))
    after = bytes(body.content)
    for at, byte in enumerate(synced):
        if at not in touched and at < touched_from:
            assert after[at] == byte
