"""The preferred read replica in the consumer's rack (KIP-392)."""

from dataclasses import replace

from quorumlog.clients.consumer.partition_reader import LEADER_MS, STAY_MS, PreferredReplica
from quorumlog.clients.topology import PartitionLeader
from quorumlog.ids import Epoch

LEADER = PartitionLeader("leader:1", Epoch(4), b"t" * 16)


def at_follower() -> PreferredReplica:
    nearby = PreferredReplica()
    assert nearby.source(LEADER, 0) == LEADER
    assert nearby.rack_to_send("a", 0) == "a"
    nearby.named("near:1", 0)
    assert nearby.source(LEADER, 0) == replace(LEADER, address="near:1"), "refused with its epoch"
    return nearby


def test_named_replica_is_read_until_the_leader_is_asked_again() -> None:
    nearby = at_follower()
    assert nearby.source(LEADER, STAY_MS - 1).address == "near:1"
    assert nearby.source(LEADER, STAY_MS) == LEADER
    assert nearby.rack_to_send("a", STAY_MS) == "a", "the leader may name a replica again"


def test_another_leader_is_asked_first() -> None:
    nearby = at_follower()
    later = replace(LEADER, epoch=Epoch(5))
    assert nearby.source(later, 1) == later


def test_after_a_refusal_the_leader_alone_is_read_for_a_while() -> None:
    nearby = at_follower()
    assert nearby.leave(10)
    assert not nearby.leave(10), "the leader has no replica to fall back from"
    assert nearby.source(LEADER, 10) == LEADER
    assert nearby.rack_to_send("a", 10 + LEADER_MS - 1) == ""
    assert nearby.rack_to_send("a", 10 + LEADER_MS) == "a"


def test_a_replica_without_a_known_address_leaves_the_leader_to_be_read() -> None:
    nearby = PreferredReplica()
    nearby.named(None, 0)
    assert nearby.source(LEADER, 0) == LEADER
    assert nearby.rack_to_send("a", 0) == "", (
        "the leader would name that replica again and send no records"
    )
