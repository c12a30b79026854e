"""Large ranges of files that a thread sends: compiled, and in plain Python."""

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
    """Which threads send."""
    way = str(request.param)
    if way == "plain":
        monkeypatch.setattr(range_sender, "CAN_SEND_COMPILED", False)
    elif not range_sender.CAN_SEND_COMPILED:
        pytest.skip("the sender was not compiled")
    return way


def pattern(size: int) -> bytes:
    """Bytes that are nowhere the same within a piece."""
    return bytes(range(251)) * (size // 251) + bytes(range(size % 251))


class Broken(RealFile):
    """A file that cannot be brought into the page cache."""

    def warm(self, position: int, size: int) -> None:
        raise RuntimeError("a bug")


def broken(file: RealFile) -> Broken:
    """The same file, as the above."""
    made = Broken.__new__(Broken)
    made.__dict__.update(file.__dict__)
    return made


def cold_file(runtime: Runtime, folder: Path, data: bytes) -> RealFile:
    """A file that the page cache has nothing of."""
    file = filled_file(runtime, f"{folder}/log", data)
    assert isinstance(file, RealFile)
    file.sync()
    evict(file)
    return file


def evict(file: RealFile) -> None:
    """Ask the kernel to drop a file's pages. It keeps those that it is using."""
    os.posix_fadvise(file.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def test_a_peer_that_takes_a_little_now_and_then_does_not_hold_the_thread(tmp_path: Path) -> None:
    """There are few threads, and others behind it."""

    async def main(runtime: Runtime) -> None:
        file = filled_file(runtime, f"{tmp_path}/log", bytes(SIZE))
        near, far = socket.socketpair()
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 10)  # there is room soon

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
    """Have a range sent from the start of a file; return how that ended."""
    assert isinstance(file, RealFile)
    ended: asyncio.Future[RangeResult] = asyncio.get_running_loop().create_future()
    item = QueuedRange(file, file.lease(), 0, size)
    item.is_warm = True
    assert sender.begin(near.fileno(), item, b"", b"", ended.set_result) is not None
    async with asyncio.timeout(WAIT_S):
        sent = await ended
    item.lease.release()
    return sent


def test_where_no_descriptor_is_left_the_loop_sends_by_itself(tmp_path: Path) -> None:
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


def test_what_surrounds_large_ranges_keeps_its_place(tmp_path: Path) -> None:
    """Small and large ranges, little and much between them."""
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


def test_a_reader_that_stops_in_the_midst_gets_the_rest_when_it_goes_on(tmp_path: Path) -> None:
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
    """It stayed in the queue, and whoever waited for it waited for ever."""

    async def main(runtime: Runtime) -> None:
        file = cold_file(runtime, tmp_path, bytes(size))
        async with connected(runtime) as (caller, server, _):
            async with asyncio.timeout(WAIT_S):
                while not server.errors:  # until the kernel had dropped the pages
                    evict(file)
                    server.got.clear()
                    caller.connection.send_range(broken(file), 0, size)
                    await server.wait(lambda: bool(server.errors) or len(server.got) == size)
            assert isinstance(caller.errors[0], RuntimeError)
        file.close()

    real.run(main)


@pytest.mark.parametrize("size", [5000, SIZE], ids=["small", "large"])
def test_a_range_that_the_page_cache_does_not_have_is_read_first(tmp_path: Path, size: int) -> None:
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
            await runtime.network.close()  # type: ignore[attr-defined]  # the real one has it
            await runtime.tasks.drain("send")
            for _ in range(3):
                await asyncio.sleep(0)  # the lane's answer is taken in
            with pytest.raises(OSError, match="Bad file descriptor"):
                file.size()

    real.run(main)
