"""Simulated clusters under control of the test: a leader that restarts before its session
expires."""

import pytest
from tests.simulation.cluster.options import TopicPlan
from tests.simulation.cluster.scripted import ScriptedCluster, options_of

from quorumlog.simulation import SimWorld

PLACE = ("t", 0)
TOPIC = TopicPlan(name="t", partitions=1, replication=3, min_isr=2, flush_policy="replicated")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_a_leader_that_lost_its_tail_and_restarts_at_once_makes_no_follower_truncate(
    seed: int,
) -> None:
    """By the metadata it is still the leader: its lost records were acknowledged, and its followers
    must not truncate to its end."""
    with SimWorld(seed) as world:
        stage = ScriptedCluster(world, options_of(TOPIC))
        stage.start()
        stage.produce(PLACE, 20)
        leader = stage.leader(PLACE)
        stage.cluster.note_damage(leader)
        stage.cluster.kill(leader, power=True, down_ms=1)
        stage.produce(PLACE, 5)
        stage.finish()
