"""The pure partition: high watermark, fencing, waits (design: replication; R7, R9, R11)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.broker import Acks, LeaderAndIsr, Partition, PurgatoryEntry
from quorumlog.broker.isr import FollowerFetch
from quorumlog.broker.partition_leader import PartitionLeader
from quorumlog.errors import (
    DiskFailed,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    Overloaded,
    UnknownLeaderEpoch,
)
from quorumlog.ids import Epoch, NodeId, Offset

ME, OTHER, THIRD = NodeId(1), NodeId(2), NodeId(3)


def state(
    *,
    epoch: int = 0,
    isr: tuple[NodeId, ...] = (ME,),
    min_isr: int = 1,
    counts_flushed: bool = False,
) -> LeaderAndIsr:
    return LeaderAndIsr(
        leader_epoch=Epoch(epoch),
        replicas=(ME, OTHER, THIRD),
        partition_epoch=0,
        isr=isr,
        min_isr=min_isr,
        counts_flushed=counts_flushed,
    )


def leading(leadership: LeaderAndIsr, *, end: int = 0, flushed: int = 0) -> Partition:
    partition = Partition("t", 0, ME, waits_max=3)
    partition.become_leader(
        leadership, log_end_offset=Offset(end), flushed_end_offset=Offset(flushed), now_ms=0
    )
    return partition


def leader_of(partition: Partition) -> PartitionLeader:
    return partition.check_leader(None)


def advance(
    partition: Partition, end: int, flushed: int = 0, *, replica: NodeId | None = None
) -> tuple[PurgatoryEntry, ...]:
    if replica in (None, ME):
        progress = partition.check_leader(None).advance(
            log_end_offset=Offset(end), flushed_end_offset=Offset(flushed)
        )
    else:
        fetch = FollowerFetch(
            broker_epoch=Offset(1),
            leader_epoch=partition.leader_epoch,
            log_end_offset=Offset(end),
            flushed_end_offset=Offset(flushed),
            log_start_offset=Offset(0),
        )
        progress = partition.check_leader(None).fetched(NodeId(replica or ME), fetch, now_ms=0)
    partition.check_invariants()
    return progress.released


def test_alone_the_high_watermark_is_the_log_end() -> None:
    partition = leading(state(), end=7)
    assert partition.high_watermark == 7
    advance(partition, 9)
    assert partition.high_watermark == 9


def test_under_fsync_the_high_watermark_is_the_flushed_end() -> None:
    partition = leading(state(counts_flushed=True), end=7, flushed=5)
    assert partition.high_watermark == 5
    advance(partition, 9, 7)
    assert partition.high_watermark == 7


def test_the_high_watermark_is_the_least_of_the_isr() -> None:
    partition = leading(state(isr=(ME, OTHER), min_isr=2), end=10)
    assert partition.high_watermark == 0, "a member without a report blocks it"
    advance(partition, 4, replica=OTHER)
    assert partition.high_watermark == 4
    advance(partition, 12, replica=OTHER)
    assert partition.high_watermark == 10


def test_high_watermark_is_frozen_below_min_isr_and_never_decreases() -> None:
    partition = leading(state(isr=(ME, OTHER), min_isr=2), end=10)
    advance(partition, 6, replica=OTHER)
    partition.become_leader(
        state(isr=(ME,), min_isr=2),
        log_end_offset=Offset(10),
        flushed_end_offset=Offset(0),
        now_ms=0,
    )
    assert partition.high_watermark == 6
    partition.become_leader(
        state(isr=(ME, OTHER), min_isr=1),
        log_end_offset=Offset(10),
        flushed_end_offset=Offset(0),
        now_ms=0,
    )
    advance(partition, 2, replica=OTHER)
    assert partition.high_watermark == 6


def test_new_leader_epoch_drops_reports_of_the_old_one() -> None:
    """R11: an old report must not count for a replica that was emptied since."""
    partition = leading(state(isr=(ME, OTHER), min_isr=2), end=5)
    advance(partition, 5, replica=OTHER)
    partition.become_leader(
        state(epoch=1, isr=(ME, OTHER), min_isr=2),
        log_end_offset=Offset(8),
        flushed_end_offset=Offset(0),
        now_ms=0,
    )
    assert partition.high_watermark == 5


@pytest.mark.parametrize("acks", [Acks.ALL, Acks.LEADER])
def test_a_wait_is_released_when_its_end_is_reached(acks: Acks) -> None:
    partition = leading(state())
    assert not leader_of(partition).is_acknowledged(acks, Offset(3))
    wait = leader_of(partition).wait_for(acks, Offset(3), "caller")
    assert advance(partition, 2) == ()
    assert advance(partition, 3) == (wait,)
    assert (wait.token, wait.error, partition.purgatory.count) == ("caller", None, 0)
    assert leader_of(partition).is_acknowledged(acks, Offset(3))


def test_acks_one_under_fsync_waits_for_the_flush() -> None:
    partition = leading(state(counts_flushed=True))
    wait = leader_of(partition).wait_for(Acks.LEADER, Offset(3), None)
    assert advance(partition, 3, 0) == ()
    assert advance(partition, 3, 3) == (wait,)


def test_acks_all_waits_for_the_followers_and_acks_one_does_not() -> None:
    partition = leading(state(isr=(ME, OTHER), min_isr=2))
    everyone = leader_of(partition).wait_for(Acks.ALL, Offset(2), None)
    alone = leader_of(partition).wait_for(Acks.LEADER, Offset(2), None)
    assert advance(partition, 2) == (alone,)
    assert advance(partition, 2, replica=OTHER) == (everyone,)


def test_acks_none_is_acknowledged_at_once() -> None:
    assert leader_of(leading(state())).is_acknowledged(Acks.NONE, Offset(99))


def test_waits_of_one_offset_are_released_in_order() -> None:
    partition = leading(state())
    waits = [leader_of(partition).wait_for(Acks.ALL, Offset(1), number) for number in range(3)]
    assert advance(partition, 5) == tuple(waits)


def test_cancelled_wait_is_never_released() -> None:
    partition = leading(state())
    gone = leader_of(partition).wait_for(Acks.ALL, Offset(1), None)
    gone.cancel()
    gone.cancel()
    assert partition.purgatory.count == 0
    assert advance(partition, 1) == ()


def test_cancelled_waits_do_not_accumulate() -> None:
    partition = leading(state(isr=(ME, OTHER)))
    for offset in range(1, 1000):
        leader_of(partition).wait_for(Acks.ALL, Offset(offset), None).cancel()
    assert len(partition.purgatory._acks_all._heap) <= 65


def test_waits_are_bounded_and_the_refused_request_may_store_nothing() -> None:
    partition = leading(state())
    for _ in range(3):
        leader_of(partition).admit(Acks.ALL)
        leader_of(partition).wait_for(Acks.ALL, Offset(1), None)
    with pytest.raises(Overloaded, match="limit is 3"):
        leader_of(partition).admit(Acks.ALL)
    leader_of(partition).admit(Acks.NONE)


def test_resigning_releases_every_wait_with_its_error() -> None:
    partition = leading(state())
    waits = (
        leader_of(partition).wait_for(Acks.ALL, Offset(1), None),
        leader_of(partition).wait_for(Acks.LEADER, Offset(1), None),
    )
    error = DiskFailed("the disk is gone")
    assert partition.resign(error) == waits
    assert [wait.error for wait in waits] == [error, error]
    with pytest.raises(NotLeaderOrFollower):
        leader_of(partition).admit(Acks.ALL)


def test_a_request_of_another_epoch_is_fenced_both_ways() -> None:
    partition = leading(state(epoch=4))
    partition.check_leader(4)
    partition.check_leader(None)
    with pytest.raises(FencedLeaderEpoch, match="older than the current epoch 4"):
        partition.check_leader(3)
    with pytest.raises(UnknownLeaderEpoch, match="newer than epoch 4"):
        partition.check_leader(5)


def test_leader_with_a_newer_epoch_in_its_metadata_refuses_everything() -> None:
    partition = leading(state(epoch=4))
    partition.resign(NotLeaderOrFollower("deposed"), epoch=Epoch(5))
    with pytest.raises(FencedLeaderEpoch):
        partition.check_leader(4)
    with pytest.raises(NotLeaderOrFollower):
        partition.check_leader(5)


def test_acks_all_is_refused_below_min_isr_and_acks_one_is_not() -> None:
    partition = leading(state(isr=(ME,), min_isr=2))
    with pytest.raises(NotEnoughReplicas, match=r"1 of min\.insync\.replicas=2"):
        leader_of(partition).admit(Acks.ALL)
    leader_of(partition).admit(Acks.LEADER)


@given(
    st.lists(
        st.tuples(st.sampled_from([ME, OTHER, THIRD]), st.integers(0, 50), st.integers(0, 50)),
        max_size=30,
    ),
    st.booleans(),
    st.integers(1, 3),
)
def test_high_watermark_equals_the_simple_model(
    reports: list[tuple[NodeId, int, int]], counts_flushed: bool, min_isr: int
) -> None:
    """The model: the running maximum of the least reported end in the ISR."""
    isr = (ME, OTHER)
    partition = leading(state(isr=isr, min_isr=min_isr, counts_flushed=counts_flushed))
    ends = {ME: 0}
    expected, own = 0, (0, 0)
    for replica, end, flushed in reports:
        if replica == ME:  # the leader's own log never shrinks
            end, flushed = max(end, own[0]), max(flushed, own[1])
        flushed = min(end, flushed)
        if replica == ME:
            own = (end, flushed)
        ends[replica] = flushed if counts_flushed else end
        advance(partition, end, flushed, replica=replica)
        if min_isr <= len(isr) and all(member in ends for member in isr):
            expected = max(expected, min(ends[member] for member in isr))
        assert partition.high_watermark == expected
