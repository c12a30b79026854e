"""With which voters a data directory is formatted. Pure."""

from dataclasses import dataclass

from ..errors import InvalidRequest
from ..ids import DirectoryId
from ..raftlog.core.voters import Voter, VoterSet
from .config import NodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Forming:
    """What a directory is formatted with besides its ids."""

    directory_id: DirectoryId | None = None  # None: drawn
    # Who votes at first; empty: nobody. None: this node alone, wherever it will be reached.
    voters: VoterSet | None = None
    standalone: bool = False  # this node alone, reached at its address

    def voters_with(self, me: Voter, address: str) -> VoterSet | None:
        """Who votes at first, now that this node has its disk."""
        return VoterSet(((me, address),)) if self.standalone else self.voters


def first_voters(
    config: NodeConfig, *, standalone: bool = False, no_initial_voters: bool = False
) -> Forming:
    """Decide who votes at first; raises InvalidRequest for what contradicts itself.

    `standalone`: this node alone, others are added by commands. `no_initial_voters`: nobody, the
    node follows a quorum that is there, and commands give it a vote. Neither: whom
    `controller.voters` names; without a list this node alone. A broker alone never votes.
    """
    if standalone and no_initial_voters:
        raise InvalidRequest(
            "--standalone forms a quorum of this node, --no-initial-voters joins one: give one"
        )
    entries, own = config.voters, config.own_entry
    if no_initial_voters or not config.is_controller:
        return _without_vote(config, standalone=standalone)
    if standalone:
        if not config.is_alone:
            raise InvalidRequest(
                "--standalone forms a quorum of this node alone, and the configuration names "
                "others: leave out controller.voters and controller.bootstrap, or the flag"
            )
        return _alone(config)
    if own is None:
        if config.is_alone:
            return Forming()
        raise InvalidRequest(
            f"node {config.node_id} is not in controller.voters: to join the quorum that there is,"
            " run `quorumlog storage format --no-initial-voters`; to form one, name this node too"
        )
    if len(entries) == 1 and config.is_alone:
        return _alone(config)
    if any(entry.directory_id is None for entry in entries):
        raise InvalidRequest(
            f"controller.voters has {own} without a directory id, and other members are named: "
            "draw one with `quorumlog storage random-id`"
        )
    return Forming(
        directory_id=own.directory_id,
        voters=VoterSet.of(
            (Voter(entry.node_id, entry.directory_id), entry.address)
            for entry in entries
            if entry.directory_id is not None
        ),
    )


def _without_vote(config: NodeConfig, *, standalone: bool) -> Forming:
    if standalone:
        raise InvalidRequest(
            "--standalone forms a quorum of this node, and node.roles is broker alone: leave the "
            "flag out, or give the node the role controller"
        )
    if config.is_alone:
        raise InvalidRequest(
            "a node without initial voters must be told whom to ask for the quorum: set "
            "controller.bootstrap to host:port of its members"
        )
    return Forming(voters=VoterSet(()))


def _alone(config: NodeConfig) -> Forming:
    if not config.quorum_address or config.quorum_address.endswith(":0"):
        raise InvalidRequest(
            "the members that are added later must reach this node: set advertised.controller, or "
            "listeners.controller to an address of this machine with a port of its own"
        )
    own = config.own_entry
    return Forming(directory_id=None if own is None else own.directory_id, standalone=True)
