"""The client side of a gRPC stream.

If a message is written after the server ended the stream, grpc replaces the received status by
INTERNAL and loses the server's error or its clean end (grpc.aio, 1.80 to 1.85). This class keeps
the first status.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeAlias, TypeVar

from ..errors import QuorumlogError, StreamBroken
from .grpc_status import decode_failure
from .quiet_grpc import aio, grpc

T = TypeVar("T")

Call: TypeAlias = aio.StreamStreamCall[bytes, bytes]
_Code: Final = grpc.StatusCode

# Errors that grpc raises for a write to a call that has ended.
_ENDED: Final = (aio.AioRpcError, aio.BaseError, asyncio.InvalidStateError)


class CallingStream:
    """A `streams.RawStream` of the client."""

    def __init__(self, path: str, address: str, call: Call) -> None:
        self._path = path
        self._address = address
        self._call = call
        self._status: aio.AioRpcError | None = None  # as first received, with any code
        call.add_done_callback(self._keep_status)

    async def read(self) -> bytes | None:
        """Return the next message, or None at the peer's clean end. Raise its error."""
        try:
            raw: Any = await self._call.read()
        except aio.AioRpcError as error:
            status = self._status or error
            if status.code() is _Code.OK:
                return None
            raise decode_failure(status, self._path, self._address, StreamBroken) from error
        return None if raw is aio.EOF else raw

    async def write(self, raw: bytes) -> None:
        """Return when the message is in the window. Raise StreamBroken or the peer's error."""
        try:
            await self._call.write(raw)
        except _ENDED as error:
            raise self._breakage() from error

    async def finish(self) -> None:
        """Announce that no more messages follow. Raise as `write`."""
        try:
            await self._call.done_writing()
        except _ENDED as error:
            raise self._breakage() from error

    def abort(self, reason: str) -> None:
        """Cancel the handler. The reason is not sent."""
        self._call.cancel()

    def _keep_status(self, call: Any) -> None:
        if self._status is None:
            self._status = aio.AioRpcError(
                _at_once(call.code()),
                aio.Metadata(),
                _at_once(call.trailing_metadata()),
                _at_once(call.details()),
            )

    def _breakage(self) -> QuorumlogError:
        status = self._status
        if status is None or status.code() in (_Code.OK, _Code.CANCELLED):
            return StreamBroken(f"{self._path} at {self._address}: the peer ended the stream")
        return decode_failure(status, self._path, self._address, StreamBroken)


def _at_once(asked: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that does not suspend, since its call has ended."""
    try:
        asked.send(None)
    except StopIteration as stop:
        said: T = stop.value
        return said
    asked.close()
    raise AssertionError(f"{asked} of an ended call suspended")
