"""A replicated register map: a small state machine that exposes the faults of a quorum.

Each command depends on its register only, and one running hash covers the whole history of
commands: two replicas with equal hashes at an offset applied the same log. `Registers` is the state
machine of a node, `RegisterService` its network service, `call_register` its client, on the
simulated network and on the real one.
"""

import struct
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Protocol

from google.protobuf.wrappers_pb2 import BytesValue

from quorumlog.errors import InvalidRequest
from quorumlog.ids import NodeId, Offset
from quorumlog.runtime import CallContext, Channel, Handler, Method

from ..checkers.models import DONE, Read, RegisterRequest, Swap, Write

CALL: Final = Method("/quorumlog.simulation.Registers/Call", BytesValue, BytesValue)
"""A request for one register; the answer reflects committed commands only."""

RESULTS_KEPT: Final = 10_000
SLICE: Final = 64
"""Registers in one slice of a snapshot."""

_HEAD: Final = struct.Struct(
    ">BHi"
)  # kind, bytes of the key, bytes of the expected value (-1: none)
_READ, _WRITE, _SWAP = range(3)
_RESULT_NONE: Final = b"\0"
_RESULT_VALUE: Final = b"\1"
_RESULT_DONE: Final = b"\2"


# --- bytes ---------------------------------------------------------------------------------------


def encode_command(key: str, request: RegisterRequest) -> bytes:
    """Return a request as stored in the log and sent over the network."""
    name = key.encode()
    match request:
        case Read():
            return _HEAD.pack(_READ, len(name), -1) + name
        case Write():
            return _HEAD.pack(_WRITE, len(name), -1) + name + request.value
        case Swap():
            expected = request.expected
            size = -1 if expected is None else len(expected)
            head = _HEAD.pack(_SWAP, len(name), size)
            return head + name + (expected or b"") + request.value


def decode_command(content: bytes) -> tuple[str, RegisterRequest]:
    """Return (key, request); raises InvalidRequest."""
    if len(content) < _HEAD.size:
        raise InvalidRequest(f"a command of {len(content)} bytes")
    kind, key_size, size = _HEAD.unpack_from(content)
    at = _HEAD.size + key_size
    key = content[_HEAD.size : at].decode()
    if kind == _READ:
        return key, Read()
    if kind == _WRITE:
        return key, Write(content[at:])
    if kind == _SWAP:
        expected = None if size < 0 else content[at : at + size]
        return key, Swap(expected, content[at + max(size, 0) :])
    raise InvalidRequest(f"no command of kind {kind}")


def encode_result(result: object) -> bytes:
    """Return an encoded result."""
    if result is DONE:
        return _RESULT_DONE
    if result is None:
        return _RESULT_NONE
    assert isinstance(result, bytes), f"no result of a register: {result!r}"
    return _RESULT_VALUE + result


def decode_result(content: bytes) -> bytes | bool | None:
    """Return a decoded result."""
    if content == _RESULT_DONE:
        return DONE
    return content[1:] if content[:1] == _RESULT_VALUE else None


# --- the state machine ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A batch that a replica applied, and the resulting state."""

    base_offset: int
    end_offset: int
    epoch: int
    digest: bytes  # running hash over every (offset, epoch, value) below end_offset


class Observer(Protocol):
    """A receiver of the events of one replica's registers."""

    def applied(self, applied: Applied, values: list[bytes]) -> None:
        """Handle an applied batch of these values."""

    def restored(self, applied: Applied) -> None:
        """Handle a state that came from a snapshot."""

    def leads(self, leader_id: NodeId | None, epoch: int) -> None:
        """Handle a change of the leader; None: no leader."""


@dataclass(slots=True)
class Registers:
    """The values by key, and the hash of their history."""

    observer: Observer | None = None
    values: dict[str, bytes] = field(default_factory=dict)
    digest: bytes = b""
    applied_end: int = 0
    leader: tuple[NodeId | None, int] = (None, 0)
    _results: OrderedDict[int, object] = field(default_factory=OrderedDict)  # by offset
    _restoring: bool = False
    _head_is_due: bool = False  # the next value of the snapshot is the hash

    def committed(self, base_offset: int, epoch: int, values: list[bytes]) -> None:
        """Apply one batch."""
        assert not self._restoring, f"batch {base_offset} in the middle of a snapshot"
        assert base_offset >= self.applied_end, f"batch {base_offset} after {self.applied_end}"
        hashed = blake2b(self.digest, digest_size=16)
        for offset, value in enumerate(values, base_offset):
            hashed.update(struct.pack(">qiI", offset, epoch, len(value)))
            hashed.update(value)
            self._results[offset] = self._apply(value)
        while len(self._results) > RESULTS_KEPT:
            self._results.popitem(last=False)
        self.digest, self.applied_end = hashed.digest(), base_offset + len(values)
        if self.observer is not None:
            self.observer.applied(self._applied(base_offset, epoch), values)

    def leadership(self, leader_id: NodeId | None, epoch: int) -> None:
        """Record the leader."""
        self.leader = (leader_id, epoch)
        if self.observer is not None:
            self.observer.leads(leader_id, epoch)

    def snapshot(self) -> Iterator[list[bytes]]:
        """Return the hash, then the registers in the order of their keys."""
        taken = sorted(self.values.items())
        head = self.digest

        def slices() -> Iterator[list[bytes]]:
            yield [head]
            for start in range(0, len(taken), SLICE):
                part = taken[start : start + SLICE]
                yield [encode_command(key, Write(value)) for key, value in part]

        return slices()

    def begin_restore(self) -> None:
        """Clear the state."""
        self._restoring = self._head_is_due = True
        self.values, self.digest = {}, b""

    def restore(self, values: list[bytes]) -> None:
        """Add a slice of a snapshot."""
        assert self._restoring, "a slice of no snapshot"
        for value in values:
            if self._head_is_due:
                self.digest, self._head_is_due = value, False
                continue
            key, request = decode_command(value)
            assert isinstance(request, Write), f"{request} in a snapshot"
            self.values[key] = request.value

    def end_restore(self, end_offset: int, epoch: int) -> None:
        """Finish a restore."""
        assert self._restoring, "the end of no snapshot"
        assert end_offset >= self.applied_end, f"back from {self.applied_end} to {end_offset}"
        self._restoring, self.applied_end = False, end_offset
        if self.observer is not None:
            self.observer.restored(self._applied(end_offset, epoch))

    def result_at(self, offset: int) -> object:
        """Return the result of the command at an offset; it must be among the last RESULTS_KEPT."""
        return self._results[offset]

    def _applied(self, base_offset: int, epoch: int) -> Applied:
        return Applied(
            base_offset=base_offset, end_offset=self.applied_end, epoch=epoch, digest=self.digest
        )

    def _apply(self, command: bytes) -> object:
        key, request = decode_command(command)
        found = self.values.get(key)
        match request:
            case Read():
                return found
            case Write():
                self.values[key] = request.value
                return DONE
            case Swap():
                if found == request.expected:
                    self.values[key] = request.value
                return found


# --- over the network ----------------------------------------------------------------------------


class Replica(Protocol):
    """The part of a quorum node that the service uses."""

    async def propose(self, values: list[bytes]) -> int:
        """Return the last offset once the values are committed and applied."""

    async def read_index(self) -> Offset:
        """Return once everything committed before the call is applied."""


class RegisterService:
    """The network service of the registers: reads use the read index, other commands the log."""

    def __init__(self, replica: Replica, registers: Registers) -> None:
        self._replica = replica
        self._registers = registers

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by path."""
        return {CALL.path: Handler(CALL, self.call)}

    async def call(self, request: BytesValue, context: CallContext) -> BytesValue:
        """Execute a command; raises the node's errors. NotController is certainly without
        effect, after OutcomeUnknown the command may still take effect."""
        key, command = decode_command(request.value)
        if isinstance(command, Read):
            await self._replica.read_index()
            return BytesValue(value=encode_result(self._registers.values.get(key)))
        offset = await self._replica.propose([request.value])
        return BytesValue(value=encode_result(self._registers.result_at(offset)))


async def call_register(
    channel: Channel, key: str, request: RegisterRequest, *, timeout_ms: int
) -> bytes | bool | None:
    """Send one request through the channel, without retries."""
    command = BytesValue(value=encode_command(key, request))
    answer: BytesValue = await channel.call(CALL, command, timeout_ms=timeout_ms)
    return decode_result(answer.value)
