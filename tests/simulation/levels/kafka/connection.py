"""A connection of a Kafka client: pipelined requests, responses in their order."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from struct import Struct
from typing import Any, Final

from quorumlog.errors import QuorumlogError, StreamBroken
from quorumlog.frontends.kafka.schemas import reader_of, request_schema, response_schema
from quorumlog.frontends.kafka.shapes import MessageShape
from quorumlog.runtime import ByteConnection, Runtime
from quorumlog.simulation.byte_network import SimConnection

API_VERSIONS: Final = 18  # its responses never have tagged fields in their header
NEWEST: Final = {
    0: 12, 1: 12, 3: 12, 8: 9, 9: 9, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 22: 5, 24: 3, 25: 4, 26: 5,
    27: 2, 28: 5, 42: 2, 65: 0, 66: 1, 68: 1
}  # fmt: skip
"""The versions that name the fields of requests."""

_HEAD: Final = Struct(">hhih")
_SIZE: Final = Struct(">i")


@dataclass(frozen=True, slots=True)
class Frame:
    """An encoded request, and its response to come; None with acks=0."""

    key: int
    version: int
    content: bytes
    answer: "asyncio.Future[bytes] | None"


class KafkaLink:
    """A connection, and its own byte protocol. Several requests may be in flight."""

    def __init__(self, connection: ByteConnection, client_id: str) -> None:
        self.name = client_id
        self._connection = connection
        self._client_id = client_id.encode()
        self._come = bytearray()
        self._into = bytearray()
        # (correlation id, response)
        self._asked: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        self._requests = 0
        self.is_over = False

    @classmethod
    async def open(cls, runtime: Runtime, address: str, client_id: str) -> "KafkaLink":
        """Connect; raises ConnectionFailed when refused, OutcomeUnknown otherwise."""
        made: list[KafkaLink] = []

        def accept(connection: ByteConnection) -> KafkaLink:
            made.append(cls(connection, client_id))
            return made[0]

        await runtime.network.connect_bytes(address, accept)
        return made[0]

    async def ask(
        self, key: int, version: int, fields: Mapping[str, Any], *, timeout_ms: int
    ) -> Any:
        """Send a request and return its response.

        Raises StreamBroken, also on a time-out, which ends the connection.
        """
        frame = self.frame(key, version, fields)
        self.write([frame.content])
        return await self.answer(frame, timeout_ms=timeout_ms)

    def frame(
        self, key: int, version: int, fields: Mapping[str, Any], *, is_answered: bool = True
    ) -> Frame:
        """Encode the next request. Raises StreamBroken if the connection is over.

        The caller writes the frames in this order.
        """
        if self.is_over:
            raise StreamBroken("the connection is over")
        self._requests += 1
        answer: asyncio.Future[bytes] | None = None
        if is_answered:
            answer = asyncio.get_running_loop().create_future()
            self._asked.append((self._requests, answer))
        return Frame(key, version, self._request(key, version, fields), answer)

    def write(self, pieces: Sequence[bytes]) -> None:
        """Send bytes of frames; each piece arrives on its own."""
        if not self.is_over:
            self._connection.write(pieces)

    async def answer(self, frame: Frame, *, timeout_ms: int) -> Any:
        """Return the response to a frame; raises as `ask`."""
        assert frame.answer is not None, "a request without a response"
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                content = await frame.answer
        except TimeoutError:
            self.end()
            raise StreamBroken(f"no answer within {timeout_ms} ms") from None
        return _read(frame.key, frame.version, content)

    def close(self) -> None:
        """Close the connection behind the bytes that were written."""
        if not self.is_over:
            self._connection.close()
            self._broken(StreamBroken("the connection was closed"))

    def end(self, *, is_drained: bool = False) -> None:
        """Reset the connection.

        With `is_drained`, requests in flight never arrive; otherwise they may arrive later than
        requests of the next connection.
        """
        if is_drained and isinstance(self._connection, SimConnection):
            self._connection.lose_sent()
        if not self.is_over:
            self._connection.abort()
            self._broken(StreamBroken("the connection was reset"))

    # --- ByteProtocol --------------------------------------------------------------------------

    def buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for the next read."""
        self._into = bytearray(size_hint)
        return memoryview(self._into)

    def received(self, count: int) -> None:
        """Process the complete responses."""
        self._come += self._into[:count]
        while len(self._come) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._come)
            end = _SIZE.size + size
            if len(self._come) < end:
                return
            frame = bytes(self._come[_SIZE.size : end])
            del self._come[:end]
            number, answer = self._asked.popleft()
            (correlation_id,) = _SIZE.unpack_from(frame)
            assert correlation_id == number, f"answer {correlation_id} to request {number}"
            if not answer.done():
                answer.set_result(frame)

    def sent(self) -> None:
        """Do nothing: no task waits for it."""

    def closed(self, error: Exception | None) -> None:
        """Fail the requests in flight."""
        self._broken(StreamBroken(f"the connection ended: {error}"))

    # --- inside --------------------------------------------------------------------------------

    def _broken(self, error: QuorumlogError) -> None:
        self.is_over = True
        for _, answer in self._asked:
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # the caller may have given up
        self._asked.clear()

    def _request(self, key: int, version: int, fields: Mapping[str, Any]) -> bytes:
        shape, newest = _shape(key, version), _shape(key, max(version, NEWEST[key]))
        out = BytesIO()
        out.write(_SIZE.pack(0))
        out.write(_HEAD.pack(key, version, self._requests, len(self._client_id)))
        out.write(self._client_id)
        if shape.schema.__flexible__:
            out.write(b"\x00")
        shape.write(out, shape.build(fields, newest))
        size = out.tell() - _SIZE.size
        out.seek(0)
        out.write(_SIZE.pack(size))
        return out.getvalue()


@cache
def _shape(key: int, version: int) -> MessageShape:
    return MessageShape(request_schema(key, version))


def _read(key: int, version: int, frame: bytes) -> Any:
    schema = response_schema(key, version)
    begin = _SIZE.size + (schema.__flexible__ and key != API_VERSIONS)
    message, size = reader_of(schema)(memoryview(frame), begin)
    assert begin + size == len(frame), f"{len(frame) - begin - size} bytes after a response"
    return message
