"""Two members of one static name: the field's protocols say differently who gives way."""

import pytest
from tests.scenarios.groups.group_under_test import CLASSIC, started
from tests.simulation.levels.groups.plan import MemberKind
from tests.simulation.levels.groups.scripted import ScriptedGroup

pytestmark = pytest.mark.slow


def twins(scene: ScriptedGroup) -> None:
    """One of them has everything, and the other one comes."""
    scene.enter("m1", instance_id="the one")
    scene.produce(5)
    scene.until_served()
    scene.enter("m2", instance_id="the one")


@pytest.mark.parametrize("kind", CLASSIC)
def test_the_younger_of_two_classic_members_of_one_name_shuts_the_other_out(
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
def test_the_younger_of_two_members_of_one_name_waits_until_the_other_is_gone(
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


@pytest.mark.parametrize("kind", tuple(MemberKind))
def test_a_static_member_that_is_started_again_finds_its_partitions_unshared(
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
