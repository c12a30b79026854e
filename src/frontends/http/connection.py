"""One HTTP/1.1 connection: h11 reads the requests and writes the heads, one at a time.

While a request is answered, and until its answer has left, nothing is read: a caller that sends
many at once or does not read waits in its own kernel. Bodies are dropped up to a bound; a request
that is none ends the connection with one sentence.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, Protocol

import h11

from ...runtime import ByteConnection
from .messages import REASONS, HttpRequest, HttpResponse, sentence

_LOG: Final = logging.getLogger("quorumlog.http")

HEAD_BYTES_MAX: Final = 16 << 10
BODY_BYTES_MAX: Final = 64 << 10  # of a request; it is of no use here, and dropped
READ_BYTES: Final = 4 << 10
LINGER_MS: Final = 500
"""After a refusal what still comes is dropped for so long: a reset would overtake the sentence."""


class Server(Protocol):
    """What a connection needs of the server that accepted it."""

    @property
    def idle_ms_max(self) -> int: ...
    @property
    def is_closing(self) -> bool: ...
    async def answer(self, request: HttpRequest) -> HttpResponse: ...
    def date(self) -> str: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...
    def left(self, connection: "HttpConnection") -> None: ...


class HttpConnection:
    """A `ByteProtocol`. Idle, or answering one request."""

    def __init__(self, connection: ByteConnection, server: Server) -> None:
        self._connection = connection
        self._server = server
        self._machine = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._request: HttpRequest | None = None  # its end has not been read
        self._body_bytes = 0  # of that request, dropped
        self._is_answering = False
        self._goes_on = False  # when the last answer has left
        self._is_refused = False  # what comes is dropped
        self._timer: asyncio.TimerHandle | None = None
        self._set_timer()

    # --- ByteProtocol --------------------------------------------------------------------------

    def buffer(self, size_hint: int) -> memoryview:
        """Where the next bytes go."""
        return self._buffer

    def received(self, count: int) -> None:
        """Take them."""
        if self._is_refused:
            return
        self._machine.receive_data(bytes(self._buffer[:count]))
        self._advance()

    def sent(self) -> None:
        """Go on with the next request when the last answer has left."""
        if self._goes_on and not self._connection.unsent_bytes():
            self._next_request()

    def closed(self, error: Exception | None) -> None:
        """The connection ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._server.left(self)

    # --- from outside --------------------------------------------------------------------------

    def close_if_idle(self) -> None:
        """The server closes: a request that is being answered may end, nothing else."""
        if self._is_refused or not self._is_answering:
            self._connection.close()

    # --- requests ------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Read on until a request is whole, or more bytes are needed."""
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
            self._refuse(error.error_status_hint, f"This is no HTTP/1.1 request: {error}.")

    def _take(self, event: object) -> None:
        if isinstance(event, h11.Request):
            self._request, self._body_bytes = _request_of(event), 0
        elif isinstance(event, h11.Data):
            self._body_bytes += len(event.data)
            if self._body_bytes > BODY_BYTES_MAX:
                self._refuse(413, "Nothing here takes a body; send none.")
        elif isinstance(event, h11.EndOfMessage):
            assert self._request is not None, "the end of no request"
            request, self._request = self._request, None
            self._is_answering = True
            self._connection.pause_reading()
            self._server.spawn(self._answer(request))

    async def _answer(self, request: HttpRequest) -> None:
        try:
            response = await self._server.answer(request)
        except Exception:  # the one place where a broken route ends; the node goes on
            _LOG.exception("http.route_failed path=%s", request.path)
            response = sentence(500, "The answer failed; the node's journal says why.")
        self._send(response, with_body=request.method != "HEAD")
        if self._machine.our_state is h11.DONE and not self._server.is_closing:
            self._set_timer()
            self._goes_on = True
            self.sent()
        else:
            self._end()

    def _next_request(self) -> None:
        self._goes_on = self._is_answering = False
        try:
            self._machine.start_next_cycle()
        except h11.LocalProtocolError:  # the caller's half is broken or closed
            self._end()
            return
        self._connection.resume_reading()
        self._advance()  # what came behind the last request is read already

    # --- answers -------------------------------------------------------------------------------

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
        """Answer what is no request of ours, and end: nobody knows where the next one begins."""
        self._is_answering = self._is_refused = True
        if self._machine.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send(sentence(status, text, Connection="close"), with_body=True)
        self._set_timer(LINGER_MS)

    def _end(self) -> None:
        """Close once what is queued has left, within the idle time."""
        self._set_timer()
        self._connection.close()

    # --- time ----------------------------------------------------------------------------------

    def _set_timer(self, wait_ms: int | None = None) -> None:
        """From now on the next request, or the leaving of the last answer, has its time; `wait_ms`:
        another one than the usual."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        wait_ms = self._server.idle_ms_max if wait_ms is None else wait_ms
        self._timer = loop.call_later(wait_ms / 1000, self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        if self._connection.unsent_bytes():
            self._connection.abort()
        elif self._is_answering and not (self._goes_on or self._is_refused):
            self._set_timer()  # the route takes its time, not the caller
        else:
            self._connection.close()


def _request_of(event: h11.Request) -> HttpRequest:
    target = event.target.decode("ascii", "replace")
    path, _, query = target.partition("?")
    headers = {
        bytes(name).decode("ascii"): bytes(value).decode("latin-1") for name, value in event.headers
    }
    return HttpRequest(
        method=bytes(event.method).decode("ascii"), path=path, query=query, headers=headers
    )
