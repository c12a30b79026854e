"""A coordinator without controllers goes on while all in-sync replicas follow it, and no longer."""

import pytest
from tests.scenarios.groups.setting import at_work

from quorumlog.simulation.barriers import apart
from quorumlog.simulation.cluster.machines import ClusterNode
from quorumlog.simulation.groups.plan import OFFSETS_TOPIC, Kind
from quorumlog.simulation.groups.scene import SESSION_MS, Scene

pytestmark = pytest.mark.slow

KINDS = [Kind.EAGER, Kind.BEATING]
LAPSED_MS = 3 * SESSION_MS  # sessions of brokers and of members are over by then
OFFSETS = (OFFSETS_TOPIC, 0)


def lose_the_controllers(scene: Scene, *nodes: ClusterNode) -> None:
    """Cut these brokers off from every controller, and from nobody else."""
    controllers = [node.name for node in scene.stage.cluster.controllers]
    scene.world.fabric.barriers.close(apart([node.name for node in nodes], controllers))


def taken_ms(scene: Scene) -> int:
    """When "m1" last asked something that the coordinator took it for a member for."""
    return scene.life("m1")._alive_ns // 1_000_000


def lives(scene: Scene) -> list[str]:
    """Everybody who was a member, each life under its name."""
    return [life.name for life in scene.chronicle.lives]


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_goes_on_while_all_controllers_are_away(kind: Kind) -> None:
    with at_work(kind, "m1", "m2", is_combined=False) as scene:
        lose_the_controllers(scene, *scene.stage.cluster.brokers)
        before = lives(scene)
        scene.run(LAPSED_MS)
        assert lives(scene) == before
        scene.produce(10)
        scene.until_served()
        scene.enter("m3")
        scene.until_settled("m1", "m2", "m3")
        scene.leave("m1")
        scene.until_settled("m2", "m3")
        scene.finish()


@pytest.mark.parametrize("kind", tuple(Kind))
def test_a_coordinator_whose_followers_hear_the_controllers_lets_go_when_one_is_elected(
    kind: Kind,
) -> None:
    """Its members hear it alone from then on, and it has not heard of the other one."""
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_coordinator_without_controllers_serves_no_longer_than_it_is_followed(kind: Kind) -> None:
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
