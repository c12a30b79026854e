"""Each cell of the table in docs/failure_model.md is the result of a simulated failure.

A failure is caused, time passes, a client tries to write and to read; then all nodes are repaired
and the acknowledged records are read.
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.simulation.cluster.nodes import ClusterNode
from tests.simulation.cluster.options import TopicPlan
from tests.simulation.cluster.scripted import CLIENT, ScriptedCluster, options_of

from quorumlog.clients.producer.producer import AsyncProducer
from quorumlog.errors import QuorumlogError
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimWorld
from quorumlog.simulation.links import apart
from quorumlog.testing.checkers import AnomalyKind, check

PAGE: Final = Path(__file__).parents[3] / "docs" / "failure_model.md"
PLACE: Final = ("t", 0)
SETTLE_MS: Final = 9_000  # more than the session and lag timeouts of 3 s
TRY_MS: Final = 8_000
BEFORE: Final = 5  # records

pytestmark = pytest.mark.slow


def cells() -> dict[tuple[str, int, bool], str]:
    """Return the cells of the page's table: by failure, min.insync.replicas and unclean
    elections."""
    rows = PAGE.read_text().partition("| failure |")[2].partition("\n\n")[0].splitlines()
    columns = re.findall(r"(\d), (true|false)", rows[0])
    found = {}
    for row in rows[2:]:
        name, *texts = [cell.strip() for cell in row.strip("| ").split("|")]
        for (min_isr, unclean), text in zip(columns, texts, strict=True):
            found[name, int(min_isr), unclean == "true"] = text
    return found


CELLS: Final = cells()


# --- the failures --------------------------------------------------------------------------------


def leader_cut_from_controllers(stage: ScriptedCluster) -> None:
    _cut([stage.leader(PLACE)], stage.cluster.controllers, stage)


def leader_cut_from_followers(stage: ScriptedCluster) -> None:
    _cut([stage.leader(PLACE)], stage.followers(PLACE), stage)


def leader_cut_from_clients(stage: ScriptedCluster) -> None:
    stage.world.fabric.barriers.close(apart([stage.leader(PLACE).name], [CLIENT]))


def one_of_three_controllers_lost(stage: ScriptedCluster) -> None:
    active = stage.cluster.leader()
    assert active is not None
    stage.take_down(active)


def two_of_three_controllers_lost(stage: ScriptedCluster) -> None:
    for controller in stage.cluster.controllers[:2]:
        stage.take_down(controller)


def two_of_three_brokers_lost(stage: ScriptedCluster) -> None:
    stage.take_down(stage.leader(PLACE))
    stage.take_down(stage.followers(PLACE)[0])


def all_in_sync_replicas_lost_one_lagging_left(stage: ScriptedCluster) -> None:
    behind, other = stage.followers(PLACE)
    stage.take_down(behind)
    stage.until(lambda: behind.node_id not in stage.partition(PLACE).isr, "one is behind")
    stage.produce(PLACE, 3)
    leader = stage.leader(PLACE)
    stage.take_down(other)
    stage.take_down(leader)
    stage.until(lambda: not _has_leader_of(stage, (leader, other)), "neither leads")
    stage.bring_up(behind)


FAILURES: Final[dict[str, Callable[[ScriptedCluster], None]]] = {
    "leader cut from controllers": leader_cut_from_controllers,
    "leader cut from followers": leader_cut_from_followers,
    "leader cut from clients": leader_cut_from_clients,
    "one of three controllers lost": one_of_three_controllers_lost,
    "two of three controllers lost": two_of_three_controllers_lost,
    "two of three brokers lost": two_of_three_brokers_lost,
    "all in-sync replicas lost, one lagging left": all_in_sync_replicas_lost_one_lagging_left,
}


# --- the test ------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("failure", "min_isr", "is_unclean"),
    CELLS,
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else str(value).lower(),
)
def test_a_cell_of_the_table_is_the_result_of_its_failure(
    failure: str, min_isr: int, is_unclean: bool
) -> None:
    topic = TopicPlan(
        name="t",
        partitions=1,
        replication=3,
        min_isr=min_isr,
        flush_policy="fsync" if min_isr == 1 else "replicated",
        is_unclean=is_unclean,
    )
    with SimWorld(1) as world:
        stage = ScriptedCluster(world, options_of(topic, is_combined=False))
        stage.start()
        stage.produce(PLACE, BEFORE)
        producer = stage.do(lambda runtime: _open_producer(stage))
        assert _try(stage, lambda runtime: _write_one(stage, producer))
        stage.run(1_000)
        FAILURES[failure](stage)
        stage.run(SETTLE_MS)
        can_write = _try(stage, lambda runtime: _write_one(stage, producer))
        can_read = _try(stage, lambda runtime: _read_some(stage))
        lost = _heal_and_count_losses(stage)
    available = {(True, True): "writes and reads", (False, True): "reads"}
    does = available.get((can_write, can_read), "neither")
    loses = "loses records" if lost else "loses nothing"
    assert f"{does}; {loses}" == CELLS[failure, min_isr, is_unclean]


def test_every_failure_of_the_table_is_simulated() -> None:
    assert {failure for failure, _, _ in CELLS} == set(FAILURES)
    assert len(CELLS) == 4 * len(FAILURES)


# --- helpers -------------------------------------------------------------------------------------


def _cut(some: list[ClusterNode], others: list[ClusterNode], stage: ScriptedCluster) -> None:
    names = [node.name for node in some], [node.name for node in others]
    stage.world.fabric.barriers.close(apart(*names))


def _has_leader_of(stage: ScriptedCluster, nodes: tuple[ClusterNode, ...]) -> bool:
    return stage.partition(PLACE).leader in {node.node_id for node in nodes}


def _try(stage: ScriptedCluster, work: Callable[[Runtime], object]) -> bool:
    """Return True if a client completes the work in time."""
    task: asyncio.Task[object] = stage.begin(work)  # type: ignore[arg-type]
    end_ms = stage.world.now_ms() + TRY_MS
    while not task.done() and stage.world.now_ms() < end_ms:
        stage.run(50)
    if not task.done():
        task.cancel()
        return False
    error = task.exception()
    assert error is None or isinstance(error, QuorumlogError), error
    return error is None


async def _open_producer(stage: ScriptedCluster) -> AsyncProducer:
    return stage.client().producer(linger_ms=0, delivery_timeout_ms=2 * TRY_MS)


async def _write_one(stage: ScriptedCluster, producer: AsyncProducer) -> None:
    """Write a record with a producer that was opened before the failure."""
    value = stage.notes.next_value(CLIENT, 3)
    history = stage.notes.history
    history.invoke("trial", PLACE, value, at=stage.notes.now_ns())
    delivered = await producer.send_and_wait("t", value, partition=0)
    history.acknowledge(value, delivered.offset, at=stage.notes.now_ns())


async def _read_some(stage: ScriptedCluster) -> None:
    """Read records that were acknowledged long before the failure, with a new consumer."""
    async with stage.client().consumer({"t": [0]}) as consumer:
        found = 0
        while found < BEFORE:
            found += len(await consumer.poll(timeout_ms=1_000))


def _heal_and_count_losses(stage: ScriptedCluster) -> int:
    for node in stage.cluster.nodes:
        if not node.sim.alive:
            stage.bring_up(node)
    stage.notes.is_clean = False  # this function checks the records
    stored = stage.finish()
    found = check(stage.notes.history, stored)
    lost = [one for one in found if one.kind is AnomalyKind.LOST_WRITE]
    others = [one for one in found if one.kind is not AnomalyKind.LOST_WRITE]
    assert not [one for one in others if one.kind is not AnomalyKind.INCONSISTENT_OFFSET], others
    return len(lost)
