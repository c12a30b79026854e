"""Level `broker`: one whole node and one client, with crashes at any of the node's file operations.

The node is that of `quorumlog dev`: it formats its folder, recovers, serves. The client creates
topics, produces from several tasks and follows with a consumer. At the end every partition is read:
every acknowledged record is at its offset, every consumed record is still there, offsets are
contiguous, and no unsent record is stored. Then the faults stop and the node must serve in time.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.clients.producer.batches import Delivery
from quorumlog.clients.producer.producer import AsyncProducer
from quorumlog.errors import QuorumlogError
from quorumlog.proto import log_pb2
from quorumlog.records.codec import decode_all
from quorumlog.runtime import Runtime
from quorumlog.server.config import NodeConfig
from quorumlog.server.node import Node, format_directory, is_formatted
from quorumlog.services import LOG_PRODUCE
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.frames import Data, Open
from quorumlog.simulation.links import LinkEnd
from quorumlog.simulation.loop import NS_PER_MS
from quorumlog.simulation.world import SimNode, SimWorld
from quorumlog.testing.checkers import Ledger, Place, Stored, anomalies, report

from ..checkers.data_directory import check_directory
from ..faults.node_faults import draw_crashes, run_with_crashes

ADDRESS: Final = "127.0.0.1:9094"
CONFIG: Final = NodeConfig(data_dir="/var/quorumlog", grpc_listener=ADDRESS)
PRODUCERS: Final = 2  # each with a batch for each partition
TASKS_EACH: Final = 2
PRODUCE_MS: Final = 60_000  # duration of the producing tasks
WORKLOAD_MS_MAX: Final = 900_000  # bound of the whole workload
SERVE_MS_MAX: Final = 60_000  # bound after the faults
RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The workload of a seed's client."""

    partitions: dict[str, int]  # by topic
    configs: dict[str, str]
    burst_max: int  # records of a task before it waits for their outcomes
    pause_s_max: float
    value_size_max: int
    linger_ms: int
    batch_size: int
    compression: str

    @property
    def places(self) -> list[Place]:
        """Every partition."""
        return [
            (topic, index) for topic, count in self.partitions.items() for index in range(count)
        ]


def draw_plan(entropy: SimEntropy, *, flush_policy: str) -> Plan:
    """Draw the workload of a seed."""
    topics = [f"topic-{number}" for number in range(1 + entropy.below(3))]
    return Plan(
        partitions={topic: 1 + entropy.below(3) for topic in topics},
        configs={
            "flush.policy": flush_policy,
            "segment.bytes": str(entropy.spread(2_048, 1 << 20)),
        },
        burst_max=entropy.spread(1, 30),
        pause_s_max=entropy.spread(500, 6_000) / 1000,
        value_size_max=entropy.spread(10, 4_000),
        linger_ms=entropy.below(50),
        batch_size=entropy.spread(500, 100_000),
        compression=("none", "lz4", "zstd", "gzip", "snappy")[entropy.below(5)],
    )


async def serve(runtime: Runtime) -> None:
    """Run a node as `quorumlog dev` does, without its process."""
    if not is_formatted(runtime, CONFIG):
        await format_directory(runtime, CONFIG)
    async with Node(runtime, CONFIG):
        await asyncio.Event().wait()


@dataclass(slots=True)
class Client:
    """The application on the other machine."""

    runtime: Runtime
    plan: Plan
    ledger: Ledger
    done: bool = False

    async def run(self) -> None:
        """Create topics, produce and consume; then wait for the end of the run."""
        log = await self.connect()
        for topic in self.plan.partitions:
            await self._create(log, topic)
        async with self.runtime.tasks.scope("application") as scope:
            consumer = scope.spawn(self._follow(log), name="consumer")
            await self._produce(log)
            consumer.cancel()
        self.done = True
        await asyncio.Event().wait()

    async def connect(self) -> AsyncLog:
        """Connect, with retries."""
        while True:
            try:
                return await make_log(self.runtime, ADDRESS)
            except QuorumlogError as error:
                await self._wait_after(error)

    async def read_all(self) -> dict[Place, list[tuple[int, bytes]]]:
        """Read every partition from its start to its end."""
        stored: dict[Place, list[tuple[int, bytes]]] = {place: [] for place in self.plan.places}
        log = await self.connect()
        for place in self.plan.places:
            topic, partition = place
            assign = {topic: [partition]}
            async with log.consumer(assign, start=0, until_end=True) as consumer:
                async for record in consumer:
                    stored[place].append((record.offset, record.value or b""))
        await log.close()
        return stored

    async def prove_alive(self) -> dict[Place, list[tuple[int, bytes]]]:
        """Produce one record to each partition, then read everything."""
        log = await self.connect()
        async with log.producer(linger_ms=0) as producer:
            await self._burst(producer, "last", [(place, 10) for place in self.plan.places])
        await log.close()
        return await self.read_all()

    # --- inside ---

    async def _create(self, log: AsyncLog, topic: str) -> None:
        while True:
            try:
                await log.admin.create_topic(
                    topic,
                    partitions=self.plan.partitions[topic],
                    configs=self.plan.configs,
                    if_not_exists=True,
                )
            except QuorumlogError as error:
                await self._wait_after(error)
            else:
                return

    async def _produce(self, log: AsyncLog) -> None:
        """Run the producing tasks to their end."""
        plan = self.plan
        async with self.runtime.tasks.scope("producing") as scope:
            for number in range(PRODUCERS):
                producer = log.producer(
                    linger_ms=plan.linger_ms,
                    batch_size=plan.batch_size,
                    compression=plan.compression,
                )
                for task in range(TASKS_EACH):
                    name = f"p{number}.{task}"
                    scope.spawn(self._bursts(producer, name), name=name)

    async def _bursts(self, producer: AsyncProducer, name: str) -> None:
        """Send bursts to all partitions, wait for their outcomes, pause; until the time is up."""
        plan, entropy = self.plan, self.runtime.entropy.stream(name)
        end_ms = self.runtime.clock.now_ms() + PRODUCE_MS
        while self.runtime.clock.now_ms() < end_ms:
            places = [
                (plan.places[entropy.below(len(plan.places))], entropy.below(plan.value_size_max))
                for _ in range(1 + entropy.below(plan.burst_max))
            ]
            await self._burst(producer, name, places)
            await asyncio.sleep(entropy.uniform(0.0, plan.pause_s_max))

    async def _burst(
        self, producer: AsyncProducer, name: str, places: Sequence[tuple[Place, int]]
    ) -> None:
        deliveries: list[tuple[bytes, Delivery]] = []
        for (topic, partition), size in places:
            value = f"{name}:{len(self.ledger.asked)}:".encode() + b"v" * size
            self.ledger.ask(name, value)
            try:
                deliveries.append((value, await producer.send(topic, value, partition=partition)))
            except QuorumlogError as error:
                await self._wait_after(error)
        for value, delivery in deliveries:
            try:
                delivered = await delivery
            except QuorumlogError as error:
                self.ledger.failed[type(error).__name__] += 1
            else:
                place = (delivered.topic, delivered.partition)
                self.ledger.acknowledge(value, place, delivered.offset)

    async def _follow(self, log: AsyncLog) -> None:
        """Consume from the start, again after an error; records must never change."""
        while True:
            try:
                async with log.consumer(list(self.plan.partitions)) as consumer:
                    async for record in consumer:
                        place = (record.topic, record.partition)
                        self.ledger.see(place, record.offset, record.value or b"")
            except QuorumlogError as error:
                await self._wait_after(error)

    async def _wait_after(self, error: QuorumlogError) -> None:
        self.ledger.failed[type(error).__name__] += 1
        await asyncio.sleep(RETRY_S)


class SentRecords:
    """Counts the sends of each value, by the frames that leave the client.

    The client may repeat a record after an unknown outcome, so a value may be stored as often as it
    was sent.
    """

    def __init__(self, client: SimNode, ledger: Ledger) -> None:
        self._client = client
        self._ledger = ledger
        self._produce_calls: set[tuple[int, int]] = set()  # (link, call): membership only
        self.requests = 0

    def on_sent(self, sender: LinkEnd, frame: object) -> None:
        """Inspect a frame that leaves a process."""
        if sender.process is not self._client.process:
            return
        if isinstance(frame, Open) and frame.path == LOG_PRODUCE.path:
            self._produce_calls.add((sender.link.number, frame.call))
        elif isinstance(frame, Data) and (sender.link.number, frame.call) in self._produce_calls:
            self.requests += 1
            for part in log_pb2.ProduceRequest.FromString(frame.payload).partitions:
                self._ledger.sent.update(record.value or b"" for record in decode_all(part.records))


def play(world: SimWorld, *, lying_disk: bool = False) -> dict[str, int]:
    """Run the scenario; raises AssertionError with a violation.

    With `lying_disk` nothing is ever durable: a run with a power cut must fail.
    """
    entropy = world.entropy.stream("scenario")
    is_replicated = entropy.stream("policy").chance(0.25)  # then only the process is killed
    plan = draw_plan(
        entropy.stream("plan"), flush_policy="replicated" if is_replicated else "fsync"
    )
    deaths = draw_crashes(
        entropy.stream("deaths"),
        span_ms=PRODUCE_MS,
        operations_max=100,
        power_chance=0.0 if is_replicated else 0.7,
    )
    server, application = world.node("server"), world.node("client")
    server.device.lies = lying_disk
    ledger = Ledger()
    sent = SentRecords(application, ledger)
    world.fabric.on_sent = sent.on_sent
    clients: list[Client] = []

    async def run_client(runtime: Runtime) -> None:
        clients.append(Client(runtime, plan, ledger))
        await clients[0].run()

    server.spawn(serve)
    application.spawn(run_client)
    filled = _draw_full_disk(world, server, entropy.stream("full disk"))
    happened = run_with_crashes(
        world,
        server,
        deaths,
        done=lambda: _is_done(application, clients),
        virtual_ms=WORKLOAD_MS_MAX,
        # a node on a full disk cannot store its vote
        may_end=lambda: server.device.disk.capacity_bytes is not None,
    )
    world.faults.end_all()
    server.crash() if is_replicated else server.power_cut()  # only durable data count
    if not lying_disk:
        check_directory(server, CONFIG.data_dir)
    server.restart()
    proof = application.attach(lambda runtime: clients[0].prove_alive(), name="proof")
    world.run_until(
        lambda: proof.done() or not server.alive, virtual_ms=SERVE_MS_MAX, why="the node serves"
    )
    assert server.alive, f"the node ended unexpectedly: {server.stops} {server.exit_error!r}"
    found = [*anomalies(ledger, proof.result()), *_stored_twice(proof.result())]
    assert not found, report(found)
    check_directory(server, CONFIG.data_dir)
    return {
        "deaths": happened,
        "partitions": len(plan.places),
        "acked": len(ledger.acknowledged),
        "seen": len(ledger.seen),
        "requests": sent.requests,
        "repeats": ledger.sent.total() - len(ledger.sent),
        "full": filled,
        "breaks": world.fabric.links_broken,
        "errors": ledger.failed.total(),
    }


def _stored_twice(stored: Stored) -> list[str]:
    """Return the duplicates, which idempotent producers never leave."""
    times = Counter(value for records in stored.values() for _, value in records)
    return [
        f"duplicate: {value[:20]!r} of an idempotent producer is stored {count} times"
        for value, count in times.items()
        if count > 1
    ]


def _draw_full_disk(world: SimWorld, server: SimNode, entropy: SimEntropy) -> int:
    """Schedule a full disk in some runs; return 1 if scheduled."""
    if not entropy.chance(0.3):
        return 0
    disk = server.device.disk
    from_ns = world.loop.now_ns + entropy.below(PRODUCE_MS) * NS_PER_MS
    until_ns = from_ns + entropy.spread(100, 15_000) * NS_PER_MS
    spare = entropy.below(20_000)

    def fill() -> None:
        disk.capacity_bytes = disk.used_bytes() + spare

    def free() -> None:
        disk.capacity_bytes = None

    world.loop.call_at_ns(from_ns, None, fill)
    world.loop.call_at_ns(until_ns, None, free)
    return 1


def _is_done(application: SimNode, clients: Sequence[Client]) -> bool:
    if not application.alive:
        raise AssertionError("the client failed") from application.exit_error
    return bool(clients) and clients[0].done
