"""The pure leader and its ISR: expansion, shrink, and the high watermark in between.

KIP-497, KIP-903, KIP-966; R6 to R11, R27, R28.
"""

import pytest

from quorumlog.broker.isr import BrokerFacts
from quorumlog.broker.partition_follower import FollowerState
from quorumlog.broker.purgatory import Acks
from quorumlog.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NotController,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OutcomeUnknown,
    QuorumlogError,
    StaleBrokerEpoch,
)
from quorumlog.ids import Epoch, NodeId, Offset

from .isr_leader import LAG_MS, ME, OTHER, THIRD, IsrLeader


def test_replica_at_the_high_watermark_is_proposed_with_its_broker_epoch() -> None:
    leader = IsrLeader(end=5)
    leader.fetch(OTHER, 3)
    assert leader.leader.isr_proposal() is None
    leader.fetch(OTHER, 5)
    assert leader.proposal().isr == ((ME, 1), (OTHER, 2))
    assert leader.proposal() is leader.proposal(), "one in flight, the same until answered"


def test_high_watermark_waits_for_proposed_replicas_before_the_response() -> None:
    """R9: the controller may have accepted the replica already, and may elect it."""
    leader = IsrLeader(end=5)
    leader.fetch(OTHER, 5)
    leader.proposal()
    leader.append(9)
    assert leader.mark == 5
    leader.fetch(OTHER, 8)
    assert leader.mark == 8


@pytest.mark.parametrize("error", [OutcomeUnknown("?"), NotController("?")])
def test_lost_response_keeps_the_maximal_isr_and_repeats_the_proposal(
    error: QuorumlogError,
) -> None:
    leader = IsrLeader(end=5)
    leader.fetch(OTHER, 5)
    asked = leader.proposal()
    leader.leader.isr_refused(asked, error, 0)
    leader.append(9)
    assert leader.mark == 5
    assert leader.proposal() is asked


def test_an_ineligible_replica_rolls_the_isr_back_once_the_metadata_exclude_it() -> None:
    """R8: the metadata that exclude it have the partition epoch of the proposal."""
    leader = IsrLeader(end=5)
    leader.fetch(OTHER, 5)
    asked = leader.proposal()
    leader.facts[OTHER] = BrokerFacts(Offset(2), False)
    leader.leader.isr_refused(asked, IneligibleReplica("fenced"), 0)
    assert leader.leader.isr.maximal_isr() == (ME,)
    assert leader.leader.isr_proposal() is None
    leader.facts[OTHER] = BrokerFacts(Offset(2), True)
    leader.fetch(OTHER, 5, now_ms=400)
    assert leader.leader.isr_proposal() is None, "not at once again"
    leader.fetch(OTHER, 5, now_ms=600)
    assert leader.proposal().members == (ME, OTHER)


@pytest.mark.parametrize(
    "facts", [BrokerFacts(Offset(2), False), BrokerFacts(Offset(7), True), None], ids=str
)
def test_rejection_of_a_deposed_controller_keeps_the_maximal_isr(facts: BrokerFacts | None) -> None:
    """The current controller accepted the first copy of the request, and its response was lost; a
    deposed one has older metadata of the brokers."""
    leader = IsrLeader(end=5)
    leader.fetch(OTHER, 5)
    asked = leader.proposal()
    leader.leader.isr_refused(asked, OutcomeUnknown("?"), 0)
    leader.leader.isr_refused(asked, IneligibleReplica("fenced"), 0)
    leader.append(9)
    assert leader.mark == 5, "the replica is in the ISR, and may be elected"
    assert leader.leader.isr_proposal() is None, "not at once again"
    leader.fetch(OTHER, 5, now_ms=600)
    assert leader.proposal() is asked
    leader.facts[OTHER] = facts
    leader.leader.tick(601)
    assert leader.leader.isr.maximal_isr() == (ME,)
    assert leader.mark == 9


def test_rejected_member_leaves_the_proposal_and_the_others_stay() -> None:
    """An earlier copy of the request may have been accepted, so the other one may be in the ISR."""
    leader = IsrLeader(end=5)
    leader.fetch(OTHER, 5)
    leader.fetch(THIRD, 5)
    asked = leader.proposal()
    assert asked.members == (ME, OTHER, THIRD)
    leader.facts[THIRD] = None
    leader.leader.isr_refused(asked, IneligibleReplica("gone"), 0)
    assert leader.leader.isr.maximal_isr() == (ME, OTHER)
    leader.fetch(OTHER, 5, now_ms=600)
    assert leader.proposal().members == (ME, OTHER)


def test_pause_after_a_rejection_begins_at_the_rejection() -> None:
    """The leader may have received no fetch for long: followers report changes only."""
    leader = IsrLeader(end=5)
    leader.fetch(OTHER, 5)
    leader.leader.isr_refused(leader.proposal(), IneligibleReplica("fenced"), 9_000)
    assert leader.leader.isr_proposal() is None
    leader.fetch(OTHER, 5, now_ms=9_400)
    assert leader.leader.isr_proposal() is None
    leader.fetch(OTHER, 5, now_ms=9_500)
    assert leader.leader.isr_proposal() is not None


@pytest.mark.parametrize("error", [InvalidUpdateVersion("?"), FencedLeaderEpoch("?")])
def test_stale_proposal_keeps_the_maximal_isr_until_the_metadata_arrives(
    error: QuorumlogError,
) -> None:
    leader = IsrLeader(end=5)
    leader.fetch(OTHER, 5)
    leader.leader.isr_refused(leader.proposal(), error, 0)
    assert leader.leader.isr_proposal() is None
    assert OTHER in leader.leader.isr.maximal_isr()
    leader.lead(partition_epoch=1)
    assert OTHER not in leader.leader.isr.maximal_isr()
    assert leader.proposal().partition_epoch == 1


def test_accepted_shrink_releases_waits_for_the_removed_replica() -> None:
    """R27: the response, not the next fetch, advances the high watermark."""
    leader = IsrLeader(isr=(ME, OTHER), end=5)
    wait = leader.leader.wait_for(Acks.ALL, Offset(5), None)
    leader.leader.tick(LAG_MS + 1)
    asked = leader.proposal()
    assert asked.members == (ME,)
    assert leader.mark == 0, "the proposal may still be refused"
    assert leader.accept(asked).released == (wait,)


def test_slow_member_that_reaches_an_earlier_log_end_stays() -> None:
    leader = IsrLeader(isr=(ME, OTHER), end=5)
    leader.fetch(OTHER, 5, now_ms=900)
    for turn in range(1, 5):
        leader.append(5 + 10 * turn)
        leader.fetch(OTHER, 10 * turn - 5, now_ms=900 + turn * 400)
        leader.leader.tick(900 + turn * 400)
        assert leader.leader.isr_proposal() is None
    leader.leader.tick(900 + 4 * 400 + LAG_MS)
    assert leader.proposal().members == (ME,)


def test_member_that_flushes_more_slowly_than_it_fetches_stays() -> None:
    """Under flush.policy=fsync a follower fetches after each response and after each flush. Under a
    load it has never flushed what the leader had at its fetch before."""
    leader = IsrLeader(isr=(ME, OTHER), end=5, counts_flushed=True)
    for now_ms in range(10, 5 * LAG_MS, 10):
        leader.append(now_ms)
        leader.fetch(OTHER, now_ms - 10, flushed=now_ms - 100, now_ms=now_ms)
        leader.leader.tick(now_ms)
        assert leader.leader.isr_proposal() is None
    end = 5 * LAG_MS
    for now_ms in range(5 * LAG_MS, 7 * LAG_MS, 10):  # its disk does not flush any more
        leader.append(now_ms)
        leader.fetch(OTHER, now_ms - 10, flushed=end - 110, now_ms=now_ms)
    assert leader.proposal().members == (ME,)


def test_member_that_was_caught_up_for_long_does_not_lag_at_the_next_append() -> None:
    """Streams report changes only: a replica that has everything may be silent for hours."""
    leader = IsrLeader(isr=(ME, OTHER), end=5)
    leader.fetch(OTHER, 5, now_ms=1)
    for now_ms in range(500, 10_001, 500):
        leader.leader.tick(now_ms)
    leader.append(6)
    leader.leader.tick(10_001)
    assert leader.leader.isr_proposal() is None
    leader.leader.tick(10_001 + LAG_MS)
    assert leader.proposal().members == (ME,)


def test_replica_removed_for_lag_does_not_join_while_it_lags() -> None:
    """Below min ISR the high watermark is frozen, so reaching it does not show that a replica
    caught up."""
    leader = IsrLeader(isr=(ME, OTHER, THIRD), min_isr=3, end=5)
    leader.fetch(OTHER, 5, now_ms=1)
    leader.fetch(THIRD, 5, now_ms=1)
    leader.append(6)
    leader.fetch(THIRD, 6, now_ms=LAG_MS + 2)
    asked = leader.proposal()
    assert asked.members == (ME, THIRD)
    leader.accept(asked)
    assert leader.leader.isr_proposal() is None
    leader.fetch(OTHER, 6, now_ms=LAG_MS + 9)
    assert leader.proposal().members == (ME, OTHER, THIRD)


def test_a_replica_that_keeps_up_holds_the_mark_so_that_it_can_join() -> None:
    """Otherwise a high watermark that moves with every append stays ahead of the replica
    forever."""
    leader = IsrLeader(end=5)
    leader.fetch(OTHER, 4, now_ms=1)
    leader.append(6)
    leader.fetch(OTHER, 5, now_ms=2)  # it reached the leader's end of its last fetch
    leader.append(8)
    assert leader.mark == 6
    leader.fetch(OTHER, 6, now_ms=3)
    assert leader.proposal().members == (ME, OTHER)


def test_fenced_stopping_or_reregistered_replica_does_not_join() -> None:
    """R6, R7, R8: one captured metadata state decides."""
    leader = IsrLeader(end=5)
    for facts in (BrokerFacts(Offset(2), False), BrokerFacts(Offset(1), True), None):
        if facts is None:
            del leader.facts[OTHER]
        else:
            leader.facts[OTHER] = facts
        leader.fetch(OTHER, 5)
        assert leader.leader.isr_proposal() is None
        assert leader.append(leader.end + 1).high_watermark_moved, (
            "nor does it block the high watermark"
        )


def test_fetch_of_an_old_broker_epoch_is_refused() -> None:
    leader = IsrLeader(end=5)
    leader.facts[OTHER] = BrokerFacts(Offset(7), True)
    with pytest.raises(StaleBrokerEpoch, match="epoch 2; it is registered with 7"):
        leader.fetch(OTHER, 5)


def test_late_fetch_of_an_old_broker_epoch_does_not_count_under_old_metadata() -> None:
    leader = IsrLeader(isr=(ME, OTHER), end=5)
    leader.fetch(OTHER, 0, broker_epoch=7)
    with pytest.raises(StaleBrokerEpoch, match="epoch 2; it is registered with 7"):
        leader.fetch(OTHER, 5)
    assert leader.mark == 0


def test_fetch_of_another_broker_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="node 9 is not a follower of t-0"):
        IsrLeader().fetch(NodeId(9), 0)


def test_to_join_a_replica_must_reach_the_start_of_the_leader_epoch() -> None:
    """R10: the new leader's high watermark may be behind the previous leader's."""
    leader = IsrLeader(end=5)
    leader.isr, leader.end = (ME, THIRD), 10
    leader.lead(epoch=2, partition_epoch=1)
    assert leader.mark == 5
    leader.fetch(OTHER, 7, epoch=2)
    assert leader.leader.isr_proposal() is None
    leader.fetch(OTHER, 10, epoch=2)
    assert leader.proposal().members == (ME, OTHER, THIRD)


def test_report_of_an_older_epoch_makes_no_replica_join() -> None:
    """R11."""
    leader = IsrLeader(end=5)
    leader.fetch(OTHER, 5)
    leader.lead(epoch=2, partition_epoch=1)
    assert leader.leader.isr_proposal() is None


def test_leader_returns_no_end_before_it_commits_its_epoch_start() -> None:
    leader = IsrLeader(isr=(ME, OTHER), end=10)
    with pytest.raises(OffsetNotAvailable, match="committed up to offset 0 of 10"):
        leader.leader.check_committed()
    leader.fetch(OTHER, 10)
    assert leader.leader.check_committed() == 10


def test_under_fsync_a_replica_joins_by_flushed_records_only() -> None:
    leader = IsrLeader(counts_flushed=True, end=5)
    leader.leader.advance(log_end_offset=Offset(5), flushed_end_offset=Offset(5))
    leader.fetch(OTHER, 5, flushed=4)
    assert leader.leader.isr_proposal() is None
    leader.fetch(OTHER, 5, flushed=5)
    assert leader.proposal().members == (ME, OTHER)


def test_recovering_leader_first_reports_its_recovery() -> None:
    leader = IsrLeader(end=5, recovering=True)
    leader.fetch(OTHER, 5)
    asked = leader.proposal()
    assert (asked.recovered, asked.members) == (True, (ME,))
    leader.accept(asked)
    assert leader.proposal().members == (ME, OTHER)


def test_an_older_state_of_the_metadata_does_not_undo_an_accepted_isr() -> None:
    leader = IsrLeader(end=5)
    leader.fetch(OTHER, 5)
    leader.accept(leader.proposal())
    leader.isr = (ME,)
    leader.lead(partition_epoch=0)
    assert leader.leader.isr.maximal_isr() == (ME, OTHER)


def test_an_answer_of_another_leadership_is_dropped() -> None:
    leader = IsrLeader(end=5)
    leader.fetch(OTHER, 5)
    asked = leader.proposal()
    leader.lead(epoch=2, partition_epoch=3)
    leader.leader.isr_accepted(asked, leader_epoch=1, partition_epoch=1, isr=(ME, OTHER))
    assert leader.leader.isr.maximal_isr() == (ME,)


def test_leader_without_a_lease_accepts_only_acks_all() -> None:
    leader = IsrLeader(end=5)
    for acks in (Acks.NONE, Acks.LEADER):
        with pytest.raises(NotLeaderOrFollower, match="lost the controllers"):
            leader.leader.admit(acks, lapsed=True)
    leader.leader.admit(Acks.ALL, lapsed=True)


def test_new_follower_releases_its_waits_and_names_the_leader() -> None:
    leader = IsrLeader(isr=(ME, OTHER), end=5)
    wait = leader.leader.wait_for(Acks.ALL, Offset(5), None)
    error = NotLeaderOrFollower("node 2 leads")
    followed = FollowerState(leader_id=OTHER, leader_epoch=Epoch(2), partition_epoch=1)
    assert leader.partition.become_follower(followed, error) == (wait,)
    assert wait.error is error
    with pytest.raises(NotLeaderOrFollower, match="node 2 leads"):
        leader.partition.check_leader(None)
    assert leader.partition.followed == OTHER


def test_replica_statuses_explain_why_a_replica_is_not_in_sync() -> None:
    leader = IsrLeader(isr=(ME,), end=5)
    leader.fetch(OTHER, 3, now_ms=10)
    leader.facts[THIRD] = BrokerFacts(Offset(3), False)
    mine, other, third = leader.leader.isr.replica_status(30)
    assert (mine.in_sync, mine.reason) == (True, "")
    assert other.reason == "broker 2 is 2 records behind; its last fetch was 20 ms ago"
    assert third.reason == "broker 3 is fenced or stopping"
