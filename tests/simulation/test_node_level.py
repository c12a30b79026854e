"""Level `node`: whole clusters hold. `make simulate LEVEL=node` plays more seeds, each under two
hash seeds."""

from functools import partial

import pytest
from tests.simulation.cluster.options import TopicPlan
from tests.simulation.cluster.scripted import options_of
from tests.simulation.levels.node.level import play
from tests.simulation.runs import play_seed

ONE_COPY = TopicPlan(name="one", partitions=3, replication=1, min_isr=1, flush_policy="fsync")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [8, 418])
def test_a_cluster_lives_through_a_minute_of_faults(seed: int) -> None:
    outcome = play_seed("node", seed, play)
    assert not outcome.failure, outcome.failure
    assert outcome.virtual_ms >= 60_000


@pytest.mark.slow
def test_partitions_of_one_replica_live_through_a_minute_of_faults() -> None:
    outcome = play_seed("node", 6, partial(play, options=options_of(ONE_COPY)))
    assert not outcome.failure, outcome.failure
