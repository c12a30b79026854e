"""What one member of the quorum is configured with. Pure values."""

from dataclasses import dataclass
from typing import Final

from ...errors import InvalidRequest
from ...ids import DirectoryId, Epoch, NodeId
from .voters import Voter

EPOCH_MAX: Final = Epoch(2**31 - 2)
"""Batches carry the epoch in 31 bits; a message beyond it is absurd."""
EPOCH_JUMP_MAX: Final = 1_000_000
"""No node misses so many elections: a message that much ahead is refused, or a single corrupt
number could use up all epochs there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """One node's share in the quorum; raises InvalidRequest when it contradicts itself.

    Times in milliseconds, sizes in bytes.
    """

    node_id: NodeId
    directory_id: DirectoryId  # 16 bytes, drawn when this node's data directory was formatted
    address: str = ""  # "host:port" where the other members reach this node
    # Where to ask for the leader besides the voters that are known: "host:port" of any members.
    bootstrap: tuple[str, ...] = ()
    heartbeat_ms: int = 100
    election_timeout_ms_min: int = 1000  # controller.quorum.election.timeout.ms
    election_timeout_ms_max: int = 2000
    # Proposals appended and not yet committed: beyond it propose() raises Overloaded. A single
    # larger proposal is taken when nothing else is uncommitted.
    uncommitted_bytes_max: int = 16 * 1024 * 1024
    # One write with its fsync carries at most so much, or one larger batch: the bound that tells
    # a torn tail from damage after a power cut.
    write_bytes_max: int = 1024 * 1024
    append_bytes_max: int = 1024 * 1024  # of one append request, or one larger batch
    # Append requests sent to one peer and not yet acknowledged. What a link carries is at most
    # window / round trip: 8 MiB over 10 ms are 800 MB/s.
    inflight_requests_max: int = 128
    inflight_bytes_max: int = 8 * 1024 * 1024
    snapshot_chunk_bytes: int = 256 * 1024
    reads_max: int = 10_000  # reads that wait for a round of heartbeats
    observers_max: int = 1_000  # followers without a vote
    observer_timeout_ms: int = 10_000  # one that is silent for so long is forgotten

    def __post_init__(self) -> None:
        if not 0 < self.election_timeout_ms_min <= self.election_timeout_ms_max:
            raise InvalidRequest(
                f"election time-out must be 0 < min <= max, not {self.election_timeout_ms_min}"
                f" and {self.election_timeout_ms_max} ms"
            )
        if not 0 < self.heartbeat_ms * 2 <= self.election_timeout_ms_min:
            raise InvalidRequest(
                f"a heartbeat every {self.heartbeat_ms} ms is too rare for an election time-out of"
                f" {self.election_timeout_ms_min} ms: give at most half of it"
            )
        for name in (
            "uncommitted_bytes_max",
            "write_bytes_max",
            "append_bytes_max",
            "inflight_requests_max",
            "inflight_bytes_max",
            "snapshot_chunk_bytes",
            "reads_max",
            "observer_timeout_ms",
        ):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name} must be at least 1")

    @property
    def me(self) -> Voter:
        """This node with its disk, whether it votes or not."""
        return Voter(self.node_id, self.directory_id)

    @property
    def quorum_timeout_ms(self) -> int:
        """A leader that has not heard of a majority for so long gives up (check-quorum)."""
        return (self.election_timeout_ms_min + self.election_timeout_ms_max) // 2
