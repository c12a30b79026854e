"""A broker that lies: it forwards every call to an honest node and changes the responses.

Changes follow the messages' descriptors, so that every field of every response is wrong at some
time: numbers out of range, wrong names, truncated or flipped bytes, parts missing, duplicated or
reordered. Or there is no response, a typed error, or the end of the connection.

Two lies are left out, since a correct client must accept them: `metadata_offset` and `leader_epoch`
only grow, so that an old response never replaces a new one, and a value far ahead stays in force.
The first 16 bytes of a batch are unchanged: no checksum covers them.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from quorumlog import services
from quorumlog.errors import ERRORS, QuorumlogError, StreamBroken
from quorumlog.records.batch import PREFIX_SIZE
from quorumlog.runtime import CallContext, Channel, Handler, Method, Runtime, Stream
from quorumlog.simulation.entropy import SimEntropy

BELIEVED: Final = ("metadata_offset", "leader_epoch")
NUMBERS: Final = (-(1 << 31), -2, -1, 0, 1, 2, 1_000, (1 << 31) - 1)
LARGE_NUMBERS: Final = (-(1 << 63), -1, 0, 1, 17, 1 << 40, (1 << 63) - 1)
NAMES: Final = ("", "nobody", "127.0.0.1:1", "not:an:address", "churned", "topic-0", "x" * 300)
STREAM_TIMEOUT_MS: Final = 0  # none


@dataclass(slots=True)
class LieChances:
    """The probabilities of lies, per response."""

    lie: float
    refuse: float  # with a typed error, drawn among all
    break_off: float
    silence: float
    # set: the broker is honest from then on
    calm: asyncio.Event = field(default_factory=asyncio.Event)
    lies_told: int = 0

    @classmethod
    def draw(cls, entropy: SimEntropy) -> "LieChances":
        """Draw the probabilities of a seed: runs with fewer lies reach more states."""
        scale = entropy.uniform(0.05, 1.0)
        return cls(
            lie=0.4 * scale,
            refuse=0.2 * entropy.uniform(0.0, scale),
            break_off=0.1 * entropy.uniform(0.0, scale),
            silence=0.05 * entropy.uniform(0.0, scale),
        )


class LyingBroker:
    """The broker; see the module."""

    def __init__(
        self,
        runtime: Runtime,
        temper: LieChances,
        entropy: SimEntropy,
        *,
        address: str,
        honest: str,
    ) -> None:
        self._runtime = runtime
        self._temper = temper
        self._entropy = entropy
        self._address = address
        self._channel: Channel = runtime.network.channel(honest)

    async def run(self) -> None:
        """Serve for ever."""
        methods = [each for each in vars(services).values() if isinstance(each, Method)]
        handlers = {
            method.path: Handler(method, self._streaming(method) if method.streaming else call)
            for method in methods
            for call in [self._unary(method)]
        }
        await self._runtime.network.serve(self._address, handlers)
        await asyncio.Event().wait()

    def _unary(self, method: Method[Any, Any]) -> Any:
        async def answer(request: Message, context: CallContext) -> Message:
            response: Message = await self._channel.call(method, request, timeout_ms=30_000)
            await self._misbehave()
            return self._told(response)

        return answer

    def _streaming(self, method: Method[Any, Any]) -> Any:
        async def answer(stream: Stream[Any, Any], context: CallContext) -> None:
            honest = await self._channel.stream(method, timeout_ms=STREAM_TIMEOUT_MS)
            try:
                async with self._runtime.tasks.scope("pump") as scope:
                    asking = scope.spawn(_pass_on(stream, honest), name="requests")
                    while (response := await honest.receive()) is not None:
                        await self._misbehave()
                        await stream.send(self._told(response))
                    asking.cancel()
            finally:
                honest.abort("the caller has gone")

        return answer

    async def _misbehave(self) -> None:
        """Delay for ever, reject or break off; or return, and a response follows."""
        temper, entropy = self._temper, self._entropy
        if temper.calm.is_set():
            return
        if entropy.chance(temper.silence):
            await temper.calm.wait()
        elif entropy.chance(temper.break_off):
            raise StreamBroken("enough")
        elif entropy.chance(temper.refuse):
            kind: type[QuorumlogError] = ERRORS[entropy.below(len(ERRORS))]
            raise kind("no")

    def _told(self, response: Message) -> Message:
        if not self._temper.calm.is_set() and self._entropy.chance(self._temper.lie):
            self._temper.lies_told += 1
            mangle(response, self._entropy)
        return response


async def _pass_on(source: Stream[Any, Any], target: Stream[Any, Any]) -> None:
    try:
        while (message := await source.receive()) is not None:
            await target.send(message)
        await target.finish()
    except StreamBroken as broken:
        target.abort(broken.message)


def mangle(message: Message, entropy: SimEntropy) -> None:
    """Change one field of a message, at any depth."""
    holder, fields = message, _fields(message)
    while fields:
        field = fields[entropy.below(len(fields))]
        if field.type != FieldDescriptor.TYPE_MESSAGE or entropy.chance(0.3):
            _change(holder, field, entropy)
            return
        inside = _inside(holder, field, entropy)
        if inside is None:
            _change(holder, field, entropy)
            return
        holder, fields = inside, _fields(inside)


def _fields(message: Message) -> list[FieldDescriptor]:
    every: list[FieldDescriptor] = list(message.DESCRIPTOR.fields)  # type: ignore[arg-type]
    return [each for each in every if each.name not in BELIEVED]


def _inside(holder: Message, field: FieldDescriptor, entropy: SimEntropy) -> Message | None:
    """Return a message inside a field; None if there is none."""
    content: Any = getattr(holder, field.name)
    if not field.is_repeated:
        inside: Message | None = content if holder.HasField(field.name) else None
        return inside
    return content[entropy.below(len(content))] if len(content) else None


def _change(holder: Message, field: FieldDescriptor, entropy: SimEntropy) -> None:
    if field.is_repeated:
        _change_list(holder, field, entropy)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        if holder.HasField(field.name) or entropy.chance(0.5):
            holder.ClearField(field.name)
        else:
            getattr(holder, field.name).SetInParent()
    elif field.type == FieldDescriptor.TYPE_BYTES:
        setattr(holder, field.name, _bytes(getattr(holder, field.name), entropy))
    elif field.type == FieldDescriptor.TYPE_STRING:
        setattr(holder, field.name, NAMES[entropy.below(len(NAMES))])
    elif field.type == FieldDescriptor.TYPE_BOOL:
        setattr(holder, field.name, not getattr(holder, field.name))
    elif field.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_ENUM):
        setattr(holder, field.name, NUMBERS[entropy.below(len(NUMBERS))])
    elif field.type == FieldDescriptor.TYPE_INT64:
        setattr(holder, field.name, LARGE_NUMBERS[entropy.below(len(LARGE_NUMBERS))])


def _change_list(holder: Message, field: FieldDescriptor, entropy: SimEntropy) -> None:
    """Drop or duplicate an item, reverse or empty a list; add an item to an empty one."""
    content: Any = getattr(holder, field.name)
    parts = list(content)
    if not parts:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            content.add()
        return
    at = entropy.below(len(parts))
    changed = (
        parts[:at] + parts[at + 1 :],
        [*parts, parts[at]],
        parts[::-1],
        [],
    )[entropy.below(4)]
    copies = changed
    if isinstance(parts[0], Message):
        copies = [type(part).FromString(part.SerializeToString()) for part in changed]
    del content[:]
    content.extend(copies)


def _bytes(content: bytes, entropy: SimEntropy) -> bytes:
    """Truncate, duplicate, empty or flip bytes; the prefix of a batch stays."""
    if len(content) <= PREFIX_SIZE:
        return (b"", content + b"x", content[:-1])[entropy.below(3)]
    at = PREFIX_SIZE + entropy.below(len(content) - PREFIX_SIZE)
    flipped = bytes([content[at] ^ (1 << entropy.below(8))])
    return (
        content[:at],
        content + content,
        b"",
        content[:at] + flipped + content[at + 1 :],
    )[entropy.below(4)]
