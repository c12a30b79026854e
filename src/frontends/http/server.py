"""The HTTP listener: accepts connections up to a bound, and finds the route of a request."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ...errors import AddressInUse
from ...runtime import ByteConnection, ByteProtocol, Listener, Runtime, Scope
from ...runtime.client_bounds import address_block
from ...runtime.sockets import is_loopback
from .messages import Access, HttpRequest, HttpResponse, Route, sentence

if TYPE_CHECKING:
    from ...runtime.tls import TlsCredentials
    from ...runtime.tls_connection import ReceiveBuffer
    from .connection import HttpConnection

CONNECTIONS_MAX: Final = 64
IDLE_MS_MAX: Final = 75_000
"""The time for a complete request, and for sending a response: longer than the usual scrape
interval of up to a minute."""

REFUSAL_MS_MAX: Final = 1_000  # for the request of a connection over the bound
_REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    b"Content-Length: 0\r\n\r\n"
)

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)


class HttpServer:
    """Serves routes by path. Created by `open`; requests run in the given scope."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        routes: Mapping[str, Route],
        *,
        access: Access | None,
        tls: "TlsCredentials | None",
        connections_max: int,
        idle_ms_max: int,
    ) -> None:
        """Use open()."""
        self.idle_ms_max = idle_ms_max
        self.is_closing = False
        self.refused = 0  # connections over the bound, while none could be ended
        self._runtime = runtime
        self._scope = scope
        self._routes = routes
        self._access = access
        self._tls = tls
        self._tls_received: ReceiveBuffer | None = None  # of all connections
        self._connections_max = connections_max
        self._connections: dict[HttpConnection, None] = {}  # by their last request, or the start
        self._listener: Listener | None = None

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        scope: Scope,
        address: str,
        routes: Mapping[str, Route],
        *,
        access: Access | None = None,
        tls: "TlsCredentials | None" = None,
        connections_max: int = CONNECTIONS_MAX,
        idle_ms_max: int = IDLE_MS_MAX,
    ) -> "HttpServer":
        """Listen on "host:port"; port 0 picks a free port. Raises AddressInUse. `access`
        None: every request is answered; `tls` None: no TLS."""
        server = cls(
            runtime,
            scope,
            routes,
            access=access,
            tls=tls,
            connections_max=connections_max,
            idle_ms_max=idle_ms_max,
        )
        accept = server._accept if tls is None else server._accept_tls
        try:
            server._listener = await runtime.network.listen_bytes(address, accept)
        except OSError as error:
            raise AddressInUse(f"{address}: cannot listen: {error.strerror or error}") from error
        return server

    @property
    def address(self) -> str:
        """The "host:port" with the actual port."""
        assert self._listener is not None, "not open"
        return self._listener.address

    @property
    def connection_count(self) -> int:
        """The open connections."""
        return len(self._connections)

    async def close(self, grace_ms: int) -> None:
        """Accept no more connections; requests in progress have `grace_ms` to end."""
        self.is_closing = True
        for connection in list(self._connections):
            connection.close_if_idle()
        if self._listener is not None:
            await self._listener.close(grace_ms)

    # --- for connections -------------------------------------------------------------------------

    async def refusal(self, request: HttpRequest) -> HttpResponse | None:
        """Return the refusal of a request, None for one that is answered."""
        return None if self._access is None else await self._access(request)

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer by the path's route; the error for an unknown path lists the paths."""
        if request.method not in ("GET", "HEAD"):
            return sentence(405, "Method not supported; use GET or HEAD.", Allow="GET, HEAD")
        route = self._routes.get(request.path)
        if route is None:
            return sentence(404, f"Unknown path; the paths are {', '.join(self._routes)}.")
        return await route(request)

    def date(self) -> str:
        """Return the current time in the format of the Date header (RFC 9110 5.6.7)."""
        now = datetime.fromtimestamp(self._runtime.clock.wall_ms() / 1000, UTC)
        day, month = _DAYS[now.weekday()], _MONTHS[now.month - 1]
        return f"{day}, {now.day:02} {month} {now.year:04} {now:%H:%M:%S} GMT"

    def connection_ended(self, connection: "HttpConnection") -> None:
        """Remove an ended connection."""
        self._connections.pop(connection, None)

    def request_ended(self, connection: "HttpConnection") -> None:
        """Make a connection the newest one."""
        if connection in self._connections:
            del self._connections[connection]
            self._connections[connection] = None

    def _end_oldest(self) -> bool:
        """End the oldest connection without an admitted request, of the host with the most of them;
        return False if there is none."""
        by_host: dict[str, list[HttpConnection]] = {}
        for each in self._connections:
            if each.may_be_ended:
                by_host.setdefault(address_block(each.host), []).append(each)
        if not by_host:
            return False
        oldest = max(by_host.values(), key=len)[0]
        del self._connections[oldest]
        oldest.abort()
        return True

    def _accept_tls(self, transport: ByteConnection) -> ByteProtocol:
        from ...runtime.tls_connection import ReceiveBuffer, TlsConnection

        assert self._tls is not None, "the listener uses TLS"
        if self._tls_received is None:
            self._tls_received = ReceiveBuffer()
        return TlsConnection(
            transport,
            self._accept,
            context=self._tls.context,
            tasks=self._runtime.tasks,
            received=self._tls_received,
        )

    def _accept(self, connection: ByteConnection) -> "HttpConnection | _Refused":
        from .connection import HttpConnection  # imports h11 at the first connection

        is_full = len(self._connections) >= self._connections_max and not self._end_oldest()
        if is_full or self.is_closing:
            self.refused += 1
            return _Refused(connection)
        accepted = HttpConnection(connection, self, self._scope)
        self._connections[accepted] = None
        return accepted


class _Refused:
    """A connection over the bound: any request gets a 503, and the connection ends."""

    def __init__(self, connection: ByteConnection) -> None:
        self._connection = connection
        self._buffer = memoryview(bytearray(4096))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(REFUSAL_MS_MAX / 1000, connection.close)

    def buffer(self, size_hint: int) -> memoryview:
        """Return the read buffer."""
        return self._buffer

    def received(self, count: int) -> None:
        """Send the 503 and close."""
        self._connection.write([_REFUSAL])
        self._connection.close()

    def sent(self) -> None:
        """Ignore sent bytes."""

    def closed(self, error: Exception | None) -> None:
        """Cancel the timer."""
        self._timer.cancel()


def local_access(address: str) -> Access | None:
    """Return the access to a listener on loopback, None for a "host:port" beyond it.

    Every program of the machine may ask, but no page in a browser: a page can let its own name
    resolve to loopback (DNS rebinding) and then read responses.
    """
    host = address.rpartition(":")[0]
    return _refuse_foreign_names if is_loopback(host) else None


async def _refuse_foreign_names(request: HttpRequest) -> HttpResponse | None:
    """Refuse a request to a name that is not one of loopback, and one from a page of such a
    name. Programs other than browsers may leave both headers out."""
    for header, prefix in (("host", "//"), ("origin", "")):
        value = request.headers.get(header)
        if value is not None and not is_loopback(_host_in(prefix + value)):
            return sentence(
                403,
                f"The header {header.title()} names another host than this machine; use localhost"
                " or the address of the listener.",
            )
    return None


def _host_in(url: str) -> str:
    """Return the host of a URL, "" if there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
