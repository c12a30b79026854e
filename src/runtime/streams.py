"""One side of a stream, over a transport that moves raw messages: what both sides share.

Adds to the transport what the port promises and grpc does not give: sends of several tasks go one
after the other, a cancelled `receive` loses no message (the read under way is kept for the next
one), and a stream that was broken says so instead of looking like a cancelled task.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from google.protobuf.message import Message

from ..errors import StreamBroken


class RawStream(Protocol):
    """The transport. Never two reads or two writes at once; CancelledError where it was aborted."""

    async def read(self) -> bytes | None:
        """Return the next message, or None at the peer's clean end; raises QuorumlogError."""

    async def write(self, raw: bytes) -> None:
        """Return when the message is in the window; raises StreamBroken."""

    async def finish(self) -> None:
        """Say that nothing more will be written; raises StreamBroken."""

    def abort(self, reason: str) -> None:
        """Break the stream; called once."""


class MessageStream:
    """See `ports.Stream`."""

    def __init__(self, path: str, parse: Callable[[bytes], Any], raw: RawStream) -> None:
        self._path = path
        self._parse = parse
        self._raw = raw
        self._sending = asyncio.Lock()
        self._reading: asyncio.Task[bytes | None] | None = None  # outlives a cancelled receive
        self._is_receiving = False
        self._finished = False
        self._peer_finished = False
        self._broken = ""  # why this side broke it

    async def send(self, message: Message) -> None:
        """Return when the message is in the peer's window; raises StreamBroken.

        Cancelling a send that has begun breaks the stream: half of the message may be out.
        """
        assert not self._finished, f"{self._path}: send after finish"
        raw = message.SerializeToString()
        async with self._sending:
            self._raise_broken()
            try:
                await self._raw.write(raw)
            except asyncio.CancelledError:
                if is_cancelled_from_outside():
                    self.abort("a send was cancelled")
                    raise
                raise StreamBroken(f"{self._path}: {self._broken or 'closed'}") from None

    async def receive(self) -> Any:
        """Return the next message or None; raises StreamBroken, at the caller also the handler's
        error."""
        assert not self._is_receiving, f"{self._path}: two readers of one stream"
        if self._peer_finished:
            return None
        self._raise_broken()
        reading = self._reading
        if reading is None:
            reading = asyncio.get_running_loop().create_task(_read(self._raw))
            reading.add_done_callback(_retrieve)
            self._reading = reading
        self._is_receiving = True
        try:
            raw = await asyncio.shield(reading)
        except asyncio.CancelledError:
            if is_cancelled_from_outside() or not reading.cancelled():
                raise
            raise StreamBroken(f"{self._path}: {self._broken or 'closed'}") from None
        finally:
            self._is_receiving = False
        self._reading = None
        if raw is None:
            self._peer_finished = True
            return None
        return self._parse(raw)

    async def finish(self) -> None:
        """Send nothing more; receiving goes on."""
        if not self._finished:
            self._finished = True
            async with self._sending:
                self._raise_broken()
                await self._raw.finish()

    def abort(self, reason: str) -> None:
        """Break the stream at once, for both sides."""
        if not self._broken:
            self._broken = f"broken here: {reason}"
            self._raw.abort(reason)

    async def settle(self) -> None:
        """End the read that a cancelled receive left behind. The stream is over."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def _raise_broken(self) -> None:
        if self._broken:
            raise StreamBroken(f"{self._path}: {self._broken}")


async def _read(raw: RawStream) -> bytes | None:
    return await raw.read()


def _retrieve(reading: "asyncio.Task[bytes | None]") -> None:
    """Look at the error, which nobody else may do when the stream is dropped."""
    if not reading.cancelled():
        reading.exception()


def is_cancelled_from_outside() -> bool:
    """Whether the running task was asked to cancel; grpc raises the same for a cancelled call."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
