"""One client connection: requests in, responses in the same order.

Requests begin in the order of their arrival. A produce request is queued in its logs before the
next one begins, so several of them wait for acknowledgements concurrently. Every other request
begins after all earlier ones have been answered, as Kafka clients expect.

The server reads a connection only within bounds: on its pending requests and responses, on the
request memory of all connections, and while its client is not throttled. An invalid request ends
the connection after everything before it has been answered.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...errors import (
    IllegalSaslState,
    InvalidRequest,
    Overloaded,
    QuorumlogError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from ...metadata import MetadataImage
from ...runtime import Buffer, ByteConnection, PeerCertificate, Scope
from . import messages
from .api import (
    Answer,
    Client,
    DelayedAnswer,
    EncodedResponses,
    FileRange,
    KafkaApi,
    Part,
    PreparedResponse,
)
from .authentication import Authentication, ListenerSecurity, anonymous_from
from .encoding_offload import encode_if_large
from .frames import RequestFrameReader
from .memory import BYTES_AN_ELEMENT
from .metrics import BROKEN, CLIENT, FAILED, FULL, IDLE, INVALID, SLOW, STOPPED, UNAUTHENTICATED
from .quota_charge import FETCH, MeasuredAwaitable, charge
from .request import API_VERSIONS, Request, answer_head, read_request, read_usual_header

if TYPE_CHECKING:
    from .server import KafkaServer

REQUEST_TASK: Final = "kafka.request"
"""The name of the tasks of requests."""

_LOG: Final = logging.getLogger("quorumlog.kafka")

FRAME_BYTES_PER_MS_MIN: Final = 64
"""The slowest rate at which a client may continue a frame; a slower one is disconnected."""

FULL_CHECK_BYTES: Final = 10_000 * FRAME_BYTES_PER_MS_MIN
"""Bytes of a large frame that must arrive between two checks while the request memory is full."""

FULL_READ_BYTES: Final = 4 << 10
"""The read size while the request memory is full: these bytes may stay in memory until there is
room, on thousands of connections at once."""

LARGE_RESPONSE_BYTES: Final = 64 << 10
"""The bytes in memory of a response that counts as unread until it is sent."""

JOINED_BYTES_MAX: Final = 1 << 10
"""A body up to this size is copied behind its header: cheaper than a second buffer."""

_UNAUTHENTICATED: Final = (IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism)
"""Errors that end a connection as unauthenticated."""

ELEMENTS_ON_THE_LOOP_MAX: Final = 1_000
"""A request with more elements is decoded in a thread: 1,000 take a few milliseconds."""

WALKED_ON_THE_LOOP_BYTES_MAX: Final = 16 << 10
"""The lengths of a larger request are validated in a thread: it may have thousands of elements."""


class KafkaConnection:
    """A `ByteProtocol`."""

    __slots__ = (
        *("_connection", "_encoding_us", "_end_reason", "_frames", "_has_moved", "_invalid"),
        *(
            "_is_closing",
            "_is_advancing",
            "_is_over",
            "_large_held",
            "_large_due",
            "_large_unread",
            "_blocked_ms",
            "_throttle_timer",
            "_quiet_since_ms",
            "_reads",
        ),
        *(
            "_out",
            "_scope",
            "_server",
            "_slow_since_ms",
            "_taken",
            "_taken_seen",
            "_under_way",
            "_waiting",
            "_written",
        ),
        *("_apis", "_authentication", "_began_ms", "_is_open", "client"),
    )

    def __init__(
        self,
        connection: ByteConnection,
        server: "KafkaServer",
        scope: Scope,
        listener: str,
        security: ListenerSecurity,
    ) -> None:
        """The tasks of requests run in `scope`."""
        self._connection = connection
        self._server = server
        self._scope = scope
        self._frames = RequestFrameReader(server.buffers, self._request_bytes_max)
        self._waiting: deque[Request] = deque()  # requests that have not begun
        self._under_way: deque[Request] = deque()  # begun, in order
        self._out: list[Buffer] = []  # responses that are written at the end of this turn
        self._invalid: QuorumlogError | None = None  # the invalid request behind the last valid one
        self._reads = True
        # the client is throttled until this timer fires
        self._throttle_timer: asyncio.TimerHandle | None = None
        self._is_closing = False  # no further request begins
        self._is_advancing = False  # within `_advance`
        self._is_over = False
        self._end_reason = CLIENT
        self._large_held = 0  # bytes of the server's memory for a frame that is being read
        self._large_due = 0  # bytes of it that must arrive until the next check
        self._written = 0  # bytes of all responses
        # of large responses that are not sent yet: `_written` at their end, and their bytes
        self._large_unread: deque[tuple[int, int]] = deque()
        self._blocked_ms = -1  # the last check, if its result was `_blocks_memory`
        self._encoding_us = 0  # time spent on encoding responses, charged with the next one
        self._taken = 0  # requests read so far
        # For `check_progress`, which records the time; the other methods only set the flag.
        self._has_moved = False
        self._began_ms = self._quiet_since_ms = self._slow_since_ms = server.now_ms()
        self._taken_seen = 0
        self.client = Client(
            peer=connection.peer,
            local=connection.local,
            listener=listener,
            identity=anonymous_from(connection.peer),
        )
        self._authentication = self.client.authentication = Authentication(
            security,
            self.client,
            apis=server.apis,
            now_ms=server.now_ms,
            changed=self._authentication_changed,
            may_log=server.lines.may_log,
        )
        self._apis = self._authentication.apis  # that may be requested now
        self._is_open = self._authentication.is_open  # not authenticated yet

    # --- ByteProtocol --------------------------------------------------------------------------

    def buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for the next read."""
        room = self._frames.buffer()
        memory = self._server.memory
        if memory.is_full and not memory.may_read(self):
            return room[:FULL_READ_BYTES]
        return room

    def received(self, count: int) -> None:
        """Process the requests that are complete."""
        self._server.figures.received_bytes += count
        if self._frames.received(count):
            self._advance()
        elif not self._is_over:
            self._hold_large()
            if self._server.memory.is_full:
                self._advance()  # stops reading, unless this frame may continue alone

    def secured(self, certificate: PeerCertificate | None) -> None:
        """Continue after the handshake of TLS."""
        error = self._authentication.secured(certificate)
        if error is None:
            self._set_open()
        else:  # no client: it ends no connection of another one at a limit
            self._end(UNAUTHENTICATED, error)

    def sent(self) -> None:
        """Resume after responses were written to the socket."""
        self._has_moved = True
        if self._large_unread:
            self._forget_sent()
        if not self._reads:
            self._advance()

    def closed(self, error: Exception | None) -> None:
        """Drop all requests, except those that must still be appended (acks=0)."""
        if not self._authentication.is_secured and not self._is_over:
            self._end_reason = UNAUTHENTICATED
            self._server.log_connection_end(UNAUTHENTICATED, self.client, error)
        left = self._not_placed()
        self._drop()
        if left:
            self._scope.spawn(self._carry_out(left), name=REQUEST_TASK)
        self._server.connection_ended(self, self.client.listener, self._end_reason)

    # --- for the server ------------------------------------------------------------------------

    def stop(self) -> None:
        """Begin no further request; end the connection when the responses in flight are sent."""
        if not self._is_over:
            self._is_closing = True
            self._end_reason = STOPPED
            self._advance()

    @property
    def is_open(self) -> bool:
        """True until the client is authenticated as far as the listener asks for."""
        return self._is_open

    def authenticated(self) -> None:
        """Count the connection as one of its user. It may end at a limit."""
        try:
            self._server.limits.authenticated(self)
        except Overloaded as error:
            self._end(FULL, error)

    def end_stranger(self) -> None:
        """End the connection of a client that is not authenticated, for another one."""
        if self._is_over:
            self._connection.abort()  # the client does not read the queued responses
        else:
            open_ms = self._server.now_ms() - self._began_ms
            self._end(SLOW, f"not authenticated after {open_ms} ms, at the limit of connections")

    def end_at_limit(self) -> None:
        """End the connection for one of another user, at the limit of connections."""
        if self._is_over:
            self._connection.abort()
        else:
            self._end(FULL, "its user has the most connections, at the limit of connections")

    def end_unread(self, size: int) -> None:
        """End the connection: the responses that its user does not read take too much memory."""
        if self._is_over:
            self._connection.abort()
        else:
            self._end(SLOW, f"{size} bytes of responses are not read, at the limit of its user")

    def unmute(self) -> None:
        """Stop throttling the client: its quotas have changed."""
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
            self._end_throttle()

    def credentials_changed(self, image: MetadataImage) -> None:
        """End the connection if the credential of its client has changed or is gone."""
        if not self._is_over and not self._authentication.is_current(image):
            self._end(UNAUTHENTICATED, "the credential of the client has changed")

    def check_progress(self, now_ms: int) -> None:
        """End this connection if it made no progress for too long."""
        settings = self._server.broker.settings
        if self._is_over:
            if not self._has_moved:
                self._connection.abort()  # the client does not read the queued responses
            self._has_moved = False
            return
        if self._is_open and now_ms - self._began_ms >= settings.frame_ms_max:
            self._end(SLOW, f"not authenticated after {now_ms - self._began_ms} ms")
            return
        blocked_ms, self._blocked_ms = self._blocked_ms, now_ms if self._blocks_memory() else -1
        if self._blocked_ms >= 0 and self._waiting[0].began_ms <= blocked_ms:
            self._end(SLOW, "requests that cannot begin, while others wait for memory")
            return
        if self._has_moved or self._throttle_timer is not None or self._under_way:
            self._has_moved = False
            self._quiet_since_ms = now_ms
        elif now_ms - self._quiet_since_ms >= settings.connections_idle_ms_max:
            self._end(IDLE, f"no request and no read for {now_ms - self._quiet_since_ms} ms")
            return
        if not (self._reads and self._frames.is_within_frame) or self._taken != self._taken_seen:
            self._taken_seen = self._taken
            self._slow_since_ms = now_ms
            self._large_due = 0
            return
        slow_ms = now_ms - self._slow_since_ms
        # received bytes, not the claimed size, which costs nothing
        received = self._frames.large_received_bytes
        if self._server.memory.is_full and 0 < received < self._large_due:
            self._end(SLOW, f"incomplete request of {received} bytes while others wait for memory")
            return
        self._large_due = received + FULL_CHECK_BYTES
        if slow_ms >= settings.frame_ms_max + received // FRAME_BYTES_PER_MS_MIN:
            self._end(SLOW, f"incomplete request for {slow_ms} ms")

    def _blocks_memory(self) -> bool:
        """Return True if the request memory is full, and requests that hold some of it cannot
        begin: behind one that may wait for long, or because the client reads no responses."""
        return (
            self._server.memory.is_full
            and bool(self._waiting)
            and self._throttle_timer is None
            and (not self._under_way or _may_wait_for_long(self._under_way[0]))
        )

    # --- requests ------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Make all possible progress: send responses, begin requests, cut frames, read."""
        if self._is_over or self._is_advancing:
            return  # the outer call continues
        self._is_advancing = True
        try:
            try:
                self._make_progress()
            finally:
                self._is_advancing = False
                self._write_out()
            self._update_reading()
        except Exception as error:  # the caller may be a task of the node or another connection
            _LOG.error("kafka.connection_failed peer=%s", self.client.peer, exc_info=error)
            self._end_reason = BROKEN
            self._connection.abort()

    def _update_reading(self) -> None:
        """Keep the bytes that are not cut yet, and pause or resume reading."""
        if self._is_over:
            return
        self._frames.keep()
        if (self._is_closing or self._invalid is not None) and self._maybe_end():
            return
        if self._reads is not (reads := self._has_room()):
            self._reads = reads
            if reads:
                self._large_due = 0
                self._connection.resume_reading()
            else:
                self._connection.pause_reading()

    def _make_progress(self) -> None:
        waiting, under_way = self._waiting, self._under_way
        while True:
            while under_way and under_way[0].is_done:
                self._send_next(under_way.popleft())
                if self._is_over:
                    return
            if waiting and self._may_begin(waiting[0]):
                self._begin(waiting.popleft())
                continue
            if not self._has_room():
                return
            if not waiting and self._begin_early():
                if not under_way and self._frames.is_empty:
                    return
                continue
            frame = self._next_frame()
            if frame is None:
                return
            self._take(frame)

    def _has_room(self) -> bool:
        """Return True if one more request may be read."""
        if self._throttle_timer is not None or self._is_closing or self._invalid is not None:
            return False
        server = self._server
        if self._is_open and (self._under_way or self._waiting):
            return False  # one request at a time
        if (self._under_way or self._waiting) and self._pending_count() >= server.inflight_max:
            return False
        if self._connection.unsent_bytes() >= server.unsent_bytes_max:
            return False
        if server.memory.is_full and not server.memory.may_read(self):
            server.memory.wait(self, self._advance)
            return False
        return True

    def _maybe_end(self) -> bool:
        """End the connection if no more responses are due; return True if it has ended."""
        if self._is_closing:
            # A client that waits for records or for other members loses nothing by asking another
            # broker.
            if all(_may_wait_for_long(request) for request in self._under_way):
                self._end(self._end_reason)
        elif self._invalid is not None and not self._waiting and not self._under_way:
            is_authentic = not isinstance(self._invalid, _UNAUTHENTICATED)
            self._end(INVALID if is_authentic else UNAUTHENTICATED, self._invalid)
        return self._is_over

    def _next_frame(self) -> memoryview | None:
        try:
            frame = self._frames.next()
        except QuorumlogError as error:
            self._invalid = error
            return None
        if frame is None and self._frames.large_bytes:
            self._hold_large()
        return frame

    def _hold_large(self) -> None:
        """Take memory for the bytes of a large incomplete frame that have arrived; the claimed size
        costs nothing."""
        received = self._frames.large_received_bytes
        self._server.memory.take_incomplete(self, received - self._large_held)
        self._large_held = received

    def _release_large(self) -> int:
        """Return the bytes of a large frame that is complete now; the caller gives them back."""
        self._large_held = 0
        return self._server.memory.complete(self)

    def _take(self, frame: memoryview) -> None:
        """Queue a request until the earlier ones permit it to begin."""
        request = self._request_of(frame)
        if request is not None:
            self._waiting.append(request)

    def _request_of(self, frame: memoryview) -> Request | None:
        """Read the header of a frame, and count it; None if it is invalid."""
        self._taken += 1
        self._has_moved = True
        held = self._release_large() if self._large_held else 0  # moves to the request
        self._server.memory.take(len(frame) - held)
        try:
            server = self._server
            request = read_request(frame, self.client, self._find, server.now_ms())
        except QuorumlogError as error:
            self._server.memory.give(len(frame))
            self._invalid = error
            return None
        server.figures.open += 1
        return request

    def _find(self, key: int) -> KafkaApi | None:
        """Return the API of a key; raise IllegalSaslState for one that needs authentication."""
        found = self._apis.get(key)
        if found is None and key in self._server.apis:
            raise IllegalSaslState(
                f"request {key}: the client is not authenticated, or its session has ended"
            )
        return found

    def _request_bytes_max(self, key: int) -> int:
        return self._authentication.request_bytes_max(self._server.request_bytes_max(key))

    def _authentication_changed(self, error: QuorumlogError | None) -> None:
        """Use the APIs that the client may request now; end the connection after an error, when the
        response in progress is sent."""
        self._apis = self._authentication.apis
        self._set_open()
        if error is not None and self._invalid is None:
            self._invalid = error

    def _set_open(self) -> None:
        self._is_open = self._authentication.is_open
        if not (self._is_open or self._is_over):
            self.authenticated()

    def _may_begin(self, request: Request) -> bool:
        if self._throttle_timer is not None or self._is_closing:
            return False
        under_way = self._under_way
        if under_way and not (request.api.begins_in_order and under_way[-1].is_placed):
            return False
        return self._connection.unsent_bytes() < self._server.unsent_bytes_max

    def _begin_early(self) -> bool:
        """Begin the next complete requests in a short way, as far as their API permits it: as a
        run, or by answering one at once. Return True if at least one began."""
        server = self._server
        api = self._apis.get(self._frames.first_key())  # without a key: -1
        if api is None or not server.broker.throttling.is_idle:
            return False
        if api.run is not None:
            return self._begin_run(api)
        return api.at_once is not None and not self._under_way and self._answer_at_once(api)

    def _answer_at_once(self, api: KafkaApi) -> bool:
        """Answer the next request if it is usual; return False if it must begin by itself."""
        server, frames = self._server, self._frames
        source, begin, end = frames.first_frame()
        if end - begin > self._request_bytes_max(api.key):
            return False
        header = read_usual_header(source, begin, end, api)
        if header is None:
            return False
        version, correlation_id, self.client.client_id, body_at = header
        assert api.at_once is not None, f"{api.name} has a short way"
        try:
            answer = api.at_once(server.broker, self.client, version, source[body_at:end])
        except Exception:
            _LOG.exception("kafka.handler_failed api=%s", api.name)
            self._end_reason = BROKEN
            raise
        if answer is None:
            return False
        if isinstance(answer, DelayedAnswer):
            frame = memoryview(bytes(source[begin:end]))
            frames.drop_first()
            self._delay(answer, frame)
            return True
        frames.drop_first()
        self._taken += 1
        self._has_moved = True
        if self._large_held:
            server.memory.give(self._release_large())
        flexible = version >= api.flexible
        if isinstance(answer, PreparedResponse):
            self._send_parts(answer.parts(0), correlation_id, flexible=flexible)
            answer.release()
        else:
            parts = (answer,) if isinstance(answer, bytes) else answer
            self._send_parts(parts, correlation_id, flexible=flexible)
        figures = server.figures.api(api.name)
        figures.answered += 1
        figures.usual += 1
        figures.took_ms.observe(0)
        return True

    def _delay(self, delayed: DelayedAnswer, frame: memoryview) -> None:
        """Have a usual request wait for its answer."""
        request = self._request_of(frame)
        assert request is not None, "the header of a usual request is valid"
        self._under_way.append(request)
        if delayed.start(partial(self._woken, request, delayed)):
            request.abandon = delayed.cancel
        else:
            request.task = self._scope.spawn(self._work_on(request), name=REQUEST_TASK)

    def _woken(self, request: Request, delayed: DelayedAnswer) -> None:
        """Answer a request after its wait."""
        request.abandon = None
        server = self._server
        try:
            answer = delayed.answer() if server.broker.throttling.is_idle else None
        except Exception as error:
            self._done(request, error)
            return
        if answer is None:
            request.task = self._scope.spawn(self._work_on(request), name=REQUEST_TASK)
        else:
            server.figures.api(request.api.name).usual += 1
            self._done(request, answer)

    def _begin_run(self, api: KafkaApi) -> bool:
        """Begin the next complete requests as a run, as far as they are usual. Return True if at
        least one began."""
        under_way, server, frames = self._under_way, self._server, self._frames
        assert api.run is not None, f"{api.name} has runs"
        if under_way and not (under_way[-1].api is api and under_way[-1].is_placed):
            return False
        run = api.run(server.broker, self.client, server.inflight_max - self._pending_count())
        run.take(frames)
        count = run.count
        if not count:
            return False
        self._taken += count
        self._has_moved = True
        if self._large_held:
            server.memory.give(self._release_large())
        answer = run.end()
        figures = server.figures.api(api.name)
        figures.usual += count
        if not under_way and isinstance(answer, EncodedResponses):
            figures.answered += count
            figures.took_ms.observe(0, count)
            self._send_encoded(api, answer)
            return True
        request = Request.of_run(api, self.client, run, server.now_ms())
        server.figures.open += count
        under_way.append(request)
        if isinstance(answer, Exception):
            self._fail(request, answer)
        elif answer is not None:
            request.answer, request.is_done = answer, True
        else:
            run.wait(partial(self._done, request))
        return True

    def _pending_count(self) -> int:
        """Return the number of requests without a response."""
        if not self._under_way:
            return len(self._waiting)
        return len(self._waiting) + sum(request.count for request in self._under_way)

    def _begin(self, request: Request) -> None:
        self._under_way.append(request)
        if self._is_open:  # perhaps since the session ended while the request was waiting
            try:
                self._find(request.api.key)
            except IllegalSaslState as error:
                self._fail(request, error)
                return
        if request.api.begin is None:
            request.task = self._scope.spawn(self._work_on(request), name=REQUEST_TASK)
            return
        api, broker = request.api, self._server.broker
        try:
            request.body = self._read(request)
            if request.body is None:  # left to the schema, which is slow
                request.task = self._scope.spawn(self._work_on(request), name=REQUEST_TASK)
                return
            waits = None if api.opening is None else api.opening(broker, request)
        except Exception as error:
            self._fail(request, error)
            return
        if waits is None:
            self._place(request)
        else:
            request.task = self._scope.spawn(self._open(request, waits), name=REQUEST_TASK)

    async def _open(self, request: Request, waits: Awaitable[None]) -> None:
        """Begin a request of the hot path after its preparation; later requests wait for it."""
        await waits
        self._place(request)
        self._advance()

    def _place(self, request: Request) -> None:
        """Begin a request of the hot path."""
        begin = request.api.begin
        assert begin is not None, f"{request.api.name} has a hot path"
        broker = self._server.broker
        if broker.throttling.counts_work:
            request.work_began_us = broker.runtime.clock.busy_us()
        try:
            if not begin(broker, request, partial(self._done, request)):
                request.task = self._scope.spawn(self._work_on(request), name=REQUEST_TASK)
        except Exception as error:
            self._fail(request, error)
        self._add_work(request)
        request.is_placed = True

    def _not_placed(self) -> list[Request]:
        """Return the complete requests that are not queued in their logs yet. A client that expects
        no response (acks=0) may disconnect before that."""
        if self._is_over:
            return []  # the server ended it, and drops them
        while (frame := self._next_frame()) is not None:
            self._take(frame)
        # a session that has ended permits none of those that have not begun
        requests = (*self._under_way, *(() if self._is_open else self._waiting))
        return [
            one
            for one in requests
            if one.api.begins_in_order and not (one.is_placed or one.is_done)
        ]

    async def _carry_out(self, requests: Sequence[Request]) -> None:
        """Carry out requests and discard their responses."""
        for request in requests:
            try:
                _release(await self._answer_of(request))
            except QuorumlogError:
                continue  # the client is gone
            except Exception as error:
                _LOG.error("kafka.handler_failed api=%s", request.api.name, exc_info=error)

    def _done(self, request: Request, outcome: Answer | Exception) -> None:
        """Record the outcome of a request of the hot path."""
        self._add_work(request)
        if isinstance(outcome, Exception):
            self._fail(request, outcome)
        else:
            request.answer = outcome
            request.is_done = True
        if self._is_over:
            _release(request.answer)
        else:
            self._advance()

    def _add_work(self, request: Request) -> None:
        """Add the time for which a request occupied the event loop until now."""
        if request.work_began_us is not None:
            request.work_us += self._server.broker.runtime.clock.busy_us() - request.work_began_us
            request.work_began_us = None

    def _fail(self, request: Request, error: Exception) -> None:
        """Record the error of a request that ends this connection."""
        if not isinstance(error, QuorumlogError):
            name = request.api.name
            _LOG.error("kafka.handler_failed api=%s", name, exc_info=error)
        request.failure = error
        request.is_done = True

    async def _work_on(self, request: Request) -> None:
        """Handle a request in a task. An exception of its handler ends this connection only."""
        answering = self._answer_of(request)
        try:
            if self._server.broker.throttling.counts_work:
                measured = MeasuredAwaitable(answering, self._server.broker.runtime.clock.busy_us)
                request.answer = await measured
                request.work_us += measured.work_us
            else:
                request.answer = await answering
        except Exception as error:  # contain a broken handler; the node continues
            self._fail(request, error)
        request.is_done = True
        if self._is_over:
            _release(request.answer)
        else:
            self._advance()

    async def _answer_of(self, request: Request) -> Answer:
        if request.body is None and not request.is_unreadable:  # not read by the hot path
            request.body = await self._body(request)
            if request.api.waits_for_others:
                self._release_memory(request)
        broker, elements = self._server.broker, request.elements
        answer = await request.api.handle(broker, request)
        if elements and isinstance(answer, Mapping):  # an answer has as many as its request
            return await encode_if_large(broker, request, answer, elements=elements)
        return answer

    def _release_memory(self, request: Request) -> None:
        """Give back the memory of a decoded request that may wait for long. The handler bounds what
        it keeps."""
        request.frame = memoryview(b"")
        held, request.held = request.held, 0
        self._server.memory.give(held)

    def _read(self, request: Request) -> Any:
        read = request.api.read
        assert read is not None, f"{request.api.name} has no reader of its own"
        return read(request.version, request.frame[request.begin :])

    async def _body(self, request: Request) -> Any:
        """Decode a request's body."""
        api, version, frame = request.api, request.version, request.frame
        if api.read is not None and (body := self._read(request)) is not None:
            return body
        offload = self._server.broker.runtime.tasks.offload
        if len(frame) <= WALKED_ON_THE_LOOP_BYTES_MAX:
            walk = messages.check_lengths(api, version, frame, request.begin)
        else:
            walk = await offload(
                "cpu", lambda: messages.check_lengths(api, version, frame, request.begin)
            )
        request.elements = walk.elements
        more = walk.elements * BYTES_AN_ELEMENT
        self._server.memory.take(more)
        request.held += more
        if walk.elements <= ELEMENTS_ON_THE_LOOP_MAX:
            return messages.decode(api, version, frame, request.begin, walk)
        return await offload(
            "cpu", lambda: messages.decode(api, version, frame, request.begin, walk)
        )

    # --- answers -------------------------------------------------------------------------------

    def _send_next(self, request: Request) -> None:
        """Send the next response in order."""
        failure = request.failure
        if failure is None:
            try:
                if self._is_open and _may_wait_for_long(request):
                    self._find(request.api.key)  # the session may have ended during the wait
                self._answer(request)
            except IllegalSaslState as error:
                _release(request.answer)
                failure = error
            except Exception as error:  # a response that does not fit its schema
                _LOG.exception(
                    "kafka.answer_failed api=%s version=%d", request.api.name, request.version
                )
                failure = error
        self._finish(request, failure)
        if failure is not None:
            self._end(_reason_of(failure), failure)

    def _answer(self, request: Request) -> None:
        """Send a response, and throttle its client."""
        server, answer, throttle_ms = self._server, request.answer, 0
        throttling, clock = server.broker.throttling, server.broker.runtime.clock
        try:
            if not throttling.is_idle:
                work_us, self._encoding_us = request.work_us + self._encoding_us, 0
                throttle_ms = charge(server.broker, request, answer, work_us=work_us)
            if answer is None:
                pass
            elif throttling.counts_work:
                began_us = clock.busy_us()
                self._send(request, answer, throttle_ms)
                self._encoding_us = clock.busy_us() - began_us
            else:
                self._send(request, answer, throttle_ms)
        finally:
            _release(answer)
        figures = server.figures.api(request.api.name)
        figures.answered += request.count
        figures.took_ms.observe(server.now_ms() - request.began_ms, request.count)
        if throttle_ms:
            self._throttle(throttle_ms)

    def _send(
        self, request: Request, answer: Mapping[str, Any] | PreparedResponse, throttle_ms: int
    ) -> None:
        api, version, server = request.api, request.version, self._server
        parts: Sequence[Part]
        errors: Sequence[int]
        if isinstance(answer, EncodedResponses):
            self._send_encoded(api, answer)
            return
        if isinstance(answer, PreparedResponse):
            parts, errors = answer.parts(throttle_ms), answer.error_codes
        else:
            found: list[int] = []
            errors = found
            parts = [messages.encode(api, version, answer, throttle_ms=throttle_ms, errors=found)]
        if errors:
            server.figures.api(api.name).count_errors(errors)
        flexible = version >= api.flexible and api.key != API_VERSIONS
        self._send_parts(parts, request.correlation_id, flexible=flexible)

    def _send_parts(self, parts: Sequence[Part], correlation_id: int, *, flexible: bool) -> None:
        """Send a response by its body."""
        size = in_files = 0
        for part in parts:
            if isinstance(part, FileRange):
                in_files += part.size
            else:
                size += len(part)
        if size >= LARGE_RESPONSE_BYTES:
            self._count_large(size, in_files)
        size += in_files
        head = answer_head(correlation_id, size, flexible=flexible)
        self._server.figures.sent_bytes += len(head) + size
        self._written += len(head) + size
        if len(parts) == 1 and size <= JOINED_BYTES_MAX and not isinstance(parts[0], FileRange):
            self._out.append(head + parts[0])
        else:
            self._out.append(head)
            for part in parts:
                if isinstance(part, FileRange):
                    self._connection.write(self._out, more=True)
                    self._out = []
                    self._connection.send_range(part.file, part.position, part.size)
                else:
                    self._out.append(part)

    def _send_encoded(self, api: KafkaApi, answer: EncodedResponses) -> None:
        """Send the responses to the requests of a run."""
        figures = self._server.figures
        if answer.error_codes:
            figures.api(api.name).count_errors(answer.error_codes)
        figures.sent_bytes += len(answer.content)
        self._written += len(answer.content)
        self._out.append(answer.content)

    def _write_out(self) -> None:
        """Write the responses that have accumulated."""
        out = self._out
        if out:
            self._out, self._has_moved = [], True
            self._connection.write(out, now=not self._under_way)
            if self._large_unread:
                self._forget_sent()
                self._server.unread.enforce()

    def _count_large(self, size: int, in_files: int) -> None:
        """Count `size` bytes of a response in memory until it is sent."""
        self._large_unread.append((self._written + size + in_files, size))
        self._server.unread.add(self, size)

    def _forget_sent(self) -> None:
        """Stop counting the large responses that are sent."""
        sent, large = self._written - self._connection.unsent_bytes(), self._large_unread
        while large and large[0][0] <= sent:
            self._server.unread.remove(self, large.popleft()[1])

    def _throttle(self, throttle_ms: int) -> None:
        """Stop reading for the throttle time: the client may ignore it."""
        loop = asyncio.get_running_loop()
        if self._throttle_timer is not None:
            # Several responses were in flight: the longest throttle time counts.
            throttle_ms = max(throttle_ms, int((self._throttle_timer.when() - loop.time()) * 1000))
            self._throttle_timer.cancel()
        self._throttle_timer = loop.call_later(throttle_ms / 1000, self._end_throttle)

    def _end_throttle(self) -> None:
        self._throttle_timer = None
        self._has_moved = True
        self._advance()

    # --- the end -------------------------------------------------------------------------------

    def _finish(self, request: Request, failure: Exception | None) -> None:
        """Update metrics and memory for a finished request."""
        figures = self._server.figures
        figures.open -= request.count
        if failure is not None or not request.is_done:
            figures.api(request.api.name).unanswered += request.count
        self._server.memory.give(request.held)

    def _end(self, reason: str, why: object = None) -> None:
        """End the connection: the protocol has no response to an invalid request. Queued responses
        are sent first; `check_progress` bounds the time for that."""
        if self._is_over:
            return
        self._end_reason = reason
        if why is not None:
            self._server.log_connection_end(reason, self.client, why)
        self._drop()
        self._write_out()
        self._has_moved = True
        if reason in (IDLE, SLOW, FULL):  # such a client does not read either
            self._connection.abort()
        else:
            self._connection.close()

    def _drop(self) -> None:
        """Cancel all requests and give back their memory."""
        if self._is_over:
            return
        self._is_over = True
        self._authentication.close()
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
            self._throttle_timer = None
        for request in (*self._under_way, *self._waiting):
            if request.is_done:
                _release(request.answer)
            elif request.task is not None:
                request.task.cancel()
            elif request.abandon is not None:
                request.abandon()
            self._finish(request, None)
        self._under_way.clear()
        self._waiting.clear()
        memory = self._server.memory
        memory.forget(self)
        if self._large_held:
            memory.give(self._release_large())


def _reason_of(failure: Exception) -> str:
    """Return the reason for ending a connection over a failed request."""
    if isinstance(failure, InvalidRequest):
        return INVALID
    if isinstance(failure, _UNAUTHENTICATED):
        return UNAUTHENTICATED
    return FAILED if isinstance(failure, QuorumlogError) else BROKEN


def _may_wait_for_long(request: Request) -> bool:
    """Return True if a request may wait for records or for other clients, or be delayed."""
    return request.api.key == FETCH or request.api.waits_for_others


def _release(answer: Answer) -> None:
    if isinstance(answer, PreparedResponse):
        answer.release()
