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

from ..errors import InvalidConfig
from ..runtime import Runtime
from ..runtime.real import run as run_in_loop
from ..runtime.sockets import bind, is_loopback
from .app import make_app
from .config import ConsoleConfig
from .protection import host_names
from .sessions import Sessions

CONNECTIONS_MAX = 256
DRAIN_S = 1  # for requests that run at the end


def run(
    config: ConsoleConfig, *, on_ready: Callable[[str], None], until_input_ends: bool = False
) -> None:
    """Serve the console until SIGTERM or SIGINT, or the end of the standard input; `on_ready`
    receives the URL with the login token.

    Raises InvalidConfig for an address beyond loopback without TLS, and AddressInUse.
    """
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
                limit_concurrency=CONNECTIONS_MAX,
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
