"""Three nodes with both roles on the simulated runtime, and a client."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from quorumlog.broker import LATEST, Acks, OffsetOutcome, OffsetSpec
from quorumlog.broker.config import ReplicationConfig
from quorumlog.broker.shell.replica import Replica
from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.errors import QuorumlogError, UnknownTopicOrPartition
from quorumlog.records import Record, decode_all, encode_batch
from quorumlog.runtime import Runtime
from quorumlog.server.addresses import id_text
from quorumlog.server.config import NodeConfig
from quorumlog.server.directory_format import initial_voters
from quorumlog.server.node import Node, format_directory
from quorumlog.simulation import Faults, SimNode, SimWorld
from quorumlog.simulation.links import Direction, apart
from quorumlog.storage.shell import Appended

T = TypeVar("T")

CLUSTER: Final = "c" * 22
START_MS: Final = 60_000
LAG_MS: Final = 2_000


class Cluster:
    """The nodes of a world, by number."""

    def __init__(self, world: SimWorld, numbers: Sequence[int] = (1, 2, 3)) -> None:
        self.world = world
        self.numbers = tuple(numbers)
        voters = tuple(
            f"{number}@n{number}:9093:{id_text(bytes([number]) * 16)}" for number in numbers
        )
        self.configs = {
            number: NodeConfig(
                data_dir="/var/quorumlog",
                node_id=number,
                cluster_id=CLUSTER,
                grpc_listener=f"n{number}:9094",
                allow_insecure_listeners=True,
                controller_listener=f"n{number}:9093",
                controller_voters=voters,
                election_timeout_ms=300,
                heartbeat_ms=50,
                replication=ReplicationConfig(lag_time_max_ms=LAG_MS),
            )
            for number in numbers
        }
        self.nodes: dict[int, Node] = {}
        self._clients = 0

    def machine(self, number: int) -> SimNode:
        return self.world.node(f"n{number}")

    def start(self, *numbers: int) -> None:
        """Start the given nodes, or all, and wait until they serve."""
        wanted = numbers or self.numbers
        for number in wanted:
            self.nodes.pop(number, None)
            self.machine(number).spawn(partial(self._serve, number))
        self.until(lambda: all(number in self.nodes for number in wanted), START_MS)

    async def _serve(self, number: int, runtime: Runtime) -> None:
        config = self.configs[number]
        await format_directory(runtime, config, cluster_id=CLUSTER, forming=initial_voters(config))
        async with Node(runtime, config) as node:
            self.nodes[number] = node
            await asyncio.Event().wait()

    def crash(self, number: int, *, power: bool = False) -> None:
        """Kill a node's process, or its machine."""
        self.nodes.pop(number, None)
        (self.machine(number).power_cut if power else self.machine(number).crash)()

    def until(self, condition: Callable[[], bool], virtual_ms: int = 30_000) -> None:
        """Advance time until the condition holds."""
        self.world.run_until(condition, virtual_ms=virtual_ms)

    def run(self, work: Callable[[AsyncLog], Awaitable[T]], *, virtual_ms: int = 60_000) -> T:
        """Run work as a client."""
        found: list[T] = []

        async def main(runtime: Runtime) -> None:
            addresses = ",".join(f"n{number}:9094" for number in sorted(self.nodes))
            async with make_log(runtime, addresses) as log:
                found.append(await work(log))

        self._clients += 1
        task = self.world.node(f"client{self._clients}").spawn(main)
        self.world.run_until(task, virtual_ms=virtual_ms)
        task.result()
        return found[0]

    def append(
        self,
        number: int,
        topic: str,
        *values: bytes,
        acks: Acks = Acks.LEADER,
        timeout_ms: int = 10_000,
        timestamp_ms: int = 1,
    ) -> "asyncio.Task[Appended]":
        """Append one batch on a node directly, without a client."""

        async def main(runtime: Runtime) -> Appended:
            manager = self.nodes[number].parts.replicas
            assert manager is not None
            records = [
                Record(place, timestamp_ms, None, value) for place, value in enumerate(values)
            ]
            deadline_ms = runtime.clock.now_ms() + timeout_ms
            append = await manager.writer.submit(
                topic, 0, encode_batch(records), acks=acks, leader_epoch=None
            )
            return await append.wait_until(runtime.clock, deadline_ms)

        return self.machine(number).attach(main, name="append")

    def latest(self, number: int, topic: str) -> int:
        """Return the latest offset of a node. Raise its error."""

        async def main(_: Runtime) -> OffsetOutcome:
            manager = self.nodes[number].parts.replicas
            assert manager is not None
            return (await manager.reader.list_offsets([OffsetSpec(topic, 0, LATEST)]))[0]

        task = self.machine(number).attach(main, name="latest")
        self.world.run_until(task, virtual_ms=1_000)
        outcome: OffsetOutcome = task.result()
        if outcome.error is not None:
            raise outcome.error
        return outcome.offset

    def cut_off(self, number: int) -> list[Direction]:
        """Isolate a node from all others without connection resets, until the barrier is
        removed."""
        others = [f"n{other}" for other in self.numbers if other != number]
        clients = [f"client{each}" for each in range(1, 100)]
        barrier = list(apart([f"n{number}"], [*others, *clients]))
        self.world.fabric.barriers.close(barrier)
        return barrier

    def separate(self, one: int, other: int) -> list[Direction]:
        """Block traffic between two nodes until the barrier is removed."""
        barrier = list(apart([f"n{one}"], [f"n{other}"]))
        self.world.fabric.barriers.close(barrier)
        return barrier

    def join_again(self, barrier: Sequence[Direction]) -> None:
        self.world.fabric.barriers.open(barrier)

    def controller(self) -> int:
        """Return the leader of the quorum; 0: none."""
        for number, node in self.nodes.items():
            if node.parts.raft is not None and node.parts.raft.status().is_leader:
                return number
        return 0

    def create(self, *replicas: int, **configs: str) -> None:
        """Create the topic "t" with one partition on these nodes; the first is the leader."""

        async def ask(log: AsyncLog) -> None:
            named = {name.replace("_", "."): value for name, value in configs.items()}
            await log.admin.create_topic("t", assignments=[list(replicas)], configs=named)

        self.run(ask)
        self.until(lambda: self.leader("t") == replicas[0])

    def send(self, *values: bytes, **options: object) -> None:
        """Produce to "t", and wait for all acknowledgements."""
        self.run(lambda log: produce(log, "t", values, **options))

    def everywhere(self, *numbers: int) -> list[bytes | None]:
        """Return the content of all replicas, once all are in sync and equal."""
        wanted = numbers or self.numbers

        def is_settled() -> bool:
            logs = [self.replica(number, "t") for number in wanted]
            if not all(replica.is_open for replica in logs):
                return False
            ends = {replica.log.log_end_offset for replica in logs}
            return self.isr("t") == set(wanted) and ends == {
                replica.partition.high_watermark for replica in logs
            }

        self.until(is_settled)
        values = [self.values(number, "t") for number in wanted]
        assert all(each == values[0] for each in values), values
        return values[0]

    # --- replicas -----------------------------------------------------------------------------

    def replica(self, number: int, topic: str, index: int = 0) -> Replica:
        manager = self.nodes[number].parts.replicas
        assert manager is not None
        return manager.hosted.local_replica(topic, index)

    def leader(self, topic: str, index: int = 0) -> int:
        """Return the partition leader by the view of the running nodes; 0: none."""
        for number in sorted(self.nodes):
            replica = self.held(number, topic, index)
            if replica is not None and replica.partition.is_leader:
                return number
        return 0

    def held(self, number: int, topic: str, index: int = 0) -> Replica | None:
        """Return the replica on a node; None: it has none."""
        try:
            return self.replica(number, topic, index)
        except UnknownTopicOrPartition:
            return None

    def all_held(self, topic: str, index: int = 0) -> list[tuple[int, Replica]]:
        """Return all replicas on running nodes."""
        found = [(number, self.held(number, topic, index)) for number in sorted(self.nodes)]
        return [(number, replica) for number, replica in found if replica is not None]

    def leader_beside(self, old: int, topic: str, index: int = 0) -> int:
        """Return another leader than `old`; 0: none."""
        for number in sorted(self.nodes):
            if number != old and self.replica(number, topic, index).partition.is_leader:
                return number
        return 0

    def ends(self, topic: str, index: int = 0) -> dict[int, int]:
        return {
            number: replica.log.log_end_offset
            for number, replica in self.all_held(topic, index)
            if replica.is_open
        }

    def marks(self, topic: str, index: int = 0) -> dict[int, int]:
        return {
            number: replica.partition.high_watermark
            for number, replica in self.all_held(topic, index)
        }

    def isr(self, topic: str, index: int = 0) -> set[int]:
        leader = self.leader(topic, index)
        if not leader:
            return set()
        led = self.replica(leader, topic, index).partition.leader
        state = None if led is None else led.state
        assert state is not None
        return {int(node) for node in state.isr}

    def values(self, number: int, topic: str, index: int = 0) -> list[bytes | None]:
        """Return the values in one replica's log."""
        log = self.replica(number, topic, index).log
        found, offset = [], log.log_start_offset
        while offset < log.log_end_offset:
            place = log.read(offset, max_bytes=1 << 20)
            assert place is not None
            content = place.read()
            place.release()
            records = decode_all(content)
            found += [record.value for record in records if record.offset >= offset]
            offset = place.end_of(content)
        return found


async def produce(log: AsyncLog, topic: str, values: Sequence[bytes], **options: object) -> None:
    """Send records, and wait for all acknowledgements."""
    async with log.producer(**options) as producer:  # type: ignore[call-overload]
        for value in values:
            await producer.send(topic, value)


async def tried(work: Callable[[], Awaitable[T]], times: int = 50) -> T:
    """Repeat the work until it succeeds."""
    for _ in range(times - 1):
        try:
            return await work()
        except QuorumlogError:
            await asyncio.sleep(0.2)
    return await work()


def world(seed: int = 1) -> SimWorld:
    return SimWorld(seed, faults=Faults())
