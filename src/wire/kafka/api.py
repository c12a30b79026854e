"""What an API key is here: its versions, its handler, and what a handler is given and gives back.

A handler translates: it reads a request, makes the calls that gRPC's handlers make too, and says
its answer as plain fields by the names that the schemas have. It decides nothing.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ...runtime import Buffer, CallContext, File
from .door import Door as Door

ANONYMOUS: Final = "ANONYMOUS"
"""The user of a connection on which nobody has shown who he is."""

ANSWER_MS_MAX: Final = 30_000
"""The deadline that requests without one of their own have."""

Fields: TypeAlias = Mapping[str, Any]
"""An answer: values by the field names of the newest schema; see `messages.encode`."""


@dataclass(slots=True)  # not frozen: a fetch makes one a partition
class FileRange:
    """Bytes of a file that leave without being read here."""

    file: File
    position: int
    size: int


Part: TypeAlias = Buffer | FileRange


class Prepared:
    """An answer that knows how to become bytes by itself: those of the hot paths, and large ones.

    A class and no protocol, since every answer is asked whether it is one: that is quick here.
    """

    __slots__ = ()

    @property
    def size(self) -> int:
        """Bytes of records in it, for quotas and figures."""
        return 0

    @property
    def error_codes(self) -> Sequence[int]:
        """The errors in it, for figures; none of them is 0."""
        return ()

    def parts(self, throttle_ms: int) -> Sequence[Part]:
        """Return the body behind the response header. Called once, and then `release`."""
        raise NotImplementedError

    def release(self) -> None:
        """Give back what `parts` names, which is queued or will never leave; called exactly once,
        also where nobody called `parts`."""


Answer: TypeAlias = Fields | Prepared | None
"""None: no answer is sent (a produce request with acks=0)."""


@dataclass(slots=True, kw_only=True)
class Client:
    """Who is at the other end of a connection."""

    peer: str  # "host:port", for logs only
    local: str  # "host:port" by which it has reached this broker
    listener: str  # the name of the listener
    user: str = ANONYMOUS
    software_name: str = ""  # as it says itself (KIP-511)
    software_version: str = ""


@dataclass(slots=True, kw_only=True)  # not frozen: that takes a microsecond more a request
class Call:
    """One request."""

    api: "Api"
    version: int
    correlation_id: int
    client_id: str  # empty: none
    body: Any  # the message of this version, or what the API's own `read` made of it
    client: Client
    size: int = 0  # bytes of its frame, header included, for quotas and figures
    began_ms: int  # Clock.now_ms() when it had arrived
    abandon: Callable[[], None] | None = None  # of `Api.begin`, while it has not called `Done`: is
    # called when the connection has ended, and nobody waits any longer

    @property
    def context(self) -> CallContext:
        """For the handlers of gRPC's services: its deadline."""
        return CallContext(deadline_ms=self.began_ms + ANSWER_MS_MAX, peer=self.client.peer)


Handle: TypeAlias = Callable[[Door, Call], Awaitable[Answer]]
Done: TypeAlias = Callable[[Answer | Exception], None]
Read: TypeAlias = Callable[[int, memoryview], Any]
Begin: TypeAlias = Callable[[Door, Call, Done], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API key as it is offered. What has no row here is not advertised."""

    key: int
    name: str  # as the field says it: "CreateTopics"
    low: int  # versions that are answered, both inclusive
    high: int
    flexible: int  # the first version with tagged fields; above `high`: none
    handle: Handle
    read: Read | None = None  # (version, body) -> Call.body; None, as what it returns for a body
    # that it leaves to the schema: the schema's message
    advertised_low: int | None = None  # None: `low`
    begin: Begin | None = None  # the hot path: takes no task, and
    # calls `Done` once, maybe before it returns; False: this one needs `handle`
    opening: Callable[[Door, Call], Coroutine[Any, Any, None] | None] | None = None  # what is to be
    # waited for before `begin`, None: nothing
    begins_in_order: bool = False  # `begin` gives the request its place, so that the next one of
    # its kind may begin while it waits for its answer
    waits_for_others: bool = False  # for minutes maybe, until other clients have asked too: it
    # holds no memory meanwhile, and no stop up
