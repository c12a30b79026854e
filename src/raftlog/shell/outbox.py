"""The bounded queue of messages to one peer on one stream.

A heartbeat must not overtake entries: its response reports received entries, and the leader would
send overtaken ones again. If the queue is long, a copy of the heartbeat that needs no response goes
first; it only renews the leader's lease and the high watermark.

A message that makes the one before it redundant replaces it: cumulative responses and heartbeats. A
slow peer therefore costs no more than its window.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from ...errors import InvalidRequest
from ...proto import raft_pb2 as pb
from ..codec import fill_message
from ..messages import (
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    Message,
    SnapshotChunk,
)

MESSAGE_OVERHEAD: Final = 64  # bytes that a message counts beside its content


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxLimits:
    """The limits of one queue. Raise InvalidRequest if one is below 1."""

    messages_max: int = 4096
    bytes_max: int = 32 * 1024 * 1024  # or one larger message; above the leader's window
    frame_bytes_max: int = 1024 * 1024  # of one frame, or one larger message
    frame_messages_max: int = 512

    def __post_init__(self) -> None:
        bounds = (self.messages_max, self.bytes_max, self.frame_bytes_max, self.frame_messages_max)
        if min(bounds) < 1:
            raise InvalidRequest(f"queue limits: {bounds} has a limit below 1")


class Outbox:
    __slots__ = ("_limits", "_messages", "_urgent", "size")

    def __init__(self, limits: OutboxLimits) -> None:
        self._limits = limits
        self._messages: deque[Message] = deque()
        self._urgent: Heartbeat | None = None  # sent before all others
        self.size = 0  # bytes of the queued messages

    def __len__(self) -> int:
        return len(self._messages) + (self._urgent is not None)

    def put(self, message: Message) -> bool:
        """Queue a message. Return False if there was no space."""
        kind = type(message)
        if kind is Heartbeat and self.size >= self._limits.frame_bytes_max:
            assert isinstance(message, Heartbeat), "its type"
            self._urgent = replace(message, round=0)
        messages = self._messages
        if messages and kind is AppendRequest:
            self._drop_update(message)
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
    def has_update_only(self) -> bool:
        """Return True if the queue has only a high watermark update, which the next entries also
        carry."""
        messages = self._messages
        return len(messages) == 1 and self._urgent is None and _is_update(messages[0])

    def _drop_update(self, request: Message) -> None:
        """Remove a queued high watermark update that the request also carries."""
        last = self._messages[-1]
        assert isinstance(request, AppendRequest), "its type"
        if (
            isinstance(last, Heartbeat)
            and _is_update(last)
            and last.epoch == request.epoch
            and last.high_watermark <= request.high_watermark
        ):
            self.size -= _size_of(self._messages.pop())

    def fill(self, frame: pb.RaftFrame) -> bool:
        """Move the messages of one frame into it. Return True if one needs a response."""
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
        """Remove all messages and return their number."""
        count = len(self)
        self._messages.clear()
        self._urgent = None
        self.size = 0
        return count


def _successor(last: Message, message: Message) -> Message | None:
    """Return a message that replaces two consecutive ones of one type, or None if there is none."""
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


def _is_update(message: Message) -> bool:
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
        return not message.is_last  # the install takes long and is answered on the other stream
    return isinstance(message, AppendRequest)
