"""Scripted histories of transactions: delayed and duplicated requests, expiry, and failovers."""

import pytest
from tests.simulation.checkers.violation import Violation
from tests.simulation.levels.transactions import calls
from tests.simulation.levels.transactions.calls import Generation
from tests.simulation.levels.transactions.client_scenarios import CLIENT_SCENARIOS
from tests.simulation.levels.transactions.offset_order import (
    GivenUp,
    OffsetOrder,
    OffsetProducer,
)
from tests.simulation.levels.transactions.producer import FatalError
from tests.simulation.levels.transactions.scenarios import SCENARIOS
from tests.simulation.levels.transactions.scripted import OTHER, OUT, ScriptedTransactions

from quorumlog.simulation.world import SimWorld


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_passes(scenario: str) -> None:
    SCENARIOS[scenario]()


@pytest.mark.slow
@pytest.mark.parametrize("scenario", CLIENT_SCENARIOS)
def test_a_client_scenario_passes(scenario: str) -> None:
    CLIENT_SCENARIOS[scenario]()


def delayed_commit(generation: Generation) -> tuple[set[str], int]:
    """The history of the report on Bufstream 0.1.0 (2024), section on Kafka's protocol: a commit is
    delayed, repeated and acknowledged; its first copy arrives in the next transaction."""
    with SimWorld(1) as world:
        stage = ScriptedTransactions(world, generation)
        stage.start()
        one = stage.new_producer()
        stage.do(one.write({OUT: b"a", OTHER: b"b"}))
        identity = one.identity
        stage.do(one.producer.commit())
        stage.do(one.write({OUT: b"c"}))
        code = stage.do(one.end_late(identity, is_commit=True))
        stage.do(one.write({OTHER: b"d"}))
        stage.do(one.producer.abort())
        return stage.anomalies(stage.end()), code


@pytest.mark.slow
def test_a_delayed_commit_of_the_older_version_tears_the_next_transaction() -> None:
    """The older version of the protocol has no means against it (docs/kafka.md)."""
    kinds, code = delayed_commit(Generation.OLD)
    assert code == calls.NONE
    assert {"aborted read", "WrongMarker"} <= kinds


@pytest.mark.slow
def test_a_delayed_commit_of_version_2_is_fenced() -> None:
    kinds, code = delayed_commit(Generation.NEW)
    assert code in (calls.INVALID_EPOCH, calls.FENCED)
    assert kinds == set()


@pytest.mark.slow
@pytest.mark.parametrize("generation", list(Generation))
def test_a_zombie_is_fenced_by_its_successor(generation: Generation) -> None:
    with SimWorld(1) as world:
        stage = ScriptedTransactions(world, generation)
        stage.start()
        zombie = stage.new_producer()
        stage.do(zombie.write({OUT: b"a"}))
        successor = stage.new_producer()
        stage.do(successor.write({OUT: b"b", OTHER: b"c"}))
        with pytest.raises(FatalError):
            stage.do(zombie.write({OTHER: b"d"}))
        with pytest.raises(FatalError):
            stage.do(zombie.producer.commit())
        stage.do(successor.producer.commit())
        found = stage.end()
        assert [value for _, value in found.committed[OUT]] == [b"b"]
        assert [value for _, value in found.committed[OTHER]] == [b"c"]
        assert stage.anomalies(found) == set()


@pytest.mark.slow
@pytest.mark.parametrize("generation", list(Generation))
def test_an_expired_transaction_is_aborted_and_its_producer_fenced(generation: Generation) -> None:
    with SimWorld(1) as world:
        stage = ScriptedTransactions(world, generation)
        stage.start()
        one = stage.new_producer(timeout_ms=2_000)
        stage.do(one.write({OUT: b"a", OTHER: b"b"}))
        stage.stage.run(15_000)
        with pytest.raises(FatalError):
            stage.do(one.producer.commit())
        found = stage.end()
        assert found.committed == {OUT: [], OTHER: []}
        assert stage.anomalies(found) == set()


@pytest.mark.slow
@pytest.mark.parametrize("generation", list(Generation))
def test_a_new_coordinator_continues_an_open_transaction(generation: Generation) -> None:
    with SimWorld(1) as world:
        stage = ScriptedTransactions(world, generation)
        stage.start()
        one = stage.new_producer()
        stage.do(one.write({OUT: b"a"}))
        coordinator = stage.coordinator()
        stage.stage.take_down(coordinator)
        stage.do(one.write({OTHER: b"b"}))
        stage.do(one.producer.commit())
        stage.stage.bring_up(coordinator)
        found = stage.end()
        assert [value for _, value in found.committed[OUT]] == [b"a"]
        assert stage.anomalies(found) == set()


@pytest.mark.slow
def test_either_outcome_may_be_repeated_and_the_other_one_is_refused() -> None:
    with SimWorld(1) as world:
        stage = ScriptedTransactions(world, Generation.NEW)
        stage.start()
        one = stage.new_producer()
        for is_commit in (True, False):
            identity = one.identity
            stage.do(one.write({OUT: b"commit %d" % is_commit}))
            stage.do(one.producer.commit() if is_commit else one.producer.abort())
            again, following = stage.do(
                one.calls.end(one.transactional_id, identity, is_commit=is_commit)
            )
            assert (again, following) == (calls.NONE, one.identity)
            assert stage.do(one.end_late(identity, is_commit=not is_commit)) == (
                calls.INVALID_TXN_STATE
            )
        assert stage.anomalies(stage.end()) == set()


@pytest.mark.slow
@pytest.mark.parametrize("generation", list(Generation))
@pytest.mark.parametrize(
    ("is_commit", "is_aborted", "expected"),
    [(False, True, GivenUp), (False, False, Violation), (True, True, Violation)],
)
def test_only_an_abort_by_an_operator_permits_a_stable_offset(
    generation: Generation, is_commit: bool, is_aborted: bool, expected: type[Exception]
) -> None:
    with SimWorld(1) as world:
        stage = ScriptedTransactions(world, generation)
        stage.start()
        one = stage.new_producer()
        pending = OffsetProducer(one.calls, one.transactional_id, one.identity)
        order = OffsetOrder(stage.observed, stage.bootstrap, OUT)
        stage.do(one.write({OUT: b"a"}))
        stage.do(one.producer.send_offsets("group", {OUT: (0, 1)}))
        stage.do(order.expect_unstable([pending], "group"))
        if is_aborted:
            stage.observed.operator_aborts.add(one.transactional_id)
        stage.do(order.expect_unstable([pending], "group"))
        stage.do(one.producer.commit() if is_commit else one.producer.abort())
        stage.wait_complete()
        with pytest.raises(expected):
            stage.do(order.expect_unstable([pending], "group"))
