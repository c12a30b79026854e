"""A client of the Kafka protocol for tests: plain fields in, the schemas' messages out.

It uses the runtime's byte network, so that it works on both runtimes. Every request is sent exactly
as given, and a test may send bytes of its own instead.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from io import BytesIO
from typing import Any

from quorumlog.frontends.kafka.shapes import MessageShape
from quorumlog.runtime import ByteConnection, Runtime

CLIENT_ID = "raw"
ANSWER_S = 60.0


class ConnectionEnded(Exception):
    """No more responses arrive; the cause is the error of the connection, if it had one."""


@cache
def request_shape(key: int, version: int) -> MessageShape:
    """Return the structure that turns plain fields into a request."""
    from kio.index import load_request_schema

    return MessageShape(load_request_schema(key, version))


@cache
def newest_version(key: int) -> int:
    """Return the newest version of a key that the schemas have."""
    from kio.schema.index import api_key_map, schema_name_map

    return max(schema_name_map[api_key_map[key]])


@cache
def _answer_reader(key: int, version: int) -> Callable[[bytes, int], tuple[Any, int]]:
    from kio.index import load_response_schema
    from kio.serial import entity_reader

    reader: Callable[[bytes, int], tuple[Any, int]] = entity_reader(
        load_response_schema(key, version)
    )
    return reader


def is_flexible(key: int, version: int) -> bool:
    """Return True if requests of this version have tagged fields."""
    return bool(request_shape(key, version).schema.__flexible__)


def body_of(key: int, version: int, fields: Mapping[str, Any]) -> bytes:
    """Return a request's body. Fields have the names of the newest version; fields that `version`
    lacks are omitted."""
    shape, newest = request_shape(key, version), request_shape(key, newest_version(key))
    out = BytesIO()
    shape.write(out, shape.build(fields, newest))
    return out.getvalue()


def request_of(
    key: int, version: int, body: bytes, *, correlation_id: int, client_id: str | None = CLIENT_ID
) -> bytes:
    """Return header and body, without the four bytes of the size."""
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    tags = b"\x00" if is_flexible(key, version) else b""
    return struct.pack(">hhih", key, version, correlation_id, size) + name + tags + body


def framed(request: bytes) -> bytes:
    """Return bytes with their size before them."""
    return struct.pack(">i", len(request)) + request


def read_answer(key: int, version: int, frame: bytes) -> tuple[int, Any]:
    """Return the correlation id and the message of a response; all bytes must be used."""
    (correlation_id,) = struct.unpack_from(">i", frame)
    begin = 4
    if is_flexible(key, version) and key != 18:
        assert frame[4] == 0, f"tagged fields in the header: {frame[:16]!r}"
        begin = 5
    content = frame[begin:]
    message, size = _answer_reader(key, version)(content, 0)
    assert size == len(content), f"{len(content) - size} bytes after the response"
    return correlation_id, message


class RawClient:
    """One connection; see `connected`. It is its own byte protocol."""

    def __init__(self, connection: ByteConnection) -> None:
        self.connection = connection
        self._bytes = bytearray()
        self._into = bytearray()
        self._news = asyncio.Event()
        self._next_id = 100
        self.patience_s = ANSWER_S
        self.has_ended = False
        self.error: Exception | None = None  # the reason of an abnormal end

    # --- ByteProtocol ---

    def buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        self._into = bytearray(size_hint)
        return memoryview(self._into)

    def received(self, count: int) -> None:
        """Append the received bytes."""
        self._bytes += self._into[:count]
        self._news.set()

    def sent(self) -> None:
        """Do nothing: no caller waits for it."""

    def closed(self, error: Exception | None) -> None:
        """Record the end of the connection."""
        self.has_ended, self.error = True, error
        self._news.set()

    # --- requests ---

    async def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        """Send a request and return its response; no other may be in flight."""
        expected = self.send(key, version, **fields)
        correlation_id, answer = await self.answer(key, version)
        assert correlation_id == expected, f"response {correlation_id} to request {expected}"
        return answer

    def send(
        self, key: int, version: int, /, *, client_id: str | None = CLIENT_ID, **fields: Any
    ) -> int:
        """Queue a request; return its correlation id."""
        return self.send_body(key, version, body_of(key, version, fields), client_id=client_id)

    def send_body(
        self, key: int, version: int, body: bytes, *, client_id: str | None = CLIENT_ID
    ) -> int:
        """Queue a request with a given body; return its correlation id."""
        self._next_id += 1
        self.send_raw(
            framed(
                request_of(key, version, body, correlation_id=self._next_id, client_id=client_id)
            )
        )
        return self._next_id

    def send_raw(self, raw: bytes) -> None:
        """Queue bytes unchanged."""
        self.connection.write([raw])

    # --- responses ---

    async def answer(self, key: int, version: int) -> tuple[int, Any]:
        """Return the next response's correlation id and message. Raise ConnectionEnded."""
        return read_answer(key, version, await self.frame())

    async def frame(self) -> bytes:
        """Return the next response's bytes without their size. Raise ConnectionEnded."""
        while True:
            if len(self._bytes) >= 4:
                (size,) = struct.unpack_from(">i", self._bytes)
                if len(self._bytes) >= 4 + size:
                    frame = bytes(self._bytes[4 : 4 + size])
                    del self._bytes[: 4 + size]
                    return frame
            if self.has_ended:
                raise ConnectionEnded(f"with {len(self._bytes)} bytes unread") from self.error
            await self._more()

    async def ended(self) -> Exception | None:
        """Wait until the other side ends the connection; return the error, None without one."""
        while not self.has_ended:
            await self._more()
        return self.error

    async def _more(self) -> None:
        self._news.clear()
        async with asyncio.timeout(self.patience_s):
            await self._news.wait()


@asynccontextmanager
async def connected(runtime: Runtime, address: str) -> AsyncIterator[RawClient]:
    """Yield a connection to "host:port"."""
    client = await connect(runtime, address)
    try:
        yield client
    finally:
        client.connection.abort()


async def connect(runtime: Runtime, address: str) -> RawClient:
    """Return a connection, which the caller closes."""
    made: list[RawClient] = []

    def accept(connection: ByteConnection) -> RawClient:
        made.append(RawClient(connection))
        return made[0]

    await runtime.network.connect_bytes(address, accept)
    return made[0]
