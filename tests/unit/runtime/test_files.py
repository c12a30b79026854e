"""The file system on both runtimes. Tests in tests/unit/simulation cover power cuts."""

import errno
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest

from quorumlog.runtime import File, Runtime

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]


def write_all(file: File, position: int, data: bytes) -> None:
    """Write everything in a loop, since a write may be short."""
    rest = memoryview(data)
    while rest:
        written = file.write(position, [rest])
        assert written > 0
        position += written
        rest = rest[written:]


def test_write_takes_many_buffers_and_returns_the_written_bytes(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.files.open(f"{folder}/many", create=True)
        buffers = [bytes([number % 256]) * (number % 7) for number in range(3000)]
        wanted = b"".join(buffers)
        written = file.write(10, buffers)
        assert 0 < written <= len(wanted)
        assert file.read(10, written) == wanted[:written]
        assert file.read(0, 10) == bytes(10)
        write_all(file, 10 + written, wanted[written:])
        assert file.read(10, len(wanted)) == wanted
        assert file.size() == 10 + len(wanted)
        assert file.write(0, []) == 0

    run(main)


def test_read_is_short_only_at_the_end(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.files.open(f"{folder}/short", create=True)
        write_all(file, 0, b"0123456789")
        assert file.read(0, 10) == b"0123456789"
        assert file.read(8, 10) == b"89"
        assert file.read(10, 10) == b""
        assert file.read(100, 10) == b""

    run(main)


def test_cached_read_gives_the_bytes_or_nothing(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.files.open(f"{folder}/cached", create=True)
        data = bytes(range(256)) * 8192  # 2 MiB
        write_all(file, 0, data)
        for position, size in ((0, 100), (1000, 1 << 20), (7, 2 << 20), (2 << 20, 5)):
            assert file.read_cached(position, size) in (None, data[position : position + size])

    run(main)


def test_truncate_shortens_a_file(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.files.open(f"{folder}/cut", create=True)
        write_all(file, 0, b"0123456789")
        file.truncate(4)
        file.sync()
        assert file.size() == 4
        assert file.read(0, 10) == b"0123"
        assert runtime.files.size(f"{folder}/cut") == 4

    run(main)


def test_lease_outlives_close(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.files.open(f"{folder}/leased", create=True)
        write_all(file, 0, b"data")
        first, second = file.lease(), file.lease()
        file.close()
        file.close()
        first.release()
        first.release()
        assert file.read(0, 4) == b"data"
        second.release()
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            file.read(0, 4)
        assert caught.value.errno == errno.EBADF

    run(main)


def test_open_file_outlives_its_name(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.files.open(f"{folder}/gone", create=True)
        write_all(file, 0, b"data")
        runtime.files.remove(f"{folder}/gone")
        assert not runtime.files.exists(f"{folder}/gone")
        assert file.read(0, 4) == b"data"

    run(main)


def test_opening_an_absent_file_without_create_fails(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        for attempt in (runtime.files.open, runtime.files.open_readonly, runtime.files.size):
            with pytest.raises(FileNotFoundError) as caught:
                attempt(f"{folder}/absent")
            assert caught.value.errno == errno.ENOENT
        with pytest.raises(FileNotFoundError):
            runtime.files.names(f"{folder}/absent")
        with pytest.raises(FileNotFoundError):
            runtime.files.remove(f"{folder}/absent")
        with pytest.raises(FileNotFoundError):
            runtime.files.open(f"{folder}/no/folder", create=True)

    run(main)


def test_create_keeps_an_existing_file(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        write_all(runtime.files.open(f"{folder}/kept", create=True), 0, b"data")
        again = runtime.files.open(f"{folder}/kept", create=True)
        assert again.read(0, 10) == b"data"
        assert again.path == f"{folder}/kept"

    run(main)


def test_file_opened_readonly_refuses_writes(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        runtime.files.open(f"{folder}/fixed", create=True)
        file = runtime.files.open_readonly(f"{folder}/fixed")
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            file.write(0, [b"x"])
        assert caught.value.errno == errno.EBADF

    run(main)


def test_names_are_sorted_and_folders_nest(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        files = runtime.files
        files.make_folder(f"{folder}/a/b/c")
        files.make_folder(f"{folder}/a/b/c")
        for name in ("10", "9", "b", "Z", "a"):
            files.open(f"{folder}/a/{name}.log", create=True)
        assert files.names(f"{folder}/a") == ["10.log", "9.log", "Z.log", "a.log", "b", "b.log"]
        assert files.is_folder(f"{folder}/a/b")
        assert not files.is_folder(f"{folder}/a/b.log")
        assert not files.is_folder(f"{folder}/nothing")
        assert files.exists(f"{folder}/a/b")
        files.sync_folder(f"{folder}/a")

    run(main)


def test_folder_is_removed_only_when_empty(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        files = runtime.files
        files.make_folder(f"{folder}/full")
        files.open(f"{folder}/full/file", create=True)
        with pytest.raises(OSError, match="not empty") as caught:
            files.remove(f"{folder}/full")
        assert caught.value.errno == errno.ENOTEMPTY
        files.remove(f"{folder}/full/file")
        files.remove(f"{folder}/full")
        assert not files.exists(f"{folder}/full")

    run(main)


def test_rename_replaces_a_file_and_moves_a_folder(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        files = runtime.files
        write_all(files.open(f"{folder}/new", create=True), 0, b"new")
        write_all(files.open(f"{folder}/old", create=True), 0, b"old")
        files.rename(f"{folder}/new", f"{folder}/old")
        assert files.open_readonly(f"{folder}/old").read(0, 10) == b"new"
        assert not files.exists(f"{folder}/new")
        files.make_folder(f"{folder}/from")
        files.open(f"{folder}/from/file", create=True)
        files.rename(f"{folder}/from", f"{folder}/to")
        assert files.names(f"{folder}/to") == ["file"]
        with pytest.raises(FileNotFoundError):
            files.rename(f"{folder}/from", f"{folder}/elsewhere")

    run(main)


def test_lock_is_exclusive_until_released(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        lock = runtime.files.lock(f"{folder}/.lock")
        with pytest.raises(BlockingIOError):
            runtime.files.lock(f"{folder}/.lock")
        lock.release()
        lock.release()
        runtime.files.lock(f"{folder}/.lock").release()

    run(main)


def test_boot_id_and_free_bytes_are_known(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        assert runtime.files.boot_id() == runtime.files.boot_id() != ""
        assert 0 < runtime.files.free_bytes(folder) <= runtime.files.capacity_bytes(folder)

    run(main)


def test_an_open_file_counts_among_the_descriptors_where_they_have_a_limit(
    run: Run, folder: str
) -> None:
    async def main(runtime: Runtime) -> None:
        before, limit = runtime.files.descriptors()
        file = runtime.files.open(f"{folder}/a", create=True)
        assert runtime.files.descriptors() == ((before + 1, limit) if limit else (0, 0))
        file.close()

    run(main)
