"""Level `clients`: one whole node, and an application with every kind of client.

Producers of four styles, consumers that follow, seek and are slow, and an administrator who deletes
and creates a topic under all of them, while the node crashes, stops, pauses and has a full disk,
and connections break. Besides the log's content, the expectations of `client_expectations` are
checked: one outcome for each record, in time; each offset once and in order; bounded memory; every
call ends within its deadline; no task is left after the close.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.errors import QuorumlogError, UnknownTopicOrPartition
from quorumlog.runtime import Runtime
from quorumlog.simulation.network import SimNetwork
from quorumlog.simulation.world import SimNode, SimWorld
from quorumlog.testing.checkers import Place, Stored, anomalies, report

from ...checkers.data_directory import check_directory
from ...faults.node_faults import draw_node_faults, run_with_faults
from ..broker import ADDRESS, CONFIG, SentRecords, serve
from .calm import play_calm
from .consumers import ConsumerWorkload, follow_churned
from .history import ClientHistory, within
from .plan import CHURNED, ClientsPlan, draw_clients_plan
from .producers import ProducerWorkload

TROUBLES_MAX: Final = 4
WORKLOAD_MS_MAX: Final = 1_200_000
SERVE_MS_MAX: Final = 60_000  # bound after the faults
RETRY_S: Final = 0.3
LEFT_S: Final = 2.0  # after the close: cancelled tasks have ended by then


@dataclass(slots=True)
class Application:
    """The process on the other machine."""

    runtime: Runtime
    plan: ClientsPlan
    history: ClientHistory
    tasks_alive: Callable[[], list[str]]  # tasks of this process, by name
    address: str = ADDRESS
    before_close: Callable[[AsyncLog], Awaitable[None]] | None = None
    done: bool = False
    is_over: bool = False  # the producers have stopped
    readers: list[ConsumerWorkload] = field(default_factory=list)

    async def run(self) -> None:
        """Run the application, close the client, and wait for the end of the run."""
        before = Counter(self.tasks_alive())
        log = await self.connect()
        try:
            await self._use(log)
        except asyncio.CancelledError as error:  # the client has ended: its close gives the reason
            await log.__aexit__(type(error), error, error.__traceback__)
            raise
        await self._close(log)
        await asyncio.sleep(LEFT_S)
        left = Counter(self.tasks_alive()) - before
        assert not left, f"left behind after the close: {sorted(left)}"
        self.done = True
        await asyncio.Event().wait()

    async def _use(self, log: AsyncLog) -> None:
        """Use the client."""
        for topic in self.plan.partitions:
            await self._create(log, topic, self.plan.partitions[topic])
        await self._create(log, CHURNED, 1)
        self.history.start_generation()
        async with self.runtime.tasks.scope("application") as scope:
            for reader in self.plan.readers:
                reading = ConsumerWorkload(
                    self.runtime, log, self.plan, reader, self.history, lambda: self.is_over
                )
                self.readers.append(reading)
                scope.spawn(reading.run(), name=reader.name)
            entropy = self.runtime.entropy.stream("churned follower")
            scope.spawn(
                follow_churned(log, self.history, entropy, lambda: self.is_over), name="churned"
            )
            churning = scope.spawn(self._churn(log), name="churn")
            await self._produce(log)
            self.is_over = True
            await churning
        if self.before_close is not None:
            await self.before_close(log)

    async def connect(self) -> AsyncLog:
        """Connect, with retries."""
        while True:
            log = make_log(
                self.runtime,
                self.address,
                request_timeout_ms=self.plan.request_timeout_ms,
                call_timeout_ms=self.plan.call_timeout_ms,
            )
            try:
                await within(5_000, "connect", log.start())
            except QuorumlogError as error:
                await self._after(error)
            else:
                return log

    # --- producing ---

    async def _produce(self, log: AsyncLog) -> None:
        """Run all producers; close half of them one by one, the others with the client."""
        sendings = [
            ProducerWorkload(self.runtime, log, self.plan, producer, self.history)
            for producer in self.plan.producers
        ]
        async with self.runtime.tasks.scope("producing") as scope:
            for sending in sendings:
                for task in range(sending.plan.tasks):
                    name = f"{sending.plan.name}.{task}"
                    scope.spawn(sending.run(name), name=name)
        for number, sending in enumerate(sendings[: len(sendings) // 2]):
            await sending.close(flush=number % 2 == 0)

    async def _close(self, log: AsyncLog) -> None:
        """Close the client; records of its open producers get their outcomes."""
        longest_ms = max(producer.delivery_timeout_ms for producer in self.plan.producers)
        bound_ms = len(self.plan.producers) * (longest_ms + 10_000)
        try:
            await within(bound_ms, "close of the client", log.close())
        except QuorumlogError as error:
            self.history.note(error)

    # --- administration ---

    async def _create(self, log: AsyncLog, topic: str, partitions: int) -> None:
        while True:
            try:
                await within(
                    2 * self.plan.call_timeout_ms,
                    f"create_topic({topic})",
                    log.admin.create_topic(
                        topic, partitions=partitions, configs=self.plan.configs, if_not_exists=True
                    ),
                )
            except QuorumlogError as error:
                await self._after(error)
            else:
                return

    async def _churn(self, log: AsyncLog) -> None:
        """Delete and create the churned topic until the producers have stopped; it exists then."""
        entropy = self.runtime.entropy.stream("churn")
        while not self.is_over:
            await asyncio.sleep(entropy.uniform(0.0, self.plan.churn_pause_s_max))
            self.history.start_generation()
            await self._delete(log)
            await asyncio.sleep(entropy.uniform(0.0, self.plan.churn_pause_s_max / 4))
            partitions = 1 + entropy.below(3)
            await self._create(log, CHURNED, partitions)
            self.history.start_generation()
            await self._check_created(log, partitions)

    async def _delete(self, log: AsyncLog) -> None:
        while True:
            try:
                await within(
                    2 * self.plan.call_timeout_ms,
                    "delete_topic",
                    log.admin.delete_topic(CHURNED),
                )
            except UnknownTopicOrPartition:
                return
            except QuorumlogError as error:
                await self._after(error)

    async def _check_created(self, log: AsyncLog, partitions: int) -> None:
        """Check that later calls of the same client return the created topic."""
        try:
            work = log.admin.describe_topic(CHURNED)
            topic = await within(self.plan.call_timeout_ms, "describe_topic", work)
            names = [each.name for each in await log.admin.list_topics()]
        except QuorumlogError as error:
            await self._after(error)
            self.history.check_error(error)
            return
        if not self.history.is_strict:
            return
        assert len(topic.partitions) == partitions, f"created with {partitions}: {topic}"
        assert set(names) >= {CHURNED, *self.plan.partitions}, f"topics are missing of {names}"

    async def _after(self, error: QuorumlogError) -> None:
        self.history.note(error)
        await asyncio.sleep(RETRY_S)

    # --- final checks ---

    async def read_all(self, address: str = "") -> dict[Place, list[tuple[int, bytes]]]:
        """Read every partition from its start to its end, the churned topic included."""
        self.address = address or self.address
        log = await self.connect()
        stored: dict[Place, list[tuple[int, bytes]]] = {}
        for topic in [*self.plan.partitions, CHURNED]:
            for partition in range(await log.partition_count(topic)):
                found: list[tuple[int, bytes]] = []
                stored[topic, partition] = found
                assign = {topic: [partition]}
                async with log.consumer(assign, until_end=True) as consumer:
                    found += [(record.offset, record.value or b"") async for record in consumer]
        await log.close()
        return stored


def play(world: SimWorld) -> dict[str, int]:
    """Run the scenario; raises AssertionError with a violation."""
    entropy = world.entropy.stream("scenario")
    is_replicated = entropy.stream("policy").chance(0.25)  # then only the process is killed
    plan = draw_clients_plan(
        entropy.stream("plan"), flush_policy="replicated" if is_replicated else "fsync"
    )
    troubles = draw_node_faults(
        entropy.stream("troubles"),
        count_max=TROUBLES_MAX,
        span_ms=plan.produce_ms,
        power_chance=0.0 if is_replicated else 0.5,
    )
    server, machine = world.node("server"), world.node("client")
    applications: list[Application] = []

    async def run_application(runtime: Runtime) -> None:
        applications.append(
            Application(
                runtime, plan, ClientHistory(runtime.clock), lambda: tasks_of(world, machine)
            )
        )
        sent = SentRecords(machine, applications[0].history.ledger)
        world.fabric.on_sent = sent.on_sent
        await applications[0].run()

    server.spawn(serve)
    machine.spawn(run_application)
    with failed_handlers() as failed:
        happened = run_with_faults(
            world,
            server,
            troubles,
            done=lambda: is_done(machine, applications),
            virtual_ms=WORKLOAD_MS_MAX,
        )
    assert not failed, f"a handler of the node failed unexpectedly: {failed[0]}"
    world.faults.end_all()
    server.crash() if is_replicated else server.power_cut()  # only durable data count
    server.restart()
    reading = machine.attach(lambda runtime: applications[0].read_all(), name="reader")
    world.run_until(
        lambda: reading.done() or not server.alive, virtual_ms=SERVE_MS_MAX, why="the node serves"
    )
    assert server.alive, f"the node ended unexpectedly: {server.stops} {server.exit_error!r}"
    history = applications[0].history
    judge(history, reading.result(), was_calm=not happened and not world.fabric.links_broken)
    play_calm(world, machine, SERVE_MS_MAX)
    facts = facts_of(history, happened, world)
    check_directory(server, CONFIG.data_dir)
    return facts


def judge(history: ClientHistory, stored: Stored, *, was_calm: bool) -> None:
    """Compare the history with the stored records; raises AssertionError."""
    staying = {place: records for place, records in stored.items() if place[0] != CHURNED}
    churned = {place: records for place, records in stored.items() if place[0] == CHURNED}
    found = anomalies(history.ledger, staying) + anomalies(history.churned, churned)
    found += history.outcomes.anomalies(staying)
    times = Counter(_values(staying))
    found += [
        f"lost write: {value[:20]!r} was acknowledged without a partition, and is not stored"
        for value in sorted(history.anywhere)
        if not times[value]
    ]
    found += [
        f"duplicate: {value[:20]!r} is stored {count} times, by an idempotent producer or where no "
        "outcome was unknown"
        for value, count in (times + Counter(_values(churned))).items()
        if count > 1 and (was_calm or value in history.once)
    ]
    assert not found, report(found)


def _values(stored: Stored) -> Iterator[bytes]:
    for records in stored.values():
        for _, value in records:
            yield value


def facts_of(history: ClientHistory, happened: Counter[str], world: SimWorld) -> dict[str, int]:
    """Return the counts for a seed's line."""
    outcomes = Counter(history.outcomes.settled.values())
    return {
        **{str(kind): count for kind, count in happened.items()},
        **{str(outcome): count for outcome, count in sorted(outcomes.items())},
        "acked": len(history.ledger.acknowledged),
        "seen": len(history.ledger.seen),
        "repeats": history.ledger.sent.total() - len(history.ledger.sent),
        "recreated": history.generation // 2,
        "breaks": world.fabric.links_broken,
        "errors": history.errors.total(),
    }


@contextmanager
def failed_handlers() -> Iterator[list[str]]:
    """Collect logged errors of handlers that are not typed errors."""
    failed: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            failed.append(f"{record.getMessage()} {record.exc_info and record.exc_info[1]!r}")

    log, collect = logging.getLogger(SimNetwork.__module__), Collect(logging.ERROR)
    log.addHandler(collect)
    try:
        yield failed
    finally:
        log.removeHandler(collect)


def tasks_of(world: SimWorld, node: SimNode) -> list[str]:
    """Return the names of a node's pending tasks."""
    return [task.get_name() for task in world.loop.pending_tasks(node.process)]


def is_done(machine: SimNode, applications: list[Application]) -> bool:
    """Return True if the application is done; raises its error."""
    if not machine.alive:
        raise AssertionError("the application failed") from machine.exit_error
    return bool(applications) and applications[0].done
