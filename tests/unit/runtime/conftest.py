"""Both runtimes behind one fixture.

Every test with `run` runs on the real and on the simulated one, which must fulfil the ports
equally.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.kit.waits import run_patiently

import quorumlog.simulation as simulation
from quorumlog.proto.log_pb2 import (
    ProduceRequest,
    ProduceResponse,
    PublishRequest,
    PublishResponse,
)
from quorumlog.runtime import CallContext, Channel, Handler, Listener, Runtime, Stream
from quorumlog.services import LOG_PRODUCE, LOG_PUBLISH

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]

Incoming: TypeAlias = Stream[ProduceResponse, ProduceRequest]
Unary: TypeAlias = Callable[[PublishRequest, CallContext], Awaitable[PublishResponse]]
Streaming: TypeAlias = Callable[[Incoming, CallContext], Awaitable[None]]
Served: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[Listener, Channel]]]

SIMULATED_FOLDER = "/bench"


@pytest.fixture(params=["real", "simulated"])
def which(request: pytest.FixtureRequest) -> str:
    """The name of each runtime in turn."""
    name: str = request.param
    return name


@pytest.fixture
def run(which: str) -> Run:
    """Return a function that runs a main on the runtime."""
    return run_patiently if which == "real" else _run_simulated


@pytest.fixture
def folder(which: str, tmp_path: Path) -> str:
    """An existing folder for the runtime's files."""
    return str(tmp_path) if which == "real" else SIMULATED_FOLDER


def _run_simulated(main: Main) -> None:
    async def with_folder(runtime: Runtime) -> None:
        runtime.files.make_folder(SIMULATED_FOLDER)
        await main(runtime)

    simulation.run(with_folder)


@pytest.fixture
def served() -> Served:
    """Return a function that opens a server of a unary and a streaming method, and a channel to
    it."""
    return _served


async def _nothing(request: PublishRequest, context: CallContext) -> PublishResponse:
    """Respond with nothing."""
    return PublishResponse()


async def _echo(stream: Incoming, context: CallContext) -> None:
    """Send every request back until the caller finishes."""
    while (request := await stream.receive()) is not None:
        await stream.send(ProduceResponse(correlation_id=request.correlation_id))


@asynccontextmanager
async def _served(
    runtime: Runtime, *, unary: Unary = _nothing, streaming: Streaming = _echo
) -> AsyncIterator[tuple[Listener, Channel]]:
    """A server of both kinds of methods, and a channel to it."""
    handlers = {
        LOG_PUBLISH.path: Handler(LOG_PUBLISH, unary),
        LOG_PRODUCE.path: Handler(LOG_PRODUCE, streaming),
    }
    listener = await runtime.network.serve("127.0.0.1:0", handlers)
    channel = runtime.network.channel(listener.address)
    try:
        yield listener, channel
    finally:
        await channel.close()
        await listener.close(0)
