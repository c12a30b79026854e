"""Two members with one static name: the protocols differ in the member that is fenced."""

import pytest
from tests.scenarios.groups.group_under_test import CLASSIC, started
from tests.simulation.levels.groups.plan import MemberKind
from tests.simulation.levels.groups.scripted import ScriptedGroup

pytestmark = pytest.mark.slow


def twins(scene: ScriptedGroup) -> None:
    """Start two members of one name: the first has all partitions when the second joins."""
    scene.enter("m1", instance_id="the one")
    scene.produce(5)
    scene.until_served()
    scene.enter("m2", instance_id="the one")


@pytest.mark.parametrize("kind", CLASSIC)
def test_the_second_of_two_classic_members_of_one_name_fences_the_first(
    kind: MemberKind,
) -> None:
    with started(kind) as scene:
        twins(scene)
        scene.until(lambda: not scene.world.node("m1").alive, "the older one ends")
        assert scene.group_history.counts["ended"] == 1
        scene.produce(5)
        scene.finish()
        assert len(scene.held("m2")) == 4


@pytest.mark.parametrize("kind", [MemberKind.BEATING, MemberKind.OWN])
def test_the_second_of_two_members_of_one_name_waits_until_the_first_has_left(
    kind: MemberKind,
) -> None:
    with started(kind) as scene:
        twins(scene)
        scene.run(5_000)
        assert len(scene.held("m1")) == 4
        assert scene.held("m2") == set()
        scene.leave("m1")
        scene.produce(5)
        scene.finish()
        assert len(scene.held("m2")) == 4


@pytest.mark.long
@pytest.mark.parametrize("kind", [MemberKind.BEATING, MemberKind.OWN])
def test_a_static_name_is_free_once_its_dead_owners_session_is_over(kind: MemberKind) -> None:
    with started(kind) as scene:
        scene.enter("m1", instance_id="the one")
        scene.produce(5)
        scene.until_served()
        scene.kill("m1")
        scene.enter("m2", instance_id="the one")
        scene.produce(5)
        scene.finish()


@pytest.mark.long
@pytest.mark.parametrize("kind", tuple(MemberKind))
def test_a_restarted_static_member_keeps_its_partitions(
    kind: MemberKind,
) -> None:
    with started(kind) as scene:
        scene.enter("m1", instance_id="the first")
        scene.enter("m2", instance_id="the second")
        scene.until_settled("m1", "m2")
        scene.produce(5)
        scene.until_served()
        had = scene.held("m1")
        scene.leave("m1")
        scene.enter("m1", instance_id="the first")
        scene.until_served()
        assert scene.held("m1") == had
        scene.produce(5)
        scene.finish()
