"""Offsets of transactions on whole nodes survive failovers and restarts.

They are stored as batches of their producer and ended by markers.
"""

from typing import Any

import pytest
from tests.kit.replica_cluster import Cluster

from quorumlog.broker.groups.requests import (
    CommitTransactionalOffsets,
    FetchOffsets,
    OffsetToCommit,
)
from quorumlog.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    NotCoordinator,
    QuorumlogError,
    UnstableOffsetCommit,
)
from quorumlog.ids import ProducerIdentity
from quorumlog.records.control import TransactionMarker
from quorumlog.runtime import Runtime

from .coordinated import (
    ANSWER_MS,
    GROUP,
    TAKEN,
    asked,
    cluster,
    commit,
    coordinator,
    leader,
    made,
    make_topic,
    on,
    stored,
    tried,
)

PRODUCER, NEXT = ProducerIdentity(7, 0), ProducerIdentity(7, 1)


def staged(nodes: Cluster, number: int, offset: int, producer: ProducerIdentity = PRODUCER) -> Any:
    """Commit an offset in a transaction that counts as verified."""
    tried(nodes, number, FetchOffsets(group=GROUP))  # it has loaded
    guard = coordinator(nodes, number)._shards[0].loaded_state().verification_guard(producer, "x")
    request = CommitTransactionalOffsets(
        group=GROUP,
        transactional_id="x",
        producer=producer,
        guard=guard,
        offsets=(OffsetToCommit(topic="t", partition=0, offset=offset),),
    )
    return asked(nodes, number, request)


def marked(
    nodes: Cluster, number: int, *, is_commit: bool = True, producer: ProducerIdentity = NEXT
) -> QuorumlogError | None:
    """Write a marker. Return its error."""

    async def main(runtime: Runtime) -> QuorumlogError | None:
        marker = TransactionMarker(producer, 0, is_commit, 2)
        deadline_ms = runtime.clock.now_ms() + ANSWER_MS
        return await coordinator(nodes, number).write_marker(0, marker, deadline_ms)

    return on(nodes, number, main)


def is_stable(nodes: Cluster, number: int) -> bool:
    request = FetchOffsets(group=GROUP, partitions=(("t", 0),), require_stable=True)
    (found,) = tried(nodes, number, request)
    assert found.error is None or isinstance(found.error, UnstableOffsetCommit)
    return found.error is None


def failed_over(nodes: Cluster, old: int) -> int:
    """Crash the coordinator. Return the next one."""
    nodes.crash(old)
    nodes.until(lambda: leader(nodes) not in (0, old))
    return leader(nodes)


@pytest.mark.parametrize("is_commit", [True, False])
def test_transaction_ends_after_a_failover(is_commit: bool) -> None:
    with cluster() as nodes:
        nodes.start()
        make_topic(nodes)
        old = made(nodes)
        assert asked(nodes, old, commit(1)) == TAKEN
        assert staged(nodes, old, 5) == TAKEN
        assert not is_stable(nodes, old)
        number = failed_over(nodes, old)
        assert not is_stable(nodes, number)
        assert stored(nodes, number) == {("t", 0): 1}
        assert marked(nodes, number, is_commit=is_commit) is None
        assert is_stable(nodes, number)
        assert stored(nodes, number) == {("t", 0): 5 if is_commit else 1}
        with pytest.raises(InvalidProducerEpoch):
            staged(nodes, number, 9)


def test_ended_transaction_survives_a_failover() -> None:
    with cluster() as nodes:
        nodes.start()
        make_topic(nodes)
        old = made(nodes)
        assert staged(nodes, old, 5) == TAKEN
        assert asked(nodes, old, commit(8)) == TAKEN  # supersedes the pending one
        assert staged(nodes, old, 6, ProducerIdentity(8, 0)) == TAKEN
        assert marked(nodes, old) is None
        number = failed_over(nodes, old)
        assert stored(nodes, number) == {("t", 0): 8}
        assert not is_stable(nodes, number)
        assert marked(nodes, number) is None  # repeated by the transaction coordinator
        assert marked(nodes, number, producer=ProducerIdentity(8, 1)) is None
        assert stored(nodes, number) == {("t", 0): 6}
        with pytest.raises(InvalidProducerEpoch):
            staged(nodes, number, 9)


def test_transactions_survive_a_power_cut() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        assert staged(nodes, 1, 5) == TAKEN
        assert marked(nodes, 1) is None
        assert staged(nodes, 1, 6, NEXT) == TAKEN
        nodes.crash(1, power=True)
        nodes.start(1)
        assert stored(nodes, 1) == {("t", 0): 5}
        assert not is_stable(nodes, 1)
        assert isinstance(marked(nodes, 1), InvalidProducerEpoch)  # of the earlier transaction
        assert marked(nodes, 1, producer=ProducerIdentity(7, 2)) is None
        assert stored(nodes, 1) == {("t", 0): 6}


def test_commit_that_was_not_verified_and_marker_elsewhere_are_refused() -> None:
    with cluster() as nodes:
        nodes.start()
        make_topic(nodes)
        number = made(nodes)
        request = CommitTransactionalOffsets(
            group=GROUP,
            transactional_id="x",
            producer=PRODUCER,
            offsets=(OffsetToCommit(topic="t", partition=0, offset=1),),
        )
        with pytest.raises(InvalidTxnState):
            asked(nodes, number, request)
        other = next(n for n in nodes.numbers if n != number)
        assert isinstance(marked(nodes, other), NotCoordinator)
        assert stored(nodes, number) == {}
