"""Level `transactions`: exactly once under faults. `make simulate LEVEL=transactions` plays more
seeds, each under two hash seeds."""

import pytest
from tests.simulation.levels.transactions.calls import Generation
from tests.simulation.levels.transactions.level import MAKERS, play
from tests.simulation.levels.transactions.plan import (
    EXTRA_CONFIGS,
    Kind,
    TransactionsPlan,
    draw_cluster,
    draw_plan,
)
from tests.simulation.levels.transactions.staged_writers import draw_staged
from tests.simulation.runs import play_seed

from quorumlog.simulation.entropy import SimEntropy


@pytest.mark.long
def test_applications_live_through_a_minute_of_faults() -> None:
    outcome = play_seed("transactions", 11, play)
    assert not outcome.failure, outcome.failure
    assert outcome.facts["committed"] > 10
    assert outcome.facts["markers"] > 20


def drawn(count: int) -> list[TransactionsPlan]:
    """The plans of so many seeds."""
    return [draw_plan(SimEntropy(f"seed/{seed}")) for seed in range(count)]


def test_every_kind_of_application_is_drawn() -> None:
    applications = [one for plan in drawn(60) for one in plan.applications]
    for kind in Kind:
        versions = {one.generation for one in applications if one.kind is kind}
        assert versions == set(Generation)
    assert {one.is_fenced_by_member for one in applications} == {False, True}
    assert {(one.kind, one.is_python) for one in applications} == set(MAKERS)
    assert {topic for one in applications for topic in one.targets} >= set(EXTRA_CONFIGS)


def test_two_producers_share_a_transactional_id_in_some_seeds() -> None:
    counts = {
        len(ids) - len(set(ids))
        for plan in drawn(60)
        if (ids := [one.transactional_id for one in plan.applications if one.transactional_id])
    }
    assert counts >= {0, 1}


def test_producers_of_one_transactional_id_have_one_version() -> None:
    for plan in drawn(60):
        versions: dict[str, Generation] = {}
        for one in plan.applications:
            if one.transactional_id:
                assert versions.setdefault(one.transactional_id, one.generation) is one.generation


def test_every_topic_of_a_plan_is_in_its_cluster() -> None:
    for number, plan in enumerate(drawn(60)):
        options = draw_cluster(SimEntropy(f"cluster/{number}"), plan)
        names = {topic.name for topic in options.topics}
        for one in plan.applications:
            assert {*one.targets, *([one.source] if one.source else ())} <= names


def test_staged_queries_fail_in_every_way_in_some_seeds() -> None:
    machines = [("a1", "a2"), ("a2", "a3"), ("a3", "a1")]
    plans = [draw_staged(SimEntropy(f"staged/{seed}"), machines) for seed in range(200)]
    assert {len(some) for some in plans} == {0, 1, 2}
    for chance in ("speculates", "fails", "lingers", "aborts", "replays"):
        drawn = {bool(getattr(one, chance)) for some in plans for one in some}
        assert drawn == {False, True}, chance
