"""What peers have opened here: their streams, and their calls that wait for the core's answer.

The newest stream of a peer and kind is the one that is listened to and answered on: what an earlier
one still delivers, late, is dropped with it. The core fences by epoch all the same; this spares it
old news.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...errors import Overloaded, StreamBroken, TimedOut
from ...proto import raft_pb2 as pb
from ..core.messages import Message
from ..core.voters import Voter
from ..formats.wire import Introduction
from .links import FrameStream, LinkKind, TransportConfig
from .outbox import Outbox

A = TypeVar("A")


class ServedStream:
    """One stream that a peer opened; answers go back on it."""

    def __init__(
        self,
        stream: FrameStream,
        *,
        introduction: Introduction,
        kind: LinkKind,
        config: TransportConfig,
        now_ms: int,
    ) -> None:
        self.stream = stream
        self.introduction = introduction
        self.kind = kind
        self.heard_ms = now_ms
        self._outbox = Outbox(config.queue)
        self._wake = asyncio.Event()

    @property
    def peer(self) -> Voter:
        """Who opened it."""
        return self.introduction.sender

    def put(self, message: Message) -> bool:
        """Queue an answer; False: the peer reads too slowly, and the stream is broken for it."""
        if self._outbox.put(message):
            self._wake.set()
            return True
        self.stream.abort("answers are not read")
        return False

    async def write(self) -> None:
        """Send the answers until cancelled or broken."""
        outbox, wake = self._outbox, self._wake
        while True:
            while not len(outbox):
                wake.clear()
                await wake.wait()
            frame = pb.RaftFrame()
            outbox.fill(frame)
            await self.stream.send(frame)


class ServedStreams:
    """The streams that are listened to."""

    def __init__(self, config: TransportConfig) -> None:
        self._config = config
        self._streams: dict[tuple[LinkKind, Voter], ServedStream] = {}
        # The newest of each, also after its end: an earlier one may still arrive. Oldest first.
        self._newest: dict[tuple[LinkKind, Voter], Introduction] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def find(self, kind: LinkKind, peer: Voter) -> ServedStream | None:
        """The stream to answer a peer on: of this kind, or else of the other one."""
        stream = self._streams.get((kind, peer))
        if stream is not None:
            return stream
        other = LinkKind.SNAPSHOT if kind is LinkKind.APPEND else LinkKind.APPEND
        return self._streams.get((other, peer))

    def add(self, served: ServedStream) -> None:
        """Listen to a stream, and no longer to the one before; raises StreamBroken when a later one
        was here already, Overloaded when there are too many."""
        key = (served.kind, served.peer)
        introduction, newest = served.introduction, self._newest.get(key)
        if (
            newest is not None
            and newest.incarnation == introduction.incarnation
            and newest.stream_number >= introduction.stream_number
        ):
            raise StreamBroken("a later stream of this node has come before this one")
        before = self._streams.get(key)
        if before is None and len(self._streams) >= 2 * self._config.peers_max:
            raise Overloaded(f"{len(self._streams)} streams are open here: wait and repeat")
        self._newest.pop(key, None)
        self._newest[key] = introduction
        if len(self._newest) > 2 * self._config.peers_max:
            del self._newest[next(iter(self._newest))]
        self._streams[key] = served
        if before is not None:
            before.stream.abort("a later stream of this node has come")

    def is_listened_to(self, served: ServedStream) -> bool:
        """Whether no later one has taken its place."""
        return self._streams.get((served.kind, served.peer)) is served

    def remove(self, served: ServedStream) -> None:
        """It has ended."""
        if self.is_listened_to(served):
            del self._streams[(served.kind, served.peer)]

    def look(self, now_ms: int) -> None:
        """Break the silent ones."""
        for served in list(self._streams.values()):
            if now_ms - served.heard_ms > self._config.idle_ms_max:
                served.stream.abort(f"nothing was heard for {self._config.idle_ms_max} ms")

    def forgive(self, now_ms: int) -> None:
        """This node stood still itself: start the count anew."""
        for served in self._streams.values():
            served.heard_ms = now_ms

    def close(self) -> None:
        """Break them all."""
        for served in list(self._streams.values()):
            served.stream.abort("the node is stopping")


@dataclass(slots=True, eq=False)
class _Waiting(Generic[A]):
    tag: object  # what the answer must have in common with the question
    answer: "asyncio.Future[A]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Questions(Generic[A]):
    """Calls of peers that the core answers in its own time, or never."""

    def __init__(self, what: str, config: TransportConfig) -> None:
        self._what = what
        self._config = config
        self._waiting: dict[Voter, deque[_Waiting[A]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    async def ask(self, peer: Voter, ask: Callable[[], None], *, tag: object = None) -> A:
        """Ask the core and return its answer; raises Overloaded when too many wait, TimedOut when
        it gives none."""
        if self._count >= self._config.calls_max:
            raise Overloaded(f"{self._count} {self._what} wait here: wait and repeat")
        waiting: _Waiting[A] = _Waiting(tag)
        questions = self._waiting.setdefault(peer, deque())
        questions.append(waiting)
        self._count += 1
        try:
            ask()
            async with asyncio.timeout(self._config.call_ms_max / 1000):
                return await waiting.answer
        except TimeoutError:
            raise TimedOut(f"{self._what}: no answer in {self._config.call_ms_max} ms") from None
        finally:
            questions.remove(waiting)
            self._count -= 1
            if not questions and self._waiting.get(peer) is questions:
                del self._waiting[peer]

    def answer(self, peer: Voter, answer: A, tag: object = None) -> bool:
        """Give the oldest question of the peer its answer; whether there was one."""
        for waiting in self._waiting.get(peer, ()):
            if waiting.tag == tag and not waiting.answer.done():
                waiting.answer.set_result(answer)
                return True
        return False
