"""The initial voters, from the configuration and the flags of `storage format`."""

from pathlib import Path
from typing import Any

import pytest

from quorumlog.errors import DirectoryMismatch, InvalidRequest
from quorumlog.ids import DirectoryId, NodeId
from quorumlog.raftlog.voters import Voter, VoterSet
from quorumlog.server.addresses import id_text
from quorumlog.server.config import NodeConfig
from quorumlog.server.directory_format import initial_voters
from quorumlog.server.main import format_storage

A, B, C = (DirectoryId(letter * 16) for letter in (b"a", b"b", b"c"))
VOTERS = (f"1@h:1:{id_text(A)}", f"2@h:2:{id_text(B)}")
NO_VOTERS = VoterSet(())


def config(node_id: int = 1, **fields: Any) -> NodeConfig:
    return NodeConfig(data_dir="/d", node_id=node_id, allow_insecure_listeners=True, **fields)


def test_each_listed_voter_is_formatted_with_all_of_them_and_its_own_disk() -> None:
    for node_id, disk in ((1, A), (2, B)):
        forming = initial_voters(config(node_id, controller_voters=VOTERS))
        assert forming.directory_id == disk
        both = VoterSet.of([(Voter(NodeId(1), A), "h:1"), (Voter(NodeId(2), B), "h:2")])
        assert forming.voters_with(Voter(NodeId(node_id), disk), "x:1") == both


def test_node_without_a_list_is_a_lone_voter() -> None:
    forming = initial_voters(config())
    assert forming.directory_id is None
    assert forming.voters_with(Voter(NodeId(1), C), "h:1") is None


def test_standalone_node_is_a_lone_voter_with_its_advertised_address() -> None:
    forming = initial_voters(config(controller_listener="h:7"), standalone=True)
    alone = VoterSet(((Voter(NodeId(1), C), "h:7"),))
    assert forming.voters_with(Voter(NodeId(1), C), "h:7") == alone


def test_a_node_without_initial_voters_has_a_new_disk_also_where_it_is_listed() -> None:
    """A voter whose disk was wiped could vote twice under its old directory id."""
    forming = initial_voters(config(controller_voters=VOTERS), no_initial_voters=True)
    assert forming.directory_id is None
    assert forming.voters_with(Voter(NodeId(1), C), "h:1") == NO_VOTERS


def test_broker_only_node_never_votes() -> None:
    for named in ({"controller_bootstrap": ("h:1",)}, {"controller_voters": VOTERS}):
        forming = initial_voters(config(3, roles=("broker",), **named))
        assert forming.voters_with(Voter(NodeId(3), C), "h:3") == NO_VOTERS


@pytest.mark.parametrize(
    ("fields", "flags", "said"),
    [
        (
            {"roles": ("broker",), "controller_bootstrap": ("h:1",)},
            {"standalone": True},
            "node.roles lacks controller",
        ),
        ({}, {"standalone": True, "no_initial_voters": True}, "give one"),
        ({}, {"no_initial_voters": True}, "controller.bootstrap: empty"),
        ({"controller_voters": VOTERS}, {"standalone": True}, "configuration names"),
        ({"controller_bootstrap": ("h:1",)}, {"standalone": True}, "configuration names"),
        ({"controller_bootstrap": ("h:1",)}, {}, "format --no-initial-voters"),
        ({"controller_voters": ("2@h:2",)}, {}, "node 1 is missing"),
        (
            {"controller_voters": ("1@h:1",), "controller_bootstrap": ("h:2",)},
            {},
            "storage random-id",
        ),
        ({"controller_listener": "127.0.0.1:0"}, {"standalone": True}, "with a fixed port"),
    ],
)
def test_contradictory_settings_are_refused_with_a_remedy(
    fields: dict[str, Any], flags: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said):
        initial_voters(config(**fields), **flags)


def test_formatting_again_changes_nothing(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"controller_listener": "127.0.0.1:7"}, {"standalone": True}),
        ({"controller_bootstrap": ("h:1",)}, {"no_initial_voters": True}),
        ({"controller_voters": VOTERS}, {}),
    ]
    for number, (fields, flags) in enumerate(cases):
        node = NodeConfig(data_dir=str(tmp_path / str(number)), **fields)
        first = format_storage(node, **flags)
        assert format_storage(node, **flags) == first
        assert len(first.cluster_id) == 22


def test_directory_formatted_with_other_voters_is_refused(tmp_path: Path) -> None:
    node = NodeConfig(data_dir=str(tmp_path / "d"), controller_voters=VOTERS)
    format_storage(node)
    others = (VOTERS[0], f"2@h:2:{id_text(C)}")
    with pytest.raises(DirectoryMismatch):
        format_storage(NodeConfig(data_dir=str(tmp_path / "d"), controller_voters=others))
    disk = (f"1@h:1:{id_text(C)}", VOTERS[1])
    with pytest.raises(DirectoryMismatch):
        format_storage(NodeConfig(data_dir=str(tmp_path / "d"), controller_voters=disk))
