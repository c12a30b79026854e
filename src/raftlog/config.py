"""What a voter is and what one member of the quorum is configured with. Pure values."""

from dataclasses import dataclass
from typing import Final

from ..errors import InvalidRequest
from ..ids import DirectoryId, NodeId

METADATA_LOG_NAME: Final = "__cluster_metadata-0"
"""The quorum's log in its data directory: a partition folder like any other."""

QUORUM_STATE_NAME: Final = "quorum-state"
"""The file of epoch and vote in the data directory."""


@dataclass(frozen=True, slots=True, order=True)
class Voter:
    """A member of the quorum: a node together with its disk, so that a wiped disk is another
    voter (KIP-853)."""

    node_id: NodeId
    directory_id: DirectoryId


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """One node's share in the quorum; raises InvalidRequest when it contradicts itself."""

    node_id: NodeId
    directory_id: DirectoryId  # 16 bytes, drawn when this node's data directory was formatted
    voters: tuple[Voter, ...]  # equal on all nodes, ascending, without duplicates
    election_timeout_ms_min: int = 1000  # controller.quorum.election.timeout.ms
    election_timeout_ms_max: int = 2000
    # Proposals appended and not yet committed: beyond it propose() raises Overloaded. A single
    # larger proposal is taken when nothing else is uncommitted.
    uncommitted_bytes_max: int = 16 * 1024 * 1024
    # One write with its fsync carries at most so much, or one larger batch: the bound that tells
    # a torn tail from damage after a power cut.
    write_bytes_max: int = 1024 * 1024

    def __post_init__(self) -> None:
        if not self.voters:
            raise InvalidRequest("the quorum has no voters: name at least one controller")
        if list(self.voters) != sorted(set(self.voters)):
            raise InvalidRequest("the quorum's voters must be ascending and without duplicates")
        if not 0 < self.election_timeout_ms_min <= self.election_timeout_ms_max:
            raise InvalidRequest(
                f"election time-out must be 0 < min <= max, not {self.election_timeout_ms_min}"
                f" and {self.election_timeout_ms_max} ms"
            )
        if self.uncommitted_bytes_max < 1 or self.write_bytes_max < 1:
            raise InvalidRequest("uncommitted_bytes_max and write_bytes_max must be at least 1")

    @property
    def me(self) -> Voter:
        """This node as a voter, whether it is one or not."""
        return Voter(self.node_id, self.directory_id)

    @property
    def is_voter(self) -> bool:
        """Whether this node, with this disk, votes."""
        return self.me in self.voters

    @property
    def majority(self) -> int:
        """How many voters make a quorum."""
        return len(self.voters) // 2 + 1
