"""Configuration of one Raft node. Pure values."""

from dataclasses import dataclass
from typing import Final

from ..errors import InvalidRequest
from ..ids import DirectoryId, Epoch, NodeId
from .voters import Voter

METADATA_LOG_NAME: Final = "__cluster_metadata-0"
"""The name of the metadata log's folder on disk."""
EPOCH_MAX: Final = Epoch(2**31 - 2)
"""Batches store the epoch in 31 bits. Messages with a larger epoch are dropped."""
EPOCH_JUMP_MAX: Final = 1_000_000
"""The largest epoch increase that a message may carry.

No node misses that many elections. Without the limit one corrupt number could use up every
remaining epoch.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """The Raft settings of one node. Times are milliseconds, sizes are bytes.

    Raise InvalidRequest if the settings contradict each other.
    """

    node_id: NodeId
    directory_id: DirectoryId  # 16 bytes, drawn when this node's data directory was formatted
    address: str = ""  # "host:port" at which the other nodes reach this node
    # Addresses ("host:port") of any nodes, asked for the leader besides the known voters.
    bootstrap: tuple[str, ...] = ()
    heartbeat_ms: int = 100
    election_timeout_ms_min: int = 1000  # controller.quorum.election.timeout.ms
    election_timeout_ms_max: int = 2000
    # Limit on proposals that are appended and not committed; above it propose() raises Overloaded.
    # A single larger proposal is accepted while nothing else is uncommitted.
    uncommitted_bytes_max: int = 16 * 1024 * 1024
    # Limit on the entries of one write and its fsync, or one larger batch. Recovery uses it to tell
    # a torn tail from damage after a power cut.
    write_bytes_max: int = 1024 * 1024
    append_bytes_max: int = 1024 * 1024  # limit on one append request, or one larger batch
    # Limits on append requests sent to one peer and not acknowledged. A link's throughput is at
    # most window / round trip: 8 MiB over 10 ms are 800 MB/s.
    inflight_requests_max: int = 128
    inflight_bytes_max: int = 8 * 1024 * 1024
    snapshot_chunk_bytes: int = 256 * 1024
    reads_max: int = 10_000  # limit on reads that wait for a heartbeat round
    observers_max: int = 1_000  # limit on followers without a vote
    observer_timeout_ms: int = 10_000  # a leader drops an observer that is silent for this time

    def __post_init__(self) -> None:
        if not 0 < self.election_timeout_ms_min <= self.election_timeout_ms_max:
            raise InvalidRequest(
                f"election timeout: {self.election_timeout_ms_min} to"
                f" {self.election_timeout_ms_max} ms is not a range; set 0 < min <= max"
            )
        if not 0 < self.heartbeat_ms * 2 <= self.election_timeout_ms_min:
            raise InvalidRequest(
                f"heartbeat interval: {self.heartbeat_ms} ms is too long; the limit is half of the"
                f" election timeout of {self.election_timeout_ms_min} ms"
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
                raise InvalidRequest(f"{name}: {getattr(self, name)} is too small; set at least 1")

    @property
    def me(self) -> Voter:
        """This node and its data directory, voter or not."""
        return Voter(self.node_id, self.directory_id)

    @property
    def quorum_timeout_ms(self) -> int:
        """The check-quorum timeout: a leader resigns after this time without a majority's
        responses."""
        return (self.election_timeout_ms_min + self.election_timeout_ms_max) // 2
