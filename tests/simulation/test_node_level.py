"""Level `node`: whole clusters hold. `make simulate LEVEL=node` plays more seeds, each under two
hash seeds."""

from functools import partial

import pytest

from quorumlog.simulation.cluster.level import play
from quorumlog.simulation.cluster.options import ClusterOptions, TopicPlan
from quorumlog.simulation.runs import play_seed

ONE_COPY = ClusterOptions(
    controllers=3,
    brokers=3,
    is_combined=True,
    racks=0,
    election_timeout_ms=600,
    session_timeout_ms=3_000,
    lag_time_ms_max=10_000,
    topics=(
        TopicPlan(name="strict-0", partitions=3, replication=1, min_isr=1, flush_policy="fsync"),
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 6])
def test_partitions_of_one_replica_live_through_a_minute_of_faults(seed: int) -> None:
    outcome = play_seed("node", seed, partial(play, options=ONE_COPY))
    assert not outcome.failure, outcome.failure
    assert outcome.virtual_ms >= 60_000
