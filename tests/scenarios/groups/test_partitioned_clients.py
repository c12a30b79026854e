"""Our own client as a member that is stopped and cut off with records read ahead: it hands out none
of them afterwards, and the judge sees who does."""

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
    """One is stopped at its work, another one takes over, the first goes on behind a barrier."""
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


def test_who_was_stopped_lets_go_before_it_hands_out_one_more() -> None:
    play()


def test_a_member_that_goes_on_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it hands out, whatever it says of its lease."""
    monkeypatch.setattr(MemberLease, "session_end_ms", property(lambda lease: FOREVER_MS))
    with pytest.raises(Violation, match="TwoOwners"):
        play()
