"""The process of the console: its listener, its URL, its end by a signal."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from ..errors import InvalidConfig
from ..runtime import Runtime
from ..runtime.real import run as run_in_loop
from ..runtime.sockets import bind, is_loopback
from .app import make_app
from .config import OAUTHBEARER, ConsoleConfig
from .protection import host_names
from .sessions import SESSION_STATE, Sessions

CONNECTIONS_MAX = 256
REQUEST_S = 15  # of a connection without a request of a session
DRAIN_S = 1  # for requests that run at the end


def run(
    config: ConsoleConfig, *, on_ready: Callable[[str], None], until_input_ends: bool = False
) -> None:
    """Serve the console until SIGTERM or SIGINT, or the end of the standard input; `on_ready`
    receives the URL with the login token.

    Raises InvalidConfig for an address beyond loopback without TLS and for credentials that the
    configuration cannot use, and AddressInUse.
    """
    check_credentials(config)
    if bool(config.certificate) != bool(config.key):
        raise InvalidConfig("--tls-certificate and --tls-key are given together")
    if not is_loopback(config.host) and not config.certificate:
        raise InvalidConfig(
            f"{config.host}: an address beyond loopback needs TLS, since passwords are sent to it;"
            " give --tls-certificate and --tls-key, or forward a port, such as ssh -L 9096:"
            "127.0.0.1:9096"
        )

    async def main(runtime: Runtime) -> None:
        sessions = Sessions(config)
        async with runtime.tasks.scope("sessions") as scope:
            scope.spawn(sessions.end_idle_forever(), name="idle")
            await _serve(config, sessions, on_ready, until_input_ends)
            scope.cancel()

    run_in_loop(main, name="console")


def check_credentials(config: ConsoleConfig) -> None:
    """Raise InvalidConfig for a token without TLS, and for a client certificate that every browser
    would share unless that is wanted."""
    if config.token and not config.token.startswith(("file:", "env:")):
        raise InvalidConfig("--token: give file:PATH or env:NAME, the place of the token")
    has_users = config.needs_credentials
    if config.tls is None and (config.token or (has_users and config.mechanism == OAUTHBEARER)):
        raise InvalidConfig(
            "a token is sent over TLS only; set security_protocol=SASL_SSL and tls_ca_file"
        )
    is_shared = config.tls is not None and bool(config.tls.certificate)
    is_shared = is_shared and not (has_users or config.token)
    if is_shared and not config.shares_certificate:
        raise InvalidConfig(
            "tls_certificate_file: every browser would have the rights of this certificate; set"
            " security_protocol=SASL_SSL, with which each user signs in, or give"
            " --share-certificate"
        )


async def _serve(
    config: ConsoleConfig,
    sessions: Sessions,
    on_ready: Callable[[str], None],
    until_input_ends: bool,
) -> None:
    host = f"[{config.host}]" if ":" in config.host else config.host
    bound = await bind(f"{host}:{config.port}")
    try:
        port = bound.getsockname()[1]
        sessions.cookie = f"quorumlog-session-{port}"
        app = make_app(sessions, hosts=host_names(config.host, port, allowed=config.allowed_hosts))
        # At INFO uvicorn logs the URLs of requests, the login token among them.
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                http=BrowserConnection,
                limit_concurrency=CONNECTIONS_MAX + 1,  # every one has a request of a session
                timeout_keep_alive=REQUEST_S,
                timeout_graceful_shutdown=DRAIN_S,
                ws="none",
                ssl_certfile=config.certificate or None,
                ssl_keyfile=config.key or None,
            ),
            lambda: on_ready(f"{config.scheme}://{host}:{port}/login?token={sessions.token}"),
        )
        if until_input_ends:
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), server.stop_at_end_of_input)
        await server.serve(sockets=[bound])
    finally:
        bound.close()


class BrowserConnection(H11Protocol):
    """A connection of a browser or of any other program.

    It ends if it has no request of a session in progress for REQUEST_S: before the first request,
    within an incomplete one, between two, and if the program does not read the response. If
    CONNECTIONS_MAX connections are open, another one ends the
    connection that has waited the longest.
    """

    _since_s = 0.0  # time of the loop since which it waits for a complete request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for the connection, and begin its time for a request."""
        waiting = [each for each in self.connections if isinstance(each, BrowserConnection)]
        waiting = [each for each in waiting if not each.is_in_use]
        if waiting and len(self.connections) >= CONNECTIONS_MAX:
            min(waiting, key=lambda each: each._since_s).end()
        super().connection_made(transport)
        self._begin_wait()

    @property
    def is_in_use(self) -> bool:
        """True while it has a request of a session in progress."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        return bool(cycle.scope["state"].get(SESSION_STATE))

    def on_response_complete(self) -> None:
        """Begin the time for the next request."""
        super().on_response_complete()
        self._begin_wait()

    def end(self) -> None:
        """Close the connection; it does not count any more."""
        self.connections.discard(self)
        self.transport.abort()

    def _begin_wait(self) -> None:
        self._since_s = self.loop.time()
        self.loop.call_later(REQUEST_S, self._end_if_unused, self._since_s)

    def _end_if_unused(self, since_s: float) -> None:
        """End the connection unless a request was answered, or one of a session began, since."""
        if self._since_s == since_s and not self.is_in_use:
            self.end()


class _Server(uvicorn.Server):
    """uvicorn's server with a call once it accepts connections."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    def stop_at_end_of_input(self) -> None:
        """Stop the server if the standard input has ended; discard other input."""
        if not os.read(sys.stdin.fileno(), 1024):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop in order at SIGTERM or SIGINT. uvicorn would raise the signal again afterwards."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Accept connections, then make the call."""
        await super().startup(sockets=sockets)
        if self.started:
            self._on_started()
