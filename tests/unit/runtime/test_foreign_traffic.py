"""Other protocols, pings and excess streams at a served port.

Their connection ends or waits, and others are served.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from grpc import aio
from tests.kit.waits import AMPLE_S, run_patiently

from quorumlog.errors import InvalidRequest, QuorumlogError
from quorumlog.proto.log_pb2 import ProduceRequest, ProduceResponse, PublishRequest, PublishResponse
from quorumlog.runtime import CallContext, Handler, Runtime
from quorumlog.runtime.grpc_options import PING_INTERVAL_MS_MIN, STREAMS_MAX
from quorumlog.services import LOG_PRODUCE, LOG_PUBLISH

WAIT_S = AMPLE_S
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TLS_HELLO = b"\x16\3\1\0\xc8\1\0\0\xc4\3\3" + bytes(range(200))
HEADERS, RESET, SETTINGS, PING_ACK, GOAWAY = 1, 3, 4, 6, 7  # types of HTTP/2 frames
ACK = 1


class Server:
    """A served address, and the requests that its handlers received."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.address = ""
        self.streams = 0  # open produce streams

    async def publish(self, request: PublishRequest, context: CallContext) -> PublishResponse:
        if request.topic.startswith("refused"):
            raise InvalidRequest(request.topic, topic=request.topic)
        return PublishResponse(partition=1)

    async def produce(self, stream: Any, context: CallContext) -> None:
        self.streams += 1
        try:
            await stream.send(ProduceResponse())
            while await stream.receive() is not None:
                pass
        finally:
            self.streams -= 1

    async def is_well(self) -> bool:
        """Return True if a new client is served."""
        channel = self.runtime.network.channel(self.address)
        answer = await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_S * 1000)
        await channel.close()
        return answer.partition == 1

    @asynccontextmanager
    async def connect(
        self,
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Open a connection without a protocol."""
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield reader, writer
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


def with_server(client: Callable[[Server], Awaitable[None]]) -> None:
    async def main(runtime: Runtime) -> None:
        server = Server(runtime)
        handlers = {
            LOG_PUBLISH.path: Handler(LOG_PUBLISH, server.publish),
            LOG_PRODUCE.path: Handler(LOG_PRODUCE, server.produce),
        }
        listener = await runtime.network.serve("127.0.0.1:0", handlers)
        server.address = listener.address
        async with asyncio.timeout(WAIT_S):
            await client(server)

    run_patiently(main)


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        TLS_HELLO,
        bytes(range(256)) * 64,
        PREFACE + b"\xff" * 4096,
        PREFACE + b"\0\0\0\4\0\0\0\0\0" + b"\xff\xff\xff\1\xff\0\0\0\1" + b"x" * 65536,
    ],
    ids=["HTTP/1", "TLS", "bytes", "invalid frames", "a frame of 16 MiB"],
)
def test_other_protocols_end_their_own_connection_alone(said: bytes) -> None:
    async def client(server: Server) -> None:
        async with server.connect() as (reader, writer):
            writer.write(said)
            with suppress(ConnectionError):
                while await reader.read(1 << 16):
                    pass  # settings, and perhaps the reason
        assert await server.is_well()

    with_server(client)


def request_frame(content_type: str) -> bytes:
    """Return the headers of a complete request on stream 1."""
    fields = {":path": LOG_PUBLISH.path, ":authority": "x", "content-type": content_type}
    block = b"\x83\x86"  # :method POST, :scheme http
    for name, value in fields.items():
        if value:
            block += b"\0%c%s%c%s" % (len(name), name.encode(), len(value), value.encode())
    return len(block).to_bytes(3, "big") + b"\1\5\0\0\0\1" + block


@pytest.mark.parametrize(
    "content_type", ["", "application/json", "text/html", "application/grpc-web"]
)
def test_request_of_another_content_type_is_answered_without_harm(content_type: str) -> None:
    async def client(server: Server) -> None:
        async with server.connect() as (reader, writer):
            writer.write(PREFACE + b"\0\0\0\4\0\0\0\0\0" + request_frame(content_type))
            await frames_until(reader, lambda kind, flags: kind in {HEADERS, RESET, GOAWAY})
        assert await server.is_well()

    with_server(client)


def test_client_that_disconnects_inside_a_message_does_no_harm() -> None:
    async def client(server: Server) -> None:
        async with server.connect() as (_, writer):
            headers = b"\0\0\1\1\4\0\0\0\1\x83"  # a request with only its method
            torn = b"\0\0\x20\0\0\0\0\0\1abc"
            writer.write(PREFACE + b"\0\0\0\4\0\0\0\0\0" + headers + torn)
            await writer.drain()
            writer.transport.abort()
        assert await server.is_well()

    with_server(client)


async def frames_until(reader: asyncio.StreamReader, end: Callable[[int, int], bool]) -> int:
    """Read frames until one of a type, with flags. Return its type."""
    while True:
        head = await reader.readexactly(9)
        await reader.readexactly(int.from_bytes(head[:3], "big"))
        if end(head[3], head[4]):
            return head[3]


async def is_answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Send a ping. Return True if it is acknowledged without a GOAWAY."""
    writer.write(b"\0\0\x08\6\0\0\0\0\0" + b"12345678")
    kind = await frames_until(
        reader, lambda kind, flags: kind == GOAWAY or (kind == PING_ACK and flags == ACK)
    )
    return kind == PING_ACK


@pytest.mark.slow
def test_ping_every_second_is_allowed_and_a_flood_is_not() -> None:
    """By default the fourth ping within five minutes would end the connection."""

    async def client(server: Server) -> None:
        async with server.connect() as (reader, writer):
            writer.write(PREFACE + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\0\4\1\0\0\0\0")
            assert await is_answered(reader, writer)
            for _ in range(4):
                await asyncio.sleep(PING_INTERVAL_MS_MIN / 1000)
                assert await is_answered(reader, writer)
            while await is_answered(reader, writer):
                pass  # the flood ends the connection

    with_server(client)


@pytest.mark.slow
def test_streams_beyond_the_bound_of_a_connection_wait_for_their_turn() -> None:
    async def client(server: Server) -> None:
        async with aio.insecure_channel(server.address) as channel:
            produce: Any = channel.stream_stream(
                LOG_PRODUCE.path,
                ProduceRequest.SerializeToString,
                ProduceResponse.FromString,
            )
            calls = [produce() for _ in range(STREAMS_MAX)]
            for call in calls:
                await call.read()
            assert server.streams == STREAMS_MAX
            waiting = produce(timeout=0.2)
            with pytest.raises(aio.AioRpcError) as caught:
                await waiting.read()
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert server.streams == STREAMS_MAX
            assert await server.is_well(), "another connection has its own bound"
            late = produce()
            calls[0].cancel()
            await late.read()
            for call in [late, *calls]:
                call.cancel()

    with_server(client)


@pytest.mark.parametrize("letter", ["x", "ü", "語", "🙂", "\udcff"])
def test_error_with_any_name_arrives_typed(letter: str) -> None:
    """Its text is in the status, in the detail and percent-encoded, and peers limit the sum."""

    async def refuse(request: PublishRequest, context: CallContext) -> PublishResponse:
        raise InvalidRequest(letter * 5000, topic=letter * 5000)

    async def main(runtime: Runtime) -> None:
        handlers = {LOG_PUBLISH.path: Handler(LOG_PUBLISH, refuse)}
        listener = await runtime.network.serve("127.0.0.1:0", handlers)
        channel = runtime.network.channel(listener.address)
        with pytest.raises(QuorumlogError) as caught:
            await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_S * 1000)
        assert type(caught.value) is InvalidRequest
        assert len(caught.value.topic) >= 100

    run_patiently(main)


NOISY = """
import os, socket, sys, threading
from quorumlog.runtime.grpc_network import SyncChannel
from quorumlog.errors import QuorumlogError
from quorumlog.proto.log_pb2 import PublishRequest
from quorumlog.services import LOG_PUBLISH

assert "GRPC_VERBOSITY" not in os.environ or sys.argv[1:], "children are left alone"
server = socket.create_server(("127.0.0.1", 0))
def say_goaway():
    connection, _ = server.accept()
    connection.recv(100)
    connection.sendall(b"\\0\\0\\0\\4\\0\\0\\0\\0\\0")
    connection.sendall(b"\\0\\0\\x08\\7\\0\\0\\0\\0\\0" + bytes(7) + b"\\x0b")
    connection.recv(100)
    connection.close()
threading.Thread(target=say_goaway, daemon=True).start()
for address in ("127.0.0.1:%d" % server.getsockname()[1], ""):
    channel = SyncChannel(address, connect_ms=10_000)
    try:
        channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=10_000)
    except QuorumlogError as error:
        print(error.name)
    channel.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("verbosity", ["", "INFO"])
def test_log_of_grpc_is_silent_unless_enabled(verbosity: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "GRPC_VERBOSITY"}
    arguments = [sys.executable, "-c", NOISY]
    if verbosity:
        environment["GRPC_VERBOSITY"] = verbosity
        arguments.append(verbosity)
    finished = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=AMPLE_S, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert len(finished.stdout.split()) == 2
    if verbosity:
        assert "GOAWAY" in finished.stderr
    else:
        assert finished.stderr == ""
