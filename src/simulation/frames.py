"""Frames of calls and streams on a link; each carries the number of its call.

Messages travel serialised and are parsed by the receiver, so that two nodes never share an object.
Serialisation is deterministic: protobuf's map fields would otherwise follow the hash seed.
"""

from dataclasses import dataclass
from typing import TypeAlias

from ..runtime import ClientIdentity
from .events import digest


@dataclass(frozen=True, slots=True)
class Open:
    """The start of a call; a unary call includes its request."""

    call: int
    path: str
    timeout_ms: int  # 0: none
    request: bytes | None  # None: a stream
    on_behalf_of: ClientIdentity | None = None  # the client of a forwarded call

    def describe(self) -> str:
        """Kind, number, method and digest."""
        return f"open {self.call} {self.path} {digest(self.request or b'')}"


@dataclass(frozen=True, slots=True)
class Data:
    """One message of a stream."""

    call: int
    payload: bytes

    def describe(self) -> str:
        """Kind, number and digest."""
        return f"data {self.call} {digest(self.payload)}"


@dataclass(frozen=True, slots=True)
class Credit:
    """The receiver consumed bytes of a stream: the sender may send as many more."""

    call: int
    size: int

    def describe(self) -> str:
        """Kind, number and size."""
        return f"credit {self.call} {self.size}"


@dataclass(frozen=True, slots=True)
class Finish:
    """The caller of a stream sends no more messages."""

    call: int

    def describe(self) -> str:
        """Kind and number."""
        return f"finish {self.call}"


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a handler: the response of a unary call, the clean end of a stream, or a typed
    error."""

    call: int
    response: bytes | None
    error: bytes | None  # a quorumlog.v1.Error

    def describe(self) -> str:
        """Kind, number and digest."""
        return f"result {self.call} {digest(self.response or b'', self.error or b'')}"


@dataclass(frozen=True, slots=True)
class Abort:
    """Either side aborts the call."""

    call: int
    reason: str

    def describe(self) -> str:
        """Kind, number and reason."""
        return f"abort {self.call} {self.reason}"


CallFrame: TypeAlias = Open | Data | Credit | Finish | Result | Abort
