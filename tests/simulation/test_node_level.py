"""Level `node`: whole clusters hold. `make simulate LEVEL=node` plays more seeds, each under two
hash seeds."""

from functools import partial

import pytest
from tests.simulation.cluster.options import TopicPlan
from tests.simulation.cluster.scripted import options_of
from tests.simulation.levels.node.level import play
from tests.simulation.runs import play_seed

ONE_COPY = TopicPlan(name="one", partitions=3, replication=1, min_isr=1, flush_policy="fsync")


@pytest.mark.long
def test_transactions_of_the_python_client_are_atomic_under_faults() -> None:
    outcome = play_seed("node", 36, play)
    assert not outcome.failure, outcome.failure
    assert outcome.facts["committed"] > 10
    assert outcome.facts["aborted"] > 10
    assert outcome.facts["dead"] > 0
    assert outcome.facts["markers"] > outcome.facts["committed"]


@pytest.mark.long
def test_partitions_of_one_replica_live_through_a_minute_of_faults() -> None:
    outcome = play_seed("node", 6, partial(play, options=options_of(ONE_COPY)))
    assert not outcome.failure, outcome.failure
