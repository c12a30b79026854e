"""Forwards TCP connections to one address, and misbehaves on demand: the part of a proxy that lives
on a loop. It knows nothing of what it forwards.

Where bytes are held, the two ends hear nothing from each other, as over a cut wire: what was sent
waits, an end that goes is not told of, and a connection that is begun meanwhile is not made at the
target before its bytes may flow. A caller that gives up before that leaves no trace there.
"""

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, TypeAlias

HOST: Final = "127.0.0.1"
QUEUED_MAX: Final = 16  # pieces that wait in one direction before their sender is not read any more
BACKLOG: Final = 128


class Direction(StrEnum):
    """Which way bytes go."""

    TO_SERVER = "to server"
    TO_CLIENT = "to client"


class _Ending(Enum):
    """What follows the last byte of a direction."""

    END = "the sender writes no more"
    LOST = "the sender has gone"


_Piece: TypeAlias = bytes | _Ending


@dataclass(slots=True)
class Line:
    """The faults of one direction, over all connections."""

    is_flowing: bool = True
    corrupt_chunks: int = 0  # one bit of each of the next ones is flipped
    cut_after_bytes: int | None = None  # then the connection that carries them is aborted
    passed_bytes: int = 0

    def take(self, chunk: bytes) -> tuple[bytes, bool]:
        """Return what passes of a chunk, and whether the connection ends behind it."""
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
    """Listens on one port of this machine; every method is called on the loop that it lives on."""

    def __init__(self, target: str, *, port: int = 0) -> None:
        self.target = target  # "host:port" of connections to come
        self.delay_s = 0.0  # each chunk waits so long, in both directions
        self.lines = {direction: Line() for direction in Direction}
        self.links: dict[Link, None] = {}
        self._port = port  # 0: any that is free
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """Where it listens, "host:port"."""
        return f"{HOST}:{self._port}"

    async def listen(self) -> None:
        """Take connections, from the second time on at the same port; raises OSError."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(
                lambda: Link(self).caller, HOST, self._port, backlog=BACKLOG
            )
            self._port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Refuse new connections until `listen`."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def close(self) -> None:
        """Refuse new connections, and abort those that there are."""
        self.refuse()
        self.abort_all()

    def abort_all(self) -> None:
        """Abort every connection."""
        for link in list(self.links):
            link.abort()

    def silence_all(self) -> None:
        """Carry nothing more over the connections that there are, which stay open."""
        for link in self.links:
            link.is_silent = True

    def flow(self, *directions: Direction) -> None:
        """Let bytes through in these directions, first those that were held, and in no other."""
        for direction, line in self.lines.items():
            line.is_flowing = direction in directions
        for link in list(self.links):
            link.go_on()


@dataclass(slots=True)
class _Way:
    """What goes through a connection in one direction."""

    pieces: deque[_Piece] = field(default_factory=deque)  # arrived, and not passed on yet
    is_sink_full: bool = False
    is_source_paused: bool = False
    has_ended: bool = False  # its ending was passed on
    has_waited: bool = False  # the first piece has had its delay
    timer: asyncio.TimerHandle | None = None


class End(asyncio.Protocol):
    """One end of a carried connection: what arrives here leaves at the other one."""

    def __init__(self, link: "Link", direction: Direction) -> None:
        self._link = link
        self._direction = direction  # of what arrives here
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), f"not a stream: {transport}"
        self.transport = transport
        self._link.made()

    def data_received(self, data: bytes) -> None:
        self._link.arrived(self._direction, data)

    def eof_received(self) -> bool:
        self._link.arrived(self._direction, _Ending.END)
        return True  # the other direction goes on

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._link.lost(self._direction)

    def pause_writing(self) -> None:
        self._link.sink_filled(_opposite(self._direction), is_full=True)

    def resume_writing(self) -> None:
        self._link.sink_filled(_opposite(self._direction), is_full=False)


class Link:
    """One connection that a relay carries: the caller's end, and the one at the target."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._loop = asyncio.get_running_loop()
        self.caller = End(self, Direction.TO_SERVER)
        self._server = End(self, Direction.TO_CLIENT)
        self._ways = {direction: _Way() for direction in Direction}
        self._dialing: asyncio.Task[None] | None = None
        self._is_over = False
        self.is_silent = False  # what arrives is dropped, and nobody is told
        relay.links[self] = None

    def made(self) -> None:
        """One of the ends is there."""
        if self._is_over:
            self.abort()
        else:
            self.go_on()

    def lost(self, direction: Direction) -> None:
        """The end that sends in a direction has gone."""
        self.arrived(direction, _Ending.LOST)
        if self._is_over and self.caller.transport is None and self._server.transport is None:
            self._relay.links.pop(self, None)

    def go_on(self) -> None:
        """Do what can be done now."""
        if self._is_over:
            return
        if self._dialing is None and self._relay.lines[Direction.TO_SERVER].is_flowing:
            self._dialing = self._loop.create_task(self._dial())
        for direction in Direction:
            self._pass_on(direction)

    def arrived(self, direction: Direction, piece: _Piece) -> None:
        """Take what one end sent, or that it does so no more."""
        if self._is_over or (self.is_silent and isinstance(piece, bytes)):
            return
        if self._dialing is None and isinstance(piece, _Ending):
            self.abort()  # nobody ever heard of it
            return
        way = self._ways[direction]
        way.pieces.append(piece)
        self._pass_on(direction)

    def sink_filled(self, direction: Direction, *, is_full: bool) -> None:
        """The end where a direction leaves takes no more for now, or again."""
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
            self.abort()  # nobody listens there: the caller's connection ends

    def _pass_on(self, direction: Direction) -> None:
        """Pass on what may leave in a direction."""
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
            if not sink.is_closing():  # else its end is on its way
                sink.write(passed)
            if is_cut:
                self._end()  # what was written before it leaves
        self._look_at_room(direction)

    def _pass_ending(self, ending: _Ending, sink: asyncio.Transport) -> None:
        """Tell one end what became of the other one."""
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
        """Read from a direction's source only while there is room for it."""
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
        """End what is left of the connection; unless at once, what was passed on leaves before."""
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
            if at_once:  # either way it hears of its end in a later turn of the loop
                end.transport.abort()
            else:
                end.transport.close()


def _opposite(direction: Direction) -> Direction:
    return Direction.TO_CLIENT if direction is Direction.TO_SERVER else Direction.TO_SERVER
