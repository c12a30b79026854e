"""The five ports: all access of a node to its environment.

Node code gets time, randomness, tasks and threads, files and the network only from a `Runtime` that
is passed explicitly. `runtime.real` and `simulation` implement every protocol of this file. One
contract suite (tests/unit/runtime) runs each statement below against both.

Pure code imports this module: it has protocols and frozen values, and imports no asyncio.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from google.protobuf.message import Message

from ..errors import InvalidRequest, SaslAuthenticationFailed

if TYPE_CHECKING:
    import asyncio

    from .tls import TlsCredentials, TlsFiles

T = TypeVar("T")
Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
Q_contra = TypeVar("Q_contra", bound=Message, contravariant=True)
R_co = TypeVar("R_co", bound=Message, covariant=True)

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Runtime:
    """The five ports of one node."""

    clock: "Clock"
    entropy: "Entropy"
    tasks: "Tasks"
    files: "Files"
    network: "Network"


# --- clock and entropy -------------------------------------------------------------------------


class Clock(Protocol):
    """The clocks of one node."""

    def now_ms(self) -> int:
        """Return monotonic milliseconds, equal to int(loop.time() * 1000). Drifts, never goes back.

        The only base for timers and leases.
        """

    def wall_ms(self) -> int:
        """Return milliseconds since 1970 (UTC), which may jump either way.

        For timestamps, retention and logs, never for leases.
        """

    def busy_us(self) -> int:
        """Return monotonic microseconds with their own origin, which advance while a callback runs.

        They measure the time that code blocks the loop, and short timeouts on threads without a
        loop. Simulated code takes no time.
        """


class Entropy(Protocol):
    """One random stream per (seed, node, incarnation, purpose). A draw does not affect other
    streams."""

    def stream(self, purpose: str) -> "Entropy":
        """Return the child stream of a purpose. The same purpose returns the same stream from its
        start."""

    def below(self, end: int) -> int:
        """Return an int of [0, end); end >= 1."""

    def uniform(self, low: float, high: float) -> float:
        """Return a float of [low, high]."""

    def token(self, size: int) -> bytes:
        """Return `size` random bytes."""


# --- tasks and lanes ---------------------------------------------------------------------------


class Scope(Protocol):
    """The owner of child tasks. All end before it does."""

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> "asyncio.Task[T]":
        """Start a child task. Its first error cancels its siblings, newest first."""

    def cancel(self) -> None:
        """Cancel every child, newest first. Leaving the scope then waits for them without raising
        it."""


class Tasks(Protocol):
    """Child tasks with an owner, and jobs that may block on a device."""

    def scope(self, name: str) -> AbstractAsyncContextManager[Scope]:
        """Open a scope. Children are kept in spawn order.

        The first error of a child or of the body cancels the others newest first, awaits all and
        raises the first error with the rest as notes. A normal exit waits for all.
        """

    async def offload(self, lane: str, job: Callable[[], T], *, cost_bytes: int = 0) -> T:
        """Run a plain function in a lane's thread and return its result.

        Lanes are FIFO with a fixed number of threads and a limit on waiting jobs: `write:<dir>` has
        one thread, `read` four, `cpu` one. A full lane raises Overloaded. A job uses handles,
        buffers, numbers and `files`, nothing else. Cancelling the awaiting task does not cancel the
        job: only the owner task of a resource awaits it.
        """

    async def drain(self, lane: str) -> None:
        """Return when every job submitted to the lane before this call has ended."""

    def stop_node(self, reason: str) -> None:
        """Stop this node at once (broken invariant, failed disk), without an orderly stop."""


# --- files -------------------------------------------------------------------------------------


class Lease(Protocol):
    """Keeps a file's descriptor open."""

    def release(self) -> None:
        """Release the lease. A second call has no effect."""


class File(Protocol):
    """One open file. Errors are OSError with the kernel's errno."""

    @property
    def path(self) -> str:
        """The path that it was opened with."""

    def size(self) -> int:
        """Return the file's size in bytes."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write consecutive buffers at a byte position and return the number of bytes, which may be
        short."""

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes; short at the end of the file. May block on the device: offload
        it."""

    def read_cached(self, position: int, size: int) -> bytes | None:
        """Read only from the page cache. Return None if that would block on the device.

        Always returns bytes if the file system cannot tell.
        """

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def sync(self) -> None:
        """Make data and size durable (fdatasync). Offload it. Never retry a failed sync."""

    def lease(self) -> Lease:
        """Keep the descriptor open until the lease is released, regardless of close()."""

    def close(self) -> None:
        """Close after the last lease is released. A second call has no effect."""


class FileLock(Protocol):
    """An exclusive lock, released when the process ends."""

    def release(self) -> None:
        """Release the lock. A second call has no effect."""


class Files(Protocol):
    """The file system, synchronous. Paths are strings with '/' between parts.

    A created, renamed or removed *name* is durable after sync_folder of its folder.
    """

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. With `create` a missing file is created, otherwise it
        raises FileNotFoundError. Raises OSError for a symbolic link."""

    def open_readonly(self, path: str) -> File:
        """Open an existing file for reading only."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted."""

    def make_folder(self, path: str) -> None:
        """Create a folder and its missing parents. An existing folder is accepted."""

    def remove(self, path: str) -> None:
        """Remove a file, or an empty folder."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder, replacing a file of the new name atomically."""

    def exists(self, path: str) -> bool:
        """Return True if a file or folder of this path exists."""

    def is_folder(self, path: str) -> bool:
        """Return True if the path is a folder."""

    def size(self, path: str) -> int:
        """Return the file's size in bytes."""

    def free_bytes(self, folder: str) -> int:
        """Return the bytes that an unprivileged writer may use on the folder's file system."""

    def capacity_bytes(self, folder: str) -> int:
        """Return the total bytes of the folder's file system."""

    def descriptors(self) -> tuple[int, int]:
        """Return the number of open descriptors of the process, and its limit. 0: unknown, or no
        limit."""

    def sync_folder(self, folder: str) -> None:
        """Make the folder's names durable. Offload it."""

    def lock(self, path: str) -> FileLock:
        """Lock the file exclusively, creating it if missing. Raise BlockingIOError if another
        process has it."""

    def boot_id(self) -> str:
        """Return an id that changes with the machine's boot, not with the process."""


# --- network -----------------------------------------------------------------------------------


REQUEST_BYTES_MAX: Final = 4 << 20
"""The size limit of the requests of most methods. Parsed, an entry of two bytes takes 80."""

RECORDS_BYTES_MAX: Final = (64 << 20) + (64 << 10)
"""That of methods for records, and between nodes: the largest batch and its envelope."""


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, R]):
    """One remote method: its path ("/quorumlog.v1.Log/Fetch"), message types, whether it streams,
    and the size limit of each of its requests, in bytes.

    A stream method may be declared with one request in the .proto (server streaming): on the wire
    that is a stream whose client sends one message and finishes.
    """

    path: str
    request: type[Q]
    response: type[R]
    streaming: bool = False
    request_bytes_max: int = REQUEST_BYTES_MAX

    def parse_request(self, raw: bytes) -> Q:
        """Parse a request at the server. Raise InvalidRequest if it is too large, DecodeError if
        it is malformed."""
        if len(raw) > self.request_bytes_max:
            raise InvalidRequest(
                f"{self.path}: the request has {len(raw)} bytes; the limit is"
                f" {self.request_bytes_max}; send fewer entries in one request"
            )
        return self.request.FromString(raw)


NO_DEADLINE_MS: Final = (1 << 63) - 1
"""`CallContext.deadline_ms` of a call without a deadline."""


class ClientIdentity(NamedTuple):
    """The client that sent a request, as it was authenticated."""

    principal: str  # "User:alice"; "Node:3" for a node of the cluster, "Node:" for any
    host: str  # IP address in its shortest form; empty: unknown
    roles: tuple[str, ...] = ()  # of a node, by its certificate; empty: unknown

    @property
    def user(self) -> str:
        """The name of the user."""
        return self.principal.partition(":")[2]

    @property
    def is_node(self) -> bool:
        """True for a node of the cluster, authenticated as such."""
        return self.principal.startswith("Node:")


ANONYMOUS_CLIENT: Final = ClientIdentity("User:ANONYMOUS", "")
"""A client without authentication, from an unknown host."""


class PeerCertificate(NamedTuple):
    """The names in the verified certificate of a peer."""

    subject: str  # distinguished name as in RFC 4514: "CN=alice,O=Example"
    uris: tuple[str, ...]  # subject alternative names
    hosts: tuple[str, ...]  # DNS names
    expires_s: float = inf  # Unix time


class CallPeer(NamedTuple):
    """The facts about the client of a call, before it is authenticated."""

    host: str  # IP address
    certificate: PeerCertificate | None  # None: none was presented
    authorization: str  # the header of this name; empty: none
    on_behalf_of: ClientIdentity | None = None  # as it says; only a node may
    port: str = ""  # of a connection with many calls; empty: not known


class CallSession(NamedTuple):
    """An authenticated client."""

    identity: ClientIdentity
    is_current: Callable[[], bool] | None = None  # None: it does not end
    forwarded_by: ClientIdentity | None = None  # the node that calls on behalf of the client
    is_open: bool = False  # the method needs no credentials


class CallAuthenticator(Protocol):
    """The authentication of the calls of one listener."""

    async def authenticate(self, path: str, peer: CallPeer) -> CallSession:
        """Return the client of a call of the method with this path. Raise
        SaslAuthenticationFailed, or ClusterAuthorizationFailed if only nodes are served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSecurity:
    """The encryption and authentication of the calls of one listener."""

    tls: "TlsCredentials | None" = None  # None: no TLS
    authenticator: CallAuthenticator | None = None  # None: every client is anonymous
    reads_at_once: bool = False
    """A request is received before its client is authenticated, which costs less: for clients that
    have a certificate or need no credentials."""


PLAIN_CALLS: Final = CallSecurity()
"""Calls without TLS and authentication."""


class ChannelLogin(Protocol):
    """The credentials for the calls of one channel."""

    async def authorization(self, path: str, channel: "Channel") -> str:
        """Return the header for a call of the method with this path, "" for none. It may call
        methods of the channel."""

    def refused(self, authorization: str) -> bool:
        """Drop a header that the server has refused; return True if a call may succeed with the
        next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSecurity:
    """The encryption and the credentials of channels."""

    tls: "TlsFiles | TlsCredentials | None" = None  # None: no TLS
    login: Callable[[], ChannelLogin] | None = None  # for each channel; None: no credentials


PLAIN_CHANNEL: Final = ChannelSecurity()
"""Channels without TLS and credentials."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """The call's context for a handler."""

    # on this node's Clock.now_ms(); the handler is cancelled when the client disconnects
    deadline_ms: int
    peer: str  # "host:port" of the client, for logs only
    client: ClientIdentity = ANONYMOUS_CLIENT
    forwarded_by: ClientIdentity | None = None  # the node that sent the call of the client
    # returns False after the end of the session; None: it does not end
    is_current: Callable[[], bool] | None = None

    def check_session(self) -> None:
        """Raise SaslAuthenticationFailed after the end of the session."""
        if self.is_current is not None and not self.is_current():
            raise SaslAuthenticationFailed("the session has ended; log in again")

    @property
    def is_forwarded(self) -> bool:
        """True if a node sent the call on behalf of the client."""
        return self.forwarded_by is not None

    @property
    def sender(self) -> ClientIdentity:
        """The client, or the node that forwards its call."""
        return self.client if self.forwarded_by is None else self.forwarded_by


class Stream(Protocol[Q_contra, R_co]):
    """One side of a bidirectional stream: sends Q, receives R. Each direction has an explicit end.

    Ordered, lossless and without duplicates until it breaks. Then any suffix in flight may be
    delivered or not, *also after a new stream of the same peer has started*. Receivers therefore
    fence by epoch, never by arrival. A cut link without reset is silent: every long stream needs an
    application heartbeat.
    """

    async def send(self, message: Q_contra) -> None:
        """Return when the message is in the window (back-pressure), not when it is received.

        Raise StreamBroken, at the client also the handler's error, which `receive` then raises too,
        or MessageTooLarge, which leaves the stream usable. Several tasks may send. Cancelling a
        waiting send may break the stream.
        """

    async def receive(self) -> R_co | None:
        """Return the next message, or None after the peer finished cleanly.

        Raise StreamBroken, at the client also the handler's error. One task at a time may receive;
        cancelling it loses no message.
        """

    async def finish(self) -> None:
        """Announce that no more messages follow. Receiving continues. The client receives a
        handler's finish when the handler returns."""

    def abort(self, reason: str) -> None:
        """Break the stream at once, in both directions. A second call has no effect."""


UnaryCall: TypeAlias = Callable[[Any, CallContext], Awaitable[Any]]
StreamCall: TypeAlias = Callable[["Stream[Any, Any]", CallContext], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Handler:
    """A method with its implementation.

    `call` is `async (request, context) -> response` for a unary method, and `async (stream,
    context) -> None` for a streaming one. Returning ends the stream cleanly. A QuorumlogError
    reaches the client with its type; any other exception becomes UnknownServerError.
    """

    method: Method[Any, Any]
    call: UnaryCall | StreamCall


class Listener(Protocol):
    """A served address."""

    @property
    def address(self) -> str:
        """The address "host:port" with the actual port."""

    async def close(self, grace_ms: int) -> None:
        """Accept no new calls, wait `grace_ms` for calls in progress, cancel the rest."""


class CallListener(Listener, Protocol):
    """A served address for calls, with a health status."""

    def announce(self, *, is_ready: bool, service: str = "") -> None:
        """Set the status for health checks and their watchers. Calls are served in either case.

        Closing sets it to not ready. `service` is a name with its own status from its first
        announcement on; "" is the status of the server and of all other services.
        """


class Channel(Protocol):
    """A connection to one address. It connects lazily and reconnects with backoff (50..500 ms). The
    timeout of an attempt grows while there is no response."""

    async def call(
        self,
        method: Method[Q, R],
        request: Q,
        *,
        timeout_ms: int,
        on_behalf_of: ClientIdentity | None = None,
    ) -> R:
        """Call and wait. Raise the handler's error, TimedOut, ConnectionFailed, or OutcomeUnknown.

        A timeout of 0 has passed already. A refused connection may also raise OutcomeUnknown.
        `on_behalf_of` is the client of a call that a node forwards to another one.
        """

    async def stream(self, method: Method[Q, R], *, timeout_ms: int) -> Stream[Q, R]:
        """Open a stream, which needs a connection but no round trip.

        `timeout_ms` limits the stream's duration, 0 means no limit. Raise OutcomeUnknown or
        ConnectionFailed; errors of the peer are raised by `receive`.
        """

    async def close(self) -> None:
        """Break calls in progress and free the connection."""


class ByteConnection(Protocol):
    """The sending side of a byte connection."""

    @property
    def peer(self) -> str:
        """The other side's "host:port", for logs only."""

    @property
    def local(self) -> str:
        """This side's "host:port", which the other side connected to if it was the client.

        Empty after the end.
        """

    @property
    def certificate(self) -> PeerCertificate | None:
        """The verified certificate of the other side, None without one."""

    client: ClientIdentity
    """The other side, once it is authenticated; ANONYMOUS_CLIENT until then."""

    def write(self, buffers: Sequence[Buffer], *, more: bool = False, now: bool = False) -> None:
        """Queue bytes, sent in order. They are not copied: do not change the buffers afterwards.
        A memoryview is one of bytes. `more`: a range follows, and the bytes should share a packet
        with it. `now`: nothing follows in this turn of the loop, so they may be sent within the
        call; `sent` is not called for such bytes."""

    def send_range(self, file: File, position: int, size: int) -> None:
        """Queue bytes of a file without copying them into Python. Holds a lease until they are
        sent."""

    def unsent_bytes(self) -> int:
        """Return the bytes that are queued and not yet in the kernel, for back-pressure."""

    def pause_reading(self) -> None:
        """Stop calling the protocol's buffer() and received()."""

    def resume_reading(self) -> None:
        """Continue after pause_reading()."""

    def close(self) -> None:
        """Send the queue, then close. A second call has no effect."""

    def abort(self) -> None:
        """Close at once with a reset, dropping the queue."""


class ByteProtocol(Protocol):
    """The receiving side of a byte connection, called on the loop."""

    def buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for the next read, at least one byte long."""

    def received(self, count: int) -> None:
        """Process the first `count` bytes of the last buffer."""

    def sent(self) -> None:
        """Send more, since the queue of unsent bytes has shrunk."""

    def closed(self, error: Exception | None) -> None:
        """Handle the end of the connection. `error` is None for a clean end by the peer or by
        close()."""


class Network(Protocol):
    """Calls, streams and byte connections between nodes. Addresses are "host:port"."""

    async def serve(
        self,
        address: str,
        handlers: Mapping[str, Handler],
        *,
        is_ready: bool = True,
        security: CallSecurity = PLAIN_CALLS,
    ) -> CallListener:
        """Serve calls on an address by method path; port 0 selects a free one. Raise AddressInUse.

        `is_ready` is the initial health status; see `announce`.
        """

    def channel(self, address: str, security: ChannelSecurity = PLAIN_CHANNEL) -> Channel:
        """Return a channel to the address. Never fails."""

    async def listen_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> Listener:
        """Accept byte connections, with one protocol object each. Raise AddressInUse."""

    async def connect_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> ByteConnection:
        """Connect. Raise ConnectionFailed if refused, otherwise OutcomeUnknown."""

    async def refuses(self, address: str, timeout_ms: int) -> bool:
        """Return True if a connection is refused; False on success, timeout and any other
        failure."""
