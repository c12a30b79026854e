"""A relay of TCP connections to one address, with faults on demand; it runs on an event loop.

It does not interpret the bytes it forwards. While a direction is held, the two ends see an
unresponsive network: bytes wait, the close of an end is not forwarded, and a new connection is not
made to the target until its bytes may flow. A caller that gives up before that leaves no trace at
the target.
"""

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, TypeAlias

HOST: Final = "127.0.0.1"
QUEUED_MAX: Final = 16  # chunks that wait in one direction before its source is paused
BACKLOG: Final = 128


class Direction(StrEnum):
    """The direction of bytes."""

    TO_SERVER = "to server"
    TO_CLIENT = "to client"


class _Ending(Enum):
    """The event after the last byte of a direction."""

    END = "the sender writes no more"
    LOST = "the sender has gone"


_Piece: TypeAlias = bytes | _Ending


@dataclass(slots=True)
class DirectionFaults:
    """The faults of one direction, over all connections."""

    is_flowing: bool = True
    corrupt_chunks: int = 0  # one bit of each of the next ones is flipped
    cut_after_bytes: int | None = None  # then their connection is aborted
    passed_bytes: int = 0

    def take(self, chunk: bytes) -> tuple[bytes, bool]:
        """Return the part of a chunk that passes, and True if the connection ends after it."""
        if self.corrupt_chunks:
            self.corrupt_chunks -= 1
            middle = len(chunk) // 2
            chunk = chunk[:middle] + bytes([chunk[middle] ^ 0x10]) + chunk[middle + 1 :]
        is_cut = False
        if self.cut_after_bytes is not None:
            chunk = chunk[: self.cut_after_bytes]
            self.cut_after_bytes -= len(chunk)
            is_cut = self.cut_after_bytes == 0
            if is_cut:
                self.cut_after_bytes = None
        self.passed_bytes += len(chunk)
        return chunk, is_cut


class Relay:
    """A listener on one port of this machine; call every method on its loop."""

    def __init__(self, target: str, *, port: int = 0) -> None:
        self.target = target  # "host:port" of new connections
        self.delay_s = 0.0  # of each chunk, in both directions
        self.lines = {direction: DirectionFaults() for direction in Direction}
        self.links: dict[RelayLink, None] = {}
        self._port = port  # 0: any free port
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """The "host:port" it listens on."""
        return f"{HOST}:{self._port}"

    async def listen(self) -> None:
        """Accept connections, at the same port after the first call; raises OSError."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(
                lambda: RelayLink(self).caller, HOST, self._port, backlog=BACKLOG
            )
            self._port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Refuse new connections until `listen`."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def close(self) -> None:
        """Refuse new connections and abort the open ones."""
        self.refuse()
        self.abort_all()

    def abort_all(self) -> None:
        """Abort every connection."""
        for link in list(self.links):
            link.abort()

    def silence_all(self) -> None:
        """Stop forwarding on the open connections, and keep them open."""
        for link in self.links:
            link.is_silent = True

    def flow(self, *directions: Direction) -> None:
        """Forward bytes in these directions, held ones first, and in no other."""
        for direction, line in self.lines.items():
            line.is_flowing = direction in directions
        for link in list(self.links):
            link.go_on()


@dataclass(slots=True)
class _Way:
    """The state of one direction of a connection."""

    pieces: deque[_Piece] = field(default_factory=deque)  # received, not yet forwarded
    is_sink_full: bool = False
    is_source_paused: bool = False
    has_ended: bool = False  # its ending was forwarded
    has_waited: bool = False  # the first piece was delayed already
    timer: asyncio.TimerHandle | None = None


class RelayEnd(asyncio.Protocol):
    """One end of a relayed connection: its input is the other end's output."""

    def __init__(self, link: "RelayLink", direction: Direction) -> None:
        self._link = link
        self._direction = direction  # of its input
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), f"not a stream: {transport}"
        self.transport = transport
        self._link.made()

    def data_received(self, data: bytes) -> None:
        self._link.arrived(self._direction, data)

    def eof_received(self) -> bool:
        self._link.arrived(self._direction, _Ending.END)
        return True  # the other direction continues

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._link.lost(self._direction)

    def pause_writing(self) -> None:
        self._link.sink_filled(_opposite(self._direction), is_full=True)

    def resume_writing(self) -> None:
        self._link.sink_filled(_opposite(self._direction), is_full=False)


class RelayLink:
    """A relayed connection: the caller's end and the target's end."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._loop = asyncio.get_running_loop()
        self.caller = RelayEnd(self, Direction.TO_SERVER)
        self._server = RelayEnd(self, Direction.TO_CLIENT)
        self._ways = {direction: _Way() for direction in Direction}
        self._dialing: asyncio.Task[None] | None = None
        self._is_over = False
        self.is_silent = False  # received bytes are dropped, silently
        relay.links[self] = None

    def made(self) -> None:
        """Handle the connection of an end."""
        if self._is_over:
            self.abort()
        else:
            self.go_on()

    def lost(self, direction: Direction) -> None:
        """Handle the loss of the end that sends in a direction."""
        self.arrived(direction, _Ending.LOST)
        if self._is_over and self.caller.transport is None and self._server.transport is None:
            self._relay.links.pop(self, None)

    def go_on(self) -> None:
        """Forward everything that can be forwarded now."""
        if self._is_over:
            return
        if self._dialing is None and self._relay.lines[Direction.TO_SERVER].is_flowing:
            self._dialing = self._loop.create_task(self._dial())
        for direction in Direction:
            self._pass_on(direction)

    def arrived(self, direction: Direction, piece: _Piece) -> None:
        """Handle bytes, or the end of bytes, from one end."""
        if self._is_over or (self.is_silent and isinstance(piece, bytes)):
            return
        if self._dialing is None and isinstance(piece, _Ending):
            self.abort()  # the target never saw this connection
            return
        way = self._ways[direction]
        way.pieces.append(piece)
        self._pass_on(direction)

    def sink_filled(self, direction: Direction, *, is_full: bool) -> None:
        """Record that the output of a direction is full, or writable again."""
        self._ways[direction].is_sink_full = is_full
        self._look_at_room(direction)

    def abort(self) -> None:
        """Reset both ends."""
        self._end(at_once=True)

    async def _dial(self) -> None:
        host, _, port = self._relay.target.rpartition(":")
        try:
            await self._loop.create_connection(lambda: self._server, host, int(port))
        except OSError:
            self.abort()  # connection refused: the caller's connection ends

    def _pass_on(self, direction: Direction) -> None:
        """Forward the waiting pieces of a direction."""
        way, line = self._ways[direction], self._relay.lines[direction]
        sink = self._sink(direction)
        while way.pieces and line.is_flowing and sink is not None and not self._is_over:
            if self._relay.delay_s and not way.has_waited:
                if way.timer is None:
                    way.timer = self._loop.call_later(self._relay.delay_s, self._waited, direction)
                break
            way.has_waited = False
            piece = way.pieces.popleft()
            if isinstance(piece, _Ending):
                way.has_ended = True
                self._pass_ending(piece, sink)
                continue
            passed, is_cut = line.take(piece)
            if not sink.is_closing():  # otherwise its end follows
                sink.write(passed)
            if is_cut:
                self._end()  # written bytes are sent first
        self._look_at_room(direction)

    def _pass_ending(self, ending: _Ending, sink: asyncio.Transport) -> None:
        """Forward the end of one side to the other."""
        if ending is _Ending.LOST or all(way.has_ended for way in self._ways.values()):
            self._end()
            return
        with suppress(OSError):
            sink.write_eof()

    def _waited(self, direction: Direction) -> None:
        way = self._ways[direction]
        way.timer, way.has_waited = None, True
        self._pass_on(direction)

    def _look_at_room(self, direction: Direction) -> None:
        """Pause or resume a direction's source by the space of its queue."""
        way = self._ways[direction]
        source = self._source(direction)
        if source is None or source.is_closing():
            return
        is_full = way.is_sink_full or len(way.pieces) >= QUEUED_MAX
        if is_full == way.is_source_paused:
            return
        way.is_source_paused = is_full
        if is_full:
            source.pause_reading()
        else:
            source.resume_reading()

    def _source(self, direction: Direction) -> asyncio.Transport | None:
        end = self.caller if direction is Direction.TO_SERVER else self._server
        return end.transport

    def _sink(self, direction: Direction) -> asyncio.Transport | None:
        return self._source(_opposite(direction))

    def _end(self, *, at_once: bool = False) -> None:
        """Close the connection; unless at once, after the bytes that were written."""
        self._is_over = True
        if self.caller.transport is None and self._server.transport is None:
            self._relay.links.pop(self, None)
        for way in self._ways.values():
            way.pieces.clear()
            if way.timer is not None:
                way.timer.cancel()
        for end in (self.caller, self._server):
            if end.transport is None:
                continue
            if at_once:  # either way connection_lost() follows in a later turn of the loop
                end.transport.abort()
            else:
                end.transport.close()


def _opposite(direction: Direction) -> Direction:
    return Direction.TO_CLIENT if direction is Direction.TO_SERVER else Direction.TO_SERVER
