"""The caller's side of a gRPC stream, raw.

A message that comes too late for a stream that the server has ended makes grpc put INTERNAL in the
place of the status that arrived, and with it the server's reason or its clean end are gone (grpc's
asyncio face, 1.80 to 1.85). So the status is kept here as it came.
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

# What grpc raises when one writes to a call that is over.
_ENDED: Final = (aio.AioRpcError, aio.BaseError, asyncio.InvalidStateError)


class CallingStream:
    """See `streams.RawStream`."""

    def __init__(self, path: str, address: str, call: Call) -> None:
        self._path = path
        self._address = address
        self._call = call
        self._status: aio.AioRpcError | None = None  # as it first came, of whatever code
        call.add_done_callback(self._keep_status)

    async def read(self) -> bytes | None:
        """Return the next message, or None at the peer's clean end; raises its error."""
        try:
            raw: Any = await self._call.read()
        except aio.AioRpcError as error:
            status = self._status or error
            if status.code() is _Code.OK:
                return None
            raise decode_failure(status, self._path, self._address, StreamBroken) from error
        return None if raw is aio.EOF else raw

    async def write(self, raw: bytes) -> None:
        """Return when the message is in the window; raises StreamBroken or the peer's error."""
        try:
            await self._call.write(raw)
        except _ENDED as error:
            raise self._breakage() from error

    async def finish(self) -> None:
        """Say that nothing more will be written; raises as `write`."""
        try:
            await self._call.done_writing()
        except _ENDED as error:
            raise self._breakage() from error

    def abort(self, reason: str) -> None:
        """Cancel the handler; the reason stays here."""
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
            return StreamBroken(f"{self._path}: {self._address} ended the stream")
        return decode_failure(status, self._path, self._address, StreamBroken)


def _at_once(asked: Coroutine[Any, Any, T]) -> T:
    """Return what a call that is over says without waiting."""
    try:
        asked.send(None)
    except StopIteration as stop:
        said: T = stop.value
        return said
    asked.close()
    raise AssertionError("a call that is over had to be waited for")
