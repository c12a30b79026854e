"""Nodes on simulated machines, with separate or combined roles, under the control of a test."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from quorumlog.ids import NodeId
from quorumlog.metadata import BrokerImage, MetadataImage
from quorumlog.runtime import Runtime
from quorumlog.server.addresses import id_text
from quorumlog.server.config import NodeConfig
from quorumlog.server.directory_format import initial_voters
from quorumlog.server.node import Node, format_directory, is_formatted
from quorumlog.simulation.world import SimNode, SimWorld

T = TypeVar("T")
RuntimeOf: TypeAlias = Callable[[int, Runtime], Runtime]
"""A function from a node id and the simulation's ports to the ports of the node."""
CLUSTER = "c" * 22
LONG_MS = 60_000  # of virtual time, for any expected event


@dataclass(slots=True, eq=False)
class Machine:
    """A machine and the node on it."""

    sim: SimNode
    config: NodeConfig
    runtime_of: Callable[[Runtime], Runtime]  # returns the node's ports
    node: Node | None = None
    stop: asyncio.Event | None = None
    is_ready: bool = False

    @property
    def image(self) -> MetadataImage:
        """Return the committed image of this node."""
        assert self.node is not None
        assert self.node.parts.metadata is not None
        return self.node.parts.metadata.committed_image

    def start(self, *, cluster_id: str = CLUSTER) -> None:
        """Start the next process."""

        async def main(runtime: Runtime) -> None:
            runtime = self.runtime_of(runtime)
            if not is_formatted(runtime, self.config):
                forming = initial_voters(self.config)
                await format_directory(runtime, self.config, cluster_id=cluster_id, forming=forming)
            self.node, self.stop = Node(runtime, self.config), asyncio.Event()
            async with self.node:
                self.is_ready = True
                await self.stop.wait()

        self.is_ready = False
        self.sim.spawn(main)

    def stop_in_order(self) -> None:
        """Stop the node as SIGTERM does."""
        stop = self.stop
        assert stop is not None

        async def tell(runtime: Runtime) -> None:
            stop.set()

        self.sim.attach(tell, name="stop")


class Play:
    """All machines of one test."""

    def __init__(
        self, world: SimWorld, machines: dict[int, Machine], runtime_of: RuntimeOf
    ) -> None:
        self.world = world
        self.machines = machines
        self._runtime_of = runtime_of

    def __getitem__(self, node_id: int) -> Machine:
        return self.machines[node_id]

    def add(self, node_id: int, name: str, **fields: Any) -> Machine:
        """Add a machine without starting it."""
        config = NodeConfig(
            data_dir="/data",
            node_id=node_id,
            grpc_listener=f"{name}:9094",
            allow_insecure_listeners=True,
            controller_listener=f"{name}:9093",
            **fields,
        )
        machine = Machine(self.world.node(name), config, partial(self._runtime_of, node_id))
        self.machines.setdefault(node_id, machine)
        return machine

    def until(self, condition: Callable[[], bool], *, within_ms: int = LONG_MS) -> int:
        """Advance time until the condition holds; return the virtual milliseconds."""
        begun_ms = self.world.now_ms()
        self.world.run_until(condition, virtual_ms=within_ms)
        return self.world.now_ms() - begun_ms

    def all_ready(self, *node_ids: int) -> bool:
        return all(self[node_id].is_ready for node_id in node_ids or self.machines)

    def controller(self) -> Machine | None:
        """Return the machine of the active controller."""
        for machine in self.machines.values():
            parts = None if machine.node is None or not machine.sim.alive else machine.node.parts
            if parts is not None and parts.controller is not None and parts.controller.is_active:
                return machine
        return None

    def broker(self, node_id: int) -> BrokerImage | None:
        """Return a broker's registration at the active controller."""
        controller = self.controller()
        return None if controller is None else controller.image.brokers.get(NodeId(node_id))

    def is_fenced(self, node_id: int) -> bool:
        broker = self.broker(node_id)
        return broker is not None and broker.fenced

    def ask(self, main: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
        """Run a client on a new machine to its end."""
        client = self.world.node("client")
        task = client.spawn(main)
        self.until(lambda: task.done() and not client.alive)
        result: T = task.result()
        return result


@contextmanager
def cluster(
    *,
    seed: int = 1,
    controllers: int = 3,
    brokers: int = 2,
    combined: bool = False,
    racks: str = "",
    kafka: Sequence[str] = (),
    runtime_of: RuntimeOf = lambda _, runtime: runtime,
    **fields: Any,
) -> Iterator[Play]:
    """Start controllers 101.. and brokers 1.., or nodes 1.. with both roles, each with a letter of
    `racks` and with these Kafka listeners ("{}" stands for the machine's name); yield them when all
    are ready."""
    roles: dict[int, tuple[str, ...]] = {}
    if combined:
        roles = {number: ("controller", "broker") for number in range(1, brokers + 1)}
    else:
        roles = {101 + number: ("controller",) for number in range(controllers)}
        roles |= {number: ("broker",) for number in range(1, brokers + 1)}
    voters = tuple(
        f"{number}@n{number}:9093:{id_text(bytes([number]) * 16)}"
        for number, held in roles.items()
        if "controller" in held
    )
    with SimWorld(seed) as world:
        play = Play(world, {}, runtime_of)
        for number, held in roles.items():
            named: dict[str, Any] = (
                {"controller_voters": voters}
                if "controller" in held
                else {"controller_bootstrap": ("n101:9093", "n102:9093")}
            )
            if racks and "broker" in held:
                named["rack"] = racks[number - 1]
            name = f"n{number}"
            named["kafka_listeners"] = tuple(each.format(name) for each in kafka)
            play.add(number, name, roles=held, **named, **fields)
        for machine in list(play.machines.values()):
            machine.start()
        play.until(play.all_ready)
        yield play
