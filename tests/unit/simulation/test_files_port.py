"""The files port's faults: full disks, short writes, injected errors, lost caches, locks."""

import errno
from collections.abc import Callable

import pytest

from quorumlog.runtime import Runtime
from quorumlog.simulation import Faults, SimNode, SimWorld


def within(
    check: Callable[[Runtime, SimNode], None], *, faults: Faults | None = None, seed: int = 0
) -> None:
    """Run a check in a node."""
    with SimWorld(seed, faults=faults) as world:
        node = world.node("n")

        async def main(runtime: Runtime) -> None:
            check(runtime, node)

        task = node.spawn(main)
        world.run_until(task, virtual_ms=1_000)
        task.result()


def test_full_disk_accepts_bytes_up_to_its_capacity() -> None:
    def check(runtime: Runtime, node: SimNode) -> None:
        node.device.disk.capacity_bytes = 1_000
        file = runtime.files.open("/f", create=True)
        assert file.write(0, [b"x" * 600, b"y" * 600]) == 1_000
        assert runtime.files.free_bytes("/") == 0
        assert runtime.files.capacity_bytes("/") == 1_000
        with pytest.raises(OSError, match="/f") as raised:
            file.write(1_000, [b"z"])
        assert raised.value.errno == errno.ENOSPC
        assert file.write(0, [b"over what is there"]) == 18
        runtime.files.remove("/f")
        assert runtime.files.free_bytes("/") == 1_000

    within(check)


def test_short_writes_are_random_and_a_loop_completes_them() -> None:
    def check(runtime: Runtime, node: SimNode) -> None:
        file = runtime.files.open("/f", create=True)
        data, position, shorts = b"0123456789" * 100, 0, 0
        while position < len(data):
            written = file.write(position, [data[position:]])
            assert written >= 1
            shorts += written < len(data) - position
            position += written
        assert shorts > 0
        assert file.read(0, 2_000) == data

    within(check, faults=Faults(short_write=0.9))


def test_injected_error_fails_the_given_operations() -> None:
    def check(runtime: Runtime, node: SimNode) -> None:
        node.device.fail("sync", errno.EIO, path_part="bad", times=1)
        good = runtime.files.open("/good", create=True)
        bad = runtime.files.open("/bad", create=True)
        good.sync()
        with pytest.raises(OSError, match="/bad") as raised:
            bad.sync()
        assert raised.value.errno == errno.EIO
        bad.sync()

    within(check)


def test_after_a_failed_sync_the_bytes_are_gone_at_the_next_power_cut() -> None:
    with SimWorld(0) as world:
        node = world.node("n")

        async def main(runtime: Runtime) -> None:
            file = runtime.files.open("/f", create=True)
            runtime.files.sync_folder("/")
            file.write(0, [b"gone"])
            node.device.fail("sync", errno.EIO)
            with pytest.raises(OSError, match="/f"):
                file.sync()
            file.sync()
            assert file.read(0, 10) == b"gone"

        task = node.spawn(main)
        world.run_until(task, virtual_ms=1_000)
        task.result()
        world.run_for(1)
        node.power_cut()
        assert bytes(node.device.disk.file("/f").content) == b""


def test_a_cached_read_may_miss_and_a_read_never_does() -> None:
    def check(runtime: Runtime, node: SimNode) -> None:
        file = runtime.files.open("/f", create=True)
        file.write(0, [b"there"])
        seen = {file.read_cached(0, 5) for _ in range(50)}
        assert seen == {None, b"there"}
        assert file.read(0, 5) == b"there"

    within(check, faults=Faults(cache_miss=0.5))


def test_a_file_opened_for_reading_refuses_writes() -> None:
    def check(runtime: Runtime, node: SimNode) -> None:
        runtime.files.open("/f", create=True)
        file = runtime.files.open_readonly("/f")
        with pytest.raises(OSError, match="/f") as raised:
            file.write(0, [b"x"])
        assert raised.value.errno == errno.EBADF

    within(check)


def test_removed_file_stays_readable_while_open() -> None:
    def check(runtime: Runtime, node: SimNode) -> None:
        file = runtime.files.open("/f", create=True)
        file.write(0, [b"still here"])
        runtime.files.remove("/f")
        assert not runtime.files.exists("/f")
        assert file.read(0, 10) == b"still here"

    within(check)


def test_the_death_of_a_process_frees_its_lock() -> None:
    async def main(runtime: Runtime) -> None:
        runtime.files.lock("/lock")
        with pytest.raises(BlockingIOError):
            runtime.files.lock("/lock")

    with SimWorld(0) as world:
        node = world.node("n")
        for _ in range(2):
            task = node.spawn(main)
            world.run_until(task, virtual_ms=1_000)
            task.result()
            node.crash()
            world.run_for(1)
