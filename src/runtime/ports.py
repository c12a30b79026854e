"""The five ports: everything a node may not decide for itself.

Time, randomness, tasks and threads, files and the network reach node code only through a `Runtime`
that is passed down explicitly. `runtime.real` and `simulation` implement every protocol of this
file, and one contract suite (tests/unit/runtime) runs each statement below against both.

This module is imported by pure code: it holds protocols and frozen values, and imports no asyncio.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

from google.protobuf.message import Message

if TYPE_CHECKING:
    import asyncio

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
    """This node's clocks."""

    def now_ms(self) -> int:
        """Monotonic milliseconds, equal to int(loop.time() * 1000); drifts, never goes back.

        The only base for timers and leases.
        """

    def wall_ms(self) -> int:
        """Milliseconds since 1970 (UTC); may jump either way. For timestamps, retention, logs;
        never a lease."""

    def busy_us(self) -> int:
        """Monotonic microseconds that move while a callback runs, from a start of their own: for
        how long code keeps the loop, and for what must not count as so for a moment too long, also
        on threads without a loop. Simulated code takes no time."""


class Entropy(Protocol):
    """One stream of randomness a (seed, node, incarnation, purpose): a draw never shifts another
    stream."""

    def stream(self, purpose: str) -> "Entropy":
        """Return the stream of a purpose below this one; the same purpose gives the same start
        again."""

    def below(self, end: int) -> int:
        """Return an int of [0, end); end >= 1."""

    def uniform(self, low: float, high: float) -> float:
        """Return a float of [low, high]."""

    def token(self, size: int) -> bytes:
        """Return `size` random bytes."""


# --- tasks and lanes ---------------------------------------------------------------------------


class Scope(Protocol):
    """Owns its child tasks: none outlives it."""

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> "asyncio.Task[T]":
        """Start a child. Its first error cancels its siblings, newest first."""

    def cancel(self) -> None:
        """Cancel every child, newest first; leaving the scope then waits for them and raises
        nothing of it."""


class Tasks(Protocol):
    """Child tasks with an owner, and work that may wait for a device."""

    def scope(self, name: str) -> AbstractAsyncContextManager[Scope]:
        """Open a scope. Children are kept in spawn order.

        The first child error, or leaving by an error, cancels the others newest first, awaits all
        and raises the first error with the rest as notes. A normal exit waits for all.
        """

    async def offload(self, lane: str, job: Callable[[], T], *, cost_bytes: int = 0) -> T:
        """Run a plain function in a lane's thread and return its result.

        Lanes are FIFO with a fixed number of threads and a bound on waiting jobs: `write:<dir>`
        has one, `read` four, `cpu` one. A full lane raises Overloaded. A job touches handles,
        buffers, numbers and `files`, nothing else. Cancelling the awaiter does not cancel the job:
        only the owner task of a resource awaits it.
        """

    async def drain(self, lane: str) -> None:
        """Return when every job given to the lane before this call has ended."""

    def stop_node(self, reason: str) -> None:
        """Stop this node at once (broken invariant, failed disk): an orderly stop is not
        attempted."""


# --- files -------------------------------------------------------------------------------------


class Lease(Protocol):
    """Keeps a file's descriptor open."""

    def release(self) -> None:
        """Give the lease back; a second call does nothing."""


class File(Protocol):
    """One open file. Errors are OSError with errno as the kernel gives it."""

    @property
    def path(self) -> str:
        """The path it was opened under."""

    def size(self) -> int:
        """Bytes in the file now."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write the buffers back to back at a byte position; return the bytes written, which may
        be short."""

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes; short at the end of the file. May wait for the device: offload
        it."""

    def read_cached(self, position: int, size: int) -> bytes | None:
        """Read only what the page cache holds; None when that would wait for the device.

        Always bytes where the file system cannot tell.
        """

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def sync(self) -> None:
        """Make data and size durable (fdatasync). Offload it. A failed sync is final: never repeat
        it."""

    def lease(self) -> Lease:
        """Keep the descriptor open until the lease is released, whatever close() does."""

    def close(self) -> None:
        """Close; takes effect when the last lease is back. A second call does nothing."""


class FileLock(Protocol):
    """An exclusive lock, freed by process death."""

    def release(self) -> None:
        """Free the lock; a second call does nothing."""


class Files(Protocol):
    """The file system, synchronous. Paths are strings with '/' between parts.

    A created, renamed or removed *name* is durable after sync_folder of its folder.
    """

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; with `create` make it when absent. FileNotFoundError
        otherwise."""

    def open_readonly(self, path: str) -> File:
        """Open an existing file for reading alone."""

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted."""

    def make_folder(self, path: str) -> None:
        """Make a folder and its missing parents; an existing one is fine."""

    def remove(self, path: str) -> None:
        """Remove a file, or an empty folder."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder, replacing a file of the new name atomically."""

    def exists(self, path: str) -> bool:
        """Whether a file or folder of this path exists."""

    def is_folder(self, path: str) -> bool:
        """Whether the path is a folder."""

    def size(self, path: str) -> int:
        """Bytes of the file."""

    def free_bytes(self, folder: str) -> int:
        """Bytes that an unprivileged writer may still use on the folder's file system."""

    def capacity_bytes(self, folder: str) -> int:
        """Bytes of the folder's file system, used or not."""

    def sync_folder(self, folder: str) -> None:
        """Make the folder's names durable. Offload it."""

    def lock(self, path: str) -> FileLock:
        """Lock the file exclusively, creating it when absent; BlockingIOError when another process
        has it."""

    def boot_id(self) -> str:
        """Changes with the machine's boot, not with the process."""


# --- network -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, R]):
    """One remote call: its path ("/quorumlog.v1.Log/Fetch"), message types, and whether it is a
    stream.

    A stream method may be declared with one request in the .proto (server streaming): on the wire
    that is a stream whose caller sends one message and finishes.
    """

    path: str
    request: type[Q]
    response: type[R]
    streaming: bool = False


NO_DEADLINE_MS: Final = (1 << 63) - 1
"""`CallContext.deadline_ms` of a call without a deadline."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a handler may know of its caller."""

    deadline_ms: int  # on this node's Clock.now_ms(); the handler is cancelled when the caller goes
    peer: str  # "host:port" of the caller, for logs only


class Stream(Protocol[Q_contra, R_co]):
    """One side of a bidirectional stream: sends Q, receives R. Has an explicit end on both sides.

    Ordered, loss-free, without duplicates until it breaks; then any suffix in flight may be
    delivered or not, *also after a new stream of the same peer has started*, so receivers fence by
    epoch, never by arrival. A cut link without reset is silent: every long stream has an
    application heartbeat.
    """

    async def send(self, message: Q_contra) -> None:
        """Return when taken into the window (back-pressure), not when received; raises
        StreamBroken, on the caller's side also the handler's typed error, which `receive` then
        raises too, or MessageTooLarge with the stream as good as before. Several tasks may send;
        cancelling a send that waits may break the stream."""

    async def receive(self) -> R_co | None:
        """Return the next message, or None when the peer finished cleanly; raises StreamBroken,
        on the caller's side also the handler's typed error. One reader at a time; cancelling it
        loses no message."""

    async def finish(self) -> None:
        """Say that nothing more will be sent; receiving goes on. A handler's finish reaches the
        caller when the handler returns."""

    def abort(self, reason: str) -> None:
        """Break the stream at once, for both sides. A second call does nothing."""


UnaryCall: TypeAlias = Callable[[Any, CallContext], Awaitable[Any]]
StreamCall: TypeAlias = Callable[["Stream[Any, Any]", CallContext], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Handler:
    """A method with the code that answers it.

    `call` is `async (request, context) -> response` for a unary method, and
    `async (stream, context) -> None` for a streaming one; returning ends the stream cleanly, a
    QuorumlogError is carried to the caller with its type, any other exception becomes
    UnknownServerError.
    """

    method: Method[Any, Any]
    call: UnaryCall | StreamCall


class Listener(Protocol):
    """A served address."""

    @property
    def address(self) -> str:
        """ "host:port", with the port that was picked when 0 was asked for."""

    async def close(self, grace_ms: int) -> None:
        """Take no new calls, let those under way end within `grace_ms`, cancel the rest."""


class CallListener(Listener, Protocol):
    """A served address that answers calls, and says to those who ask whether it is of use."""

    def announce(self, *, is_ready: bool, service: str = "") -> None:
        """Tell health checks and their watchers; calls are answered all the same. Closing says so
        by itself.

        `service` is a name that has a word of its own from its first announcement on; without one
        the word is for the server and all services that have none.
        """


class Channel(Protocol):
    """A way to one address. Connects lazily, reconnects with back-off (50..500 ms);
    attempts that get no answer take longer and longer."""

    async def call(self, method: Method[Q, R], request: Q, *, timeout_ms: int) -> R:
        """Call and wait; raises the handler's typed QuorumlogError, TimedOut, or Lost (outcome
        unknown). A time-out of 0 is one that has passed.

        A refused connection may raise Lost's subclass NotSent.
        """

    async def stream(self, method: Method[Q, R], *, timeout_ms: int) -> Stream[Q, R]:
        """Open a stream, which takes a connection but no round trip; `timeout_ms` bounds its whole
        life, 0 means none. Raises Lost or NotSent; what the peer says comes with `receive`."""

    async def close(self) -> None:
        """Break what is under way and free the connection."""


class ByteConnection(Protocol):
    """The sending side of a byte connection."""

    @property
    def peer(self) -> str:
        """ "host:port" of the other side, for logs only."""

    @property
    def local(self) -> str:
        """ "host:port" of this side: by which the other has reached it, if it was the one that
        connected; empty once the connection is over."""

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Queue bytes; they leave in order. Not copied: do not change the buffers afterwards."""

    def send_range(self, file: File, position: int, size: int) -> None:
        """Queue bytes of a file without copying them into Python; holds a lease until they are
        sent."""

    def unsent_bytes(self) -> int:
        """Bytes queued and not yet taken by the kernel: the caller's back-pressure."""

    def pause_reading(self) -> None:
        """Stop calling the protocol's buffer() and received()."""

    def resume_reading(self) -> None:
        """Go on after pause_reading()."""

    def close(self) -> None:
        """Send what is queued, then close. A second call does nothing."""

    def abort(self) -> None:
        """Close at once with a reset, dropping what is queued."""


class ByteProtocol(Protocol):
    """The receiving side, implemented by the front door; called on the loop."""

    def buffer(self, size_hint: int) -> memoryview:
        """Return where to read the next bytes into; at least one byte long."""

    def received(self, count: int) -> None:
        """`count` bytes of the last buffer were filled."""

    def sent(self) -> None:
        """The queue of unsent bytes has become shorter."""

    def closed(self, error: Exception | None) -> None:
        """The connection ended: None for a clean end by the peer or by close()."""


class Network(Protocol):
    """Calls, streams and byte connections between nodes. Addresses are "host:port"."""

    async def serve(
        self, address: str, handlers: Mapping[str, Handler], *, is_ready: bool = True
    ) -> CallListener:
        """Answer calls on an address (port 0 picks one), by method path; raises AddressInUse.

        `is_ready` is what health checks are told until `announce` says otherwise.
        """

    def channel(self, address: str) -> Channel:
        """Return a way to the address; never fails."""

    async def listen_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> Listener:
        """Accept byte connections; one protocol object each. Raises AddressInUse."""

    async def connect_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> ByteConnection:
        """Connect; raises NotSent when refused, Lost otherwise."""

    async def refuses(self, address: str, timeout_ms: int) -> bool:
        """Whether a connection is refused; False on success, silence and any other failure."""
