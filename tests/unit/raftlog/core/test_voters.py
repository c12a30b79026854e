"""Voter sets and their history (thesis 4.1; KIP-853)."""

import pytest
from tests.kit.raft_member import address_of, voter, voters

from quorumlog.errors import DuplicateVoter, InvalidRequest, VoterNotFound
from quorumlog.ids import DirectoryId, NodeId, Offset
from quorumlog.raftlog.voters import Voter, VoterHistory, VoterSet


def history(start_offset: int = 0) -> VoterHistory:
    return VoterHistory(voters(1, 2, 3), start_offset=Offset(start_offset))


def test_a_set_is_in_the_order_of_node_ids() -> None:
    members = [(voter(3), "c"), (voter(1), "a"), (voter(2), "b")]
    assert [each.node_id for each in VoterSet.of(members)] == [1, 2, 3]


def test_a_node_id_votes_once_whatever_its_disk() -> None:
    with pytest.raises(InvalidRequest, match=r"\[1, 1\]"):
        VoterSet.of([(voter(1), "a"), (voter(1, 1), "b")])


def test_a_set_that_is_out_of_order_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="ascending"):
        VoterSet(((voter(2), "b"), (voter(1), "a")))


@pytest.mark.parametrize(
    ("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)]
)
def test_two_majorities_always_share_a_voter(count: int, majority: int) -> None:
    """B10: a quorum that is off by one."""
    assert voters(*range(1, count + 1)).majority == majority
    assert 2 * majority > count


def test_a_wiped_disk_is_another_voter() -> None:
    assert voter(2) in voters(1, 2, 3)
    assert voter(2, 1) not in voters(1, 2, 3)
    assert "2" not in voters(1, 2, 3)
    assert voters(1, 2, 3).with_node_id(NodeId(2)) == voter(2)
    assert voters(1, 2, 3).with_node_id(NodeId(4)) is None


def test_a_voter_has_an_address_and_a_stranger_none() -> None:
    assert voters(1, 2).address_of(voter(2)) == address_of(2)
    assert voters(1, 2).address_of(voter(2, 1)) is None


def test_adding_and_removing_make_new_sets() -> None:
    before = voters(1, 2, 3)
    after = before.adding(voter(4), address_of(4))
    assert after == voters(1, 2, 3, 4)
    assert after.removing(voter(1)) == voters(2, 3, 4)
    assert before == voters(1, 2, 3)


@pytest.mark.parametrize("disk", [0, 1])
def test_a_node_that_votes_cannot_be_added_whatever_its_disk(disk: int) -> None:
    with pytest.raises(DuplicateVoter, match="node 2: already a voter"):
        voters(1, 2, 3).adding(voter(2, disk), address_of(2))


@pytest.mark.parametrize("stranger", [voter(4), voter(2, 1)])
def test_only_a_voter_can_be_removed(stranger: Voter) -> None:
    with pytest.raises(VoterNotFound, match=f"node {stranger.node_id}"):
        voters(1, 2, 3).removing(stranger)


def test_the_last_voter_stays() -> None:
    with pytest.raises(InvalidRequest, match="last voter"):
        voters(1).removing(voter(1))


def test_neighbouring_sets_share_a_voter_in_every_two_quorums() -> None:
    """Therefore one server at a time needs no joint configuration (thesis 4.1)."""
    for count in range(1, 7):
        before = voters(*range(1, count + 1))
        after = before.adding(voter(count + 1), "x")
        assert before.majority + after.majority > len(after)


def test_a_set_is_in_effect_from_its_record_on() -> None:
    sets = history()
    sets.append(Offset(7), voters(1, 2, 3, 4))
    assert sets.latest == voters(1, 2, 3, 4)
    assert sets.latest_offset == 7
    assert sets.at(Offset(7)) == voters(1, 2, 3), "the log [0, 7) has no such record"
    assert sets.at(Offset(8)) == voters(1, 2, 3, 4)
    assert sets.at(Offset(0)) == voters(1, 2, 3)


def test_a_truncated_record_restores_the_set_before() -> None:
    """B13."""
    sets = history()
    sets.append(Offset(7), voters(1, 2, 3, 4))
    assert not sets.truncate_to(Offset(8))
    assert sets.truncate_to(Offset(7))
    assert sets.latest == voters(1, 2, 3)
    assert not sets.truncate_to(Offset(0)), "the initial set is never truncated"
    assert sets.latest == voters(1, 2, 3)


def test_cleaning_keeps_the_set_in_effect_at_the_new_start() -> None:
    """B14."""
    sets = history()
    sets.append(Offset(3), voters(1, 2))
    sets.append(Offset(9), voters(1))
    sets.clean_to(Offset(4))
    assert sets.at(Offset(4)) == voters(1, 2)
    sets.clean_to(Offset(9))
    assert (sets.at(Offset(9)), sets.latest) == (voters(1, 2), voters(1))
    sets.clean_to(Offset(10))
    assert sets.at(Offset(10)) == voters(1)
    assert not sets.truncate_to(Offset(10))


def test_a_set_in_a_snapshot_is_older_than_the_log() -> None:
    sets = history(start_offset=50)
    assert sets.latest_offset == 49
    sets.append(Offset(50), voters(1, 2))
    assert sets.truncate_to(Offset(50))
    assert sets.latest == voters(1, 2, 3)


def test_records_come_in_the_order_of_their_offsets() -> None:
    sets = history()
    sets.append(Offset(5), voters(1, 2))
    with pytest.raises(AssertionError, match="voters at 5 after 5"):
        sets.append(Offset(5), voters(1))


def test_voters_are_ordered_by_node_then_disk() -> None:
    assert voter(1, 1) < voter(2, 0)
    assert voter(1, 0) < voter(1, 1)
    assert Voter(NodeId(1), DirectoryId(b"a" * 16)) == Voter(NodeId(1), DirectoryId(b"a" * 16))
