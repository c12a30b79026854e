"""A coordinator that loads its log accepts every member, as clients expect, but not once another
one may be the coordinator."""

import pytest
from tests.scenarios.groups.group_under_test import at_work
from tests.simulation.levels.groups.plan import OFFSETS_TOPIC, MemberKind
from tests.simulation.levels.groups.scripted import SESSION_MS

from quorumlog.simulation.links import apart

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_a_coordinator_that_is_isolated_while_it_loads_accepts_no_member() -> None:
    with at_work(MemberKind.EAGER, "m1", is_combined=False) as scene:
        cluster, barriers = scene.stage.cluster, scene.world.fabric.barriers
        before = scene.coordinator()
        one, other = (node.name for node in cluster.brokers if node is not before)
        barriers.close(apart([one], [other]))  # neither has the commit offset: it continues to load
        scene.stage.take_down(before)
        scene.until(lambda: scene.coordinator() is not before, "another one coordinates")
        reads = scene.coordinator()
        since_ns = scene.world.loop.now_ns
        scene.until(lambda: scene.life("m1")._alive_ns > since_ns, "it accepts its member")
        others = [node.name for node in cluster.nodes if node is not reads]
        barriers.close(apart([reads.name, "m1"], others))
        barriers.open(apart([one], [other]))
        scene.stage.bring_up(before)
        scene.until(
            lambda: scene.stage.partition((OFFSETS_TOPIC, 0)).leader not in (-1, reads.node_id),
            "the next one coordinates",
        )
        barriers.close(apart(["m2"], [reads.name]))
        scene.enter("m2")
        scene.until(lambda: len(scene.held("m2")) == 4, "the other member has everything")
        scene.run(SESSION_MS)
        scene.judge()
        scene.produce(5)
        scene.finish()
