"""Decisions over many partitions run in short steps with the result of a single step."""

import pytest
from tests.kit.metadata_cluster import Cluster

from quorumlog.ids import NO_NODE, NodeId
from quorumlog.metadata import (
    BalanceLeaders,
    Decision,
    FenceBroker,
    LongDecision,
    UnfenceBroker,
    decide,
)
from quorumlog.metadata.decisions.steps import STEP_RECORDS, STEP_VISITS, Walk, decision_of
from quorumlog.proto import metadata_records_pb2 as pb

RECORD = pb.MetadataRecord(no_op=pb.NoOpRecord())


def sizes(walk: Walk) -> list[int]:
    """Return the record counts of the slices; a decision of one step has one."""
    decision = decide_walk(walk)
    if isinstance(decision, Decision):
        return [len(decision.records)]
    return [len(records) for records in decision.slices]


def decide_walk(walk: Walk) -> Decision | LongDecision:
    return decision_of("try it", walk)


def test_decision_of_one_step_needs_no_slices() -> None:
    assert isinstance(decide_walk(iter([])), Decision)
    assert isinstance(decide_walk(iter([RECORD] * (STEP_RECORDS - 1))), Decision)
    assert isinstance(decide_walk(iter([None] * (STEP_VISITS - 1))), Decision)


def test_steps_end_with_enough_records() -> None:
    assert sizes(iter([RECORD] * (2 * STEP_RECORDS + 5))) == [STEP_RECORDS, STEP_RECORDS, 5]


def test_steps_end_after_enough_partitions_and_keep_their_records() -> None:
    """Few changes among many partitions become one slice with records, which needs no
    transaction."""
    looks = [None] * (STEP_VISITS - 1)
    assert sizes(iter([RECORD, *looks, RECORD, *looks, RECORD])) == [0, 0, 3]


def many(cluster: Cluster, count: int) -> None:
    cluster.start(1, 2, 3)
    replicas = [((1, 2, 3), (2, 3, 1), (3, 1, 2))[index % 3] for index in range(count)]
    cluster.assign("a", *replicas)


def test_a_broker_with_many_partitions_is_fenced_in_slices(cluster: Cluster) -> None:
    many(cluster, 900)
    command = FenceBroker(broker_id=NodeId(1), broker_epoch=cluster.epoch(1))
    decision = decide(cluster.image, command, cluster.config)
    assert isinstance(decision, LongDecision)
    assert decision.name == "fence broker 1"
    slices = list(decision.slices)
    assert [len(records) for records in slices] == [200, 200, 200, 200, 101]
    assert slices[0][0].WhichOneof("record") == "broker_change"
    for records in slices:
        cluster.replay(records)
    for index in range(900):
        leader, isr, elr = cluster.standing("a", index)
        assert leader == (2 if index % 3 < 2 else 3)
        assert set(isr) == {2, 3}
        assert elr == ()


def test_slices_use_the_image_of_the_decision(cluster: Cluster) -> None:
    """They are computed while earlier slices are replayed."""
    many(cluster, 900)
    first = cluster.image
    command = FenceBroker(broker_id=NodeId(1), broker_epoch=cluster.epoch(1))
    before = decide(first, command, cluster.config)
    assert isinstance(before, LongDecision)
    expected = [record for records in before.slices for record in records]
    assert list(cluster.fence(1).records) == expected


@pytest.mark.slow
def test_few_changes_among_many_partitions_are_one_slice(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.assign("a", *[(1, 2)] * (STEP_VISITS + 10))
    cluster.fence(2)
    cluster.assign("b", (1,))
    command = UnfenceBroker(broker_id=NodeId(2), broker_epoch=cluster.epoch(2))
    decision = decide(cluster.image, command, cluster.config)
    assert isinstance(decision, LongDecision)
    slices = list(decision.slices)
    assert [len(records) for records in slices] == [0, 1]
    for records in slices:
        cluster.replay(records)
    assert cluster.image.brokers[NodeId(2)].is_active


def test_all_leaderships_come_back_in_steps(cluster: Cluster) -> None:
    many(cluster, 900)
    cluster.fence(1)
    cluster.unfence(1)
    for asker in (2, 3):
        led = [index for index in range(900) if cluster.partition("a", index).leader == asker]
        cluster.ask(asker, *[cluster.change("a", (1, 2, 3), index=index) for index in led])
    decision = cluster.do(BalanceLeaders())
    assert cluster.slices == 2
    assert len(decision.records) == 300
    assert decision.brokers == (1, 2)
    for index in range(900):
        assert cluster.partition("a", index).leader == cluster.partition("a", index).replicas[0]


def test_all_partitions_of_the_last_broker_wait_for_it(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.assign("a", *[(1,)] * 500)
    cluster.fence(1)
    assert {cluster.standing("a", index) for index in range(500)} == {(NO_NODE, (), (1,))}
    cluster.unfence(1)
    assert {cluster.standing("a", index) for index in range(500)} == {(1, (1,), ())}
