"""Whole clusters, led by hand: a leader that comes back before anybody missed it."""

import pytest
from tests.simulation.cluster.options import TopicPlan
from tests.simulation.cluster.scripted import ScriptedCluster, options_of

from quorumlog.simulation import SimWorld

PLACE = ("t", 0)
TOPIC = TopicPlan(name="t", partitions=1, replication=3, min_isr=2, flush_policy="replicated")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_leader_that_lost_its_tail_and_is_back_at_once_leads_nobody_to_cut_theirs(
    seed: int,
) -> None:
    """It is the leader still for all that the metadata say: what it lost was acknowledged, and its
    followers must not believe that it ends there."""
    with SimWorld(seed) as world:
        stage = ScriptedCluster(world, options_of(TOPIC))
        stage.start()
        stage.produce(PLACE, 20)
        leader = stage.leader(PLACE)
        stage.cluster.note_damage(leader)
        stage.cluster.kill(leader, power=True, down_ms=1)
        stage.produce(PLACE, 5)
        stage.finish()
