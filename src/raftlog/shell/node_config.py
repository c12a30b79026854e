"""The configuration of one node's shell. Pure values."""

from dataclasses import dataclass, field

from ...errors import InvalidRequest
from .peers.links import TransportConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftNodeConfig:
    """The limits of one node's shell, in bytes. Raise InvalidRequest if one is invalid."""

    # "host:port" for streams of other nodes; port 0 selects a free one. Empty: a free port on the
    # host of this node's address, or on 127.0.0.1.
    listener: str = ""
    # A snapshot is taken after this log growth since the last one.
    snapshot_every_bytes: int = 20 * 1024 * 1024  # metadata.log.max.record.bytes.between.snapshots
    # Limit on the newest batches in memory, for followers and the delivery.
    tail_bytes_max: int = 16 * 1024 * 1024
    # Limit on the proposals in one batch, or one larger proposal. A follower's state machine
    # applies a batch in one step.
    batch_bytes_max: int = 512 * 1024
    transport: TransportConfig = field(default_factory=TransportConfig)

    def __post_init__(self) -> None:
        for name in ("snapshot_every_bytes", "tail_bytes_max", "batch_bytes_max"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name}: {getattr(self, name)} is too small; set at least 1")
