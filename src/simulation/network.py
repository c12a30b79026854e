"""Network port of a simulated process: calls and streams over the fabric's links.

A channel has one link and opens a new one after a break, with back-off. Call numbers distinguish
the calls of a link. A handler runs as a task of the serving process; it is cancelled when its
caller disconnects, when its deadline passes and when the listener closes.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from google.protobuf.message import DecodeError

from ..errors import (
    ConnectionFailed,
    InvalidRequest,
    NotImplementedHere,
    OutcomeUnknown,
    QuorumlogError,
    StreamBroken,
    TimedOut,
    UnknownServerError,
)
from ..proto import errors_pb2
from ..runtime import (
    PLAIN_CALLS,
    PLAIN_CHANNEL,
    ByteConnection,
    ByteProtocol,
    CallAuthenticator,
    CallContext,
    CallListener,
    CallPeer,
    CallSecurity,
    ChannelSecurity,
    ClientIdentity,
    Handler,
    Listener,
    Method,
)
from ..runtime.error_detail import decode_error, encode_error
from .byte_network import connect_bytes, listen_bytes
from .frames import Abort, CallFrame, Credit, Data, Finish, Open, Result
from .links import CONNECT_TIMEOUT_MS, BoundAddress, Fabric, LinkEnd
from .process import NodeKilled, Process
from .streams import SimStream, serialise

NO_DEADLINE_MS: Final = (1 << 63) - 1
BACK_OFF_MS: Final = (50, 500)  # first and longest wait before the next connection attempt

_log = logging.getLogger(__name__)


class SimNetwork:
    """`runtime.ports.Network` of a simulated process."""

    def __init__(self, fabric: Fabric, process: Process) -> None:
        self._fabric = fabric
        self._process = process

    async def serve(
        self,
        address: str,
        handlers: Mapping[str, Handler],
        *,
        is_ready: bool = True,
        security: CallSecurity = PLAIN_CALLS,
    ) -> CallListener:
        """Serve calls on an address by method path; raises AddressInUse.

        Clients present the certificates of their machines. There is no health service: no simulated
        client uses it.
        """
        self._process.check()
        assert security.tls is None, f"{address}: simulated calls are not encrypted"
        return _SimListener(self._fabric, self._process, address, handlers, security.authenticator)

    def channel(self, address: str, security: ChannelSecurity = PLAIN_CHANNEL) -> "SimChannel":
        """Return a channel to the address; it connects at the first call."""
        assert security is PLAIN_CHANNEL, f"{address}: simulated channels have no credentials"
        self._process.check()
        return SimChannel(self._fabric, self._process, address)

    async def listen_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> Listener:
        """Accept byte connections; raises AddressInUse."""
        self._process.check()
        return listen_bytes(self._fabric, self._process, address, factory)

    async def connect_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> ByteConnection:
        """Connect; raises ConnectionFailed when refused, OutcomeUnknown otherwise."""
        self._process.check()
        return await connect_bytes(self._fabric, self._process, address, factory)

    async def refuses(self, address: str, timeout_ms: int) -> bool:
        """Return True if a connection to the address is refused within the time."""
        self._process.check()
        return await self._fabric.refuses(self._process, address, timeout_ms)


# --- the serving side ----------------------------------------------------------------------------


class _SimListener:
    """A bound address with its running calls."""

    def __init__(
        self,
        fabric: Fabric,
        process: Process,
        address: str,
        handlers: Mapping[str, Handler],
        authenticator: CallAuthenticator | None,
    ) -> None:
        self.authenticator = authenticator
        self.fabric = fabric
        self.process = process
        self.handlers = dict(handlers)
        self.closing = False
        self.running: dict[asyncio.Task[None], _ServerCall] = {}  # in the order of arrival
        self._connections: dict[_ServerConnection, None] = {}
        self._door = BoundAddress(process, "calls", self._accept)
        self.address = fabric.listen(address, self._door)

    def announce(self, *, is_ready: bool, service: str = "") -> None:
        """Do nothing: there is no health service."""

    async def close(self, grace_ms: int) -> None:
        """Accept no new calls, wait for running ones up to the grace period, cancel the rest."""
        self.process.check()
        self.closing = True
        self.fabric.unlisten(self.address, self._door)
        if self.running and grace_ms > 0:
            try:
                async with asyncio.timeout(grace_ms / 1000):
                    await self._wait_idle()
            except TimeoutError:
                pass
        for call in reversed(list(self.running.values())):
            call.cancel("the server is stopping")
        await self._wait_idle()
        for connection in list(self._connections):
            connection.end.shut("the server has closed")
        self._connections.clear()

    async def _wait_idle(self) -> None:
        while self.running:
            await ended(next(reversed(self.running)))

    def _accept(self, end: LinkEnd) -> None:
        connection = _ServerConnection(self, end)
        self._connections[connection] = None

    def remove(self, connection: "_ServerConnection") -> None:
        """Remove a broken connection."""
        self._connections.pop(connection, None)


class _ServerConnection:
    """The server's side of a caller's link."""

    def __init__(self, listener: _SimListener, end: LinkEnd) -> None:
        self.listener = listener
        self.end = end
        self.peer = listener.fabric.caller_name(end.other.process)
        self.calls: dict[int, _ServerCall] = {}
        end.on_frame = self._on_frame
        end.on_broken = self._on_broken

    def _on_frame(self, frame: CallFrame) -> None:
        if isinstance(frame, Open):
            self._open(frame)
        elif (call := self.calls.get(frame.call)) is not None:
            call.on_frame(frame)

    def _open(self, frame: Open) -> None:
        handler = self.listener.handlers.get(frame.path)
        if self.listener.closing:
            self.end.send(Abort(frame.call, "the server is stopping"))
        elif handler is None or handler.method.streaming != (frame.request is None):
            error = NotImplementedHere(f"{frame.path} is not offered here")
            self.end.send(Result(frame.call, None, encode_error(error).SerializeToString()))
        else:
            self.calls[frame.call] = _ServerCall(self, frame, handler)

    def _on_broken(self, reason: str) -> None:
        for call in list(self.calls.values()):
            call.on_caller_gone(f"connection lost: {reason}")
        self.listener.remove(self)


class _ServerCall:
    """A running handler."""

    def __init__(self, connection: _ServerConnection, frame: Open, handler: Handler) -> None:
        self._connection = connection
        self._number = frame.call
        self._handler = handler
        self._silent = False  # no caller waits for the result
        fabric, process = connection.listener.fabric, connection.end.process
        self._stream: SimStream | None = None
        if handler.method.streaming:
            self._stream = SimStream(
                fabric.loop,
                connection.end,
                frame.call,
                incoming=handler.method.request,
                is_server=True,
            )
        self._deadline: asyncio.TimerHandle | None = None
        deadline_ms = NO_DEADLINE_MS
        if frame.timeout_ms:
            deadline_ms = int(fabric.loop.time() * 1000) + frame.timeout_ms
            self._deadline = fabric.loop.call_later(
                frame.timeout_ms / 1000, self.on_caller_gone, "the deadline has passed"
            )
        context = CallContext(deadline_ms=deadline_ms, peer=connection.peer)
        self._facts = CallPeer(
            connection.peer.rpartition(":")[0],
            connection.end.other.process.machine.certificate,
            "",
            frame.on_behalf_of,
        )
        self._task = fabric.loop.create_task(
            self._answer(frame, context),
            name=f"{process}{frame.path}",
            context=process.context(),
        )
        connection.listener.running[self._task] = self
        self._task.add_done_callback(self._ended)

    def on_frame(self, frame: CallFrame) -> None:
        """Handle a frame of this call from its caller."""
        stream = self._stream
        match frame:
            case Data() if stream is not None:
                stream.on_data(frame.payload)
            case Credit() if stream is not None:
                stream.on_credit(frame.size)
            case Finish() if stream is not None:
                stream.on_finish()
            case Abort():
                self.on_caller_gone(f"aborted by the peer: {frame.reason}")
            case _:
                raise AssertionError(f"a server got {frame.describe()}")

    def on_caller_gone(self, reason: str) -> None:
        """Cancel the handler: no caller waits for the result."""
        self._silent = True
        if self._stream is not None:
            self._stream.on_broken(StreamBroken(reason))
        self._task.cancel(reason)

    def cancel(self, reason: str) -> None:
        """Abort the call from the server's side."""
        self._connection.end.send(Abort(self._number, reason))
        self.on_caller_gone(reason)

    async def _answer(self, frame: Open, context: CallContext) -> None:
        call: Any = self._handler.call
        response: bytes | None = None
        error: QuorumlogError | None = None
        authenticator = self._connection.listener.authenticator
        try:
            if authenticator is not None:
                session = await authenticator.authenticate(frame.path, self._facts)
                context = replace(
                    context, client=session.identity, forwarded_by=session.forwarded_by
                )
            if self._stream is not None:
                await call(self._stream, context)
            else:
                assert frame.request is not None, f"{frame.path} came without a request"
                request = self._handler.method.parse_request(frame.request)
                response = serialise(await call(request, context))
        except QuorumlogError as failure:
            error = failure
        except asyncio.CancelledError:
            if self._task.cancelling():  # the caller disconnected, or the listener closes
                raise
            error = UnknownServerError(f"{frame.path}: what the handler waited for was cancelled")
        except DecodeError as failure:
            error = InvalidRequest(f"{frame.path}: the request does not parse: {failure}")
        except Exception as failure:
            self._connection.listener.fabric.failed_handlers.append(failure)
            _log.exception("rpc.handler_failed path=%s", frame.path)
            error = UnknownServerError(f"{frame.path} failed: {type(failure).__name__}")
        if not self._silent:
            encoded = None if error is None else encode_error(error).SerializeToString()
            self._connection.end.send(Result(self._number, response, encoded))

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._connection.calls.pop(self._number, None)
        self._connection.listener.running.pop(task, None)
        if not task.cancelled() and not isinstance(task.exception(), NodeKilled | None):
            raise AssertionError(f"{task} failed") from task.exception()


# --- the calling side ----------------------------------------------------------------------------


class _UnaryCall:
    """A call that waits for its single result."""

    def __init__(self, result: "asyncio.Future[bytes]") -> None:
        self.result = result

    def on_frame(self, frame: CallFrame) -> bool:
        """Handle a frame. Return True if the call is over."""
        match frame:
            case Result():
                if not self.result.done():
                    if frame.error is not None:
                        self.result.set_exception(_decode(frame.error))
                    else:
                        self.result.set_result(frame.response or b"")
            case Abort():
                self.on_broken(f"aborted by the peer: {frame.reason}")
            case _:
                raise AssertionError(f"a unary call got {frame.describe()}")
        return True

    def on_broken(self, reason: str) -> None:
        """Fail the call with OutcomeUnknown."""
        if not self.result.done():
            self.result.set_exception(OutcomeUnknown(reason))


class _StreamCall:
    """The caller's side of a stream."""

    def __init__(self, stream: SimStream) -> None:
        self.stream = stream
        self.deadline: asyncio.TimerHandle | None = None

    def on_frame(self, frame: CallFrame) -> bool:
        """Handle a frame. Return True if the call is over."""
        match frame:
            case Data():
                self.stream.on_data(frame.payload)
                return False
            case Credit():
                self.stream.on_credit(frame.size)
                return False
            case Result():
                if frame.error is not None:
                    self.stream.on_broken(_decode(frame.error))
                else:
                    self.stream.on_finish()
            case Abort():
                self.stream.on_broken(StreamBroken(f"aborted by the peer: {frame.reason}"))
            case _:
                raise AssertionError(f"a caller got {frame.describe()}")
        if self.deadline is not None:
            self.deadline.cancel()
        return True

    def on_broken(self, reason: str) -> None:
        """End the stream: the link broke."""
        if self.deadline is not None:
            self.deadline.cancel()
        self.stream.on_broken(StreamBroken(reason))


class _ClientConnection:
    """The link of a channel."""

    def __init__(self, end: LinkEnd) -> None:
        self.end = end
        self.calls: dict[int, _UnaryCall | _StreamCall] = {}
        self._calls_made = 0
        end.on_frame = self._on_frame
        end.on_broken = self.broken

    def begin(self, call: _UnaryCall | _StreamCall | None) -> int:
        """Assign a number to a call."""
        self._calls_made += 1
        if call is not None:
            self.calls[self._calls_made] = call
        return self._calls_made

    def broken(self, reason: str) -> None:
        """Fail every running call, in the order they began."""
        calls, self.calls = self.calls, {}
        for call in calls.values():
            call.on_broken(reason)

    def _on_frame(self, frame: CallFrame) -> None:
        call = self.calls.get(frame.call)
        if call is not None and call.on_frame(frame):
            self.calls.pop(frame.call, None)


class SimChannel:
    """`runtime.ports.Channel`. Owns at most one link at a time."""

    def __init__(self, fabric: Fabric, process: Process, address: str) -> None:
        self._fabric = fabric
        self._process = process
        self._address = address
        self._connection: _ClientConnection | None = None
        self._connecting: asyncio.Task[_ClientConnection] | None = None
        self._back_off_ms = BACK_OFF_MS[0]
        self._retry_at_ns = 0  # virtual; before it a call fails at once, as in gRPC
        self._last_failure = ""
        self._closed = False

    async def call(
        self,
        method: Method[Any, Any],
        request: Any,
        *,
        timeout_ms: int,
        on_behalf_of: ClientIdentity | None = None,
    ) -> Any:
        """Call and wait; raises the handler's typed error, TimedOut, OutcomeUnknown or
        ConnectionFailed."""
        self._process.check()
        assert not method.streaming, f"{method.path} is a stream"
        if timeout_ms <= 0:
            raise TimedOut(f"{method.path} at {self._address}: no time is left")
        payload = serialise(request)
        try:
            async with asyncio.timeout(timeout_ms / 1000 if timeout_ms else None):
                connection = await self._connected()
                response = await self._unary(
                    connection, method.path, payload, timeout_ms, on_behalf_of
                )
        except TimedOut:
            raise  # the handler's own
        except TimeoutError:
            raise TimedOut(f"{method.path} at {self._address}: {timeout_ms} ms passed") from None
        return method.response.FromString(response)

    async def _unary(
        self,
        connection: _ClientConnection,
        path: str,
        payload: bytes,
        timeout_ms: int,
        on_behalf_of: ClientIdentity | None,
    ) -> bytes:
        result: asyncio.Future[bytes] = self._fabric.loop.create_future()
        number = connection.begin(_UnaryCall(result))
        connection.end.send(Open(number, path, timeout_ms, payload, on_behalf_of))
        try:
            return await result
        except asyncio.CancelledError:
            connection.calls.pop(number, None)
            connection.end.send(Abort(number, "the caller has gone"))
            raise

    async def stream(self, method: Method[Any, Any], *, timeout_ms: int) -> SimStream:
        """Open a stream; `timeout_ms` bounds its lifetime, 0 means no bound. Raises OutcomeUnknown,
        ConnectionFailed."""
        self._process.check()
        assert method.streaming, f"{method.path} is unary"
        try:
            async with asyncio.timeout(timeout_ms / 1000 if timeout_ms else None):
                connection = await self._connected()
        except TimeoutError:
            raise TimedOut(f"{method.path} at {self._address}: {timeout_ms} ms passed") from None
        loop = self._fabric.loop
        number = connection.begin(None)
        stream = SimStream(loop, connection.end, number, incoming=method.response, is_server=False)
        call = connection.calls[number] = _StreamCall(stream)
        connection.end.send(Open(number, method.path, timeout_ms, None))
        if timeout_ms:

            def expire() -> None:
                connection.calls.pop(number, None)
                stream.on_broken(TimedOut(f"{method.path}: {timeout_ms} ms passed"))

            call.deadline = loop.call_later(timeout_ms / 1000, expire)
        return stream

    async def close(self) -> None:
        """Break the running calls and close the link."""
        self._process.check()
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.end.shut("the channel was closed")
            connection.broken("the channel was closed")
        if self._connecting is not None:
            self._connecting.cancel()

    # --- connecting ---

    async def _connected(self) -> _ClientConnection:
        """Return the link, connecting if there is none; raises ConnectionFailed, OutcomeUnknown."""
        if self._closed:
            raise ConnectionFailed(f"the channel to {self._address} is closed")
        if self._connection is not None and not self._connection.end.is_closed:
            return self._connection
        loop = self._fabric.loop
        if self._connecting is None:
            if loop.now_ns < self._retry_at_ns:
                await asyncio.sleep(0)
                raise ConnectionFailed(f"{self._address} failed a moment ago: {self._last_failure}")
            self._connecting = loop.create_task(
                self._connect(), name=f"{self._process}/connect {self._address}"
            )
            self._connecting.add_done_callback(self._on_connected)
        attempt = self._connecting
        await ended(attempt)
        if attempt.cancelled():
            raise ConnectionFailed(f"the channel to {self._address} is closed")
        return attempt.result()

    async def _connect(self) -> _ClientConnection:
        end = await self._fabric.connect(self._process, self._address, "calls", CONNECT_TIMEOUT_MS)
        return _ClientConnection(end)

    def _on_connected(self, attempt: "asyncio.Task[_ClientConnection]") -> None:
        self._connecting = None
        if attempt.cancelled():
            return
        failure = attempt.exception()
        if failure is None:
            self._connection = attempt.result()
            self._back_off_ms = BACK_OFF_MS[0]
        else:
            self._last_failure = str(failure)
            self._retry_at_ns = self._fabric.loop.now_ns + self._back_off_ms * 1_000_000
            self._back_off_ms = min(self._back_off_ms * 2, BACK_OFF_MS[1])


async def ended(task: "asyncio.Task[Any]") -> None:
    """Wait for the end of a task; cancelling one waiter does not cancel the task."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(_: object) -> None:
        if not waiter.done():
            waiter.set_result(None)

    task.add_done_callback(wake)
    await waiter


def _decode(error: bytes) -> QuorumlogError:
    return decode_error(errors_pb2.Error.FromString(error))
