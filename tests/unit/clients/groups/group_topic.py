"""A simulated node with a topic, and helpers that record what group members read."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from tests.kit.node_settings import with_settings

from quorumlog import simulation
from quorumlog.broker.groups.config import GroupConfig
from quorumlog.clients.groups.group_consumer import AsyncGroupConsumer
from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.runtime import Runtime
from quorumlog.server.config import NodeConfig
from quorumlog.server.node import Node, format_directory

Place: TypeAlias = tuple[str, int]
HEARTBEAT_MS = 1_000
SESSION_MS = 10_000


def make_config(folder: Path, **settings: Any) -> NodeConfig:
    return with_settings(
        NodeConfig(
            data_dir=str(folder / "data"),
            grpc_listener="127.0.0.1:0",
            controller_listener="127.0.0.1:0",
            groups=GroupConfig(consumer_heartbeat_ms=HEARTBEAT_MS, consumer_session_ms=SESSION_MS),
        ),
        **settings,
    )


@asynccontextmanager
async def node_with_topic(
    runtime: Runtime, folder: Path, *, partitions: int = 4, records: int = 5
) -> AsyncIterator[AsyncLog]:
    """A client of a node with the topic "t" of so many records in each partition."""
    config = make_config(folder)
    await format_directory(runtime, config)
    async with (
        Node(runtime, config) as node,
        make_log(runtime, node.addresses.grpc) as log,
    ):
        await log.admin.create_topic("t", partitions=partitions)
        await produce(log, partitions, records)
        yield log


async def produce(log: AsyncLog, partitions: int, records: int) -> None:
    async with log.producer() as producer:
        for number in range(records * partitions):
            await producer.send("t", b"%d" % number, partition=number % partitions)


def play(main: Callable[[AsyncLog], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Run a test with a simulated node."""

    async def run(runtime: Runtime) -> None:
        async with node_with_topic(runtime, Path("/node"), **options) as log:
            await main(log)

    simulation.run(run)


class Callbacks:
    """The callbacks of a member, and their calls in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[Place]]] = []

    def callbacks(self) -> dict[str, Any]:
        def to(what: str) -> Callable[[list[Place]], None]:
            return lambda places: self.events.append((what, sorted(places)))

        names = ("on_assigned", "on_revoked", "on_lost")
        return {name: to(name.removeprefix("on_")) for name in names}


async def read_all(*consumers: AsyncGroupConsumer, for_ms: int) -> list[list[tuple[Place, int]]]:
    """Poll all consumers in turn for a time. Return the records of each."""
    got: list[list[tuple[Place, int]]] = [[] for _ in consumers]

    async def read(consumer: AsyncGroupConsumer, into: list[tuple[Place, int]]) -> None:
        while True:
            records = await consumer.poll(timeout_ms=200)
            into += [((record.topic, record.partition), record.offset) for record in records]

    limit = asyncio.timeout(for_ms / 1000)
    try:
        async with limit:
            pairs = zip(consumers, got, strict=True)
            await asyncio.gather(*(read(consumer, into) for consumer, into in pairs))
    except TimeoutError:
        if not limit.expired():  # a consumer's TimedOut
            raise
    return got
