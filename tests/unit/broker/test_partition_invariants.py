"""Each invariant of a partition fails when it is violated, with its number and the values."""

from dataclasses import replace

import pytest

from quorumlog.broker import Acks
from quorumlog.broker.isr import RemoteReplica
from quorumlog.broker.partition_follower import FollowerState
from quorumlog.errors import NotLeaderOrFollower
from quorumlog.ids import Epoch, Offset

from .isr_leader import ME, OTHER, THIRD, IsrLeader

FOLLOWED = FollowerState(leader_id=OTHER, leader_epoch=Epoch(2), partition_epoch=1)
OTHER_LEADS = NotLeaderOrFollower("node 2 leads")


@pytest.fixture
def led() -> IsrLeader:
    leader = IsrLeader(isr=(ME, OTHER), end=5)
    leader.fetch(OTHER, 4)
    leader.partition.check_invariants()
    return leader


def violated(led: IsrLeader, match: str) -> None:
    with pytest.raises(AssertionError, match=f"^{match}"):
        led.partition.check_invariants()


def test_partition_1_leads_and_follows(led: IsrLeader) -> None:
    led.partition.follower = FOLLOWED
    violated(led, "partition invariant 1, t-0: leads in epoch 1 and follows 2")


def test_partition_2_epoch_of_the_leader_is_not_the_newest(led: IsrLeader) -> None:
    led.partition.leader_epoch = Epoch(3)
    violated(led, "partition invariant 2, t-0: the role has epoch 1, the newest one is 3")


def test_partition_2_epoch_of_the_follower_is_not_the_newest(led: IsrLeader) -> None:
    led.partition.become_follower(FOLLOWED, OTHER_LEADS)
    led.partition.check_invariants()
    led.partition.leader_epoch = Epoch(3)
    violated(led, "partition invariant 2, t-0: the role has epoch 2, the newest one is 3")


def test_partition_3_produce_request_waits_without_a_leader(led: IsrLeader) -> None:
    led.partition.become_follower(FOLLOWED, OTHER_LEADS)
    led.partition.purgatory.add(Acks.ALL, Offset(7), None)
    violated(led, "partition invariant 3, t-0: 1 produce requests wait without a leader")


def test_partition_5_purgatory_counts_an_entry_too_many(led: IsrLeader) -> None:
    entry = led.leader.wait_for(Acks.ALL, Offset(7), None)
    entry.is_released = True
    violated(led, "purgatory invariant 1, t-0: 0 entries in the purgatory, 1 counted")


def test_leader_1_high_watermark_is_beyond_the_log_end(led: IsrLeader) -> None:
    led.leader.high_watermark = Offset(6)
    violated(led, "leader invariant 1, t-0: the high watermark is 6, the log ends at 5")


def test_leader_2_log_ends_before_the_start_of_the_epoch(led: IsrLeader) -> None:
    led.leader.isr.epoch_start_offset = Offset(9)
    violated(led, "leader invariant 2, t-0: epoch 1 starts at 9, the log ends at 5")


def test_isr_1_flushed_beyond_the_log_end(led: IsrLeader) -> None:
    led.leader.isr.flushed_end_offset = Offset(6)
    violated(led, "ISR invariant 1, t-0: flushed to 6, the log ends at 5")


def test_isr_2_leader_is_not_in_the_isr(led: IsrLeader) -> None:
    led.leader.isr.state = replace(led.leader.state, isr=(OTHER, THIRD))
    violated(led, r"ISR invariant 2, t-0: the ISR of leader 1 is \(2, 3\)")


def test_isr_2_replica_is_in_the_isr_twice(led: IsrLeader) -> None:
    led.leader.isr.state = replace(led.leader.state, isr=(ME, OTHER, OTHER))
    violated(led, r"ISR invariant 2, t-0: the ISR \(1, 2, 2\) contains a replica twice")


def test_isr_3_proposal_is_based_on_an_older_state(led: IsrLeader) -> None:
    led.fetch(THIRD, 5)
    proposal = led.proposal()
    led.partition.check_invariants()
    led.leader.isr.proposal = replace(proposal, partition_epoch=7)
    violated(
        led, r"ISR invariant 3, t-0: the proposal is for epochs \(1, 7\), the present ones are 1"
    )


def test_isr_3_proposal_lacks_the_leader(led: IsrLeader) -> None:
    led.fetch(THIRD, 5)
    led.leader.isr.proposal = replace(led.proposal(), isr=((OTHER, Offset(2)),))
    violated(led, r"ISR invariant 3, t-0: leader 1 proposes the ISR \(2,\)")


def test_isr_4_waits_for_metadata_without_a_proposal(led: IsrLeader) -> None:
    led.leader.isr.is_waiting = True
    violated(led, "ISR invariant 4, t-0: waits for metadata without a proposal")


def test_isr_5_leader_is_its_own_remote_replica(led: IsrLeader) -> None:
    led.leader.isr.remotes[ME] = RemoteReplica(
        broker_epoch=Offset(1),
        log_end_offset=Offset(5),
        flushed_end_offset=Offset(5),
        log_start_offset=Offset(0),
        caught_up_ms=0,
        fetched_ms=0,
        leader_end_at_fetch=Offset(5),
    )
    violated(led, "ISR invariant 5, t-0: 1 is a remote replica of itself")
