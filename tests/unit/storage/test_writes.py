"""A write completes, is undone, or fails the log; the pool of open files finds and evicts files."""

import errno
from collections.abc import Iterator

import pytest

from quorumlog.errors import CorruptionError, InvalidRecord
from quorumlog.records import Codec, Record, ValidationMode, encode_batch
from quorumlog.records.batch import BATCHES_MAX
from quorumlog.runtime import Files
from quorumlog.simulation import Faults, SimNode, SimWorld
from quorumlog.storage import LogConfig
from quorumlog.storage.append import (
    AppendOrigin,
    WriteFailed,
    accept_append,
    headers_of,
    write_fully,
)
from quorumlog.storage.conversion import is_worth_a_lane
from quorumlog.storage.file_pool import FilePool
from quorumlog.storage.small_files import read_file, remove_tree, replace_file, write_file


@pytest.fixture
def node() -> Iterator[SimNode]:
    """A machine whose disk accepts only parts of writes."""
    with SimWorld(1, faults=Faults(short_write=0.9)) as world:
        node = world.node("n")
        node.start_process()
        yield node


@pytest.fixture
def files(node: SimNode) -> Files:
    return node.runtime().files


def test_short_writes_are_completed(files: Files) -> None:
    file = files.open("/f", create=True)
    parts = [bytes([i]) * (i + 1) for i in range(60)]
    write_fully(file, 0, [b"head", *parts])
    assert file.read(0, 10_000) == b"head" + b"".join(parts)


def test_more_buffers_than_one_call_takes_are_written(files: Files) -> None:
    file = files.open("/f", create=True)
    write_fully(file, 3, [b"ab"] * 3_000)
    assert file.size() == 6_003


def test_failed_write_on_a_full_disk_is_undone(node: SimNode, files: Files) -> None:
    file = files.open("/f", create=True)
    write_fully(file, 0, [b"kept"])
    node.device.disk.capacity_bytes = 10
    with pytest.raises(WriteFailed) as caught:
        write_fully(file, 4, [b"0123456789"])
    assert caught.value.is_undone
    assert caught.value.error.errno == errno.ENOSPC
    assert file.read(0, 100) == b"kept"


def test_failed_undo_is_reported(node: SimNode, files: Files) -> None:
    file = files.open("/f", create=True)
    node.device.fail("write", errno.ENOSPC)
    node.device.fail("truncate", errno.EIO)
    with pytest.raises(WriteFailed) as caught:
        write_fully(file, 0, [b"0123456789"])
    assert not caught.value.is_undone


def test_a_long_write_is_synced_on_its_way(node: SimNode, files: Files) -> None:
    file = files.open("/f", create=True)
    files.sync_folder("/")
    content = bytes(i % 251 for i in range(1_000))
    write_fully(file, 0, [content[:330], content[330:]], unsynced_bytes_max=100)
    node.power_cut()
    node.start_process()
    kept = node.runtime().files.open("/f").read(0, 2_000)
    assert kept[:900] == content[:900], "only the last hundred bytes may be torn"


def test_a_sync_that_fails_on_the_way_is_final(node: SimNode, files: Files) -> None:
    file = files.open("/f", create=True)
    node.device.fail("sync", errno.ENOSPC)
    with pytest.raises(WriteFailed) as caught:
        write_fully(file, 0, [bytes(300)], unsynced_bytes_max=100)
    assert not caught.value.is_undone


def test_empty_append_is_rejected() -> None:
    with pytest.raises(InvalidRecord):
        headers_of(b"")


def test_append_of_too_many_batches_is_rejected() -> None:
    one = encode_batch([Record(0, 0, None, b"")])
    assert len(headers_of(one * BATCHES_MAX)) == BATCHES_MAX
    with pytest.raises(InvalidRecord, match="more than 1000 batches; send larger batches"):
        headers_of(one * (BATCHES_MAX + 1))


def test_append_of_a_leader_has_any_number_of_batches() -> None:
    one = encode_batch([Record(0, 0, None, b"")])
    many = one * (BATCHES_MAX + 1)
    origin = AppendOrigin.REPLICATED
    _, headers = accept_append(many, LogConfig(), origin=origin, wall_ms=0)
    assert len(headers) == BATCHES_MAX + 1
    with pytest.raises(CorruptionError, match="CRC"):
        accept_append(many[:-1] + b"\xff", LogConfig(), origin=origin, wall_ms=0)


def test_the_pool_closes_the_least_recently_used_file(files: Files) -> None:
    pool = FilePool(files, open_files_max=2)
    one = pool.file("/1", create=True)
    two = pool.file("/2", create=True)
    assert pool.file("/1") is one
    pool.file("/3", create=True)
    assert len(pool) == 2
    with pytest.raises(OSError, match="Bad file descriptor"):
        two.read(0, 1)
    assert one.read(0, 1) == b""


def test_a_leased_file_survives_its_eviction(files: Files) -> None:
    pool = FilePool(files, open_files_max=1)
    one = pool.file("/1", create=True)
    lease = one.lease()
    pool.file("/2", create=True)
    assert one.read(0, 1) == b""
    lease.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        one.read(0, 1)
    pool.forget("/1")
    pool.close()
    assert len(pool) == 0


def test_a_replaced_file_is_old_or_new_after_a_power_cut() -> None:
    seen = set()
    for seed in range(40):
        with SimWorld(seed) as world:
            node = world.node("n")
            node.start_process()
            files = node.runtime().files
            files.make_folder("/d")
            replace_file(files, "/d", "f", b"old")
            files.sync_folder("/")
            write_file(files, "/d/f.tmp", b"new")
            files.rename("/d/f.tmp", "/d/f")
            node.power_cut()
            node.start_process()
            seen.add(read_file(node.runtime().files, "/d/f"))
    assert seen == {b"old", b"new"}


def test_tree_is_removed_recursively(files: Files) -> None:
    files.make_folder("/a/b")
    write_file(files, "/a/b/c", b"x")
    write_file(files, "/a/d", b"x")
    remove_tree(files, "/a")
    assert not files.exists("/a")


def test_compressed_batch_behind_others_moves_validation_off_the_loop() -> None:
    """Every batch of the append decides about the lane, not only the first."""
    plain = encode_batch([Record(0, 1, None, b"v" * 100, ())])
    packed = encode_batch([Record(0, 1, None, b"v" * 1000, ())], codec=Codec.ZSTD)
    full = LogConfig()
    header = LogConfig(record_validation=ValidationMode.HEADER)
    assert is_worth_a_lane(plain + packed, full, 50)
    assert is_worth_a_lane(packed + plain, full, 50)
    assert not is_worth_a_lane(plain + plain, full, 50)
    assert not is_worth_a_lane(plain + packed, full, 10_000), (
        "a small batch is validated on the loop"
    )
    assert not is_worth_a_lane(plain + packed, header, 50), "no batch is validated"
    assert not is_worth_a_lane(plain + packed[:-1], full, 50), "it is rejected without validation"
