"""A coordinator without controllers continues while all in-sync replicas follow it, and no
longer."""

import pytest
from tests.scenarios.groups.group_under_test import at_work, started
from tests.simulation.cluster.nodes import ClusterNode
from tests.simulation.cluster.scripted import CLIENT
from tests.simulation.levels.groups.plan import OFFSETS_TOPIC, MemberKind
from tests.simulation.levels.groups.scripted import SESSION_MS, ScriptedGroup

from quorumlog.simulation.links import apart

pytestmark = pytest.mark.slow

KINDS = [MemberKind.EAGER, MemberKind.BEATING]
LAPSED_MS = 3 * SESSION_MS  # after this time the sessions of brokers and members are expired
OFFSETS = (OFFSETS_TOPIC, 0)


def lose_the_controllers(scene: ScriptedGroup, *nodes: ClusterNode) -> None:
    """Isolate these brokers from every controller only."""
    controllers = [node.name for node in scene.stage.cluster.controllers]
    scene.world.fabric.barriers.close(apart([node.name for node in nodes], controllers))


def taken_ms(scene: ScriptedGroup) -> int:
    """Return the time of the last request of "m1" that the coordinator accepted."""
    return scene.life("m1")._alive_ns // 1_000_000


def incarnations(scene: ScriptedGroup) -> list[str]:
    """Return all member ids that ever existed."""
    return [life.name for life in scene.group_history.incarnations]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_group_continues_without_controllers(kind: MemberKind) -> None:
    with at_work(kind, "m1", "m2", is_combined=False) as scene:
        lose_the_controllers(scene, *scene.stage.cluster.brokers)
        before = incarnations(scene)
        scene.run(LAPSED_MS)
        assert incarnations(scene) == before
        scene.produce(10)
        scene.until_served()
        scene.enter("m3")
        scene.until_settled("m1", "m2", "m3")
        scene.leave("m1")
        scene.until_settled("m2", "m3")
        scene.finish()


@pytest.mark.long
@pytest.mark.parametrize("kind", tuple(MemberKind))
def test_a_coordinator_stops_once_a_follower_with_controllers_is_elected(
    kind: MemberKind,
) -> None:
    """From then on its members reach only it, and it has no message of the new one."""
    with at_work(kind, "m1", is_combined=False) as scene:
        before = scene.coordinator()
        others = [node.name for node in scene.stage.cluster.brokers if node is not before]
        lose_the_controllers(scene, before)
        scene.until(
            lambda: scene.stage.partition(OFFSETS).leader not in (-1, before.node_id),
            "another one coordinates",
        )
        scene.world.fabric.barriers.close(apart(["m1"], others))
        scene.world.fabric.barriers.close(apart(["m2"], [before.name]))
        scene.enter("m2")
        scene.until(lambda: len(scene.held("m2")) == 4, "the other one has everything")
        scene.run(SESSION_MS)
        scene.judge()
        scene.produce(5)
        scene.finish()


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_coordinator_without_controllers_serves_no_longer_than_it_is_followed(
    kind: MemberKind,
) -> None:
    with at_work(kind, "m1", is_combined=False) as scene:
        before = scene.coordinator()
        follower = scene.stage.followers(OFFSETS)[0]
        lose_the_controllers(scene, *scene.stage.cluster.brokers)
        scene.run(LAPSED_MS)
        silent_ms = taken_ms(scene)
        assert silent_ms >= scene.world.now_ms() - SESSION_MS
        scene.stage.cut(before, follower)
        scene.run(LAPSED_MS)
        assert taken_ms(scene) <= silent_ms + SESSION_MS
        scene.finish()


@pytest.mark.long
def test_a_coordinator_alone_in_the_isr_responds_only_until_another_may_be_elected() -> None:
    """A replica that left the ISR below min.insync.replicas has all committed records and may be
    elected (KIP-966): an ISR with one member proves nothing."""
    with started(MemberKind.EAGER, is_combined=False) as scene:
        before, place = scene.coordinator(), scene.places[0]
        others = [node for node in scene.stage.cluster.brokers if node is not before]
        for other in others:
            scene.stage.take_down(other)
        scene.until(
            lambda: scene.stage.partition(OFFSETS).isr == (before.node_id,), "it is in sync alone"
        )
        assert scene.stage.partition(OFFSETS).elr, "one of the others may be elected"
        for other in others:
            scene.stage.cut(before, other)
            scene.stage.bring_up(other)
        lose_the_controllers(scene, before)
        assert scene.ask(lambda calls: calls.commit("", "", -1, {place: (1, "")})) == {place: 0}
        assert scene.coordinator() is not before
        names = [other.name for other in others]
        scene.world.fabric.barriers.close(apart([CLIENT], names))
        looking = scene.begin_to_ask(lambda calls: calls.fetch([place]))
        scene.run(LAPSED_MS)
        assert not looking.done(), f"{looking.result()} has members that it confirmed"
        scene.stage.mend()
        scene.until(looking.done, "the next coordinator responds")
        assert looking.result()[1][place].offset == 1
