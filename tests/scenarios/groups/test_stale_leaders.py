"""Requests of members to a broker that lost the leadership of the topic and has old metadata."""

import pytest
from tests.scenarios.groups.group_under_test import at_work
from tests.simulation.levels.groups.plan import OFFSETS_TOPIC, MemberKind
from tests.simulation.levels.groups.scripted import GROUP, SESSION_MS

from quorumlog.simulation.links import apart

pytestmark = pytest.mark.slow


@pytest.mark.long
@pytest.mark.parametrize("kind", tuple(MemberKind))
def test_a_former_leader_reports_no_range_error_for_newer_records(
    kind: MemberKind,
) -> None:
    """Clients take that for an offset out of range, and restart at an end of the log."""
    with at_work(kind, "m1", is_combined=False) as scene:
        stage, barriers = scene.stage, scene.world.fabric.barriers
        before = scene.coordinator()
        others = [node.name for node in stage.cluster.brokers if node is not before]
        controllers = [node.name for node in stage.cluster.controllers]
        barriers.close(apart([before.name], [*others, *controllers]))
        scene.until(
            lambda: all(
                stage.partition(place).leader not in (-1, before.node_id)
                for place in (*scene.places, (OFFSETS_TOPIC, 0))
            ),
            "others lead",
        )
        barriers.close(apart(["m1"], others))
        barriers.close(apart(["m2"], [before.name]))
        scene.enter("m2")
        scene.until(lambda: len(scene.held("m2")) == 4, "the other one has everything")
        scene.run(SESSION_MS)
        scene.produce(5)
        scene.until(
            lambda: all(
                scene.group_history.stored[GROUP, place] == end
                for place, end in scene.ends().items()
            ),
            "the other one has worked on more",
        )
        barriers.open(apart(["m1"], others))
        scene.kill("m2")
        scene.until(lambda: len(scene.held("m1")) == 4, "the first one has everything again")
        scene.run(SESSION_MS)
        scene.produce(5)
        scene.finish()
