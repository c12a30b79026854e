"""Behaviour of the real runtime only: the process, the page cache, foreign sockets."""

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.kit.waits import AMPLE_S

from quorumlog.errors import AddressInUse, ConnectionFailed, OutcomeUnknown
from quorumlog.proto.log_pb2 import ProduceResponse
from quorumlog.runtime import ByteConnection, CallContext, Handler, Runtime, system
from quorumlog.runtime.files import RealFile, RealFiles
from quorumlog.runtime.real import run
from quorumlog.services import LOG_PRODUCE

WAIT_S = AMPLE_S

# --- the process ---------------------------------------------------------------------------------


def run_python(code: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run code in its own process."""
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


@pytest.mark.slow
def test_nothing_starts_without_assertions() -> None:
    done = run_python("from quorumlog.runtime.real import run; run(None)", "-O")
    assert done.returncode == 1
    assert "`python -O` is not supported" in done.stderr


@pytest.mark.slow
def test_stopping_the_node_ends_the_process_without_clean_up() -> None:
    done = run_python(
        "from quorumlog.runtime.real import run\n"
        "async def main(runtime):\n"
        "    try: runtime.tasks.stop_node('the disk has failed')\n"
        "    finally: print('cleaned up')\n"
        "run(main)"
    )
    assert done.returncode == os.EX_SOFTWARE
    assert "the disk has failed" in done.stderr
    assert done.stdout == ""


def test_hook_of_run_replaces_the_exit_of_the_process() -> None:
    reasons: list[str] = []

    async def main(runtime: Runtime) -> None:
        runtime.tasks.stop_node("a test")

    run(main, on_stop=reasons.append)
    assert reasons == ["a test"]


def test_run_closes_what_main_leaves_open() -> None:
    addresses: list[str] = []

    async def main(runtime: Runtime) -> None:
        listener = await runtime.network.serve("127.0.0.1:0", {})
        pipes = await runtime.network.listen_bytes("127.0.0.1:0", Silent)
        await runtime.network.connect_bytes(pipes.address, Silent)
        runtime.network.channel(listener.address)
        addresses.extend([listener.address, pipes.address])

    async def look(runtime: Runtime) -> None:
        for address in addresses:
            assert await runtime.network.refuses(address, 1000 * WAIT_S)

    run(main)
    run(look)


def test_run_returns_the_result_and_raises_the_error_of_main() -> None:
    async def main(runtime: Runtime) -> int:
        return 7

    async def fail(runtime: Runtime) -> None:
        raise ValueError("from main")

    assert run(main) == 7
    with pytest.raises(ValueError, match="from main"):
        run(fail)


@pytest.mark.slow
def test_importing_the_runtime_loads_no_data_library() -> None:
    code = (
        "import sys, quorumlog.runtime.real\n"
        "print([name for name in ('pyarrow', 'pandas', 'numpy', 'rich', 'typer')"
        " if name in sys.modules])"
    )
    assert run_python(code).stdout == "[]\n"


# --- files ---------------------------------------------------------------------------------------


def test_files_are_not_written_or_locked_through_links(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"content")
    for name, target in (("link", "other"), ("new", "missing")):
        (tmp_path / name).symlink_to(target)
        for refused in (
            lambda path: RealFiles().open(path, create=True),
            lambda path: RealFiles().open(path),
            RealFiles().lock,
        ):
            with pytest.raises(OSError, match="symbolic links"):
                refused(str(tmp_path / name))
    assert not (tmp_path / "missing").exists()


@pytest.mark.slow
def test_lock_is_freed_by_process_death(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys\n"
            "from quorumlog.runtime.files import RealFiles\n"
            f"lock = RealFiles().lock({str(tmp_path / 'lock')!r})\n"
            "print('held', flush=True)\n"
            "sys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        async def refused(runtime: Runtime) -> None:
            with pytest.raises(BlockingIOError):
                runtime.files.lock(str(tmp_path / "lock"))

        run(refused)
        holder.send_signal(signal.SIGKILL)
        holder.wait(WAIT_S)

    async def taken(runtime: Runtime) -> None:
        runtime.files.lock(str(tmp_path / "lock")).release()

    run(taken)


def test_cached_read_falls_back_without_kernel_support() -> None:
    async def main(runtime: Runtime) -> None:
        file = runtime.files.open_readonly("/proc/self/status")
        data = file.read_cached(0, 100)
        assert data is not None
        assert data.startswith(b"Name:")

    run(main)


def test_cached_read_larger_than_the_scratch_buffer_is_whole(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000

    async def main(runtime: Runtime) -> None:
        (tmp_path / "file").write_bytes(data)
        file = runtime.files.open_readonly(str(tmp_path / "file"))
        for size in (10, 1 << 20, (1 << 20) + 1, 1 << 30):
            assert file.read_cached(5, size) == data[5 : 5 + size]
        assert file.read_cached(0, 10) == data[:10]

    run(main)


@contextmanager
def cold_file(path: Path, size: int) -> Iterator[RealFile]:
    """Create a file whose pages were dropped from the page cache. Skip if that is impossible."""

    path.write_bytes(os.urandom(size))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    file = RealFiles().open_readonly(str(path))
    assert isinstance(file, RealFile)
    if file.is_resident(0, size):
        pytest.skip("this file system keeps or hides what is cached")
    yield file
    file.close()


def test_cold_pages_are_detected_and_warmed(tmp_path: Path) -> None:
    size = 3 << 20
    with cold_file(tmp_path / "cold", size) as file:
        # A probe of an absent page makes the kernel read it and its neighbours. The first and the
        # last one, which is_resident() probed, may be cached by now, but not all between them.
        assert None in [file.read_cached(at, 100) for at in range(0, size, 512 << 10)]
        file.warm(0, size)
        assert file.is_resident(0, size)
        assert file.read_cached(0, size) == (tmp_path / "cold").read_bytes()


@pytest.mark.parametrize("size", [4096, 1 << 16, 1 << 20])
def test_cached_read_ends_at_the_end_of_the_file_and_not_of_the_cached_pages(
    tmp_path: Path, size: int
) -> None:
    with cold_file(tmp_path / "cold", 4 << 20) as file:
        file.warm(0, 4 << 20)
        assert file.read_cached((4 << 20) - 10, size) == file.read((4 << 20) - 10, 10)
        assert file.read_cached(4 << 20, size) == b""
        descriptor = os.open(tmp_path / "cold", os.O_RDONLY)

        def read_after_an_eviction() -> bytes | None:
            # The kernel keeps a page that another processor is adding to a list.
            os.posix_fadvise(descriptor, 1 << 20, 2 << 20, os.POSIX_FADV_DONTNEED)
            return file.read_cached((1 << 20) - 10, size)

        try:
            assert None in (read_after_an_eviction() for _ in range(100))
        finally:
            os.close(descriptor)


def test_an_error_of_a_large_cached_read_has_the_kernels_number(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    read = system.resident_read()
    if read is None:
        pytest.skip("this system cannot report cached pages")
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        read(-1, 1 << 16, 0)
    assert caught.value.errno == errno.EBADF


# --- sockets -------------------------------------------------------------------------------------


class Silent:
    """A protocol that stores the received bytes."""

    def __init__(self, connection: ByteConnection) -> None:
        self.connection = connection
        self.got = bytearray()
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._buffer = bytearray(1 << 20)

    def buffer(self, size_hint: int) -> memoryview:
        return memoryview(self._buffer)

    def received(self, count: int) -> None:
        self.got += self._buffer[:count]

    def sent(self) -> None:
        pass

    def closed(self, error: Exception | None) -> None:
        self.ended.set_result(error)


class Accepting:
    """A factory that creates a protocol for each connection and returns them in order."""

    def __init__(self, kind: type[Silent] = Silent) -> None:
        self._kind = kind
        self._made: asyncio.Queue[Silent] = asyncio.Queue()

    def __call__(self, connection: ByteConnection) -> Silent:
        protocol = self._kind(connection)
        self._made.put_nowait(protocol)
        return protocol

    async def next(self) -> Silent:
        """Return the protocol of the next connection."""
        async with asyncio.timeout(WAIT_S):
            return await self._made.get()


def test_cold_range_is_read_in_the_lane_and_sent_whole(tmp_path: Path) -> None:
    size = 3 << 20

    async def main(runtime: Runtime) -> None:
        accepting = Accepting()
        listener = await runtime.network.listen_bytes("127.0.0.1:0", accepting)
        caller = await runtime.network.connect_bytes(listener.address, Silent)
        caller.write([b"head"])
        caller.send_range(file, 1, size - 1)
        caller.write([b"tail"])
        caller.close()
        server = await accepting.next()
        async with asyncio.timeout(WAIT_S):
            assert await server.ended is None
        got.extend(server.got)

    got = bytearray()
    with cold_file(tmp_path / "cold", size) as file:
        run(main)
    assert got == b"head" + (tmp_path / "cold").read_bytes()[1:] + b"tail"


def test_peers_that_do_not_read_delay_no_other_large_range(tmp_path: Path) -> None:
    """There are two sender threads and four peers that read nothing."""
    size = 8 << 20

    async def main(runtime: Runtime) -> None:
        accepting = Accepting()
        listener = await runtime.network.listen_bytes("127.0.0.1:0", accepting)
        file = runtime.files.open(str(tmp_path / "large"), create=True)
        file.write(0, [bytes(size)])
        silent = []
        for _ in range(4):
            caller = await runtime.network.connect_bytes(listener.address, Silent)
            (await accepting.next()).connection.pause_reading()
            caller.send_range(file, 0, size)
            silent.append(caller)
        caller = await runtime.network.connect_bytes(listener.address, Silent)
        caller.send_range(file, 0, size)
        caller.close()
        reader = await accepting.next()
        async with asyncio.timeout(WAIT_S):
            assert await reader.ended is None
        assert len(reader.got) == size
        for caller in silent:
            assert caller.unsent_bytes() > 0
            caller.abort()

    run(main)


def test_connection_closed_while_a_thread_sends_releases_its_file(tmp_path: Path) -> None:
    size = 64 << 20

    async def main(runtime: Runtime) -> None:
        accepting = Accepting()
        listener = await runtime.network.listen_bytes("127.0.0.1:0", accepting)
        file = runtime.files.open(str(tmp_path / "large"), create=True)
        file.write(0, [bytes(size)])
        caller = await runtime.network.connect_bytes(listener.address, Silent)
        caller.send_range(file, 0, size)
        file.close()
        reader = await accepting.next()
        while not reader.got:  # the thread has started # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.001)
        caller.abort()
        assert isinstance(await reader.ended, OSError)
        assert isinstance(file, RealFile)
        async with asyncio.timeout(WAIT_S):
            while file.descriptor >= 0:  # until the thread detects it # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.001)

    run(main)


def test_range_beyond_the_end_of_its_file_breaks_the_connection(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        listener = await runtime.network.listen_bytes("127.0.0.1:0", Silent)
        connecting = Accepting()
        caller = await runtime.network.connect_bytes(listener.address, connecting)
        file = runtime.files.open(str(tmp_path / "short"), create=True)
        file.write(0, [b"short"])
        caller.send_range(file, 0, 100)
        async with asyncio.timeout(WAIT_S):
            error = await (await connecting.next()).ended
        assert isinstance(error, OSError)
        assert error.errno == errno.EIO

    run(main)


def test_protocol_that_raises_ends_only_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Silent):
        def received(self, count: int) -> None:
            raise ZeroDivisionError("broken protocol")

    async def main(runtime: Runtime) -> None:
        accepting = Accepting(Broken)
        listener = await runtime.network.listen_bytes("127.0.0.1:0", accepting)
        for _ in range(2):
            caller = await runtime.network.connect_bytes(listener.address, Silent)
            caller.write([b"x"])
            broken = await accepting.next()
            async with asyncio.timeout(WAIT_S):
                assert isinstance(await broken.ended, ZeroDivisionError)

    run(main)
    assert "broken protocol" in caplog.text


def test_half_closed_peer_still_gets_what_is_queued() -> None:
    async def main(runtime: Runtime) -> None:
        class Answering(Silent):
            def received(self, count: int) -> None:
                self.connection.write([bytes(4 << 20)])

        listener = await runtime.network.listen_bytes("127.0.0.1:0", Answering)
        host, _, port = listener.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"question")
        writer.write_eof()
        assert len(await reader.read()) == 4 << 20
        writer.close()
        await writer.wait_closed()

    run(main)


@contextmanager
def silent_address() -> Iterator[str]:
    """Return an address that neither accepts nor refuses: its backlog is full."""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = listening.getsockname()
        waiting = []
        for _ in range(4):
            attempt = socket.socket()
            attempt.setblocking(False)
            attempt.connect_ex(address)
            waiting.append(attempt)
        yield f"{address[0]}:{address[1]}"
        for attempt in waiting:
            attempt.close()


@pytest.mark.slow
def test_silent_address_is_not_reported_as_refused() -> None:
    async def main(runtime: Runtime) -> None:
        with silent_address() as address:
            assert not await runtime.network.refuses(address, 50)
            channel = runtime.network.channel(address)
            with pytest.raises(OutcomeUnknown) as caught:
                await channel.stream(LOG_PRODUCE, timeout_ms=0)
            assert not isinstance(caught.value, ConnectionFailed)
            await channel.close()

    run(main)


def test_foreign_address_is_not_reported_as_in_use() -> None:
    async def main(runtime: Runtime) -> None:
        for address, number in (("192.0.2.1:0", errno.EADDRNOTAVAIL), ("x:99999", errno.EINVAL)):
            with pytest.raises(OSError, match=r"address|host:port") as caught:
                await runtime.network.serve(address, {})
            assert caught.value.errno == number
            with pytest.raises(OSError, match=r"address|host:port"):
                await runtime.network.listen_bytes(address, Silent)

    run(main)


def test_the_two_kinds_of_listener_share_the_ports() -> None:
    async def main(runtime: Runtime) -> None:
        calls = await runtime.network.serve("127.0.0.1:0", {})
        pipes = await runtime.network.listen_bytes("127.0.0.1:0", Silent)
        with pytest.raises(AddressInUse):
            await runtime.network.serve(pipes.address, {})
        with pytest.raises(AddressInUse):
            await runtime.network.listen_bytes(calls.address, Silent)

    run(main)


# --- a caller that dies --------------------------------------------------------------------------

DYING_CALLER = """
import os, signal, sys
from quorumlog.proto.log_pb2 import ProduceRequest, PublishRequest
from quorumlog.runtime.real import run
from quorumlog.services import LOG_PRODUCE, LOG_PUBLISH
async def main(runtime):
    channel = runtime.network.channel(sys.argv[1])
    for _ in range(30):
        stream = await channel.stream(LOG_PRODUCE, timeout_ms=0)
        await stream.send(ProduceRequest())
        await stream.receive()
    os.kill(os.getpid(), signal.SIGKILL)
run(main)
"""


@pytest.mark.slow
def test_killed_caller_cancels_its_handlers_and_never_ends_cleanly() -> None:
    ends: list[str] = []

    async def main(runtime: Runtime) -> None:
        all_ended = asyncio.Event()

        async def answer(stream: Any, context: CallContext) -> None:
            end = "clean"
            try:
                while await stream.receive() is not None:
                    await stream.send(ProduceResponse())
            except asyncio.CancelledError:
                end = "cancelled"
                raise
            finally:
                ends.append(end)
                if len(ends) == 30:
                    all_ended.set()

        handlers = {LOG_PRODUCE.path: Handler(LOG_PRODUCE, answer)}
        listener = await runtime.network.serve("127.0.0.1:0", handlers)
        caller = await asyncio.create_subprocess_exec(
            sys.executable, "-c", DYING_CALLER, listener.address
        )
        async with asyncio.timeout(WAIT_S):
            await caller.wait()
            await all_ended.wait()

    run(main)
    assert ends == ["cancelled"] * 30
