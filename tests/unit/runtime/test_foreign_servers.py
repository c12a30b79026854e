"""Channels to servers that are no brokers: clear errors, and no harm by invalid responses."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from grpc import aio
from tests.kit.waits import AMPLE_MS, run_patiently

from quorumlog.errors import (
    ConnectionFailed,
    CorruptionError,
    MessageTooLarge,
    NotImplementedHere,
    OutcomeUnknown,
    QuorumlogError,
    StreamBroken,
    TimedOut,
)
from quorumlog.proto.log_pb2 import ProduceRequest, PublishRequest
from quorumlog.runtime import Channel, Runtime, real
from quorumlog.runtime.foreign_status import explain_status
from quorumlog.runtime.grpc_network import SyncChannel
from quorumlog.runtime.grpc_options import CONNECT_MS
from quorumlog.runtime.grpc_status import STATUS_DETAILS
from quorumlog.services import LOG_PRODUCE, LOG_PUBLISH

WAIT_MS = AMPLE_MS
SETTINGS = b"\0\0\0\4\0\0\0\0\0"  # HTTP/2's first frame, empty
NOT_FOUND_404 = b"\0\0\1\1\5\0\0\0\1\x8d"  # headers of stream 1, its end: ":status: 404"
REQUEST = b"\1\4\0\0\0\1"  # of the frame that begins the first request
HTTP1 = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
TLS_ALERT = b"\x15\3\1\0\2\2\x46"  # fatal: protocol version


class _Answering(asyncio.Protocol):
    """A server that sends one response to the first bytes and one to a request.

    Then it closes the connection or stays silent.
    """

    def __init__(self, first: bytes, at_request: bytes, *, hangs_up: bool) -> None:
        self._answers = [(b"", first), (REQUEST, at_request)]
        self._hangs_up = hangs_up
        self._seen = b""
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._seen += data
        while self._answers and self._answers[0][0] in self._seen:
            self._transport.write(self._answers.pop(0)[1])
        if self._hangs_up:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()

    async def end(self) -> None:
        self._transport.abort()
        await self.lost.wait()


@asynccontextmanager
async def answering(
    first: bytes, at_request: bytes = b"", *, hangs_up: bool = True
) -> AsyncIterator[str]:
    """The address of a server with these responses."""
    loop = asyncio.get_running_loop()
    connections: list[_Answering] = []

    def connection() -> _Answering:
        connections.append(_Answering(first, at_request, hangs_up=hangs_up))
        return connections[-1]

    server = await loop.create_server(connection, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*(connection.end() for connection in connections))


async def failure(runtime: Runtime, address: str, *, timeout_ms: int = WAIT_MS) -> QuorumlogError:
    """Return the error of a call to the address; a stream must raise the same."""
    channel = runtime.network.channel(address)
    with pytest.raises(QuorumlogError) as caught:
        await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=timeout_ms)
    await channel.close()
    return caught.value


# --- no connection -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (HTTP1, "a web server's port"),
        (b"220 mail ESMTP ready, talk on\r\n", "not a gRPC server"),
        (TLS_ALERT, "whether it requires TLS (tls=quorumlog.TLS(ca=...)"),
        (b"", "the connection was closed at once"),
    ],
)
def test_server_without_grpc_is_reported_as_not_sent(answer: bytes, sentence: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with answering(answer) as address:
            error = await failure(runtime, address)
            assert type(error) is ConnectionFailed
            assert sentence in str(error)
            assert address in str(error)

    run_patiently(main)


@pytest.mark.slow
def test_attempt_at_a_silent_server_ends_before_the_deadline() -> None:
    async def main(runtime: Runtime) -> None:
        async with answering(b"", hangs_up=False) as address:
            error = await failure(runtime, address)
            assert type(error) is ConnectionFailed
            assert "connected without a response" in str(error)

    real.run(main)


@pytest.mark.slow
def test_silent_server_is_awaited_with_a_longer_connect_timeout() -> None:
    """The default connect timeout is half a second, which this test exceeds."""

    async def main(runtime: Runtime) -> None:
        async with answering(b"", hangs_up=False) as address:
            error = await failure(runtime, address, timeout_ms=3 * CONNECT_MS)
            assert type(error) is TimedOut

    real.run(main, connect_ms=WAIT_MS)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("no-such-host.invalid:9094", "the name no-such-host.invalid does not resolve"),
        ("http://127.0.0.1:9094", "without a scheme"),
        ("", "use host:port"),
        ("127.0.0.1:1", "127.0.0.1:1: connection refused"),
    ],
)
def test_unreachable_address_is_reported(address: str, sentence: str) -> None:
    async def main(runtime: Runtime) -> None:
        error = await failure(runtime, address)
        assert type(error) is ConnectionFailed
        assert sentence in str(error)

    run_patiently(main)


# --- invalid responses ----------------------------------------------------------------------------


def test_response_of_a_proxy_is_distinguished_from_a_brokers() -> None:
    async def main(runtime: Runtime) -> None:
        async with answering(SETTINGS, NOT_FOUND_404, hangs_up=False) as address:
            error = await failure(runtime, address)
        assert type(error) is OutcomeUnknown
        assert "a web server or proxy" in str(error)

    run_patiently(main)


@pytest.mark.parametrize(
    ("code", "text", "kind", "sentence"),
    [
        ("UNAVAILABLE", "Socket closed", OutcomeUnknown, "the outcome is unknown"),
        ("UNAVAILABLE", "GOAWAY received", OutcomeUnknown, "the outcome is unknown"),
        ("UNIMPLEMENTED", "Method not found!", NotImplementedHere, "broker's gRPC port"),
        ("UNAUTHENTICATED", "token?", OutcomeUnknown, "no error of a broker"),
        ("PERMISSION_DENIED", "no", OutcomeUnknown, "check proxies in between"),
        ("DEADLINE_EXCEEDED", "", TimedOut, "the deadline passed"),
        (
            "RESOURCE_EXHAUSTED",
            "SERVER: Received message larger than max (9 vs. 4)",
            MessageTooLarge,
            "9 vs. 4",
        ),
        ("RESOURCE_EXHAUSTED", "quota", OutcomeUnknown, "RESOURCE_EXHAUSTED: quota"),
        ("INTERNAL", "boom", OutcomeUnknown, "INTERNAL: boom"),
        (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: UNKNOWN: x: No route to host",
            OutcomeUnknown,
            "check the address and the network",
        ),
    ],
)
def test_foreign_status_has_an_explanation(
    code: str, text: str, kind: type[QuorumlogError], sentence: str
) -> None:
    error = explain_status(code=code, text=text, path="/p", address="h:1", unknown=OutcomeUnknown)
    assert type(error) is kind
    assert sentence in str(error)


_HANDSHAKE = (
    "Tls handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:1000007d:SSL routines:"
)
_VERIFY = f"{_HANDSHAKE}OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: "


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{_HANDSHAKE}OPENSSL_internal:WRONG_VERSION_NUMBER: x: OK", "does not use TLS on this"),
        (f"{_VERIFY}unable to get local issuer certificate: OK", "certificate; give the authority"),
        (f"{_VERIFY}self signed certificate: OK", "tlsCaFile"),
        (f"{_VERIFY}certificate has expired: OK", "has expired; renew it"),
        (f"{_HANDSHAKE}OPENSSL_internal:OTHER", "handshake failed: (TSI_PROTOCOL_FAILURE)"),
        ("Cannot check peer: missing selected ALPN property.", "perhaps the Kafka port"),
        ("Handshake read failed (Socket closed)", "in the TLS handshake"),
        ("UNAUTHENTICATED: Hostname Verification Check failed.", "has another name"),
    ],
)
def test_failed_handshake_sent_nothing_and_has_a_remedy(text: str, sentence: str) -> None:
    error = explain_status(
        code="UNAVAILABLE",
        text=f"failed to connect to all addresses; last error: UNKNOWN: ipv4:h:1: {text}",
        path="/p",
        address="h:1",
        unknown=OutcomeUnknown,
    )
    assert type(error) is ConnectionFailed
    assert str(error).startswith("h:1: ")
    assert sentence in str(error)


class _Foreign(grpc.GenericRpcHandler):
    """A gRPC server that responds to every call in one way."""

    def __init__(self, serve: Callable[[Any], Awaitable[None]]) -> None:
        self._serve = serve

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def stream(requests: Any, context: Any) -> None:
            await self._serve(context)

        return grpc.stream_stream_rpc_method_handler(stream)


def with_foreign(
    serve: Callable[[Any], Awaitable[None]], client: Callable[[Runtime, str], Awaitable[None]]
) -> None:
    """Run a client with a foreign server."""

    async def main(runtime: Runtime) -> None:
        server = aio.server()
        server.add_generic_rpc_handlers((_Foreign(serve),))
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        try:
            async with asyncio.timeout(WAIT_MS / 1000):
                await client(runtime, address)
        finally:
            await server.stop(None)

    run_patiently(main)


def test_a_response_that_does_not_parse_is_corrupt_on_every_channel() -> None:
    async def nonsense(context: Any) -> None:
        await context.write(b"\xff\xff\xff")

    def synchronous(address: str) -> None:
        with SyncChannel(address, connect_ms=AMPLE_MS) as channel:
            with pytest.raises(CorruptionError, match="cannot be parsed"):
                channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
            with pytest.raises(CorruptionError, match="cannot be parsed"):
                next(channel.stream(LOG_PRODUCE, [ProduceRequest()]))

    async def client(runtime: Runtime, address: str) -> None:
        channel = runtime.network.channel(address)
        with pytest.raises(CorruptionError, match="cannot be parsed"):
            await channel.call(LOG_PUBLISH, PublishRequest(), timeout_ms=WAIT_MS)
        stream = await channel.stream(LOG_PRODUCE, timeout_ms=WAIT_MS)
        with pytest.raises(CorruptionError, match="cannot be parsed"):
            await stream.receive()
        await asyncio.to_thread(synchronous, address)

    with_foreign(nonsense, client)


def test_invalid_detail_leaves_the_status() -> None:
    async def refuse(context: Any) -> None:
        await context.abort(grpc.StatusCode.INTERNAL, "boom", ((STATUS_DETAILS, b"\xff\xff\xff"),))

    async def client(runtime: Runtime, address: str) -> None:
        error = await failure(runtime, address)
        assert type(error) is OutcomeUnknown
        assert "INTERNAL: boom" in str(error)

    with_foreign(refuse, client)


def test_a_server_that_closes_streams_breaks_them_with_its_reason() -> None:
    async def close(context: Any) -> None:
        await context.read()
        await context.abort(grpc.StatusCode.UNAVAILABLE, "going away")

    async def client(runtime: Runtime, address: str) -> None:
        channel = runtime.network.channel(address)
        stream = await channel.stream(LOG_PRODUCE, timeout_ms=WAIT_MS)
        await stream.send(ProduceRequest())
        with pytest.raises(StreamBroken, match="going away"):
            await stream.receive()

    with_foreign(close, client)


def with_fast_server(
    client: Callable[[Channel], Awaitable[None]],
    handlers: list[grpc.GenericRpcHandler] | None = None,
) -> None:
    """Run a client with slow turns of the loop and a server with its own threads, which responds in
    between.

    Without handlers the server refuses every call.
    """
    server = grpc.server(ThreadPoolExecutor(1), handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    async def main(runtime: Runtime) -> None:
        loop = asyncio.get_running_loop()

        standing = True

        def stand() -> None:
            time.sleep(0.002)
            if standing:
                loop.call_soon(stand)

        loop.call_soon(stand)
        await client(runtime.network.channel(f"127.0.0.1:{port}"))
        standing = False

    try:
        run_patiently(main)
    finally:
        server.stop(None).wait()


def test_response_before_the_stream_is_polled_is_received() -> None:
    async def client(channel: Channel) -> None:
        for _ in range(20):
            stream = await channel.stream(LOG_PRODUCE, timeout_ms=WAIT_MS)
            with pytest.raises(NotImplementedHere):
                await stream.receive()

    with_fast_server(client)


def test_error_before_our_message_is_sent_is_raised_by_send_and_receive() -> None:
    """grpc replaces the server's error by its own error for the message."""

    async def client(channel: Channel) -> None:
        for _ in range(20):
            stream = await channel.stream(LOG_PRODUCE, timeout_ms=WAIT_MS)
            with suppress(NotImplementedHere):  # if it was too late
                await stream.send(ProduceRequest(correlation_id=1))
            with pytest.raises(NotImplementedHere):
                await stream.receive()

    with_fast_server(client)


def test_clean_end_before_our_message_is_sent_is_received() -> None:
    class Ending(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            return grpc.stream_stream_rpc_method_handler(lambda requests, context: iter(()))

    async def client(channel: Channel) -> None:
        for _ in range(20):
            stream = await channel.stream(LOG_PRODUCE, timeout_ms=WAIT_MS)
            with suppress(StreamBroken):  # if it was too late
                await stream.send(ProduceRequest(correlation_id=1))
            assert await stream.receive() is None

    with_fast_server(client, [Ending()])


def test_slow_server_delays_a_call_up_to_its_deadline() -> None:
    async def slow(context: Any) -> None:
        await asyncio.sleep(3600)

    async def client(runtime: Runtime, address: str) -> None:
        before = runtime.clock.now_ms()
        error = await failure(runtime, address, timeout_ms=100)
        assert type(error) is TimedOut
        assert runtime.clock.now_ms() - before < WAIT_MS / 2
        channel = runtime.network.channel(address)
        stream = await channel.stream(LOG_PRODUCE, timeout_ms=100)
        with pytest.raises(TimedOut):
            await stream.receive()

    with_foreign(slow, client)
