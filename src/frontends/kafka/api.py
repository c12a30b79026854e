"""The types of a Kafka API: its versions, its handler, and the handler's input and output.

A handler translates: it reads a request, calls the operation in `quorumlog.api`, as the gRPC front
end does, and returns the response as plain fields under the schema's names. It decides nothing.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from ...api.request_context import RequestContext
from ...runtime import ANONYMOUS_CLIENT, Buffer, ClientIdentity, File
from .broker_context import BrokerContext as BrokerContext
from .frames import RequestFrameReader
from .request_limits import ELEMENTS_MAX

ANSWER_MS_MAX: Final = 30_000
"""The deadline of requests that carry no timeout, in ms after arrival."""

Fields: TypeAlias = Mapping[str, Any]
"""A response: values by the field names of the newest schema; see `messages.encode`."""


@dataclass(slots=True)  # not frozen: a fetch builds one for each partition
class FileRange:
    """A range of a file that is sent without being read into the process."""

    file: File
    position: int
    size: int


Part: TypeAlias = Buffer | FileRange


class PreparedResponse:
    """A response that encodes itself: those of the hot paths, and large ones.

    A class and not a protocol: every response is checked with isinstance, which is fast for a
    class.
    """

    __slots__ = ()

    @property
    def size(self) -> int:
        """Bytes of records in the response, for quotas and metrics."""
        return 0

    @property
    def error_codes(self) -> Sequence[int]:
        """The error codes in the response, for metrics; never 0."""
        return ()

    def parts(self, throttle_ms: int) -> Sequence[Part]:
        """Return the body that follows the response header. Called once, before `release`."""
        raise NotImplementedError

    def release(self) -> None:
        """Release the resources behind `parts`. Called exactly once, after the parts are queued or
        when they are dropped, also if `parts` was never called."""


class EncodedResponses(PreparedResponse):
    """The responses to the requests of a run with their sizes and headers, in order."""

    __slots__ = ("_error_codes", "content")

    def __init__(self, content: bytes, error_codes: Sequence[int] = ()) -> None:
        self.content = content
        self._error_codes = error_codes

    @property
    def error_codes(self) -> Sequence[int]:
        """The error codes in all responses."""
        return self._error_codes


class DelayedAnswer:
    """A usual request that waits for its answer without a task, such as a fetch for records."""

    __slots__ = ()

    def start(self, woken: Callable[[], None]) -> bool:
        """Wait; `woken` is called once, later, when `answer` may have an answer. Return False if
        the request must begin by itself."""
        raise NotImplementedError

    def answer(self) -> PreparedResponse | None:
        """Return the response after the wait, None if the request must begin by itself."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Stop waiting: the connection has ended."""
        raise NotImplementedError


Answer: TypeAlias = Fields | PreparedResponse | None
"""None: no response is sent (a produce request with acks=0)."""


@dataclass(slots=True, kw_only=True)
class Client:
    """The client of a connection."""

    peer: str  # "host:port", for logs only
    local: str  # "host:port" of this broker, as the client connected to it
    listener: str  # the name of the listener
    identity: ClientIdentity = ANONYMOUS_CLIENT
    software_name: str = ""  # as the client reports it (KIP-511)
    software_version: str = ""
    # of the request that `KafkaApi.at_once` receives; None: unknown, which `at_once` may need
    client_id: str | None = None
    authentication: Any = None  # the connection's `Authentication`, for the APIs of SASL


@dataclass(slots=True, kw_only=True)  # not frozen: freezing costs a microsecond a request
class Call:
    """One request."""

    api: "KafkaApi"
    version: int
    correlation_id: int
    client_id: str  # empty: none
    body: Any  # the message of this version, or the result of the API's own `read`
    client: Client
    size: int = 0  # bytes of its frame, header included, for quotas and metrics
    began_ms: int  # Clock.now_ms() at its arrival
    # Set by `KafkaApi.begin` until it calls `Done`: called if the connection ends before that.
    abandon: Callable[[], None] | None = None

    @property
    def context(self) -> RequestContext:
        """The context of a request without a timeout of its own."""
        return self.context_until(self.began_ms + ANSWER_MS_MAX)

    def context_until(self, deadline_ms: int) -> RequestContext:
        """Return the context of the request with a deadline, in `Clock.now_ms()`."""
        return RequestContext(
            deadline_ms, client=self.client.identity, check_session=self.check_session
        )

    def check_session(self) -> None:
        """Raise SaslAuthenticationFailed if the client's session has ended."""
        if self.client.authentication is not None:
            self.client.authentication.check_session()


Handle: TypeAlias = Callable[[BrokerContext, Call], Awaitable[Answer]]
Done: TypeAlias = Callable[[Answer | Exception], None]
Read: TypeAlias = Callable[[int, memoryview], Any]
Begin: TypeAlias = Callable[[BrokerContext, Call, Done], bool]
AnswerAtOnce: TypeAlias = bytes | list[Buffer] | PreparedResponse | DelayedAnswer | None
AtOnce: TypeAlias = Callable[[BrokerContext, Client, int, memoryview], AnswerAtOnce]


class RequestRun(Protocol):
    """Consecutive requests of one connection that begin together."""

    @property
    def count(self) -> int:
        """The number of requests."""

    @property
    def size(self) -> int:
        """The bytes of their frames."""

    def take(self, frames: RequestFrameReader) -> None:
        """Cut the next complete frames as far as they can be added. The others must begin alone,
        with nothing changed by this call. The read buffer is used until `end` returns."""

    def end(self) -> Answer | Exception:
        """Begin all requests: each one's place in its logs is fixed. Return their answer, or None
        if it is not known yet."""

    def wait(self, done: Done) -> None:
        """After `end` has returned None: call `done` once with the answer, later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaApi:
    """One API key. A key without a row is not advertised."""

    key: int
    name: str  # the name in Kafka's protocol guide: "CreateTopics"
    low: int  # supported versions, both inclusive
    high: int
    flexible: int  # the first version with tagged fields; above `high`: none
    handle: Handle
    # (version, body) -> Call.body. Without it, or where it returns None, the schema's message is
    # the body.
    read: Read | None = None
    advertised_low: int | None = None  # None: `low`
    # of all arrays of a request that the schema decodes; `read` has limits of its own. A client
    # without rights stops the event loop for a fraction of a second with so many.
    elements_max: int = ELEMENTS_MAX
    # The hot path, without a task: calls `Done` once, possibly before it returns. Returns False if
    # the request needs `handle`.
    begin: Begin | None = None
    # Returns a coroutine to await before `begin`, or None.
    opening: Callable[[BrokerContext, Call], Coroutine[Any, Any, None] | None] | None = None
    # `begin` fixes the request's order, so the next request of this key may begin before the
    # response.
    begins_in_order: bool = False
    # (broker, client, version, body) -> the body of the response to a usual request, complete at
    # once or delayed; None, without an effect, if the request must begin by itself. The body is
    # valid until it returns. Not called while a quota is set.
    at_once: AtOnce | None = None
    # Begins a run of at most so many requests that arrived together, which costs less than one
    # after another.
    run: Callable[[BrokerContext, Client, int], RequestRun] | None = None
    # The response may depend on requests of other clients, for minutes, or is delayed after failed
    # authentications: the request holds no request memory and does not delay a shutdown.
    waits_for_others: bool = False
