"""What waits to be sent to one peer on one stream: in order, bounded, cheap to put into.

Order matters: a heartbeat says what was sent before it, and its answer tells the leader what was
lost; a heartbeat that overtook entries would have them sent again. So it queues behind them, and
where that may take long, a copy that wants no answer goes ahead: it only says that the leader lives
and how far the log is committed.

A message that makes the one before it superfluous takes its place: cumulative answers, heartbeats.
So a peer that reads slowly costs no more than its window.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from ....errors import InvalidRequest
from ....proto import raft_pb2 as pb
from ...core.messages import (
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    Message,
    SnapshotChunk,
)
from ...formats.wire import fill_message

MESSAGE_OVERHEAD: Final = 64  # bytes that a message counts for beside its content


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxLimits:
    """Bounds of one queue; raises InvalidRequest when one is below 1."""

    messages_max: int = 4096
    bytes_max: int = 32 * 1024 * 1024  # or one larger message; above the leader's window
    frame_bytes_max: int = 1024 * 1024  # sent at once, or one larger message
    frame_messages_max: int = 512

    def __post_init__(self) -> None:
        bounds = (self.messages_max, self.bytes_max, self.frame_bytes_max, self.frame_messages_max)
        if min(bounds) < 1:
            raise InvalidRequest(f"the bounds of a queue must be at least 1, not {bounds}")


class Outbox:
    """One queue."""

    __slots__ = ("_limits", "_messages", "_urgent", "size")

    def __init__(self, limits: OutboxLimits) -> None:
        self._limits = limits
        self._messages: deque[Message] = deque()
        self._urgent: Heartbeat | None = None  # goes before all others
        self.size = 0  # bytes of what is queued

    def __len__(self) -> int:
        return len(self._messages) + (self._urgent is not None)

    def put(self, message: Message) -> bool:
        """Queue a message; whether there was room."""
        kind = type(message)
        if kind is Heartbeat and self.size >= self._limits.frame_bytes_max:
            assert isinstance(message, Heartbeat), "its type"
            self._urgent = replace(message, round=0)
        messages = self._messages
        if messages and kind is AppendRequest:
            self._drop_news(message)
        if messages and type(messages[-1]) is kind:
            successor = _successor(messages[-1], message)
            if successor is not None:
                messages[-1] = successor
                return True
        size = _size_of(message)
        limits = self._limits
        if messages and (
            len(messages) >= limits.messages_max or self.size + size > limits.bytes_max
        ):
            return kind is Heartbeat and self._urgent is not None
        messages.append(message)
        self.size += size
        return True

    @property
    def is_news_alone(self) -> bool:
        """Whether all there is to send is how far the log is committed, which nobody waits for and
        the next entries say as well."""
        messages = self._messages
        return len(messages) == 1 and self._urgent is None and _is_news(messages[0])

    def _drop_news(self, request: Message) -> None:
        """What a request says too need not go before it."""
        last = self._messages[-1]
        assert isinstance(request, AppendRequest), "its type"
        if (
            isinstance(last, Heartbeat)
            and _is_news(last)
            and last.epoch == request.epoch
            and last.high_watermark <= request.high_watermark
        ):
            self.size -= _size_of(self._messages.pop())

    def fill(self, frame: pb.RaftFrame) -> bool:
        """Move what goes out at once into the frame; whether the peer is to answer any of it."""
        wants_answer = False
        left = self._limits.frame_bytes_max
        if self._urgent is not None:
            fill_message(frame.messages.add(), self._urgent)
            self._urgent = None
        messages = self._messages
        for _ in range(min(len(messages), self._limits.frame_messages_max)):
            size = _size_of(messages[0])
            if size > left and left < self._limits.frame_bytes_max:
                break
            message = messages.popleft()
            fill_message(frame.messages.add(), message)
            self.size -= size
            left -= size
            wants_answer = wants_answer or _wants_answer(message)
        assert messages or self.size == 0, f"{self.size} bytes in an empty queue"
        return wants_answer

    def clear(self) -> int:
        """Forget everything; how many messages that were."""
        count = len(self)
        self._messages.clear()
        self._urgent = None
        self.size = 0
        return count


def _successor(last: Message, message: Message) -> Message | None:
    """What says all that two messages of one type say, one right behind the other; None: nothing
    less than both."""
    if last.epoch != message.epoch:
        return None
    if isinstance(last, Heartbeat) and isinstance(message, Heartbeat):
        return message if message.round else replace(message, round=last.round)
    if isinstance(last, HeartbeatResponse) and isinstance(message, HeartbeatResponse):
        return message if message.round >= last.round else None
    if isinstance(last, AppendResponse) and isinstance(message, AppendResponse):
        grew = message.match_end >= last.match_end and message.received_end >= last.received_end
        return message if grew else None
    return None


def _is_news(message: Message) -> bool:
    return isinstance(message, Heartbeat) and message.round == 0


def _size_of(message: Message) -> int:
    if isinstance(message, AppendRequest):
        return MESSAGE_OVERHEAD + sum([len(entry.payload) for entry in message.entries])
    if isinstance(message, SnapshotChunk):
        return MESSAGE_OVERHEAD + len(message.content)
    return MESSAGE_OVERHEAD


def _wants_answer(message: Message) -> bool:
    if isinstance(message, Heartbeat):
        return message.round > 0
    if isinstance(message, SnapshotChunk):
        return not message.is_last  # installing takes its time, and is told on the other stream
    return isinstance(message, AppendRequest)
