"""One side of a message stream over a transport of raw messages; client and server share it.

It adds guarantees of the port that grpc does not have: sends of several tasks are serialized, a
cancelled `receive` loses no message, and a broken stream raises an error instead of a cancellation.

One task per stream reads ahead, up to READ_AHEAD_BYTES of unreceived messages. Beyond them the
transport's flow control limits the peer. Reading ahead also overlaps the transport's wake-up with
the processing of the message before.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from google.protobuf.message import Message

from ..errors import MessageTooLarge, QuorumlogError, StreamBroken

READ_AHEAD_BYTES: Final = 64 << 10  # one message may exceed it
MESSAGE_OVERHEAD: Final = 64  # bytes that a message counts beside its content


class RawStream(Protocol):
    """The transport. Reads do not overlap, nor do writes. CancelledError after an abort."""

    async def read(self) -> bytes | None:
        """Return the next message, or None at the peer's clean end. Raise QuorumlogError."""

    async def write(self, raw: bytes) -> None:
        """Return when the message is in the window. Raise StreamBroken or the peer's error."""

    async def finish(self) -> None:
        """Announce that no more messages follow. Raise as `write`."""

    def abort(self, reason: str) -> None:
        """Break the stream. Called once."""


class MessageStream:
    """A stream as in `ports.Stream`."""

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
        self._broken = ""  # the reason of an abort on this side
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0  # with MESSAGE_OVERHEAD per message
        self._pump: asyncio.Task[None] | None = None  # fills the inbox from the first receive on
        self._peer_finished = False
        self._failure: QuorumlogError | None = None  # the error that ended the peer's messages
        self._receiver: asyncio.Future[None] | None = None  # waits for a message
        self._room: asyncio.Future[None] | None = None  # the pump waits for space in the inbox

    async def send(self, message: Message) -> None:
        """Return when the message is in the peer's window.

        Raise StreamBroken, at the client also the handler's error, or MessageTooLarge, which leaves
        the stream usable. Cancelling a send in progress breaks the stream, since the message may be
        sent in part.
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
        """Return the next message, or None at the end. Messages that arrived before the end are
        returned first.

        Raise StreamBroken, at the client also the handler's error.
        """
        assert self._receiver is None, f"{self._path}: concurrent receives"
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
        """Send nothing more. Receiving continues."""
        if not self._finished:
            self._finished = True
            async with self._sending:
                self._raise_broken()
                await self._raw.finish()

    def abort(self, reason: str) -> None:
        """Break the stream at once, in both directions."""
        if not self._broken:
            self._broken = f"aborted; {reason}"
            self._raw.abort(reason)
            if self._pump is not None:  # it may wait for a receive that never comes
                self._pump.cancel()

    async def settle(self) -> None:
        """Stop reading after the stream has ended."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)

    async def _wait_pump(self) -> None:
        """Wait for a message of the pump. Raise StreamBroken if the pump has ended."""
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
    """Return a message's bytes. Raise MessageTooLarge, since grpc would break the call."""
    raw = message.SerializeToString()
    if len(raw) > size_max:
        raise MessageTooLarge(f"message: {len(raw)} bytes; the limit is {size_max}")
    return raw


def is_cancelled_from_outside() -> bool:
    """Return True if the running task was cancelled. grpc raises the same error for a cancelled
    call."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
