"""Offsets with a retention time stay for that time, and while a member reads the topic; then they
expire."""

import pytest
from tests.scenarios.groups.group_under_test import started
from tests.simulation.levels.groups.calls import OFFSET_COMMIT, GroupCalls
from tests.simulation.levels.groups.level import loads_of
from tests.simulation.levels.groups.offset_expiry import OffsetExpiry
from tests.simulation.levels.groups.plan import MemberKind
from tests.simulation.levels.groups.scripted import SESSION_MS, ScriptedGroup

from quorumlog.testing.checkers import Place

pytestmark = pytest.mark.slow

CHECK_MS = 300
FADES_MS = 90_000


def start_expiry_checks(scene: ScriptedGroup) -> OffsetExpiry:
    """Start a program that commits offsets and checks their expiry."""
    cluster = scene.stage.cluster
    scene.group_history.loads = lambda: loads_of(cluster)
    offset_expiry = OffsetExpiry(
        scene.group_history,
        cluster.kafka_bootstrap,
        scene.places[0],
        SESSION_MS,
        clocks_jumped=lambda: False,
    )
    scene.stage.begin(offset_expiry.run)
    return offset_expiry


@pytest.mark.long
@pytest.mark.parametrize("moves", [False, True])
def test_offsets_with_a_retention_time_stay_for_it_under_every_coordinator(moves: bool) -> None:
    with started(MemberKind.EAGER, offsets_retention_check_interval_ms=CHECK_MS) as scene:
        offset_expiry = start_expiry_checks(scene)
        for _ in range(4):
            scene.run(FADES_MS // 4)
            if moves:
                assert scene.stage.cluster.stop_in_order(scene.coordinator())
        scene.judge()
        assert not offset_expiry.is_over
        assert scene.group_history.counts["fading looks"] > 50
        assert scene.group_history.counts["faders"] > 1, "some groups have a member"


def test_offsets_expire_after_their_retention_time() -> None:
    with started(MemberKind.EAGER, offsets_retention_check_interval_ms=CHECK_MS) as scene:
        place = scene.places[0]

        async def commit(calls: GroupCalls) -> dict[Place, int]:
            calls.versions[OFFSET_COMMIT] = 3
            return await calls.commit("", "", -1, {place: (7, "n")}, retention_ms=2_000)

        assert scene.ask(commit) == {place: 0}
        scene.run(1_500)
        assert scene.offsets()[place] == 7
        scene.run(500 + 2 * CHECK_MS)
        assert scene.offsets()[place] == -1
