"""Calls and streams over gRPC, for asyncio and blocking clients and for servers.

It translates between grpc and the ports: a status with a `quorumlog.v1.Error` in its details is the
handler's typed error, DEADLINE_EXCEEDED is TimedOut, a refused connection is ConnectionFailed. Any
other end of a call has an unknown outcome: OutcomeUnknown, or StreamBroken for a stream. Messages
are serialized once and not queued or copied here.

Three properties of grpc shape the code. A second server binds a used port silently unless
SO_REUSEPORT is off. The stream of a disconnected client briefly looks like one that ended cleanly
(`END_SETTLE_S`). A server cannot half-close: its `finish` is sent when the handler returns.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias, TypeVar

from google.protobuf.message import DecodeError, Message

from ..errors import (
    AddressInUse,
    ConnectionFailed,
    CorruptionError,
    InvalidRequest,
    OutcomeUnknown,
    Overloaded,
    QuorumlogError,
    SaslAuthenticationFailed,
    StreamBroken,
    TimedOut,
    UnknownServerError,
)
from .client_bounds import UNREAD_BYTES, ClientBytes, address_block
from .foreign_status import is_unanswered
from .grpc_options import (
    CALLER_KEEPALIVE_MS,
    CONNECT_MS,
    channel_options,
    longer_connect_ms,
    server_options,
)
from .grpc_status import ERROR_TEXT_MAX, decode_failure, encode_status
from .ports import (
    NO_DEADLINE_MS,
    PLAIN_CALLS,
    PLAIN_CHANNEL,
    RECORDS_BYTES_MAX,
    CallContext,
    CallListener,
    CallSecurity,
    CallSession,
    Channel,
    ChannelSecurity,
    ClientIdentity,
    Clock,
    Handler,
    Method,
    Stream,
)
from .quiet_grpc import aio, grpc
from .streams import MessageStream, encode_message, is_cancelled_from_outside

if TYPE_CHECKING:
    from .grpc_introspection import HealthStatus, RpcMethod
    from .tls import TlsFiles

T = TypeVar("T")
Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

# Raw bytes: parsing and its errors are handled here.
_Context: TypeAlias = aio.ServicerContext[Any, Any]
_Code: Final = grpc.StatusCode
_StreamCall: TypeAlias = aio.StreamStreamCall[bytes, bytes]
ReadMessage: TypeAlias = Callable[[_Context], Awaitable[Any]]
_Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...] | None

# Errors that grpc raises for a write to a call that has ended.
_ENDED: Final = (aio.AioRpcError, aio.BaseError, asyncio.InvalidStateError)

MESSAGE_SIZE_MAX: Final = RECORDS_BYTES_MAX  # bytes, in each direction
CLOSE_S: Final = 1.0  # for calls on a connection that could not be opened, which are about to fail
SESSION_CHECK_S: Final = 0.5  # between two checks of the sessions of open calls
STRANGERS_A_HOST: Final = 128  # messages, and watches, of clients without credentials, at a time
STRANGERS_MAX: Final = 512
STRANGER_READ_S: Final = 5.0  # then the call ends
STRANGER_UNREAD_BYTES: Final = (1 << 20, 8 << 20)  # of their responses, for each address, in all
SMALL_RESPONSE_BYTES: Final = 4 << 10
SMALL_STREAM_BYTES: Final = (4 << 20) + (64 << 10)  # the same of a message of a stream
END_SETTLE_S: Final = 0.01  # the two events were up to 0.7 ms apart; see _ServedStream.read

_log = logging.getLogger(__name__)


# --- the network ---------------------------------------------------------------------------------


class GrpcNetwork:
    """The servers and channels of one runtime, on one loop."""

    def __init__(
        self,
        clock: Clock,
        why_not_bindable: Callable[[str], Awaitable[Exception | None]],
        *,
        message_size_max: int = MESSAGE_SIZE_MAX,
        keepalive_ms: int = CALLER_KEEPALIVE_MS,
        connect_ms: int = CONNECT_MS,
    ) -> None:
        self._clock = clock
        self._keepalive_ms = keepalive_ms  # of channels, as the next
        self._connect_ms = connect_ms
        self._why_not_bindable = why_not_bindable
        self._message_size_max = message_size_max  # bytes of one message, in each direction
        self._listeners: dict[_GrpcListener, None] = {}
        self._channels: dict[_GrpcChannel, None] = {}

    async def serve(
        self,
        address: str,
        handlers: Mapping[str, Handler],
        *,
        is_ready: bool = True,
        security: CallSecurity = PLAIN_CALLS,
    ) -> CallListener:
        """Serve calls by method path, with server reflection and the standard health service.

        Raise AddressInUse if another socket has the port, or another OSError of bind.
        """
        from .grpc_introspection import HealthStatus  # not needed by clients

        error = await self._why_not_bindable(address)  # checked first: grpc would write to stderr
        if error is not None:
            raise error
        server = aio.server(options=server_options(self._message_size_max))
        listener = _GrpcListener(
            server,
            self._clock,
            handlers,
            self._message_size_max,
            self._listeners,
            readiness=HealthStatus(is_serving=is_ready),
            security=security,
        )
        server.add_generic_rpc_handlers((listener.methods,))
        try:
            if security.tls is None:
                port = server.add_insecure_port(address)
            else:
                from .call_security import server_credentials

                port = server.add_secure_port(address, server_credentials(security.tls))
        except RuntimeError as failure:  # the port was taken after the check
            raise AddressInUse(f"{address}: another socket is listening") from failure
        await server.start()
        listener.address = f"{address.rpartition(':')[0]}:{port}"
        self._listeners[listener] = None
        return listener

    def channel(self, address: str, security: ChannelSecurity = PLAIN_CHANNEL) -> Channel:
        """Return a channel to the address. It connects at the first call."""
        channel = _GrpcChannel(
            address,
            self._message_size_max,
            self._channels,
            keepalive_ms=self._keepalive_ms,
            connect_ms=self._connect_ms,
            security=security,
        )
        self._channels[channel] = None
        return channel

    async def close(self) -> None:
        """Close every channel, then every listener, newest first."""
        for channel in reversed(list(self._channels)):
            await channel.close()
        for listener in reversed(list(self._listeners)):
            await listener.close(0)


# --- the serving side ----------------------------------------------------------------------------


class _GrpcListener:
    """One server. Its handlers run as tasks of grpc; all end before `close` returns."""

    def __init__(
        self,
        server: aio.Server,
        clock: Clock,
        handlers: Mapping[str, Handler],
        message_size_max: int,
        siblings: "dict[_GrpcListener, None]",
        *,
        readiness: "HealthStatus",
        security: CallSecurity,
    ) -> None:
        from .grpc_introspection import introspection_methods

        self._strangers = Strangers()
        self._unread = UnreadResponses(*UNREAD_BYTES)
        is_guarded = security.authenticator is not None and not security.reads_at_once
        self._server = server
        self._clock = clock
        self._message_size_max = message_size_max
        self._siblings = siblings  # the network's open listeners; removed when closed
        self._security = security
        # handlers in start order, with the client of each
        self._running: dict[asyncio.Task[Any], CallSession | None] = {}
        self._expired: set[asyncio.Task[Any]] = set()  # cancelled, since their session has ended
        self._check: asyncio.TimerHandle | None = None  # ends calls of sessions that have ended
        self.address = ""  # set when the port is known
        self._readiness = readiness
        self.methods = _MethodTable(
            {
                path: self._stream_method(handler)
                if handler.method.streaming
                else self._unary_method(handler)
                for path, handler in handlers.items()
            }
            | introspection_methods(
                sorted({_service_of(path) for path in handlers}),
                readiness,
                self._strangers if is_guarded else None,
            )
        )

    def announce(self, *, is_ready: bool, service: str = "") -> None:
        """Set the status for health checks and their watchers. Calls are served in either case."""
        self._readiness.set(is_serving=is_ready, service=service)

    async def close(self, grace_ms: int) -> None:
        """Accept no new calls, wait `grace_ms` for calls in progress, cancel the rest and wait for
        them."""
        self._readiness.close()
        if self._check is not None:
            self._check.cancel()
        await self._server.stop(grace_ms / 1000 if grace_ms else None)
        left = list(reversed(self._running))
        for task in left:
            # grpc has cancelled some; a second cancel would interrupt their clean-up
            if not task.cancelling():
                task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        # Last: after a cancellation the network closes the listener.
        self._siblings.pop(self, None)

    def _unary_method(self, handler: Handler) -> "RpcMethod":
        parse = handler.method.parse_request
        call: Callable[[Any, CallContext], Awaitable[Any]] = handler.call

        async def answer(raw: bytes, context: _Context) -> bytes:
            known, _ = await self._call_context(handler, context)
            response: Message = await call(parse(raw), known)
            return encode_message(response, self._message_size_max)

        async def serve(raw: bytes, context: _Context) -> bytes | None:
            return await self._supervise(answer(raw, context), handler, context)

        async def answer_known(context: _Context) -> None:
            known, read = await self._call_context(handler, context)
            raw: Any = await read(context)
            if raw is aio.EOF:
                raise InvalidRequest(f"{handler.method.path}: the call has no request")
            self._begin_unary(known)
            response: Message = await call(parse(raw), known)
            encoded = encode_message(response, self._message_size_max)
            await self._unread.write(context, encoded, known.client.principal)

        async def serve_known(_: object, context: _Context) -> None:
            await self._supervise(answer_known(context), handler, context)

        if self._security.authenticator is not None and not self._security.reads_at_once:
            # A stream of one message: a stranger's request is not even received.
            return grpc.stream_stream_rpc_method_handler(serve_known)
        return grpc.unary_unary_rpc_method_handler(serve)

    def _stream_method(self, handler: Handler) -> "RpcMethod":
        call: Callable[[Any, CallContext], Awaitable[None]] = handler.call

        async def answer(context: _Context) -> None:
            known, read = await self._call_context(handler, context)
            write = context.write
            if self._security.authenticator is not None:
                write = partial(
                    self._unread.write,
                    context,
                    client=known.client.principal,
                    small_bytes=SMALL_STREAM_BYTES,
                )
            raw = _ServedStream(handler.method.path, context, read, write)
            stream = MessageStream(
                handler.method.path, handler.method.parse_request, raw, self._message_size_max
            )
            try:
                await call(stream, known)
            finally:
                await stream.settle()
                await raw.settle()

        async def serve(_: object, context: _Context) -> None:
            await self._supervise(answer(context), handler, context)

        return grpc.stream_stream_rpc_method_handler(serve)

    async def _supervise(self, work: Awaitable[T], handler: Handler, context: _Context) -> T | None:
        """Run a handler and translate its error into a status."""
        task = asyncio.current_task()
        assert task is not None, f"{handler.method.path}: handler outside a task"
        path = handler.method.path
        self._running[task] = None
        try:
            return await work
        except QuorumlogError as error:
            failure = error
        except DecodeError as error:
            failure = InvalidRequest(f"{path}: the request cannot be parsed; {error}")
        except asyncio.CancelledError:
            if task in self._expired and not task.uncancel():
                failure = SaslAuthenticationFailed(f"{path}: the session has ended; log in again")
            elif task.cancelling():  # the client disconnected, or the listener closes
                raise
            else:
                failure = UnknownServerError(f"{path}: an operation of the handler was cancelled")
        except Exception:
            _log.exception("grpc.handler_failed method=%s", path)
            failure = UnknownServerError(f"{path}: the handler failed; see the server's log")
        finally:
            del self._running[task]
            self._expired.discard(task)
        if context.done():  # the handler broke its stream: the client has its status
            return None
        code, text, metadata = encode_status(failure)
        await context.abort(code, text, metadata)

    async def _call_context(
        self, handler: Handler, context: _Context
    ) -> tuple[CallContext, ReadMessage]:
        """Authenticate the client of a call; return its context, and the function that reads its
        messages. Raise SaslAuthenticationFailed."""
        left_s: float | None = context.time_remaining()
        deadline_ms = NO_DEADLINE_MS
        if left_s is not None:
            deadline_ms = self._clock.now_ms() + int(left_s * 1000)
        peer, security = _plain_peer(context.peer()), self._security
        if security.authenticator is None:
            return CallContext(deadline_ms=deadline_ms, peer=peer), read_message
        from .call_security import peer_of

        host, _, port = peer.rpartition(":")
        facts = peer_of(context, host.strip("[]"), port, has_tls=security.tls is not None)
        session = await security.authenticator.authenticate(handler.method.path, facts)
        awaits_messages = handler.method.streaming or not security.reads_at_once
        if session.is_current is not None and awaits_messages:
            task = asyncio.current_task()
            assert task is not None, f"{handler.method.path}: handler outside a task"
            self._running[task] = session
            self._schedule_check()
        known = CallContext(
            deadline_ms, peer, session.identity, session.forwarded_by, session.is_current
        )
        return known, self._strangers.read if session.is_open else read_message

    def _begin_unary(self, known: CallContext) -> None:
        """Raise SaslAuthenticationFailed if the session ended before the request was received. The
        end of the session does not cancel the handler: it may have made its change."""
        known.check_session()
        task = asyncio.current_task()
        assert task is not None, "a unary call outside a task"
        self._running[task] = None

    def _schedule_check(self) -> None:
        if self._check is None:
            loop = asyncio.get_running_loop()
            self._check = loop.call_later(SESSION_CHECK_S, self._end_expired)

    def _end_expired(self) -> None:
        """End the streams, and the unary calls without their request, of clients with a session
        that has ended."""
        self._check = None
        found = False
        for task, session in list(self._running.items()):
            if session is None or session.is_current is None:
                continue
            if session.is_current():
                found = True
            elif not task.cancelling():
                self._expired.add(task)
                task.cancel()
        if found:
            self._schedule_check()


class _ServedStream:
    """The handler's side of a stream."""

    def __init__(
        self,
        path: str,
        context: _Context,
        read: ReadMessage,
        write: Callable[[bytes], Awaitable[None]],
    ) -> None:
        self._path = path
        self._read = read
        self._write = write
        self._context = context
        self._abort: asyncio.Task[None] | None = None  # sends the breaking status

    async def read(self) -> bytes | None:
        try:
            raw: Any = await self._read(self._context)
        except aio.BaseError as error:
            raise StreamBroken(f"{self._path}: the stream is broken") from error
        if raw is aio.EOF:
            # A disconnected client ends the messages like one that finished. Only the handler's
            # cancellation, another event of the same moment, distinguishes them.
            await asyncio.sleep(END_SETTLE_S)
            return None
        return raw  # type: ignore[no-any-return]

    async def write(self, raw: bytes) -> None:
        try:
            await self._write(raw)
        except aio.BaseError as error:
            raise StreamBroken(f"{self._path}: the client disconnected") from error

    async def finish(self) -> None:
        """Do nothing: the end is sent when the handler returns."""

    def abort(self, reason: str) -> None:
        if not self._context.done():
            self._abort = asyncio.get_running_loop().create_task(self._send_abort(reason))

    async def settle(self) -> None:
        """Wait until the breaking status is sent."""
        if self._abort is not None:
            await self._abort

    async def _send_abort(self, reason: str) -> None:
        try:
            await self._context.abort(grpc.StatusCode.UNAVAILABLE, reason[:ERROR_TEXT_MAX])
        except aio.BaseError:
            return  # the normal end of abort()


async def read_message(context: _Context) -> Any:
    """Return the next message of a client, or EOF."""
    return await context.read()


class StrangerBound:
    """Bounds the calls of clients without credentials, for each host and for all. At a limit the
    oldest call of the host, or of all, ends. The limits are above the number of processes of a job
    on one host, all of which log in at once."""

    def __init__(self, ended: Callable[[], QuorumlogError], time_s: float | None) -> None:
        """`ended` returns the error of a call that ends; `time_s` None: calls may last."""
        self._ended = ended
        self._time_s = time_s
        self._hosts: dict[asyncio.Timeout, str] = {}  # of the calls in progress, oldest first

    async def run(self, context: _Context, work: Awaitable[T]) -> T:
        """Wait for the work of a call. Raise the error of a call that ends."""
        host = address_block(_plain_peer(context.peer()).rpartition(":")[0])
        same = [bound for bound, other in self._hosts.items() if other == host]
        if len(same) >= STRANGERS_A_HOST:
            self._end(same[0])
        elif len(self._hosts) >= STRANGERS_MAX:
            self._end(next(iter(self._hosts)))
        try:
            async with asyncio.timeout(self._time_s) as bound:
                self._hosts[bound] = host
                try:
                    return await work
                finally:
                    self._hosts.pop(bound, None)
        except TimeoutError:
            raise self._ended() from None

    def _end(self, bound: asyncio.Timeout) -> None:
        del self._hosts[bound]
        bound.reschedule(asyncio.get_running_loop().time())


class Strangers:
    """The calls of clients without credentials on one listener."""

    def __init__(self) -> None:
        self._reads = StrangerBound(
            lambda: TimedOut(
                "no message in time of a client without credentials; retry, and give credentials"
            ),
            STRANGER_READ_S,
        )
        self._watches = StrangerBound(
            lambda: Overloaded(
                f"health: the limit is {STRANGERS_A_HOST} watches for each address and"
                f" {STRANGERS_MAX} in all, and a newer one began; use Check"
            ),
            None,
        )
        self._unread = UnreadResponses(*STRANGER_UNREAD_BYTES)

    async def read(self, context: _Context) -> Any:
        """Return the next message, or EOF. Raise TimedOut: gRPC collects a message of up to the
        size limit in memory."""
        return await self._reads.run(context, context.read())

    async def write(self, context: _Context, response: bytes) -> None:
        """Send a response. Raise Overloaded."""
        host = address_block(_plain_peer(context.peer()).rpartition(":")[0])
        await self._unread.write(context, response, host)

    async def watch(self, context: _Context, watch: Awaitable[None]) -> None:
        """Watch the health until the client leaves. Raise Overloaded."""
        await self._watches.run(context, watch)


class UnreadResponses:
    """Bounds the memory of responses that clients do not read, for each client and for all.

    gRPC keeps a message until the client reads it or its connection ends, also if the call is
    cancelled here, so the bytes count until then.
    """

    def __init__(self, client_bytes_max: int, bytes_max: int) -> None:
        self._unread = ClientBytes(client_bytes_max, bytes_max)

    async def write(
        self,
        context: _Context,
        response: bytes,
        client: str,
        *,
        small_bytes: int = SMALL_RESPONSE_BYTES,
    ) -> None:
        """Send a response. Raise Overloaded at a limit; one of `small_bytes` is always sent, and
        does not count."""
        size = len(response)
        if size <= small_bytes:
            await context.write(response)
            return
        self._unread.add(client, size)
        writing = asyncio.ensure_future(context.write(response))
        writing.add_done_callback(lambda task: self._written(task, client, size))
        await asyncio.shield(writing)

    def _written(self, task: "asyncio.Future[None]", client: str, size: int) -> None:
        self._unread.remove(client, size)
        if not task.cancelled():
            task.exception()  # the handler has it, if it still waits


class _MethodTable(grpc.GenericRpcHandler):
    """The handlers by path. grpc answers UNIMPLEMENTED for other paths."""

    def __init__(self, methods: Mapping[str, "RpcMethod"]) -> None:
        self._methods = methods

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "RpcMethod | None":
        return self._methods.get(handler_call_details.method)


# --- the calling side ----------------------------------------------------------------------------


class _CallingStream:
    """A `streams.RawStream` of the client, which keeps the first status.

    If a message is written after the server ended the stream, grpc replaces the received status by
    INTERNAL and loses the server's error or its clean end (grpc.aio, 1.80 to 1.85).
    """

    def __init__(
        self,
        path: str,
        address: str,
        call: _StreamCall,
        refused: Callable[[], bool] | None = None,
    ) -> None:
        """`refused` is called if the server refuses the client's session; it returns True if the
        next stream may succeed."""
        self._path = path
        self._refused = refused
        self._address = address
        self._call = call
        self._status: aio.AioRpcError | None = None  # as first received, with any code
        call.add_done_callback(self._keep_status)

    async def read(self) -> bytes | None:
        """Return the next message, or None at the peer's clean end. Raise its error."""
        try:
            raw: Any = await self._call.read()
        except aio.AioRpcError as error:
            status = self._status or error
            if status.code() is _Code.OK:
                return None
            raise self._failure_of(status) from error
        return None if raw is aio.EOF else raw

    async def write(self, raw: bytes) -> None:
        """Return when the message is in the window. Raise StreamBroken or the peer's error."""
        try:
            await self._call.write(raw)
        except _ENDED as error:
            raise self._breakage() from error

    async def finish(self) -> None:
        """Announce that no more messages follow. Raise as `write`."""
        try:
            await self._call.done_writing()
        except _ENDED as error:
            raise self._breakage() from error

    def abort(self, reason: str) -> None:
        """Cancel the handler. The reason is not sent."""
        self._call.cancel()

    def _keep_status(self, call: Any) -> None:
        if self._status is None:
            self._status = aio.AioRpcError(
                _at_once(call.code()),
                aio.Metadata(),
                _at_once(call.trailing_metadata()),
                _at_once(call.details()),
            )

    def _breakage(self) -> QuorumlogError:
        status = self._status
        if status is None or status.code() in (_Code.OK, _Code.CANCELLED):
            return StreamBroken(f"{self._path} at {self._address}: the peer ended the stream")
        return self._failure_of(status)

    def _failure_of(self, status: aio.AioRpcError) -> QuorumlogError:
        failure = decode_failure(status, self._path, self._address, StreamBroken)
        if _is_expired_session(failure, self._refused):
            return StreamBroken(f"{self._path} at {self._address}: {failure.message}")
        self._refused = None
        return failure


def _at_once(asked: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that does not suspend, since its call has ended."""
    try:
        asked.send(None)
    except StopIteration as stop:
        said: T = stop.value
        return said
    asked.close()
    raise AssertionError(f"{asked} of an ended call suspended")


class _GrpcChannel:
    """One connection, opened at the first call and reopened with backoff.

    The timeout of an attempt grows while there is no response.
    """

    def __init__(
        self,
        address: str,
        message_size_max: int,
        siblings: "dict[_GrpcChannel, None]",
        *,
        keepalive_ms: int,
        connect_ms: int,
        security: ChannelSecurity,
    ) -> None:
        self._address = address
        self._tls = security.tls
        self._tls_version: object = None  # of the files at the opening
        self._login = None if security.login is None else security.login()
        self._keepalive_ms = keepalive_ms
        self._connect_ms = connect_ms  # grows
        self._message_size_max = message_size_max
        self._siblings = siblings  # the network's open channels; removed when closed
        self._channel: aio.Channel | None = None
        self._closings: dict[asyncio.Task[None], None] = {}  # of replaced channels
        self._unary: dict[str, aio.UnaryUnaryMultiCallable[bytes, bytes]] = {}  # by path
        self._streams: dict[str, aio.StreamStreamMultiCallable[bytes, bytes]] = {}
        self._closed = False

    async def call(
        self,
        method: Method[Q, R],
        request: Q,
        *,
        timeout_ms: int,
        on_behalf_of: ClientIdentity | None = None,
    ) -> R:
        """Call and wait. Raise as in the port."""
        path = method.path
        _check_time_left(path, self._address, timeout_ms)
        login = self._login
        if login is None:
            metadata = None
            if on_behalf_of is not None:
                from .call_security import call_metadata

                metadata = call_metadata("", on_behalf_of)
            return await self._call(method, request, timeout_ms, metadata)
        assert on_behalf_of is None, f"{self._address}: only nodes forward calls"
        authorization = await login.authorization(path, self)
        try:
            return await self._call(method, request, timeout_ms, _metadata(authorization))
        except SaslAuthenticationFailed:  # nothing was done
            if not login.refused(authorization):
                raise
        authorization = await login.authorization(path, self)
        return await self._call(method, request, timeout_ms, _metadata(authorization))

    async def _call(
        self, method: Method[Q, R], request: Q, timeout_ms: int, metadata: _Metadata
    ) -> R:
        path = method.path
        invoke = self._unary.get(path)
        if invoke is None:
            invoke = self._unary[path] = self._open().unary_unary(path)
        sent, used = encode_message(request, self._message_size_max), self._channel
        try:
            raw = await invoke(sent, timeout=timeout_ms / 1000, metadata=metadata)
        except aio.AioRpcError as error:
            self._maybe_replace(used, error)
            raise decode_failure(error, path, self._address, OutcomeUnknown) from error
        except asyncio.CancelledError:
            if is_cancelled_from_outside():
                raise
            raise OutcomeUnknown(f"{path} at {self._address}: the channel was closed") from None
        return _parse_response(method, raw)

    async def stream(self, method: Method[Q, R], *, timeout_ms: int) -> Stream[Q, R]:
        """Open a stream and return when the connection is open. Raise OutcomeUnknown,
        ConnectionFailed and SaslAuthenticationFailed only."""
        path, login = method.path, self._login
        authorization = "" if login is None else await login.authorization(path, self)
        invoke = self._streams.get(path)
        if invoke is None:
            invoke = self._streams[path] = self._open().stream_stream(path)
        call = invoke(timeout=_seconds(timeout_ms), metadata=_metadata(authorization))
        used = self._channel
        try:
            await call.wait_for_connection()
        except aio.AioRpcError as error:
            self._maybe_replace(used, error)
            failure = decode_failure(error, path, self._address, OutcomeUnknown)
            if isinstance(failure, OutcomeUnknown | ConnectionFailed):
                raise failure from error
            # The peer has answered already: `receive` raises its error.
        except asyncio.CancelledError:
            call.cancel()
            if is_cancelled_from_outside():
                raise
            raise OutcomeUnknown(f"{path} at {self._address}: the channel was closed") from None
        refused = None if login is None else partial(login.refused, authorization)
        raw = _CallingStream(path, self._address, call, refused)
        parse = partial(_parse_response, method)
        return MessageStream(path, parse, raw, self._message_size_max)

    async def close(self) -> None:
        """Break calls in progress and free the connection."""
        self._closed = True
        self._unary.clear()
        self._streams.clear()
        for task in self._closings:
            task.cancel()  # then closes at once
        await asyncio.gather(*self._closings, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()
        self._siblings.pop(self, None)

    def _maybe_replace(self, used: aio.Channel | None, error: aio.AioRpcError) -> None:
        """Replace the channel after a failure to connect: by one with a longer timeout if there was
        no response in time, by one with the new certificate if the files of TLS have changed."""
        if self._closed or used is None or used is not self._channel:
            return  # another call has replaced it
        longer_ms = longer_connect_ms(self._connect_ms)
        if longer_ms == self._connect_ms or not is_unanswered(error.details() or ""):
            if self._tls is None or self._tls.version() == self._tls_version:
                return
            longer_ms = self._connect_ms
        if used.get_state() is grpc.ChannelConnectivity.READY:
            return  # replaced a moment ago
        self._connect_ms, self._channel = longer_ms, None
        self._unary.clear()
        self._streams.clear()
        task = asyncio.get_running_loop().create_task(used.close(CLOSE_S))
        self._closings[task] = None
        task.add_done_callback(self._closings.pop)

    def _open(self) -> aio.Channel:
        if self._closed:
            raise ConnectionFailed(f"{self._address}: the channel is closed")
        if self._channel is None:
            options = channel_options(self._message_size_max, self._keepalive_ms, self._connect_ms)
            if self._tls is None:
                self._channel = aio.insecure_channel(self._address, options=options)
            else:
                from .call_security import channel_credentials

                self._tls_version = self._tls.version()
                credentials = channel_credentials(self._tls)
                self._channel = aio.secure_channel(self._address, credentials, options=options)
        return self._channel


class SyncLogin(Protocol):
    """The credentials for the calls of one `SyncChannel`; see `ChannelLogin`."""

    def authorization(
        self, path: str, channel: "SyncChannel", *, now_s: float, timeout_ms: int
    ) -> str:
        """Return the header for a call of the method with this path, "" for none. One thread at a
        time calls it. `now_s` is of a monotonic clock. `timeout_ms` limits a login; 0: the login
        has its own limit."""

    def refused(self, authorization: str) -> bool:
        """Drop a header that the server has refused; return True if a call may succeed with the
        next one."""


class SyncChannel:
    """A blocking channel for code without an event loop, such as Spark's executors.

    Create it in the process that uses it: grpc does not survive a fork. Close it after use.
    """

    def __init__(
        self,
        address: str,
        *,
        message_size_max: int = MESSAGE_SIZE_MAX,
        connect_ms: int = CONNECT_MS,
        tls: "TlsFiles | None" = None,
        login: SyncLogin | None = None,
    ) -> None:
        """Raise InvalidConfig for files of `tls` that cannot be read. `login` is of this channel
        alone."""
        self._address = address
        self._tls = tls
        self._login = login
        self._logging_in = threading.RLock()  # a login calls this channel
        self._message_size_max = message_size_max
        self._connect_ms = connect_ms  # grows, as in `_GrpcChannel`
        self._channel = self._connecting()

    def _connecting(self) -> grpc.Channel:
        options = channel_options(self._message_size_max, CALLER_KEEPALIVE_MS, self._connect_ms)
        if self._tls is None:
            return grpc.insecure_channel(self._address, options=options)
        from .call_security import channel_credentials

        return grpc.secure_channel(self._address, channel_credentials(self._tls), options=options)

    def _maybe_allow_longer(self, used: grpc.Channel, error: Any) -> None:
        """See `_GrpcChannel`. If two threads replace it, one channel stays unused and never
        connects."""
        longer_ms = longer_connect_ms(self._connect_ms)
        if used is not self._channel or longer_ms == self._connect_ms:
            return
        if is_unanswered(error.details() or ""):
            self._connect_ms = longer_ms
            self._channel = self._connecting()
            used.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: Method[Q, R], request: Q, *, timeout_ms: int) -> R:
        """Call and wait. Raise as `Channel.call`. A login before the call may take as long."""
        path, login = method.path, self._login
        _check_time_left(path, self._address, timeout_ms)
        authorization = self._authorization(path, timeout_ms)
        try:
            return self._call(method, request, timeout_ms, authorization)
        except SaslAuthenticationFailed:  # nothing was done
            if login is None or not login.refused(authorization):
                raise
        return self._call(method, request, timeout_ms, self._authorization(path, timeout_ms))

    def _authorization(self, path: str, timeout_ms: int) -> str:
        login = self._login
        if login is None:
            return ""
        with self._logging_in:
            return login.authorization(path, self, now_s=time.monotonic(), timeout_ms=timeout_ms)

    def _call(self, method: Method[Q, R], request: Q, timeout_ms: int, authorization: str) -> R:
        used = self._channel
        invoke: Any = used.unary_unary(method.path, method.request.SerializeToString)
        metadata = _metadata(authorization)
        try:
            raw = invoke(request, timeout=timeout_ms / 1000, metadata=metadata)
        except grpc.RpcError as error:
            self._maybe_allow_longer(used, error)
            raise decode_failure(error, method.path, self._address, OutcomeUnknown) from error
        return _parse_response(method, raw)

    def stream(
        self, method: Method[Q, R], requests: Iterable[Q], *, timeout_ms: int = 0
    ) -> "SyncStream[R]":
        """Send the requests, then finish this side, and iterate over the responses. Raise the
        errors of a login."""
        login, authorization = self._login, self._authorization(method.path, timeout_ms)
        used = self._channel
        invoke: Any = used.stream_stream(method.path, method.request.SerializeToString)
        call = invoke(
            iter(requests),
            timeout=_seconds(timeout_ms),
            metadata=_metadata(authorization),
        )
        refused = None if login is None else partial(login.refused, authorization)
        on_failure = partial(self._maybe_allow_longer, used)
        return SyncStream(method, self._address, call, on_failure, refused)

    def close(self) -> None:
        """Break calls in progress and free the connection."""
        self._channel.close()


class SyncStream(Iterator[R]):
    """The responses of a stream. Raise as `Stream.receive`. Close it when leaving early."""

    def __init__(
        self,
        method: Method[Any, R],
        address: str,
        call: Any,
        on_failure: Callable[[Any], None],
        refused: Callable[[], bool] | None,
    ) -> None:
        """`refused` is as in `_CallingStream`."""
        self._method = method
        self._address = address
        self._call = call
        self._on_failure = on_failure
        self._refused = refused

    def __next__(self) -> R:
        try:
            raw = next(self._call)
        except grpc.RpcError as error:
            self._on_failure(error)
            path, address = self._method.path, self._address
            failure = decode_failure(error, path, address, StreamBroken)
            if _is_expired_session(failure, self._refused):
                failure = StreamBroken(f"{path} at {address}: {failure.message}")
            raise failure from error
        return _parse_response(self._method, raw)

    def close(self) -> None:
        """Break the stream unless it has ended."""
        self._call.cancel()


def _is_expired_session(failure: QuorumlogError, refused: Callable[[], bool] | None) -> bool:
    """Return True if a stream failed by its session, and the next stream may succeed."""
    return isinstance(failure, SaslAuthenticationFailed) and refused is not None and refused()


def _parse_response(method: Method[Any, R], raw: bytes) -> R:
    try:
        return method.response.FromString(raw)
    except DecodeError as error:
        raise CorruptionError(f"{method.path}: the response cannot be parsed; {error}") from error


# --- timeouts and addresses -----------------------------------------------------------------------


def _check_time_left(path: str, address: str, timeout_ms: int) -> None:
    """Raise TimedOut for a unary call without time left; grpc would still try."""
    if timeout_ms <= 0:
        raise TimedOut(f"{path} at {address}: no time left")


def _metadata(authorization: str) -> "_Metadata":
    """Return the metadata of a call with an authorization header, "" for none."""
    return (("authorization", authorization),) if authorization else None


def _seconds(timeout_ms: int) -> float | None:
    """Return grpc's timeout of a stream; 0 means none."""
    return timeout_ms / 1000 if timeout_ms else None


def _service_of(path: str) -> str:
    return path[1:].partition("/")[0]


def _plain_peer(peer: str) -> str:
    """Return "host:port" of grpc's "ipv4:host:port" or "ipv6:%5Bhost%5D:port"."""
    return peer.partition(":")[2].replace("%5B", "[").replace("%5D", "]")
