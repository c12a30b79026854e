"""One side of a stream, over a transport that moves raw messages: what both sides share.

Adds to the transport what the port promises and grpc does not give: sends of several tasks go one
after the other, a cancelled `receive` loses no message, and a stream that was broken says so
instead of looking like a cancelled task.

One task a stream reads ahead, up to READ_AHEAD_BYTES that nobody has received yet; beyond them the
transport's own flow control paces the peer. It also hides the transport's wake-up behind the work
on the message before.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from google.protobuf.message import Message

from ..errors import MessageTooLarge, QuorumlogError, StreamBroken

READ_AHEAD_BYTES: Final = 64 << 10  # one message may pass the bound
MESSAGE_OVERHEAD: Final = 64  # bytes that an empty message counts for


class RawStream(Protocol):
    """The transport. Never two reads or two writes at once; CancelledError where it was aborted."""

    async def read(self) -> bytes | None:
        """Return the next message, or None at the peer's clean end; raises QuorumlogError."""

    async def write(self, raw: bytes) -> None:
        """Return when the message is in the window; raises StreamBroken or the peer's error."""

    async def finish(self) -> None:
        """Say that nothing more will be written; raises as `write`."""

    def abort(self, reason: str) -> None:
        """Break the stream; called once."""


class MessageStream:
    """See `ports.Stream`."""

    def __init__(
        self,
        path: str,
        parse: Callable[[bytes], Any],
        raw: RawStream,
        message_size_max: int,
    ) -> None:
        self._path = path
        self._parse = parse
        self._raw = raw
        self._message_size_max = message_size_max
        self._sending = asyncio.Lock()
        self._finished = False
        self._broken = ""  # why this side broke it
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0  # with MESSAGE_OVERHEAD for each
        self._pump: asyncio.Task[None] | None = None  # fills the inbox from the first receive on
        self._peer_finished = False
        self._failure: QuorumlogError | None = None  # why the peer's messages ended otherwise
        self._receiver: asyncio.Future[None] | None = None  # waits for the inbox to fill
        self._room: asyncio.Future[None] | None = None  # the pump waits for the inbox to empty

    async def send(self, message: Message) -> None:
        """Return when the message is in the peer's window; raises StreamBroken, at the caller also
        the handler's error, or MessageTooLarge with the stream as good as before.

        Cancelling a send that has begun breaks the stream: half of the message may be out.
        """
        assert not self._finished, f"{self._path}: send after finish"
        raw = encode_message(message, self._message_size_max)
        async with self._sending:
            self._raise_broken()
            try:
                await self._raw.write(raw)
            except asyncio.CancelledError:
                if is_cancelled_from_outside():
                    self.abort("a send was cancelled")
                    raise
                raise self._breakage() from None

    async def receive(self) -> Any:
        """Return the next message or None; raises StreamBroken, at the caller also the handler's
        error. What arrived before the end is received before it."""
        assert self._receiver is None, f"{self._path}: two readers of one stream"
        while not self._inbox:
            if self._failure is not None:
                raise self._failure
            if self._peer_finished:
                return None
            await self._wait_pump()
        raw = self._inbox.popleft()
        self._inbox_bytes -= len(raw) + MESSAGE_OVERHEAD
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
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
            if self._pump is not None:  # it may wait for a reader who never comes
                self._pump.cancel()

    async def settle(self) -> None:
        """End the reading. The stream is over."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)

    async def _wait_pump(self) -> None:
        """Return when the pump has got something; raises StreamBroken when it has ended."""
        loop = asyncio.get_running_loop()
        if self._pump is None:
            self._raise_broken()
            self._pump = loop.create_task(self._read_ahead(), name=f"{self._path} reading")
        if self._pump.done():
            raise self._breakage()
        self._receiver = loop.create_future()
        try:
            await self._receiver
        finally:
            self._receiver = None

    async def _read_ahead(self) -> None:
        try:
            while (raw := await self._raw.read()) is not None:
                self._inbox.append(raw)
                self._inbox_bytes += len(raw) + MESSAGE_OVERHEAD
                self._wake_receiver()
                if self._inbox_bytes >= READ_AHEAD_BYTES:
                    await self._wait_room()
            self._peer_finished = True
        except QuorumlogError as error:
            self._failure = error
        finally:
            self._wake_receiver()

    async def _wait_room(self) -> None:
        while self._inbox_bytes >= READ_AHEAD_BYTES:
            self._room = asyncio.get_running_loop().create_future()
            try:
                await self._room
            finally:
                self._room = None

    def _wake_receiver(self) -> None:
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_result(None)

    def _raise_broken(self) -> None:
        if self._broken:
            raise self._breakage()

    def _breakage(self) -> StreamBroken:
        return StreamBroken(f"{self._path}: {self._broken or 'the channel was closed'}")


def encode_message(message: Message, size_max: int) -> bytes:
    """Return a message's bytes; raises MessageTooLarge before grpc would break the call."""
    raw = message.SerializeToString()
    if len(raw) > size_max:
        raise MessageTooLarge(f"a message of {len(raw)} bytes; at most {size_max} travel at once")
    return raw


def is_cancelled_from_outside() -> bool:
    """Whether the running task was asked to cancel; grpc raises the same for a cancelled call."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
