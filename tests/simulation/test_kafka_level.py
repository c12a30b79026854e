"""Level `kafka`: clusters hold for clients of the Kafka protocol, and what is planted is found.
`make simulate LEVEL=kafka` plays more seeds, each under two hash seeds."""

import re
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

import pytest
from tests.simulation.levels.kafka.level import play
from tests.simulation.levels.kafka.pipelines import Kind
from tests.simulation.levels.kafka.run_faults import RunFault
from tests.simulation.levels.kafka.run_marks import RunMark
from tests.simulation.levels.kafka.scenarios import PIPELINE_SCENARIOS
from tests.simulation.runs import Outcome, play_seed

from quorumlog.frontends.kafka.connection import KafkaConnection
from quorumlog.frontends.kafka.frames import RequestFrameReader

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]
SEEDS = (7, 22, 5, 2)
HUNTED = range(1, 9)
"""Seeds, until one finds what is planted: what a seed meets shifts with each message of a node."""


@pytest.fixture(scope="module")
def outcomes() -> dict[int, Outcome]:
    """The outcomes of a few seeds: the first has transactions."""
    return {seed: play_seed("kafka", seed, play) for seed in SEEDS}


@pytest.mark.long
def test_a_cluster_serves_kafka_clients_through_a_minute_of_faults(
    outcomes: dict[int, Outcome],
) -> None:
    for outcome in outcomes.values():
        assert not outcome.failure, outcome.failure
        assert outcome.facts["asked"] > 100
        assert outcome.virtual_ms >= 60_000


@pytest.mark.long
def test_transactions_of_kafka_clients_are_atomic_under_faults(
    outcomes: dict[int, Outcome],
) -> None:
    facts = outcomes[SEEDS[0]].facts
    assert facts["committed"] > 10
    assert facts["markers"] > facts["committed"]


@pytest.mark.slow
def test_every_kind_of_run_and_of_fault_happens(outcomes: dict[int, Outcome]) -> None:
    facts: Counter[str] = Counter()
    for outcome in outcomes.values():
        facts.update(outcome.facts)
    batches = [kind for kind in Kind if kind is not Kind.REPEAT]
    faults = [f"fault_{kind.replace('-', '_')}" for kind in RunFault]
    marks = [*RunMark, *batches, *faults, "closed", "two_links", "fetches", "repeats"]
    assert [mark for mark in marks if not facts[mark]] == []


@pytest.mark.long
@pytest.mark.parametrize("scenario", PIPELINE_SCENARIOS)
def test_a_scenario_of_pipelines_passes(scenario: str) -> None:
    PIPELINE_SCENARIOS[scenario]()


def what_is_left_of_a_read_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A frame that is split is no frame any more."""
    honest = RequestFrameReader.keep

    def keep(self: RequestFrameReader) -> None:
        honest(self)
        self._start = self._end

    patch.setattr(RequestFrameReader, "keep", keep)


def answers_leave_when_they_are_ready(patch: pytest.MonkeyPatch) -> None:
    """Whatever was asked before."""

    def send_ready(self: KafkaConnection) -> None:
        ready = [request for request in self._under_way if request.is_done]
        for request in reversed(ready):
            self._under_way.remove(request)
            self._under_way.appendleft(request)
        honest(self)

    honest = KafkaConnection._make_progress
    patch.setattr(KafkaConnection, "_make_progress", send_ready)


@pytest.mark.long
@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (what_is_left_of_a_read_is_forgotten, "ConnectionEnded"),
        (answers_leave_when_they_are_ready, r"answer \d+ to request \d+"),
    ],
)
def test_a_planted_bug_of_the_listener_is_found(
    plant: Plant, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    failures = (play_seed("kafka", seed, play).failure for seed in HUNTED)
    assert any(re.search(found, failure) for failure in failures)
