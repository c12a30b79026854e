"""The network between members: messages are lost, duplicated, delayed, reordered, cut off.

Without `reorder` a link keeps its order. A duplicate may arrive much later than the message, in
another epoch. Messages in flight survive their sender. Sometimes the sender of a lost message is
notified that its receiver is unreachable, like a shell with a broken stream.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from quorumlog.ids import DirectoryId, Epoch, NodeId
from quorumlog.raftlog.config import EPOCH_JUMP_MAX
from quorumlog.raftlog.messages import (
    AppendRejected,
    AppendRequest,
    AppendResponse,
    EndEpoch,
    FollowRequest,
    FollowResponse,
    Heartbeat,
    HeartbeatResponse,
    Message,
    SnapshotChunk,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from quorumlog.raftlog.voters import Voter

from .member import CoreMember
from .options import CoreOptions
from .trace import Sent, Tracer, detail_of

if TYPE_CHECKING:
    from .harness import Harness

MESSAGES: Final[tuple[type[Any], ...]] = (
    VoteRequest,
    VoteResponse,
    AppendRequest,
    AppendResponse,
    AppendRejected,
    Heartbeat,
    HeartbeatResponse,
    SnapshotChunk,
    SnapshotResponse,
    TimeoutNow,
    EndEpoch,
    FollowRequest,
    FollowResponse,
)
CODES: Final = {message: index for index, message in enumerate(MESSAGES)}
MESSAGE_NAMES: Final = tuple(message.__name__ for message in MESSAGES)
PIECES_COPIED: Final = 5
"""Factor by which snapshot chunks are duplicated more often than other messages, with later
copies: they are few, and those of an outdated snapshot do most harm."""
NOTICED: Final = 0.3  # fraction of lost messages that break the sender's stream
STRANGER: Final = Voter(NodeId(99), DirectoryId(b"a stranger's dir"))


class Network:
    """The links between all members."""

    def __init__(
        self,
        harness: "Harness",
        options: CoreOptions,
        random: Random,
        *,
        tracer: Tracer | None,
        translate: Callable[[Message], Message] | None,
    ) -> None:
        self._harness = harness
        self.options = options
        self._random = random.random
        self._tracer = tracer
        self._translate = translate
        count = len(harness.members)
        self.is_faulty = True
        self.cut = [[False] * count for _ in range(count)]  # [sender][receiver]
        self.clogged_until_us = [[0] * count for _ in range(count)]
        self._last_us = [[0] * count for _ in range(count)]  # arrival of the last message
        self._by_address = {member.address: member for member in harness.members}
        self.sent = 0
        self.lost = 0

    def send(self, sender: CoreMember, message: Message) -> None:
        """Send a message."""
        receiver = self._receiver(message)
        if receiver is None:
            return  # no member has that address
        options, random = self.options, self._random
        source, target = sender.index, receiver.index
        self.sent += 1
        if self._tracer is not None:
            self._trace(sender, receiver, message)
        if self._translate is not None:
            message = self._translate(message)
        faulty = self.is_faulty
        if self.cut[source][target] or (faulty and random() < options.loss):
            self._lose(sender, message)
            return
        now_us = self._harness.now_us
        low, high = options.latency_us
        delay = random()
        due_us = now_us + low + int((high - low) * delay * delay * delay)
        if faulty:
            message = self._disturb(receiver, due_us, message)
            if random() < options.reorder:
                due_us += int(options.reorder_ms_max * 1000 * random() ** 3)
        due_us = max(due_us, self.clogged_until_us[source][target])
        if not options.reorder or not faulty:
            last = self._last_us[source]
            due_us = last[target] = max(due_us, last[target])
        self._arrive(receiver, due_us, message)

    def _disturb(self, receiver: CoreMember, due_us: int, message: Message) -> Message:
        """Damage the message, and send copies of it."""
        options, random = self.options, self._random
        if options.damage and isinstance(message, SnapshotChunk) and random() < options.damage:
            message = self._damaged(message)
        is_piece = isinstance(message, SnapshotChunk)
        if random() < options.duplicate * (PIECES_COPIED if is_piece else 1):
            late_us = int(options.duplicate_ms_max * 1000 * random() ** (1 if is_piece else 4))
            self._arrive(receiver, due_us + late_us, message)
        if random() < options.absurd:
            self._arrive(receiver, due_us, self._absurd(message))
        return message

    def _lose(self, sender: CoreMember, message: Message) -> None:
        """Drop the message; the sender's stream may break."""
        self.lost += 1
        if isinstance(message, FollowRequest) or not self.is_faulty:
            return
        if self._random() < NOTICED:
            self._harness.notice_unreachable(sender, message.receiver)

    def heal(self) -> None:
        """Remove all cuts."""
        for row in self.cut:
            row[:] = [False] * len(row)

    def end_clogs(self) -> None:
        """Remove all delays of links."""
        for row in self.clogged_until_us:
            row[:] = [0] * len(row)

    def _receiver(self, message: Message) -> CoreMember | None:
        if isinstance(message, FollowRequest):
            return self._by_address.get(message.receiver_address)
        index = message.receiver.node_id - 1
        members = self._harness.members
        return members[index] if 0 <= index < len(members) else None

    def _arrive(self, receiver: CoreMember, due_us: int, message: Message) -> None:
        self._harness.deliver_at(due_us, receiver, message, self.sent)

    def _damaged(self, chunk: SnapshotChunk) -> SnapshotChunk:
        content = bytearray(chunk.content)
        if content:
            content[int(self._random() * len(content))] ^= 1 << int(self._random() * 8)
        return replace(chunk, content=bytes(content))

    def _absurd(self, message: Message) -> Message:
        """Return a copy that no member sends: with an impossible epoch, from an unknown sender,
        or for another disk."""
        kind = int(self._random() * 3)
        if kind == 0:
            return replace(message, epoch=Epoch(message.epoch + EPOCH_JUMP_MAX + 1_000_000))
        if kind == 1 and not isinstance(message, FollowRequest | FollowResponse):
            return replace(message, sender=STRANGER, epoch=Epoch(max(0, message.epoch - 1)))
        if isinstance(message, FollowRequest):
            return message
        other = DirectoryId(b"another disk    ")
        return replace(message, receiver=Voter(message.receiver.node_id, other))

    def _trace(self, sender: CoreMember, receiver: CoreMember, message: Message) -> None:
        assert self._tracer is not None, "traced without a tracer"
        self._tracer(
            Sent(
                at_us=self._harness.now_us,
                number=self.sent,
                sender=sender.number,
                receiver=receiver.number,
                message=type(message).__name__,
                detail=detail_of(message),
                epoch=message.epoch,
            )
        )
