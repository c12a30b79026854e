"""Offsets committed in transactions: fencing, markers, stability, deletion, loading."""

from typing import Any

import pytest

from quorumlog.broker.groups.requests import (
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    JoinGroup,
    OffsetToCommit,
    SyncGroup,
)
from quorumlog.errors import (
    CoordinatorNotAvailable,
    FencedInstance,
    GroupNotFound,
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidTxnState,
    QuorumlogError,
    RebalanceInProgress,
    UnknownMember,
    UnknownTopicOrPartition,
)
from quorumlog.ids import ProducerIdentity
from quorumlog.records.control import TransactionMarker

from .classic.play import subscription
from .offsets_image import OTHER, image_of
from .transactional_shard import TransactionalShard, compacted

P3, P4 = ProducerIdentity(7, 3), ProducerIdentity(7, 4)
OTHER_PRODUCER = ProducerIdentity(8, 0)


def commit_marker(producer: ProducerIdentity = P4, version: int = 2) -> TransactionMarker:
    return TransactionMarker(producer, 1, True, version)


def abort_marker(producer: ProducerIdentity = P4, version: int = 2) -> TransactionMarker:
    return TransactionMarker(producer, 1, False, version)


def plain(offset: int, **fields: Any) -> CommitOffsets:
    one = OffsetToCommit(topic="t", partition=0, offset=offset)
    return CommitOffsets(group="g", offsets=(one,), **fields)


def joined(
    shard: TransactionalShard, member_id: str = "", instance_id: str | None = None
) -> tuple[str, int]:
    """Let a classic member join before its sync. Return its id and generation."""
    shard.outcomes.clear()
    request = JoinGroup(
        group="g",
        member_id=member_id,
        instance_id=instance_id,
        client_id="c",
        client_host="/h",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        protocol_type="consumer",
        protocols=(("range", subscription("t")),),
        takes_member_id_first=False,
    )
    try:
        found = shard.ask(request)
    except KeyError:  # answered at the end of the rebalance
        shard.expire(1)
        (found,) = shard.outcomes.values()
    return found.member_id, found.generation


def classic(shard: TransactionalShard, instance_id: str | None = None) -> dict[str, Any]:
    """Let a classic member join and sync. Return the fields of its commits."""
    member_id, generation = joined(shard, instance_id=instance_id)
    shard.ask(
        SyncGroup(
            group="g", member_id=member_id, generation=generation, assignments={member_id: b"all"}
        )
    )
    return {"member_id": member_id, "generation": generation}


def consumer(shard: TransactionalShard) -> dict[str, Any]:
    """Let a KIP-848 member join. Return the fields of its commits."""
    beat = ConsumerHeartbeat(
        group="g",
        member_id="m",
        member_epoch=0,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=5_000,
        topics=frozenset({"t"}),
        owned={},
    )
    return {"member_id": "m", "generation": shard.ask(beat).member_epoch}


# --- markers and stability ------------------------------------------------------------------------


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_committed_transaction_applies_its_offsets(is_reloaded: bool) -> None:
    shard = TransactionalShard()
    shard.ask(plain(1))
    assert shard.commit(P3, ("t", 0, 5), ("t", 1, 6)).errors == (None, None)
    if is_reloaded:
        shard = shard.reload()
    assert shard.committed() == {("t", 0): 1}
    assert shard.unstable() == {("t", 0), ("t", 1)}
    assert shard.write(commit_marker())
    assert shard.unstable() == set()
    assert shard.committed() == {("t", 0): 5, ("t", 1): 6}
    assert shard.reload().committed() == {("t", 0): 5, ("t", 1): 6}


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_aborted_transaction_drops_its_offsets_and_the_group_that_it_created(
    is_reloaded: bool,
) -> None:
    shard = TransactionalShard()
    shard.commit(P3, ("t", 0, 5))
    if is_reloaded:
        shard = shard.reload()
    assert shard.states() == {"g": "Empty"}
    assert shard.write(abort_marker())
    assert shard.states() == {}
    assert shard.committed() == {}
    assert shard.reload().states() == {}


def test_each_commit_is_a_batch_of_its_producer() -> None:
    shard = TransactionalShard()
    shard.commit(P3, ("t", 0, 5))
    shard.commit(OTHER_PRODUCER, ("t", 0, 6))
    shard.ask(plain(7))
    assert [entry.producer for entry in shard.log] == [P3, OTHER_PRODUCER, None]


def test_offset_behind_the_pending_one_stays_in_force_also_after_compaction() -> None:
    shard = TransactionalShard()
    shard.commit(P3, ("t", 0, 5))
    shard.ask(plain(9))
    shard.write(commit_marker())
    assert shard.committed() == {("t", 0): 9}
    for drops in (False, True):
        log = compacted(shard.log, drops_tombstones=drops)
        assert shard.reload(log).committed() == {("t", 0): 9}


def test_repeated_marker_is_answered_and_not_appended() -> None:
    shard = TransactionalShard()
    shard.commit(P3, ("t", 0, 5))
    assert shard.write(commit_marker())
    assert not shard.write(commit_marker())
    assert not shard.reload().write(commit_marker())


def test_marker_where_nothing_was_written_fences_delayed_commits() -> None:
    shard = TransactionalShard()
    assert shard.write(abort_marker())
    for loaded in (shard, shard.reload()):
        with pytest.raises(InvalidProducerEpoch):
            loaded.commit(P3, ("t", 0, 5))
        assert loaded.states() == {}


def test_delayed_commit_of_an_ended_transaction_is_refused() -> None:
    shard = TransactionalShard()
    shard.commit(P3, ("t", 0, 5))
    shard.write(commit_marker())
    for loaded in (
        shard,
        shard.reload(),
        shard.reload(compacted(shard.log, drops_tombstones=True)),
    ):
        with pytest.raises(InvalidProducerEpoch):
            loaded.commit(P3, ("t", 0, 4))
        assert loaded.committed() == {("t", 0): 5}


@pytest.mark.parametrize("marker", [commit_marker(P3, 0), abort_marker(P3, 0)])
def test_marker_during_a_verification_refuses_the_commit_of_the_older_protocol(
    marker: TransactionMarker,
) -> None:
    shard = TransactionalShard()
    with pytest.raises(CoordinatorNotAvailable):
        shard.commit(P3, ("t", 0, 5), verify=lambda: shard.write(marker))
    assert shard.states() == {}


def test_commit_without_a_verification_is_refused() -> None:
    shard = TransactionalShard()

    def refuse() -> None:
        raise InvalidTxnState("not in the transaction")

    with pytest.raises(InvalidTxnState):
        shard.commit(P3, ("t", 0, 5), verify=refuse)
    shard.commit(P3, ("t", 0, 5))
    shard.commit(P3, ("t", 0, 6), verify=refuse)  # it is open by now


def test_marker_of_an_earlier_transaction_leaves_the_open_one() -> None:
    shard = TransactionalShard()
    shard.write(commit_marker(P3))
    shard.commit(P3, ("t", 0, 5))
    with pytest.raises(InvalidProducerEpoch):
        shard.write(commit_marker(P3))
    assert shard.unstable() == {("t", 0)}


def test_refused_offsets_begin_no_transaction_and_create_no_group() -> None:
    shard = TransactionalShard()
    (error,) = shard.commit(P3, ("none", 0, 5)).errors
    assert isinstance(error, UnknownTopicOrPartition)
    assert shard.states() == {}
    assert shard.log == []
    assert shard.shard.verification_guard(P3, "x") is not None


# --- fencing by member and generation (KIP-447) ---------------------------------------------------


@pytest.mark.parametrize("join", [classic, consumer])
def test_member_commits_in_a_transaction(join: Any) -> None:
    shard = TransactionalShard()
    member = join(shard)
    shard.commit(P3, ("t", 0, 5), **member)
    assert shard.unstable() == {("t", 0)}
    shard.write(commit_marker())
    assert shard.committed() == {("t", 0): 5}


@pytest.mark.parametrize("join", [classic, consumer])
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": "stranger"}, UnknownMember),
        ({"generation": 99}, IllegalGeneration),
        ({"generation": 0}, IllegalGeneration),
    ],
)
def test_commit_of_a_replaced_member_is_refused(
    join: Any, changes: dict[str, Any], error: type[QuorumlogError]
) -> None:
    shard = TransactionalShard()
    member = join(shard)
    with pytest.raises(error):
        shard.commit(P3, ("t", 0, 5), **member | changes)
    assert shard.unstable() == set()
    assert shard.shard.verification_guard(P3, "x") is not None


@pytest.mark.parametrize("join", [classic, consumer])
def test_older_producer_commits_without_member_and_generation(join: Any) -> None:
    shard = TransactionalShard()
    join(shard)
    shard.commit(P3, ("t", 0, 5))
    assert shard.unstable() == {("t", 0)}


def test_replaced_static_member_is_fenced() -> None:
    shard = TransactionalShard()
    old = classic(shard, "static")
    new, _ = joined(shard, instance_id="static")
    assert new != old["member_id"]
    with pytest.raises(FencedInstance):
        shard.commit(P3, ("t", 0, 5), instance_id="static", **old)


def test_member_commits_in_a_transaction_while_the_group_waits_for_its_assignment() -> None:
    shard = TransactionalShard()
    member_id, generation = joined(shard)
    with pytest.raises(RebalanceInProgress):
        shard.ask(plain(5, member_id=member_id, generation=generation))
    shard.commit(P3, ("t", 0, 5), member_id=member_id, generation=generation)


def test_group_that_does_not_exist_has_no_generation() -> None:
    shard = TransactionalShard()
    with pytest.raises(IllegalGeneration):
        shard.commit(P3, ("t", 0, 5), member_id="m", generation=1)
    assert shard.states() == {}


# --- deletion and expiry --------------------------------------------------------------------------


def test_deleted_offset_does_not_return_with_the_marker() -> None:
    shard = TransactionalShard()
    shard.commit(P3, ("t", 0, 5), ("t", 1, 6))
    assert shard.ask(DeleteOffsets(group="g", partitions=(("t", 0),))).errors == (None,)
    assert shard.unstable() == {("t", 1)}
    loaded = shard.reload()
    for each in (shard, loaded):
        each.write(commit_marker())
        assert each.committed() == {("t", 1): 6}


def test_deleted_group_does_not_return_with_the_marker() -> None:
    shard = TransactionalShard()
    shard.ask(plain(1))
    shard.commit(P3, ("t", 0, 5), ("t", 1, 6))
    shard.ask(DeleteGroup(group="g"))
    with pytest.raises(GroupNotFound):
        shard.ask(DeleteGroup(group="g"))
    loaded = shard.reload()
    for each in (shard, loaded):
        assert each.states() == {}
        assert each.write(commit_marker())
        assert each.states() == {}


def test_deleted_topic_drops_its_pending_offsets() -> None:
    shard = TransactionalShard()
    shard.commit(P3, ("t", 0, 5))
    shard.change_topics(image_of({"t": OTHER}))
    assert shard.unstable() == set()
    loaded = shard.reload()
    for each in (shard, loaded):
        each.write(commit_marker())
        assert each.committed() == {}


def test_group_with_a_pending_offset_does_not_expire() -> None:
    shard = TransactionalShard()
    shard.ask(plain(1))
    shard.commit(P3, ("t", 0, 5))
    shard.commit(P3, ("t", 0, 6), group="other")
    shard.expire(200_000)
    assert shard.states() == {"g": "Empty", "other": "Empty"}
    assert shard.committed() == {("t", 0): 1}
    shard.write(abort_marker())
    assert shard.states() == {"g": "Empty"}
    shard.expire(2_000)
    assert shard.states() == {}
    assert shard.reload().states() == {}


def test_emptied_group_with_members_that_left_keeps_its_pending_offset() -> None:
    shard = TransactionalShard()
    member = classic(shard)
    shard.commit(P3, ("t", 0, 5), **member)
    shard.expire(200_000)
    assert shard.states() == {"g": "Empty"}
    shard.write(commit_marker())
    assert shard.committed() == {("t", 0): 5}
