"""The initial voters with which a data directory is formatted. Pure."""

from dataclasses import dataclass

from ..errors import InvalidRequest
from ..ids import DirectoryId
from ..raftlog.voters import Voter, VoterSet
from .config import NodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    """The directory id and the initial voters for formatting."""

    directory_id: DirectoryId | None = None  # None: random
    # The initial voters. Empty: none. None: this node alone, at an address not known yet.
    voters: VoterSet | None = None
    standalone: bool = False  # this node alone, at its configured address

    def voters_with(self, me: Voter, address: str) -> VoterSet | None:
        """Return the initial voters, with the directory id of this node."""
        return VoterSet(((me, address),)) if self.standalone else self.voters


def initial_voters(
    config: NodeConfig, *, standalone: bool = False, no_initial_voters: bool = False
) -> FormatOptions:
    """Return the initial voters of a configuration; raises InvalidRequest for contradictions.

    `standalone`: this node alone; commands add others. `no_initial_voters`: none; the node joins an
    existing quorum, and a command makes it a voter. Neither: the voters of `controller.voters`, or
    this node alone without that list. A node without the controller role never votes.
    """
    if standalone and no_initial_voters:
        raise InvalidRequest(
            "--standalone forms a quorum, --no-initial-voters joins one; give one of them"
        )
    entries, own = config.voters, config.own_entry
    if no_initial_voters or not config.is_controller:
        return _without_vote(config, standalone=standalone)
    if standalone:
        if not config.is_alone:
            raise InvalidRequest(
                "--standalone: it forms a quorum of this node alone, and the configuration names"
                " other nodes; remove controller.voters and controller.bootstrap, or the flag"
            )
        return _alone(config)
    if own is None:
        if config.is_alone:
            return FormatOptions()
        raise InvalidRequest(
            f"controller.voters: node {config.node_id} is missing; to join the existing quorum, run"
            " `quorumlog storage format --no-initial-voters`; to form a quorum, add this node"
        )
    if len(entries) == 1 and config.is_alone:
        return _alone(config)
    if any(entry.directory_id is None for entry in entries):
        raise InvalidRequest(
            f"controller.voters: {own} or another voter has no directory id; generate one with"
            " `quorumlog storage random-id`"
        )
    return FormatOptions(
        directory_id=own.directory_id,
        voters=VoterSet.of(
            (Voter(entry.node_id, entry.directory_id), entry.address)
            for entry in entries
            if entry.directory_id is not None
        ),
    )


def _without_vote(config: NodeConfig, *, standalone: bool) -> FormatOptions:
    if standalone:
        raise InvalidRequest(
            "--standalone: node.roles lacks controller, so the node cannot form a quorum; remove"
            " the flag, or add the role controller"
        )
    if config.is_alone:
        raise InvalidRequest(
            "controller.bootstrap: empty on a node without initial voters; set it to host:port of"
            " controllers"
        )
    return FormatOptions(voters=VoterSet(()))


def _alone(config: NodeConfig) -> FormatOptions:
    if not config.quorum_address or config.quorum_address.endswith(":0"):
        raise InvalidRequest(
            "the controller address is needed by voters that are added later; set"
            " advertised.controller, or listeners.controller to a fixed address with a fixed port"
        )
    own = config.own_entry
    return FormatOptions(directory_id=None if own is None else own.directory_id, standalone=True)
