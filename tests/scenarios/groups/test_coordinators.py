"""The coordinator is killed, moves or is isolated while a join, a sync or a commit is pending."""

from collections.abc import Callable
from typing import TypeAlias

import pytest
from tests.scenarios.groups.group_under_test import CLASSIC, at_work, started
from tests.simulation.cluster.nodes import ClusterNode
from tests.simulation.levels.groups.plan import OFFSETS_TOPIC, MemberKind
from tests.simulation.levels.groups.scripted import SESSION_MS, ScriptedGroup

from quorumlog.broker.groups.shell.group_coordinator_shard import GroupCoordinatorShard
from quorumlog.simulation.links import apart

pytestmark = pytest.mark.slow

Fate: TypeAlias = Callable[[ScriptedGroup, ClusterNode], None]


def dies(scene: ScriptedGroup, node: ClusterNode) -> None:
    scene.stage.cluster.kill(node, power=False, down_ms=5_000)


def loses_its_power(scene: ScriptedGroup, node: ClusterNode) -> None:
    scene.stage.cluster.note_damage(node)
    scene.stage.cluster.kill(node, power=True, down_ms=5_000)


def moves(scene: ScriptedGroup, node: ClusterNode) -> None:
    assert scene.stage.cluster.stop_in_order(node)


def is_cut_off(scene: ScriptedGroup, node: ClusterNode) -> None:
    scene.stage.isolate(node, from_clients=False)


FATES = (dies, loses_its_power, moves, is_cut_off)


def term(scene: ScriptedGroup) -> GroupCoordinatorShard:
    """Return the coordinator's shard of the partition with the group."""
    node = scene.coordinator().node
    assert node is not None
    assert node.parts.groups is not None
    return node.parts.groups._shards[0]


def waiting(scene: ScriptedGroup) -> int:
    """Return the number of pending requests at the coordinator."""
    return len(term(scene)._waiting)


def state(scene: ScriptedGroup) -> str:
    """Return the state of the group."""
    (line,) = filter(None, term(scene).loaded_state().listings())
    return line.state


def another_coordinates(scene: ScriptedGroup, before: ClusterNode) -> None:
    scene.until(
        lambda: (
            (state := scene.stage.partition((OFFSETS_TOPIC, 0))).leader >= 0
            and state.leader != before.node_id
        ),
        "another one coordinates",
    )


@pytest.mark.long
@pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.__name__)
@pytest.mark.parametrize("kind", CLASSIC)
def test_the_coordinator_is_lost_while_joins_wait(kind: MemberKind, fate: Fate) -> None:
    with started(kind) as scene:
        scene.enter("m1")
        scene.enter("m2")
        scene.until(lambda: waiting(scene) == 2, "both joins wait for more members")
        before = scene.coordinator()
        fate(scene, before)
        another_coordinates(scene, before)
        scene.produce(5)
        scene.finish()


@pytest.mark.long
@pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.__name__)
def test_the_coordinator_is_lost_while_a_sync_waits_for_the_leaders(fate: Fate) -> None:
    with started(MemberKind.COOPERATIVE) as scene:
        scene.enter("m1")
        scene.until(lambda: waiting(scene) == 1, "it is first, so it will lead")
        scene.enter("m2")
        scene.until(lambda: waiting(scene) == 2, "both joins wait")
        scene.hang("m1")
        scene.until(
            lambda: state(scene) == "CompletingRebalance" and waiting(scene) == 1,
            "the generation has begun, and the other one waits for its part",
        )
        before = scene.coordinator()
        fate(scene, before)
        another_coordinates(scene, before)
        scene.wake("m1")
        scene.produce(5)
        scene.finish()


@pytest.mark.long
@pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.__name__)
@pytest.mark.parametrize("kind", [MemberKind.EAGER, MemberKind.BEATING])
def test_the_coordinator_is_lost_while_a_commit_waits_for_replicas(
    kind: MemberKind, fate: Fate
) -> None:
    with at_work(kind, "m1") as scene:
        before = scene.coordinator()
        others = [node for node in scene.stage.cluster.nodes if node is not before]
        scene.hang("m1")
        scene.produce(5)
        for other in others:
            scene.stage.cut(before, other)  # no other replica has its further appends
        scene.wake("m1")
        scene.until(lambda: waiting(scene) > 0, "something waits")
        fate(scene, before)
        scene.stage.mend()
        if fate is is_cut_off:
            scene.stage.isolate(before, from_clients=False)
        another_coordinates(scene, before)
        scene.produce(5)
        scene.finish()


@pytest.mark.long
@pytest.mark.parametrize("kind", [MemberKind.EAGER, MemberKind.BEATING])
def test_an_isolated_coordinator_confirms_no_membership(kind: MemberKind) -> None:
    """Its members still reach it, but it must not confirm their membership: another coordinator has
    not received their heartbeats."""
    with at_work(kind, "m1") as scene:
        before = scene.coordinator()
        barriers = scene.world.fabric.barriers
        others = [node.name for node in scene.stage.cluster.nodes if node is not before]
        scene.stage.isolate(before, from_clients=False)
        barriers.close(apart(["m1"], others))
        another_coordinates(scene, before)
        barriers.close(apart(["m2"], [before.name]))
        scene.enter("m2")
        scene.until(lambda: len(scene.held("m2")) == 4, "the other one has everything")
        scene.run(SESSION_MS)
        scene.judge()
        scene.produce(5)
        scene.finish()


@pytest.mark.long
@pytest.mark.parametrize("kind", tuple(MemberKind))
def test_a_group_survives_the_loss_of_consecutive_coordinators(kind: MemberKind) -> None:
    with at_work(kind, "m1", "m2", seed=3) as scene:
        for number in range(4):
            before = scene.coordinator()
            moves(scene, before) if number % 2 else dies(scene, before)
            another_coordinates(scene, before)
            scene.produce(3)
            scene.until_served()
            scene.until(lambda: before.is_up and before.is_ready, "it is back")  # noqa: B023
        scene.finish()
