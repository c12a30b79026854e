"""Members whose heartbeats arrive and whose answers do not: what they were told is told again."""

from typing import Final

import pytest
from tests.scenarios.groups.group_under_test import at_work
from tests.simulation.levels.groups.plan import MemberKind

from quorumlog.simulation.links import between

pytestmark = pytest.mark.slow

LOST_MS: Final = 2_500
"""For so long nothing reaches the member: less than its session, and beats arrive meanwhile."""


@pytest.mark.parametrize("kind", [MemberKind.OWN, MemberKind.BEATING])
def test_a_member_that_did_not_hear_what_to_give_back_is_told_so_again(kind: MemberKind) -> None:
    with at_work(kind, "m1") as scene:
        incarnations = len(scene.group_history.incarnations)
        barriers = scene.world.fabric.barriers
        unheard = between([node.name for node in scene.stage.cluster.nodes], ["m1"])
        barriers.close(unheard)
        scene.enter("m2")
        scene.run(LOST_MS)
        assert len(scene.held("m1")) == 4, "it has heard of nothing"
        barriers.open(unheard)
        scene.until_settled("m1", "m2")
        assert len(scene.group_history.incarnations) == incarnations + 1, "nobody was shut out"
        scene.produce(5)
        scene.finish()
