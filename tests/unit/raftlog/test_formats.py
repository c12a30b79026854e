"""The two small formats of the quorum: quorum-state and the control record of an epoch."""

import json

import pytest

from quorumlog.errors import CorruptionError, InvalidRequest
from quorumlog.ids import DirectoryId, Epoch, NodeId
from quorumlog.raftlog import HardState, RaftConfig, Voter
from quorumlog.raftlog.control import encode_leader_change
from quorumlog.raftlog.quorum_state import decode_quorum_state, encode_quorum_state
from quorumlog.raftlog.roles import TRANSITIONS, RoleName, Trigger, next_role

ME = Voter(NodeId(5), DirectoryId(bytes(range(16))))


@pytest.mark.parametrize("vote", [None, ME])
def test_quorum_state_comes_back(vote: Voter | None) -> None:
    state = HardState(Epoch(9), vote)
    assert decode_quorum_state(encode_quorum_state(state)) == state


def test_quorum_state_has_the_fields_that_the_field_knows() -> None:
    assert json.loads(encode_quorum_state(HardState(Epoch(9), ME))) == {
        "leaderId": -1,
        "leaderEpoch": 9,
        "votedId": 5,
        "votedDirectoryId": "AAECAwQFBgcICQoLDA0ODw",
        "data_version": 1,
    }


@pytest.mark.parametrize(
    "change",
    [
        {"data_version": 2},
        {"leaderEpoch": -1},
        {"leaderEpoch": "9"},
        {"leaderEpoch": True},
        {"votedId": -2},
        {"votedDirectoryId": "AAEC"},
        {"votedDirectoryId": 5},
    ],
)
def test_damaged_quorum_state_is_refused(change: dict[str, object]) -> None:
    fields = json.loads(encode_quorum_state(HardState(Epoch(9), ME)))
    with pytest.raises(CorruptionError, match="quorum-state"):
        decode_quorum_state(json.dumps({**fields, **change}).encode())


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{}", b"\xff"])
def test_what_is_no_quorum_state_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_quorum_state(content)


def test_leader_change_is_encoded_byte_for_byte() -> None:
    key, value = encode_leader_change(NodeId(5), voters=(ME,), granting=(ME,))
    voter = bytes.fromhex("00000005") + bytes(range(16)) + b"\0"
    assert key == bytes.fromhex("00000002")
    assert value == bytes.fromhex("0001 00000005 02") + voter + b"\x02" + voter + b"\0"


@pytest.mark.parametrize(
    "change",
    [
        {"voters": ()},
        {"voters": (ME, ME)},
        {"voters": (Voter(NodeId(9), ME.directory_id), ME)},
        {"election_timeout_ms_min": 0},
        {"election_timeout_ms_min": 3000},
        {"uncommitted_bytes_max": 0},
        {"write_bytes_max": 0},
    ],
)
def test_contradictory_config_is_refused(change: dict[str, object]) -> None:
    fields = {"node_id": ME.node_id, "directory_id": ME.directory_id, "voters": (ME,)}
    with pytest.raises(InvalidRequest):
        RaftConfig(**{**fields, **change})  # type: ignore[arg-type]


def test_transitions_that_are_not_listed_are_bugs() -> None:
    for role in RoleName:
        for trigger in Trigger:
            if (role, trigger) in TRANSITIONS:
                assert next_role(role, trigger) is TRANSITIONS[role, trigger]
            else:
                with pytest.raises(AssertionError, match="no transition"):
                    next_role(role, trigger)


def test_only_a_candidate_becomes_leader_and_only_by_votes() -> None:
    into_leader = [key for key, role in TRANSITIONS.items() if role is RoleName.LEADER]
    assert into_leader == [(RoleName.CANDIDATE, Trigger.VOTES_WON)]
