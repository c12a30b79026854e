"""The quorumlog client as a member that is paused and isolated with prefetched records: it returns
none of them afterwards, and the checker detects a client that does."""

from dataclasses import replace

import pytest
from tests.scenarios.groups.group_under_test import at_work
from tests.simulation.checkers.violation import Violation
from tests.simulation.levels.groups.plan import MemberKind
from tests.simulation.levels.groups.scripted import ATTENTIVE, SESSION_MS

from quorumlog.clients.groups.member import FOREVER_MS, MemberLease
from quorumlog.simulation.links import apart

pytestmark = pytest.mark.slow


def play() -> None:
    """One member is paused at work, another one takes over, the first resumes behind a barrier."""
    slow = replace(ATTENTIVE, work_ms=(200, 300), commit_ms=(60_000, 60_000))
    with at_work(MemberKind.OWN, "m1", is_combined=False, behaviour=slow) as scene:
        barriers = scene.world.fabric.barriers
        scene.produce(400)
        worked = len(scene.group_history.worked)
        scene.until(lambda: len(scene.group_history.worked) > worked + 3, "it works on them")
        scene.hang("m1")
        barriers.close(apart(["m1"], [node.name for node in scene.stage.cluster.nodes]))
        scene.enter("m2")
        scene.until(lambda: len(scene.held("m2")) == 4, "the other member has everything")
        worked = len(scene.group_history.worked)
        scene.wake("m1")
        scene.run(SESSION_MS)
        barriers.open_all()
        scene.run(SESSION_MS)
        assert len(scene.group_history.worked) > worked
        scene.judge()


@pytest.mark.long
def test_a_paused_member_drops_its_records_before_the_next_poll() -> None:
    play()


@pytest.mark.long
def test_a_member_that_continues_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its returned records, independent of its lease."""
    monkeypatch.setattr(MemberLease, "session_end_ms", property(lambda lease: FOREVER_MS))
    with pytest.raises(Violation, match="TwoOwners"):
        play()
