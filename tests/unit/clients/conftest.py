"""Fixtures: a client on the real and on the simulated runtime, and a real node."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.kit.waits import AMPLE_MS, run_patiently

import quorumlog
from quorumlog import simulation
from quorumlog.clients.blocking import Log
from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.runtime import Runtime
from quorumlog.server.config import NodeConfig
from quorumlog.server.node import Node, format_directory
from quorumlog.testing import Broker

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]
Body: TypeAlias = Callable[[AsyncLog], Coroutine[Any, Any, None]]
Client: TypeAlias = Callable[[Runtime], AbstractAsyncContextManager[AsyncLog]]


@pytest.fixture(params=["real", "simulated"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return a function that runs a main on both runtimes in turn."""
    return run_patiently if request.param == "real" else simulation.run


def node_config(folder: Path) -> NodeConfig:
    """Return the config of a test node on free ports."""
    return NodeConfig(
        data_dir=str(folder / "data"),
        grpc_listener="127.0.0.1:0",
        controller_listener="127.0.0.1:0",
    )


@pytest.fixture
def client(tmp_path: Path) -> Client:
    """A client of a new node that runs as long as the client."""

    @asynccontextmanager
    async def opened(runtime: Runtime) -> AsyncIterator[AsyncLog]:
        config = node_config(tmp_path)
        await format_directory(runtime, config)
        async with (
            Node(runtime, config) as node,
            make_log(runtime, node.addresses.grpc, connect_timeout_ms=AMPLE_MS) as log,
        ):
            yield log

    return opened


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The gRPC address of a broker in its own process, shared by all tests of a file."""
    with Broker() as broker:
        yield broker.grpc


@pytest.fixture
def log(address: str) -> Iterator[Log]:
    """A blocking client of the shared broker."""
    with quorumlog.connect(address, connect_timeout_ms=AMPLE_MS) as log:
        yield log


@pytest.fixture
def with_log(run: Run, client: Client) -> Callable[[Body], None]:
    """Return a function that runs a test's body with a client of a new node."""

    def run_body(body: Body) -> None:
        async def main(runtime: Runtime) -> None:
            async with client(runtime) as log:
                await body(log)

        run(main)

    return run_body
