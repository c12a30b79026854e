"""One HTTP/1.1 connection: h11 parses requests and encodes response heads, one at a time.

Nothing is read until the response is sent, so a caller that pipelines requests or does not read is
held up by TCP flow control. Request bodies are dropped up to a bound. An invalid request ends the
connection with an error message.
"""

import asyncio
import logging
from typing import Final, Protocol

import h11

from ...runtime import ByteConnection, Scope
from .messages import REASONS, HttpRequest, HttpResponse, sentence

_LOG: Final = logging.getLogger("quorumlog.http")

HEAD_BYTES_MAX: Final = 16 << 10
BODY_BYTES_MAX: Final = 64 << 10  # of a request; it is dropped
READ_BYTES: Final = 4 << 10
LINGER_MS: Final = 500
"""The time for which received bytes are dropped after an error response: a reset would arrive
before it."""


class Server(Protocol):
    """The part of the server that a connection uses."""

    @property
    def idle_ms_max(self) -> int: ...
    @property
    def is_closing(self) -> bool: ...
    async def refusal(self, request: HttpRequest) -> HttpResponse | None: ...
    async def answer(self, request: HttpRequest) -> HttpResponse: ...
    def date(self) -> str: ...
    def request_ended(self, connection: "HttpConnection") -> None: ...
    def connection_ended(self, connection: "HttpConnection") -> None: ...


class HttpConnection:
    """A `ByteProtocol`: idle, or answering one request."""

    def __init__(self, connection: ByteConnection, server: Server, scope: Scope) -> None:
        """The tasks of requests run in `scope`."""
        self._connection = connection
        self._server = server
        self._scope = scope
        self._machine = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._request: HttpRequest | None = None  # not complete yet
        self._body_bytes = 0  # dropped bytes of its body
        self._is_answering = False
        self._is_admitted = False  # the request in progress was not refused
        self._task: asyncio.Task[None] | None = None  # that answers the last request
        self._awaits_next_request = False  # the next request follows the last response
        self._is_refused = False  # received bytes are dropped
        self._timer: asyncio.TimerHandle | None = None
        self._set_timer()

    # --- ByteProtocol --------------------------------------------------------------------------

    def buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for the next read."""
        return self._buffer

    def received(self, count: int) -> None:
        """Parse the received bytes."""
        if self._is_refused:
            return
        self._machine.receive_data(bytes(self._buffer[:count]))
        self._advance()

    def sent(self) -> None:
        """Start the next request once the last response is sent."""
        if self._awaits_next_request and not self._connection.unsent_bytes():
            self._next_request()

    def closed(self, error: Exception | None) -> None:
        """Remove the ended connection from the server."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._server.connection_ended(self)

    # --- for the server ------------------------------------------------------------------------

    @property
    def host(self) -> str:
        """The IP address of the caller."""
        return self._connection.peer.rpartition(":")[0]

    @property
    def is_idle(self) -> bool:
        """True if no complete request is in progress."""
        return self._is_refused or not self._is_answering

    @property
    def may_be_ended(self) -> bool:
        """True unless a request that was not refused is in progress."""
        return not self._is_admitted

    def close_if_idle(self) -> None:
        """Close the connection unless a request is in progress."""
        if self.is_idle:
            self._connection.close()

    def abort(self) -> None:
        """End the connection at once, and its request."""
        if self._task is not None:
            self._task.cancel()
        self._connection.abort()

    # --- requests ------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Parse until a request is complete or more bytes are needed."""
        if self._is_answering:
            return
        try:
            while not self._is_answering:
                event = self._machine.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                if isinstance(event, h11.ConnectionClosed):
                    self._connection.close()
                    return
                self._take(event)
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, f"Not a valid HTTP/1.1 request: {error}.")

    def _take(self, event: object) -> None:
        if isinstance(event, h11.Request):
            self._request, self._body_bytes = self._request_of(event), 0
        elif isinstance(event, h11.Data):
            self._body_bytes += len(event.data)
            if self._body_bytes > BODY_BYTES_MAX:
                self._refuse(413, "Request bodies are not supported; send none.")
        elif isinstance(event, h11.EndOfMessage):
            assert self._request is not None, "an end without a request"
            request, self._request = self._request, None
            self._is_answering = True
            self._connection.pause_reading()
            self._task = self._scope.spawn(self._answer(request), name="http.answer")

    def _request_of(self, event: h11.Request) -> HttpRequest:
        target = event.target.decode("ascii", "replace")
        path, _, query = target.partition("?")
        headers = {
            bytes(name).decode("ascii"): bytes(value).decode("latin-1")
            for name, value in event.headers
        }
        return HttpRequest(
            method=bytes(event.method).decode("ascii"),
            path=path,
            query=query,
            host=self.host,
            headers=headers,
        )

    async def _answer(self, request: HttpRequest) -> None:
        try:
            response = await self._server.refusal(request)
            if response is None:
                self._is_admitted = True
                response = await self._server.answer(request)
        except Exception:  # contain a broken route; the node continues
            _LOG.exception("http.route_failed path=%s", request.path)
            response = sentence(500, "The handler failed; the node's log has the error.")
        self._send(response, with_body=request.method != "HEAD")
        if self._machine.our_state is h11.DONE and not self._server.is_closing:
            self._set_timer()
            self._awaits_next_request = True
            self.sent()
        else:
            self._end()

    def _next_request(self) -> None:
        self._awaits_next_request = self._is_answering = self._is_admitted = False
        self._server.request_ended(self)
        try:
            self._machine.start_next_cycle()
        except h11.LocalProtocolError:  # the caller's side is broken or closed
            self._end()
            return
        self._connection.resume_reading()
        self._advance()  # pipelined bytes were read already

    # --- responses -----------------------------------------------------------------------------

    def _send(self, response: HttpResponse, *, with_body: bool) -> None:
        headers = [
            ("Date", self._server.date()),
            ("Content-Type", response.content_type),
            ("Content-Length", str(len(response.body))),
            ("Cache-Control", "no-store"),
            *response.headers.items(),
        ]
        if self._server.is_closing:
            headers.append(("Connection", "close"))
        reason = REASONS[response.status]
        machine = self._machine
        pieces = [
            machine.send(h11.Response(status_code=response.status, reason=reason, headers=headers)),
            machine.send(h11.Data(data=response.body)) if with_body else None,
            machine.send(h11.EndOfMessage()),
        ]
        self._connection.write([piece for piece in pieces if piece])

    def _refuse(self, status: int, text: str) -> None:
        """Answer an invalid request and end the connection, since the next request's start is
        unknown."""
        self._is_answering = self._is_refused = True
        if self._machine.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send(sentence(status, text, Connection="close"), with_body=True)
        self._set_timer(LINGER_MS)

    def _end(self) -> None:
        """Close the connection once everything is sent, within the idle time."""
        self._set_timer()
        self._connection.close()

    # --- time ----------------------------------------------------------------------------------

    def _set_timer(self, wait_ms: int | None = None) -> None:
        """Restart the timer for the next request or for sending the response; `wait_ms` replaces
        the idle time."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        wait_ms = self._server.idle_ms_max if wait_ms is None else wait_ms
        self._timer = loop.call_later(wait_ms / 1000, self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        if self._connection.unsent_bytes():
            self._connection.abort()
        elif self._is_answering and not (self._awaits_next_request or self._is_refused):
            self._set_timer()  # the route is slow, not the caller
        else:
            self._connection.close()
