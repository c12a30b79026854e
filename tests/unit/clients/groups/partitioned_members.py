"""A simulated node and group members on machines that can be partitioned or stopped."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from quorumlog.broker.groups.config import GroupConfig
from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.runtime import Runtime
from quorumlog.server.config import NodeConfig
from quorumlog.server.node import Node, format_directory
from quorumlog.simulation import SimWorld
from quorumlog.simulation.links import apart

from .group_topic import HEARTBEAT_MS, SESSION_MS, produce

LONG_MS = 600_000


@dataclass(slots=True)
class Stage:
    """The machines, and the client tasks that run on them."""

    world: SimWorld
    tasks: "list[asyncio.Task[Any]]" = field(default_factory=list)

    def enter(self, name: str, play: Callable[[AsyncLog], Coroutine[Any, Any, None]]) -> None:
        """Run a client program on a machine."""

        async def main(runtime: Runtime) -> None:
            settings: dict[str, Any] = {"request_timeout_ms": 2_000}
            async with make_log(runtime, "server:9094", **settings) as log:
                await play(log)

        self.tasks.append(self.world.node(name).spawn(main))

    def cut(self, name: str) -> None:
        """Partition a machine from the node."""
        self.world.fabric.barriers.close(apart([name], ["server"]))

    def heal(self, name: str) -> None:
        """Heal the partition."""
        self.world.fabric.barriers.open(apart([name], ["server"]))

    def stop(self, name: str, for_ms: int) -> None:
        """Pause a machine's process, then resume it."""
        self.world.node(name).pause()
        self.run(for_ms)
        self.world.node(name).resume()

    def run(self, for_ms: int) -> None:
        """Let time pass. Raise the error of a client program."""
        self.world.run_for(for_ms)
        for task in self.tasks:
            if task.done():
                task.result()

    def until(self, condition: Callable[[], bool], why: str) -> None:
        """Let time pass until a condition is true."""
        self.world.run_until(condition, virtual_ms=LONG_MS, why=why)


@contextmanager
def staged(*, partitions: int = 4, records: int = 5) -> Iterator[Stage]:
    """A node with the topic "t" of so many records in each partition."""
    config = NodeConfig(
        data_dir="/data",
        grpc_listener="server:9094",
        allow_insecure_listeners=True,
        controller_listener="server:9093",
        groups=GroupConfig(consumer_heartbeat_ms=HEARTBEAT_MS, consumer_session_ms=SESSION_MS),
    )
    is_ready: list[bool] = []

    async def server(runtime: Runtime) -> None:
        await format_directory(runtime, config)
        async with Node(runtime, config):
            async with make_log(runtime, "server:9094") as log:
                await log.admin.create_topic("t", partitions=partitions)
                await produce(log, partitions, records)
            is_ready.append(True)
            await asyncio.Event().wait()

    with SimWorld(7) as world:
        world.node("server").spawn(server)
        stage = Stage(world)
        stage.until(lambda: bool(is_ready), "the node serves")
        yield stage
