"""What a request for records can be refused with."""

from ..ids import NO_EPOCH, NO_NODE, NodeId
from .base import QuorumlogError


class CorruptionError(QuorumlogError, code=2, name="CORRUPT_MESSAGE", status="DATA_LOSS"):
    """Bytes of the disk or the wire are not what they must be; says where and why. A repeat meets
    the same bytes: look at the disk, or at what lies between, before going on behind them."""

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        position: int = -1,
        topic: str = "",
        partition: int | None = None,
    ) -> None:
        super().__init__(message, topic=topic, partition=partition)
        self.path = path
        self.position = position  # byte offset in `path` or in the buffer, -1 when unknown


class SnapshotDamaged(CorruptionError, code=2, name="SNAPSHOT_DAMAGED", status="DATA_LOSS"):
    """A snapshot of the metadata is not whole: its checksum, an offset or its end is wrong. It was
    not used; it is fetched again from the leader."""


class InvalidRecord(QuorumlogError, code=87, name="INVALID_RECORD", status="INVALID_ARGUMENT"):
    """A record batch is well formed but breaks a rule (counts, offsets, keys); nothing was
    stored."""


class InvalidTimestamp(
    QuorumlogError, code=32, name="INVALID_TIMESTAMP", status="INVALID_ARGUMENT"
):
    """A record's timestamp is outside what the topic takes. Give milliseconds since 1970."""


class MessageTooLarge(QuorumlogError, code=10, name="MESSAGE_TOO_LARGE", status="INVALID_ARGUMENT"):
    """A batch is larger than the topic's max.message.bytes. Send smaller batches or raise the
    config."""


class UnsupportedCompression(
    QuorumlogError, code=76, name="UNSUPPORTED_COMPRESSION_TYPE", status="INVALID_ARGUMENT"
):
    """The batch's codec is unknown here. Take none, gzip, snappy, lz4 or zstd."""


class InvalidRequest(QuorumlogError, code=42, name="INVALID_REQUEST", status="INVALID_ARGUMENT"):
    """A field of the request is missing, contradictory or out of range; says which."""


class InvalidRequiredAcks(
    QuorumlogError, code=21, name="INVALID_REQUIRED_ACKS", status="INVALID_ARGUMENT"
):
    """There is no such demand for acknowledgement. Give -1 (all), 0 or 1."""


class UnsupportedForMessageFormat(
    QuorumlogError, code=43, name="UNSUPPORTED_FOR_MESSAGE_FORMAT", status="INVALID_ARGUMENT"
):
    """The records have an old format, which is not taken. Use a client that writes record batches
    of version 2."""


class OffsetOutOfRange(QuorumlogError, code=1, name="OFFSET_OUT_OF_RANGE", status="OUT_OF_RANGE"):
    """The offset is below the log start or above the log end; says both bounds. Seek to one that
    is there, or let a consumer do so by `on_out_of_range`."""


class UnknownTopicOrPartition(
    QuorumlogError,
    code=3,
    name="UNKNOWN_TOPIC_OR_PARTITION",
    status="NOT_FOUND",
    retriable=True,
):
    """No such topic or partition here; retriable, since metadata may be on its way. Check the name,
    or create the topic."""


class UnknownTopicId(
    QuorumlogError, code=100, name="UNKNOWN_TOPIC_ID", status="NOT_FOUND", retriable=True
):
    """No topic with this id: it was deleted, or created anew. Look its name up again."""


class NotLeaderOrFollower(
    QuorumlogError,
    code=6,
    name="NOT_LEADER_OR_FOLLOWER",
    status="FAILED_PRECONDITION",
    retriable=True,
):
    """This broker does not lead the partition. Ask the leader: `leader_id` at `leader_address`,
    where they are known; otherwise refresh the metadata."""

    def __init__(
        self,
        message: str,
        *,
        topic: str = "",
        partition: int | None = None,
        leader_id: NodeId = NO_NODE,
        leader_address: str = "",
        leader_epoch: int = NO_EPOCH,
    ) -> None:
        super().__init__(message, topic=topic, partition=partition)
        self.leader_id = leader_id
        self.leader_address = leader_address  # "host:port" for clients; empty: unknown
        self.leader_epoch = leader_epoch  # of that leadership


class FencedLeaderEpoch(
    QuorumlogError,
    code=74,
    name="FENCED_LEADER_EPOCH",
    status="FAILED_PRECONDITION",
    retriable=True,
):
    """The request's leader epoch is older than the partition's. Refresh metadata."""


class UnknownLeaderEpoch(
    QuorumlogError, code=75, name="UNKNOWN_LEADER_EPOCH", status="UNAVAILABLE", retriable=True
):
    """The request's leader epoch is newer than this broker knows. Repeat after a moment."""


class NotEnoughReplicas(
    QuorumlogError, code=19, name="NOT_ENOUGH_REPLICAS", status="UNAVAILABLE", retriable=True
):
    """The in-sync replicas are fewer than min.insync.replicas; nothing was stored. Repeat when
    replicas have caught up."""


class NotEnoughReplicasAfterAppend(
    QuorumlogError,
    code=20,
    name="NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    status="UNAVAILABLE",
    retriable=True,
):
    """The leader stored the batch, then in-sync replicas fell below min.insync.replicas: it is not
    acknowledged yet. Repeat; a producer with an id stores nothing twice."""


class OffsetNotAvailable(
    QuorumlogError, code=78, name="OFFSET_NOT_AVAILABLE", status="UNAVAILABLE", retriable=True
):
    """The broker does not know yet how far the partition is committed: it leads only since a moment
    ago, or follows and is behind. Repeat after a moment."""


class PartlyStored(QuorumlogError, name="PARTLY_STORED", status="ABORTED"):
    """Records of one gRPC Publish went to several partitions, and not all of them stored theirs.
    Repeating it all stores some twice: set its `errors_in_results` to learn which."""


class StaleMetadata(
    QuorumlogError, code=-1, name="STALE_METADATA", status="UNAVAILABLE", retriable=True
):
    """The broker has not reached the metadata offset asked for within the deadline. Repeat, there
    or at another broker."""
