"""Level `evil`: the application of level `clients` against a broker that lies.

An `LyingBroker` is between the clients and an honest node. No call may hang, only typed errors may
occur, each record has one outcome in time, and a consumer returns no record that is not in the log.
When the broker has become honest, the same client must work; after its close no task is left.
"""

import asyncio
from typing import Final

from quorumlog.clients.log import AsyncLog
from quorumlog.runtime import Runtime
from quorumlog.server.config import NodeConfig
from quorumlog.server.node import Node, format_directory
from quorumlog.simulation.world import SimWorld
from quorumlog.testing.checkers import Place, Stored, anomalies, report

from ..broker import ADDRESS, SentRecords
from ..clients.history import ClientHistory, within
from ..clients.level import Application, is_done, tasks_of
from ..clients.plan import CHURNED, draw_clients_plan
from .broker import LieChances, LyingBroker

HONEST: Final = "127.0.0.1:9095"
CONFIG: Final = NodeConfig(data_dir="/var/quorumlog", grpc_listener=HONEST, advertised_grpc=ADDRESS)
WORKLOAD_MS_MAX: Final = 1_200_000
# bound of the first record and the first read once the broker is honest
RECOVERY_MS: Final = 60_000


async def serve_honestly(runtime: Runtime) -> None:
    """Run the honest node."""
    await format_directory(runtime, CONFIG)
    async with Node(runtime, CONFIG):
        await asyncio.Event().wait()


def play(world: SimWorld) -> dict[str, int]:
    """Run the scenario; raises AssertionError with a violation."""
    entropy = world.entropy.stream("scenario")
    plan = draw_clients_plan(entropy.stream("plan"), flush_policy="replicated")
    temper = LieChances.draw(entropy.stream("temper"))
    honest, evil, machine = world.node("honest"), world.node("evil"), world.node("client")
    applications: list[Application] = []

    async def run_evil(runtime: Runtime) -> None:
        stream = entropy.stream("evil")
        await LyingBroker(runtime, temper, stream, address=ADDRESS, honest=HONEST).run()

    async def recover(log: AsyncLog) -> None:
        temper.calm.set()
        await _prove_alive(log, plan.places)

    async def run_application(runtime: Runtime) -> None:
        history = ClientHistory(runtime.clock, is_strict=False)
        alive = lambda: tasks_of(world, machine)  # noqa: E731
        applications.append(Application(runtime, plan, history, alive, before_close=recover))
        world.fabric.on_sent = SentRecords(machine, history.ledger).on_sent
        await applications[0].run()

    honest.spawn(serve_honestly)
    world.run_for(10_000)
    evil.spawn(run_evil)
    machine.spawn(run_application)
    world.run_until(
        lambda: is_done(machine, applications) or not (honest.alive and evil.alive),
        virtual_ms=WORKLOAD_MS_MAX,
        why="the workload's end",
    )
    assert honest.alive, f"the honest node ended: {honest.stops} {honest.exit_error!r}"
    assert evil.alive, f"the evil broker ended: {evil.exit_error!r}"
    reading = machine.attach(lambda runtime: applications[0].read_all(HONEST), name="reader")
    world.run_until(reading, virtual_ms=RECOVERY_MS, why="a read of everything")
    history = applications[0].history
    _judge(history, reading.result())
    return {
        "lies": temper.lies_told,
        "outcomes": len(history.outcomes.settled),
        "seen": len(history.ledger.seen),
        "breaks": world.fabric.links_broken,
        "errors": history.errors.total(),
        "kinds": len(history.errors),
    }


async def _prove_alive(log: AsyncLog, places: list[Place]) -> None:
    """Check that the same client works now that the broker is honest."""
    async with log.producer(linger_ms=0, delivery_timeout_ms=RECOVERY_MS) as producer:
        for topic, partition in places:
            value = b"honest %d" % partition
            work = producer.send_and_wait(topic, value, partition=partition)
            delivered = await within(RECOVERY_MS, "the first honest answer", work)
            start = delivered.offset
            read = log.read_arrow(
                topic, partitions=partition, start=start, end=start + 1, columns=["value"]
            )
            table = await within(RECOVERY_MS, "the first honest read", read)
            assert table["value"].to_pylist() == [value], f"{topic}-{partition} {start}: {table}"


def _judge(history: ClientHistory, stored: Stored) -> None:
    """Compare the history with the records of the honest node."""
    staying = {
        place: [(offset, value) for offset, value in records if not value.startswith(b"honest ")]
        for place, records in stored.items()
        if place[0] != CHURNED
    }
    kinds = ("vanished", "phantom", "duplicate", "reordered")
    found = [each for each in anomalies(history.ledger, staying) if each.startswith(kinds)]
    found += history.outcomes.found
    found += [f"no outcome: {value[:20]!r}" for value in history.outcomes.due_ms]
    assert not found, report(found)
