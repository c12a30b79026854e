"""Large file ranges that a thread sends, with the compiled and the plain sender."""

import asyncio
import os
import resource
import socket
import threading
import time
from pathlib import Path

import pytest
from tests.kit.waits import AMPLE_S

from quorumlog.runtime import Runtime, range_sender, real
from quorumlog.runtime.files import RealFile
from quorumlog.runtime.range_sender import QueuedRange, RangeResult, RangeSender, new_range_sender

from .byte_connection import connected, filled_file

SIZE = 8 << 20
WAIT_S = AMPLE_S


@pytest.fixture(autouse=True, params=["compiled", "plain"])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Use the compiled or the plain sender."""
    way = str(request.param)
    if way == "plain":
        monkeypatch.setattr(range_sender, "CAN_SEND_COMPILED", False)
    elif not range_sender.CAN_SEND_COMPILED:
        pytest.skip("the sender was not compiled")
    return way


def pattern(size: int) -> bytes:
    """Return bytes without a repetition within a chunk."""
    return bytes(range(251)) * (size // 251) + bytes(range(size % 251))


class UnreadableFile(RealFile):
    """A file that cannot be read into the page cache."""

    def warm(self, position: int, size: int) -> None:
        raise RuntimeError("a bug")


def broken(file: RealFile) -> UnreadableFile:
    """Return the same file as an `UnreadableFile`."""
    made = UnreadableFile.__new__(UnreadableFile)
    made.__dict__.update(file.__dict__)
    return made


def cold_file(runtime: Runtime, folder: Path, data: bytes) -> RealFile:
    """Create a file without pages in the page cache."""
    file = filled_file(runtime, f"{folder}/log", data)
    assert isinstance(file, RealFile)
    file.sync()
    evict(file)
    return file


def evict(file: RealFile) -> None:
    """Ask the kernel to drop a file's pages. It keeps the pages in use."""
    os.posix_fadvise(file.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def test_slow_peer_does_not_occupy_a_sender_thread(tmp_path: Path) -> None:
    """There are few threads, and other connections wait for them."""

    async def main(runtime: Runtime) -> None:
        file = filled_file(runtime, f"{tmp_path}/log", bytes(SIZE))
        near, far = socket.socketpair()
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 10)  # there is space soon

        def take() -> None:
            while far.recv(4 << 10):
                time.sleep(0.0001)

        reader = threading.Thread(target=take)
        reader.start()
        sender = new_range_sender(runtime.tasks)
        sent = await sent_by(sender, near, file, SIZE)
        near.close()
        await asyncio.to_thread(reader.join)
        await sender.close()
        far.close()
        file.close()
        assert 0 < sent.size < SIZE // 2

    real.run(main)


async def sent_by(sender: RangeSender, near: socket.socket, file: object, size: int) -> RangeResult:
    """Send a range from the start of a file. Return the outcome."""
    assert isinstance(file, RealFile)
    ended: asyncio.Future[RangeResult] = asyncio.get_running_loop().create_future()
    item = QueuedRange(file, file.lease(), 0, size)
    item.is_warm = True
    assert sender.begin(near.fileno(), item, b"", b"", ended.set_result) is not None
    async with asyncio.timeout(WAIT_S):
        sent = await ended
    item.lease.release()
    return sent


def test_without_a_descriptor_the_loop_sends_the_range(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        file = filled_file(runtime, f"{tmp_path}/log", bytes(SIZE))
        async with connected(runtime) as (caller, server, _):
            before = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
            try:
                caller.connection.send_range(file, 0, SIZE)
                await server.wait(lambda: len(server.got) == SIZE)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
            assert not caller.errors
        file.close()

    real.run(main)


def test_bytes_around_large_ranges_keep_their_order(tmp_path: Path) -> None:
    """Small and large ranges, with few and many bytes between them."""
    data = pattern(2 << 20)
    much = pattern(70_000)

    async def main(runtime: Runtime) -> None:
        file = filled_file(runtime, f"{tmp_path}/log", data)
        async with connected(runtime, buffer_size=256 << 10) as (caller, server, _):
            expected = b""
            for number in range(2):
                for around in (b"<", b"", much):
                    caller.connection.write([around, b"%d" % number])
                    caller.connection.send_range(file, number, len(data) - 7 * number - 3)
                    caller.connection.send_range(file, 5, 100)
                    caller.connection.write([b">", around])
                    expected += around + b"%d" % number + data[number : len(data) - 6 * number - 3]
                    expected += data[5:105] + b">" + around
            assert caller.connection.unsent_bytes() == len(expected)
            await server.wait(lambda: len(server.got) == len(expected))
            assert server.got == expected
            await caller.wait(lambda: caller.connection.unsent_bytes() == 0)
            assert caller.sent_calls
        file.close()

    real.run(main)


def test_reader_that_pauses_inside_a_range_gets_the_rest_when_it_resumes(tmp_path: Path) -> None:
    data = pattern(SIZE)

    async def main(runtime: Runtime) -> None:
        file = filled_file(runtime, f"{tmp_path}/log", data)
        async with connected(runtime, buffer_size=256 << 10) as (caller, server, _):
            server.connection.pause_reading()
            caller.connection.write([b"head"])
            caller.connection.send_range(file, 0, len(data))
            caller.connection.write([b"tail"])
            await caller.wait(lambda: caller.sent_calls > 0)
            assert 0 < caller.connection.unsent_bytes() < len(data) + 8
            server.connection.resume_reading()
            await server.wait(lambda: len(server.got) == len(data) + 8)
            assert server.got == b"head" + data + b"tail"
        file.close()

    real.run(main)


def test_a_range_beyond_the_end_of_its_file_ends_the_connection(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        file = filled_file(runtime, f"{tmp_path}/log", bytes(1 << 20))
        async with connected(runtime) as (caller, server, _):
            caller.connection.send_range(file, 1 << 19, 1 << 20)
            await caller.wait(lambda: bool(caller.errors))
            assert isinstance(caller.errors[0], OSError)
            await server.wait(lambda: bool(server.errors))
        file.close()

    real.run(main)


@pytest.mark.plain
@pytest.mark.parametrize("size", [5000, SIZE], ids=["small", "large"])
def test_a_bug_in_reading_a_cold_range_ends_its_connection(tmp_path: Path, size: int) -> None:
    """Regression: it stayed in the queue, and its waiters waited forever."""

    async def main(runtime: Runtime) -> None:
        file = cold_file(runtime, tmp_path, bytes(size))
        async with connected(runtime) as (caller, server, _):
            async with asyncio.timeout(WAIT_S):
                while not server.errors:  # until the kernel dropped the pages
                    evict(file)
                    server.got.clear()
                    caller.connection.send_range(broken(file), 0, size)
                    await server.wait(lambda: bool(server.errors) or len(server.got) == size)
            assert isinstance(caller.errors[0], RuntimeError)
        file.close()

    real.run(main)


@pytest.mark.parametrize("size", [5000, SIZE], ids=["small", "large"])
def test_uncached_range_is_read_first(tmp_path: Path, size: int) -> None:
    data = pattern(size)

    async def main(runtime: Runtime) -> None:
        file = cold_file(runtime, tmp_path, data)
        async with connected(runtime, buffer_size=256 << 10) as (caller, server, _):
            caller.connection.write([b"head"])
            caller.connection.send_range(file, 0, size)
            caller.connection.write([b"tail"])
            await server.wait(lambda: len(server.got) == size + 8)
            assert server.got == b"head" + data + b"tail"
        file.close()

    real.run(main)


def test_a_network_that_closes_waits_for_its_threads(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        file = filled_file(runtime, f"{tmp_path}/log", bytes(64 << 20))
        async with connected(runtime) as (caller, _, __):
            caller.connection.send_range(file, 0, 64 << 20)
            file.close()
            await caller.wait(lambda: caller.sent_calls > 0)
            await runtime.network.close()  # type: ignore[attr-defined] # the real network has it
            await runtime.tasks.drain("send")
            for _ in range(3):
                await asyncio.sleep(0)  # the result of the lane is processed
            with pytest.raises(OSError, match="Bad file descriptor"):
                file.size()

    real.run(main)
