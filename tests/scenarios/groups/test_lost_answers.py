"""Members with delivered heartbeats and lost responses: the content of the responses is
repeated."""

from typing import Final

import pytest
from tests.scenarios.groups.group_under_test import at_work
from tests.simulation.levels.groups.plan import MemberKind

from quorumlog.simulation.links import between

pytestmark = pytest.mark.slow

LOST_MS: Final = 2_500
"""The member receives nothing for this time: less than its session timeout, with several
heartbeats."""


@pytest.mark.long
@pytest.mark.parametrize("kind", [MemberKind.OWN, MemberKind.BEATING])
def test_a_lost_revocation_is_repeated(kind: MemberKind) -> None:
    with at_work(kind, "m1") as scene:
        incarnations = len(scene.group_history.incarnations)
        barriers = scene.world.fabric.barriers
        unheard = between([node.name for node in scene.stage.cluster.nodes], ["m1"])
        barriers.close(unheard)
        scene.enter("m2")
        scene.run(LOST_MS)
        assert len(scene.held("m1")) == 4, "the member received a response"
        barriers.open(unheard)
        scene.until_settled("m1", "m2")
        assert len(scene.group_history.incarnations) == incarnations + 1, "a member was removed"
        scene.produce(5)
        scene.finish()
