"""One side of a simulated stream: a flow-control window, an inbox, and an explicit end."""

import asyncio
from collections import deque
from typing import Any

from google.protobuf.message import Message

from ..errors import MessageTooLarge, QuorumlogError, StreamBroken
from .frames import Abort, Credit, Data, Finish
from .links import LinkEnd
from .loop import SimLoop

MESSAGE_SIZE_MAX = (64 << 20) + (64 << 10)  # bytes, as on the real network


def serialise(message: Message) -> bytes:
    """Return the bytes of a message, equal under any hash seed; raises MessageTooLarge."""
    payload = message.SerializeToString(deterministic=True)
    if len(payload) > MESSAGE_SIZE_MAX:
        raise MessageTooLarge(f"a message of {len(payload)} bytes, over {MESSAGE_SIZE_MAX}")
    return payload


class SimStream:
    """`runtime.ports.Stream`. A window bounds the bytes that the receiver's application has not
    consumed."""

    def __init__(
        self, loop: SimLoop, end: LinkEnd, call: int, *, incoming: type[Message], is_server: bool
    ) -> None:
        self._loop = loop
        self._end = end
        self._call = call
        self._incoming = incoming
        self._is_server = is_server
        self._window_bytes = end.link.fabric.faults.options.window_bytes
        self._under_way = 0  # bytes sent and not yet credited
        self._taken = 0  # bytes received by the application and not yet credited
        self._inbox: deque[bytes] = deque()
        self._finished = False  # this side sends no more
        self._peer_finished = False
        self._failure: QuorumlogError | None = None  # the reason of a break
        self._reader: asyncio.Future[None] | None = None
        self._writers: deque[asyncio.Future[None]] = deque()

    # --- the port ---

    async def send(self, message: Message) -> None:
        """Send a message, waiting for space in the window; raises StreamBroken."""
        self._end.process.check()
        assert not self._finished, "send() after finish()"
        payload = serialise(message)
        while self._failure is None and self._under_way >= self._window_bytes:
            room = self._loop.create_future()
            self._writers.append(room)
            await room
        self._raise_failure()
        if self._peer_finished and not self._is_server:
            raise StreamBroken("the handler has ended")
        self._under_way += len(payload)
        self._end.send(Data(self._call, payload))

    async def receive(self) -> Any:
        """Return the next message, or None after the peer's clean end; raises StreamBroken or the
        handler's typed error."""
        self._end.process.check()
        assert self._reader is None, "two readers of one stream"
        while not self._inbox and not self._peer_finished and self._failure is None:
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        if not self._inbox:
            self._raise_failure()
            return None
        payload = self._inbox.popleft()
        self._credit(len(payload))
        return self._incoming.FromString(payload)

    async def finish(self) -> None:
        """Send no more messages. A server's finish is sent when its handler returns, as in gRPC."""
        self._end.process.check()
        if self._failure is None and not self._finished and not self._is_server:
            self._end.send(Finish(self._call))
        self._finished = True

    def abort(self, reason: str) -> None:
        """Abort the stream for both sides; a second call does nothing."""
        self._end.process.check()
        if self._failure is None:
            self._end.send(Abort(self._call, reason))
            self.on_broken(StreamBroken(f"aborted here: {reason}"))

    # --- frames that arrive ---

    def on_data(self, payload: bytes) -> None:
        """Add a message to the inbox."""
        if self._failure is None:
            self._inbox.append(payload)
            self._wake_reader()

    def on_credit(self, size: int) -> None:
        """Shrink the bytes in flight; wake the waiting senders if the window has space."""
        self._under_way -= size
        if self._under_way < self._window_bytes:
            self._wake_writers()

    def on_finish(self) -> None:
        """Record the peer's clean end."""
        self._peer_finished = True
        self._wake_reader()
        self._wake_writers()

    def on_broken(self, failure: QuorumlogError) -> None:
        """End the stream: received messages stay readable, then receive() raises `failure`."""
        if self._failure is None and not (self._peer_finished and not self._is_server):
            self._failure = failure
        self._wake_reader()
        self._wake_writers()

    # --- inside ---

    def _raise_failure(self) -> None:
        if self._failure is not None:
            # a new instance: it may be raised again
            failure = type(self._failure)(self._failure.message)
            failure.topic, failure.partition = self._failure.topic, self._failure.partition
            raise failure

    def _credit(self, size: int) -> None:
        self._taken += size
        if self._taken * 2 >= self._window_bytes and not self._peer_finished:
            self._end.send(Credit(self._call, self._taken))
            self._taken = 0

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _wake_writers(self) -> None:
        writers, self._writers = self._writers, deque()
        for writer in writers:
            if not writer.done():
                writer.set_result(None)
