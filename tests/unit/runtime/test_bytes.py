"""Byte connections, on both runtimes (the contract of `ByteConnection` and `ByteProtocol`)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest

from quorumlog.errors import (
    AddressInUse,
    ConnectionFailed,
    TransportError,
)
from quorumlog.runtime import ByteConnection, Runtime

from .byte_connection import WAIT_S, Peer, connected, filled_file

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]


def test_bytes_arrive_in_order_for_every_split(run: Run) -> None:
    data = bytes(range(251)) * 4000  # 1 MB

    async def main(runtime: Runtime) -> None:
        async with connected(runtime) as (caller, server, _):
            for position in range(0, len(data), 10_007):
                piece = memoryview(data)[position : position + 10_007]
                caller.connection.write([piece[:10], b"", bytearray(piece[10:5000]), piece[5000:]])
            await server.wait(lambda: len(server.got) >= len(data))
            assert server.got == data
            assert server.most_at_once <= 1000
            server.connection.write([b"answer"])
            await caller.wait(lambda: caller.got == b"answer")
            assert caller.connection.peer
            assert server.connection.peer
            assert caller.connection.local

    run(main)


def test_synchronous_writes_keep_their_order(run: Run) -> None:
    """They go behind queued bytes. Bytes that the socket refuses are queued, and `sent` follows."""
    data = bytes(range(251)) * 40_000  # 10 MB, more than both kernel buffers

    async def main(runtime: Runtime) -> None:
        async with connected(runtime, buffer_size=256 << 10) as (caller, server, _):
            write = caller.connection.write
            server.connection.pause_reading()
            write([b"queued"])
            write([b"now"], now=True)
            await caller.wait(lambda: caller.connection.unsent_bytes() == 0)
            write([b"alone"], now=True)
            write([data, b"end"], now=True)
            assert caller.connection.unsent_bytes() > 0
            write([b"behind"], now=True)
            calls = caller.sent_calls
            server.connection.resume_reading()
            wanted = b"queuednowalone" + data + b"endbehind"
            await server.wait(lambda: len(server.got) >= len(wanted))
            assert server.got == wanted
            await caller.wait(lambda: caller.connection.unsent_bytes() == 0)
            assert caller.sent_calls > calls

    run(main)


def test_file_ranges_keep_their_order_among_buffers(run: Run, folder: str) -> None:
    data = bytes(range(256)) * 12_000  # 3 MB: several sendfile calls

    async def main(runtime: Runtime) -> None:
        file = filled_file(runtime, f"{folder}/log", data)
        async with connected(runtime) as (caller, server, _):
            wanted = bytearray()
            for position, size in ((0, 1), (100, 0), (5000, 70_000), (17, len(data) - 17)):
                caller.connection.write([b"header", b"s"])
                caller.connection.send_range(file, position, size)
                wanted += b"headers" + data[position : position + size]
            caller.connection.write([b"end"])
            wanted += b"end"
            file.close()  # the ranges hold leases
            assert caller.connection.unsent_bytes() == len(wanted)
            await server.wait(lambda: len(server.got) >= len(wanted))
            assert server.got == wanted
            await caller.wait(lambda: caller.connection.unsent_bytes() == 0)
            assert caller.sent_calls >= 1
            with pytest.raises(OSError, match="Bad file descriptor"):
                file.size()

    run(main)


def test_sent_is_called_after_a_range_without_later_bytes(run: Run, folder: str) -> None:
    """A protocol that paused because of unsent bytes resumes at that call."""
    data = bytes(256 << 10)  # a thread sends it, and the kernel accepts it at once

    async def main(runtime: Runtime) -> None:
        file = filled_file(runtime, f"{folder}/log", data)
        async with connected(runtime) as (caller, server, _):
            caller.connection.send_range(file, 0, len(data))
            file.close()
            await caller.wait(lambda: caller.sent_calls > 0)
            await server.wait(lambda: len(server.got) == len(data))
            await caller.wait(lambda: caller.connection.unsent_bytes() == 0)

    run(main)


def test_abort_releases_leases(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        file = filled_file(runtime, f"{folder}/log", bytes(1 << 20))
        async with connected(runtime) as (caller, server, _):
            server.connection.pause_reading()
            for _ in range(64):  # more than any socket's buffers
                caller.connection.send_range(file, 0, 1 << 20)
            file.close()
            assert file.size() == 1 << 20
            caller.connection.abort()
            await caller.wait(lambda: bool(caller.errors))
            assert caller.connection.unsent_bytes() == 0
            with pytest.raises(OSError, match="Bad file descriptor"):
                file.size()

    run(main)


def test_paused_reader_holds_the_sender_back(run: Run) -> None:
    piece = bytes(1 << 20)
    total = 64 << 20

    async def main(runtime: Runtime) -> None:
        async with connected(runtime, buffer_size=1 << 20) as (caller, server, _):
            server.connection.pause_reading()
            server.connection.pause_reading()
            for _ in range(64):
                caller.connection.write([piece])
            before = -1
            while caller.connection.unsent_bytes() != before:
                before = caller.connection.unsent_bytes()
                await asyncio.sleep(0.05)
            assert 0 < before < total
            assert not server.got
            server.connection.resume_reading()
            server.connection.resume_reading()
            await server.wait(lambda: len(server.got) == total)
            assert caller.connection.unsent_bytes() == 0

    run(main)


def test_close_sends_what_is_queued_and_ends_cleanly_on_both_sides(run: Run) -> None:
    data = bytes(8 << 20)

    async def main(runtime: Runtime) -> None:
        async with connected(runtime, buffer_size=1 << 20) as (caller, server, _):
            caller.connection.write([data])
            caller.connection.close()
            caller.connection.close()
            caller.connection.write([b"too late"])
            assert not caller.errors  # never inside the call
            await server.wait(lambda: bool(server.errors))
            await caller.wait(lambda: bool(caller.errors))
            assert len(server.got) == len(data)
            assert server.errors == [None]
            assert caller.errors == [None]

    run(main)


def test_abort_drops_what_is_queued_and_resets_the_peer(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with connected(runtime) as (caller, server, _):
            caller.connection.write([b"hello"])
            await server.wait(lambda: server.got == b"hello")
            caller.connection.write([bytes(100 << 20)])
            caller.connection.abort()
            caller.connection.abort()
            caller.connection.close()
            await server.wait(lambda: bool(server.errors))
            await caller.wait(lambda: bool(caller.errors))
            assert len(server.got) < 100 << 20
            assert isinstance(server.errors[0], Exception)
            assert [len(server.errors), len(caller.errors)] == [1, 1]

    run(main)


def test_a_connection_that_is_aborted_when_it_is_accepted_ends_at_the_caller(run: Run) -> None:
    """The caller's connect may also fail: the reset can arrive before it completes."""

    async def main(runtime: Runtime) -> None:
        def refuse(connection: ByteConnection) -> Peer:
            connection.abort()
            return Peer(connection)

        listener = await runtime.network.listen_bytes("127.0.0.1:0", refuse)
        for _ in range(20):
            callers: list[Peer] = []

            def call(connection: ByteConnection, callers: list[Peer] = callers) -> Peer:
                callers.append(Peer(connection))
                return callers[0]

            try:
                await runtime.network.connect_bytes(listener.address, call)
            except TransportError:
                continue
            caller = callers[0]
            async with asyncio.timeout(WAIT_S):
                while not caller.errors:  # noqa: ASYNC110 - it may have ended already
                    await asyncio.sleep(0.001)
        await listener.close(0)

    run(main)


def test_reset_reaches_a_reader_with_unread_bytes(run: Run) -> None:
    """uvloop stops watching a descriptor at its first error, which it reports once."""

    async def main(runtime: Runtime) -> None:
        async with connected(runtime) as (caller, server, _):
            server.connection.pause_reading()
            caller.connection.write([bytes(100_000)])
            while caller.connection.unsent_bytes():  # noqa: ASYNC110 - until the bytes are in flight
                await asyncio.sleep(0.01)
            caller.connection.abort()
            await caller.wait(lambda: bool(caller.errors))
            server.connection.resume_reading()
            await server.wait(lambda: bool(server.errors))
            assert isinstance(server.errors[0], Exception)

    run(main)


def test_taken_and_refusing_addresses(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with connected(runtime) as (_, _, listener):
            with pytest.raises(AddressInUse):
                await runtime.network.listen_bytes(listener.address, Peer)
            assert not await runtime.network.refuses(listener.address, 1000 * WAIT_S)
        with pytest.raises(ConnectionFailed):
            await runtime.network.connect_bytes(listener.address, Peer)
        assert await runtime.network.refuses(listener.address, 1000 * WAIT_S)

    run(main)


def test_closing_listener_waits_for_its_connections_then_resets_them(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with connected(runtime) as (caller, server, listener):
            async with runtime.tasks.scope("test") as scope:
                closing = scope.spawn(listener.close(1000 * WAIT_S), name="close")
                await asyncio.sleep(0.05)
                assert not closing.done()
                server.connection.write([b"bye"])
                server.connection.close()
            assert caller.got == b"bye" or not caller.errors
            assert server.errors == [None]
        async with connected(runtime) as (_, server, listener):
            await listener.close(10)
            assert isinstance(server.errors[0], Exception)

    run(main)
