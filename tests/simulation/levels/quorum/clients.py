"""Clients of a replicated register map: they write, swap and read, and record the results.

A client has the addresses of all members, and sends to its assumed leader, or to another member
after an error. It never repeats an operation: one that may have been executed stays of unknown
outcome in the history. Some clients send several values on the stream of proposals, others one call
per operation.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from quorumlog.errors import (
    ConnectionFailed,
    InvalidRequest,
    NotController,
    OutcomeUnknown,
    Overloaded,
    QuorumlogError,
    StreamBroken,
    TimedOut,
    VoterNotFound,
)
from quorumlog.ids import NodeId
from quorumlog.proto import raft_pb2 as pb
from quorumlog.runtime import Channel, Entropy, Runtime, Stream
from quorumlog.runtime.error_detail import decode_error
from quorumlog.services import RAFT_PROPOSE

from ...checkers.linearizability import OperationHistory
from ...checkers.models import DONE, Read, RegisterRequest, Swap, Write
from ...cluster.registers import call_register, encode_command

WITHOUT_EFFECT = (ConnectionFailed, NotController, Overloaded, InvalidRequest, VoterNotFound)
"""Errors after which an operation certainly was not and will not be executed."""

TIRED: Final = 10  # factor of the pauses after `operations_max`

ProposeStream = Stream[pb.ProposeRequest, pb.ProposeResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterWorkload:
    """The workload of the clients. Times in milliseconds."""

    keys: int
    pause_ms: tuple[int, int]  # between two operations of a task
    timeout_ms: tuple[int, int]
    reads: float  # fraction of all operations
    swaps: float  # fraction of the others
    value_size_max: int
    burst_max: int  # proposals in flight on a stream
    operations_max: int = 1 << 62  # of all clients; afterwards they slow down


@dataclass(slots=True)
class Notes:
    """The shared state of the clients of a run."""

    history: OperationHistory = field(default_factory=OperationHistory)
    errors: Counter[str] = field(default_factory=Counter)
    offsets: dict[bytes, int] = field(default_factory=dict)  # command -> reported offset
    last_done: Counter[str] = field(default_factory=Counter)  # completed operations, by client
    is_over: bool = False
    values: int = 0

    def next_value(self, client: str, size: int) -> bytes:
        """Return a unique value."""
        self.values += 1
        return f"{client}:{self.values}:".encode() + b"." * size


@dataclass(slots=True)
class RegisterClient:
    """A task that executes one operation after the other, or several on a stream."""

    runtime: Runtime
    name: str
    addresses: Mapping[NodeId, str]
    workload: RegisterWorkload
    notes: Notes
    entropy: Entropy
    with_stream: bool
    _leader: NodeId | None = None
    _channels: dict[NodeId, Channel] = field(default_factory=dict)
    _seen: dict[str, bytes | None] = field(default_factory=dict)  # the last value by key

    async def run(self) -> None:
        """Run until the run is over."""
        while not self.notes.is_over:
            if self.with_stream and self.entropy.below(4):
                await self._stream_some()
            else:
                await self._call_one()
            await self._pause()

    # --- one call at a time ---

    async def _call_one(self) -> None:
        key, request = self._draw()
        number = self.notes.history.invoke(self.name, key, request)
        target = self._target()
        try:
            result = await call_register(
                self._channel(target), key, request, timeout_ms=self._timeout_ms()
            )
        except QuorumlogError as error:
            self._failed(number, error)
        else:
            self._leader = target
            self._done(number, result)
            self._seen[key] = result if isinstance(result, bytes) else None

    # --- several on a stream ---

    async def _stream_some(self) -> None:
        """Send a few proposals of a few values each on one stream and wait for their responses."""
        target = self._target()
        under_way: dict[int, list[tuple[int, bytes]]] = {}
        try:
            async with asyncio.timeout(self._timeout_ms() / 1000):
                stream = await self._channel(target).stream(RAFT_PROPOSE, timeout_ms=0)
                try:
                    await self._propose(stream, under_way)
                    await self._take_answers(stream, under_way)
                finally:
                    stream.abort("the client is done")
        except TimeoutError:
            self._failed_all(under_way, TimedOut("no answer in time"))
        except QuorumlogError as error:
            # Values sent on a stream may have been committed, whatever its end reports.
            is_sent = isinstance(error, StreamBroken | TimedOut) or not under_way
            self._failed_all(under_way, error if is_sent else OutcomeUnknown(str(error)))
        else:
            self._leader = target

    async def _propose(
        self, stream: ProposeStream, under_way: dict[int, list[tuple[int, bytes]]]
    ) -> None:
        for proposal in range(1 + self.entropy.below(self.workload.burst_max)):
            values: list[tuple[int, bytes]] = []
            for _ in range(1 + self.entropy.below(3)):
                key, request = self._draw_write()
                number = self.notes.history.invoke(self.name, key, request)
                values.append((number, encode_command(key, request)))
            under_way[proposal] = values
            await stream.send(
                pb.ProposeRequest(id=proposal, values=[command for _, command in values])
            )

    async def _take_answers(
        self, stream: ProposeStream, under_way: dict[int, list[tuple[int, bytes]]]
    ) -> None:
        while under_way:
            answer = await stream.receive()
            if answer is None:
                raise StreamBroken("the stream of proposals has ended")
            values = under_way.pop(answer.id)
            for (number, command), offset in zip(values, answer.offsets, strict=False):
                self.notes.offsets[command] = offset
                self._done(number, DONE)
            if answer.HasField("error"):
                error = decode_error(answer.error)
                for number, _ in values[len(answer.offsets) :]:
                    self._failed(number, error)
            else:
                assert len(answer.offsets) == len(values), f"{answer} for {len(values)} values"

    # --- inside ---

    def _draw(self) -> tuple[str, RegisterRequest]:
        if self.entropy.uniform(0, 1) < self.workload.reads:
            return self._draw_key(), Read()
        if self.entropy.uniform(0, 1) < self.workload.swaps:
            key = self._draw_key()
            return key, Swap(self._seen.get(key), self._draw_value())
        return self._draw_write()

    def _draw_write(self) -> tuple[str, Write]:
        return self._draw_key(), Write(self._draw_value())

    def _draw_key(self) -> str:
        return f"k{self.entropy.below(self.workload.keys)}"

    def _draw_value(self) -> bytes:
        return self.notes.next_value(
            self.name, self.entropy.below(self.workload.value_size_max + 1)
        )

    def _done(self, number: int, result: object) -> None:
        assert result is None or isinstance(result, bytes | bool), f"{result!r}"
        self.notes.history.complete(number, result)
        self.notes.last_done[self.name] += 1

    def _failed(self, number: int, error: QuorumlogError) -> None:
        self.notes.errors[type(error).__name__] += 1
        if isinstance(error, WITHOUT_EFFECT):
            self.notes.history.fail(number)
        if isinstance(error, NotController) and error.leader_id in self.addresses:
            self._leader = error.leader_id
        else:
            self._leader = None

    def _failed_all(
        self, under_way: dict[int, list[tuple[int, bytes]]], error: QuorumlogError
    ) -> None:
        for values in under_way.values():
            for number, _ in values:
                self._failed(number, error)
        if not under_way:
            self.notes.errors[type(error).__name__] += 1
            self._leader = None

    def _target(self) -> NodeId:
        if self._leader is None or not self.entropy.below(20):  # sometimes any member
            members = list(self.addresses)
            return members[self.entropy.below(len(members))]
        return self._leader

    def _channel(self, target: NodeId) -> Channel:
        if target not in self._channels:
            self._channels[target] = self.runtime.network.channel(self.addresses[target])
        return self._channels[target]

    def _timeout_ms(self) -> int:
        low, high = self.workload.timeout_ms
        return low + self.entropy.below(high - low + 1)

    async def _pause(self) -> None:
        low, high = self.workload.pause_ms
        is_tired = len(self.notes.history) > self.workload.operations_max
        pause_s = self.entropy.uniform(low, high) / 1000
        await asyncio.sleep(pause_s * TIRED if is_tired else pause_s)
