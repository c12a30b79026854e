"""What peers have opened here: their streams, and their calls that wait for the core's answer.

The newest stream of a peer and kind is the one that is listened to and answered on: what an earlier
one still delivers, late, is dropped with it. The core fences by epoch all the same; this spares it
old news.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from ....errors import Overloaded, QuorumlogError, StreamBroken, TimedOut
from ....proto import raft_pb2 as pb
from ....runtime import ByteConnection
from ...core.messages import Message
from ...core.voters import Voter
from ...formats.wire import Introduction
from .links import LinkKind, TransportConfig
from .outbox import Outbox
from .streams import FrameStream

A = TypeVar("A")


class ServedStream:
    """One stream that somebody opened here; answers go back on it."""

    def __init__(
        self,
        connection: ByteConnection,
        *,
        take: Callable[["ServedStream", pb.RaftFrame], None],
        ended: Callable[["ServedStream", QuorumlogError | None], None],
        config: TransportConfig,
        now_ms: int,
    ) -> None:
        """`take` gets the frames, `ended` is told once why it is over."""
        self.stream = FrameStream(
            connection,
            take=partial(take, self),
            room=self._write_out,
            ended=partial(ended, self),
        )
        self.introduction: Introduction | None = None  # not before it is proven
        self.who = host_of(connection.peer)  # as far as it says so itself; for logs
        self.is_settled = False  # all of its first frame was well
        self.heard_ms = now_ms
        self._outbox = Outbox(config.queue)

    @property
    def key(self) -> tuple[LinkKind, Voter]:
        """What it carries, and who opened it; of an introduced one."""
        assert self.introduction is not None, "nobody was introduced"
        kind = LinkKind.SNAPSHOT if self.introduction.is_snapshot else LinkKind.APPEND
        return kind, self.introduction.sender

    def put(self, message: Message) -> bool:
        """Queue an answer; False: the peer reads too slowly, and the stream is broken for it."""
        if not self._outbox.put(message):
            self.stream.abort("answers are not read")
            return False
        self._write_out()
        return True

    def _write_out(self) -> None:
        """Send the answers, as far as the stream has room."""
        while len(self._outbox) and self.stream.has_room:
            frame = pb.RaftFrame()
            self._outbox.fill(frame)
            self.stream.send(frame)


class ServedStreams:
    """The streams that others have opened: first strangers, then listened to."""

    def __init__(self, config: TransportConfig) -> None:
        self._config = config
        self._strangers: dict[ServedStream, None] = {}  # nobody was introduced yet
        self._streams: dict[tuple[LinkKind, Voter], ServedStream] = {}
        # The newest of each, also after its end: an earlier one may still arrive. Oldest first.
        self._newest: dict[tuple[LinkKind, Voter], Introduction] = {}
        self._refused: deque[tuple[int, FrameStream]] = deque()  # when; they may read why

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to look after."""
        return not (self._streams or self._strangers or self._refused)

    def find(self, kind: LinkKind, peer: Voter) -> ServedStream | None:
        """The stream to answer a peer on: of this kind, or else of the other one."""
        stream = self._streams.get((kind, peer))
        if stream is not None:
            return stream
        other = LinkKind.SNAPSHOT if kind is LinkKind.APPEND else LinkKind.APPEND
        return self._streams.get((other, peer))

    def accept(self, stranger: ServedStream) -> None:
        """Somebody has connected; raises Overloaded when too many have and say nothing."""
        if len(self._strangers) >= self._config.peers_max:
            raise Overloaded(f"{len(self._strangers)} streams say nothing: wait and repeat")
        self._strangers[stranger] = None

    def introduce(self, served: ServedStream, introduction: Introduction) -> None:
        """Listen to a stream, and no longer to the one before; raises StreamBroken when a later one
        was here already, Overloaded when there are too many."""
        served.introduction = introduction
        key, newest = served.key, self._newest.get(served.key)
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
        self._strangers.pop(served, None)
        self._streams[key] = served
        if before is not None:
            before.stream.refuse(StreamBroken("a later stream of this node has come"))

    def ended(self, served: ServedStream, now_ms: int) -> None:
        """It is over; the other side has the time of a silence to read why."""
        self._strangers.pop(served, None)
        if served.introduction is not None and self._streams.get(served.key) is served:
            del self._streams[served.key]
        self._refused.append((now_ms, served.stream))
        if len(self._refused) > self._config.peers_max:
            self._refused.popleft()[1].abort("too many are refused")

    def look(self, now_ms: int) -> None:
        """Break the silent ones."""
        config = self._config
        for stranger in list(self._strangers):
            if now_ms - stranger.heard_ms > config.silence_ms_max:
                stranger.stream.refuse(TimedOut("a stream was opened, and nobody was introduced"))
        for served in list(self._streams.values()):
            if now_ms - served.heard_ms > config.idle_ms_max:
                served.stream.abort(f"nothing was heard for {config.idle_ms_max} ms")
        while self._refused and now_ms - self._refused[0][0] > config.silence_ms_max:
            self._refused.popleft()[1].abort("it was refused")

    def forgive(self, now_ms: int) -> None:
        """This node stood still itself: start the count anew."""
        for served in (*self._streams.values(), *self._strangers):
            served.heard_ms = now_ms

    def close(self) -> None:
        """Break them all."""
        for served in (*self._streams.values(), *self._strangers):
            served.stream.abort("the node is stopping")


def host_of(peer: str) -> str:
    """The host of a caller's "host:port": its ports change from connection to connection."""
    return peer.rpartition(":")[0]


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
