"""Bounds of what one node does around the core. Pure values."""

from dataclasses import dataclass, field

from ...errors import InvalidRequest
from .peers.links import TransportConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftNodeConfig:
    """Bounds of one node's shell; raises InvalidRequest. Sizes in bytes."""

    # "host:port" where streams of other members are taken; port 0 picks a free one. Empty: a free
    # one on the host of the member's own address, or on 127.0.0.1.
    listener: str = ""
    # A snapshot is taken when the log has grown by so much since the last one.
    snapshot_every_bytes: int = 20 * 1024 * 1024  # metadata.log.max.record.bytes.between.snapshots
    # Newest batches kept in memory for followers and the delivery.
    tail_bytes_max: int = 16 * 1024 * 1024
    # Proposals gathered into one batch, or one larger proposal: what a follower's state machine
    # applies in one step.
    batch_bytes_max: int = 512 * 1024
    transport: TransportConfig = field(default_factory=TransportConfig)

    def __post_init__(self) -> None:
        for name in ("snapshot_every_bytes", "tail_bytes_max", "batch_bytes_max"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name} must be at least 1")
