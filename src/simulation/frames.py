"""What calls and streams put on a link: frames with the call's number.

Messages travel serialised (deterministically: protobuf's map fields would otherwise follow the hash
seed) and are parsed at the other side, so two nodes never share an object.
"""

from dataclasses import dataclass
from typing import TypeAlias

from .events import digest


@dataclass(frozen=True, slots=True)
class Open:
    """A call begins; a unary one brings its request along."""

    call: int
    path: str
    timeout_ms: int  # 0: none
    request: bytes | None  # None: a stream

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
    """The receiver has taken bytes of a stream: so many more may be sent."""

    call: int
    size: int

    def describe(self) -> str:
        """Kind, number and size."""
        return f"credit {self.call} {self.size}"


@dataclass(frozen=True, slots=True)
class Finish:
    """The caller of a stream sends nothing more."""

    call: int

    def describe(self) -> str:
        """Kind and number."""
        return f"finish {self.call}"


@dataclass(frozen=True, slots=True)
class Result:
    """The handler has ended: a unary call's response, a stream's clean end, or a typed error."""

    call: int
    response: bytes | None
    error: bytes | None  # a quorumlog.v1.Error

    def describe(self) -> str:
        """Kind, number and digest."""
        return f"result {self.call} {digest(self.response or b'', self.error or b'')}"


@dataclass(frozen=True, slots=True)
class Abort:
    """A side breaks the call off."""

    call: int
    reason: str

    def describe(self) -> str:
        """Kind, number and reason."""
        return f"abort {self.call} {self.reason}"


CallFrame: TypeAlias = Open | Data | Credit | Finish | Result | Abort
