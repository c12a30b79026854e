"""Members with invalid requests, and members that continue after they were removed."""

import pytest
from tests.scenarios.groups.group_under_test import EVERY_KIND, at_work
from tests.simulation.levels.groups import calls
from tests.simulation.levels.groups.plan import MemberKind
from tests.simulation.levels.groups.scripted import REBALANCE_MS, SESSION_MS

pytestmark = pytest.mark.slow


@pytest.mark.long
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_wrong_epochs_and_ids_are_refused_and_affect_no_member(kind: MemberKind) -> None:
    with at_work(kind, "m1", "m2", "m3") as scene:
        before = {name: scene.life(name).epoch for name in ("m1", "m2", "m3")}
        scene.enter("liar", lies=True)
        scene.until(lambda: scene.group_history.counts["lies"] >= 200, "wrong requests are sent")
        assert {name: scene.life(name).epoch for name in before} == before
        scene.leave("liar")
        scene.produce(5)
        scene.finish()


@pytest.mark.long
@pytest.mark.parametrize("kind", [MemberKind.EAGER, MemberKind.COOPERATIVE, MemberKind.BEATING])
def test_a_member_that_was_removed_during_a_pause_commits_nothing(kind: MemberKind) -> None:
    with at_work(kind, "m1", "m2", seed=2) as scene:
        scene.hang("m1")
        scene.produce(5)
        scene.until(lambda: len(scene.held("m2")) == 4, "the other has everything")
        late = scene.group_history.counts["late commits"]
        scene.wake("m1")
        scene.until(lambda: scene.group_history.counts["late commits"] > late, "it commits late")
        scene.finish()
        assert max(scene.offsets().values()) == 15


@pytest.mark.long
def test_our_client_commits_nothing_for_others_after_a_pause() -> None:
    with at_work(MemberKind.OWN, "m1", "m2") as scene:
        scene.hang("m1")
        scene.until(lambda: len(scene.held("m2")) == 4, "the other has everything")
        scene.produce(5)
        scene.wake("m1")
        scene.finish()
        assert set(scene.offsets().values()) == {15}


def test_a_program_without_membership_commits_nothing_of_a_group_with_members() -> None:
    with at_work(MemberKind.EAGER, "m1") as scene:
        before = scene.offsets()
        place = scene.places[0]
        codes = scene.ask(lambda asking: asking.commit("", "", -1, {place: (3, "outside")}))
        assert codes == {place: calls.UNKNOWN_MEMBER}
        assert scene.offsets() == before


@pytest.mark.long
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_member_that_dies_keeps_nothing_beyond_its_session(kind: MemberKind) -> None:
    with at_work(kind, "m1", "m2") as scene:
        scene.kill("m1")
        scene.until(
            lambda: len(scene.held("m2")) == 4,
            "the other has everything",
            SESSION_MS + REBALANCE_MS + 2_000,
        )
        scene.produce(3)
        scene.finish()
