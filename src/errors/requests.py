"""Errors of requests for records."""

from typing import Final, NamedTuple

from ..ids import NO_EPOCH, NO_NODE, NodeId
from .base import QuorumlogError, RetriableError

RECORD_ERRORS_MAX: Final = 1_000
"""The records of one batch that an error names at most."""


class RecordError(NamedTuple):
    """A record for which its batch was refused (KIP-467)."""

    position: int  # in its batch, from 0
    message: str


class CorruptionError(QuorumlogError, code=2, name="CORRUPT_MESSAGE", status="DATA_LOSS"):
    """Bytes on disk or on the wire are damaged; the message has the position and reason. A retry
    reads the same bytes: check the disk or the network first."""

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
    """A metadata snapshot is damaged: a checksum, an offset or its end is wrong. It was not used;
    it is fetched again from the leader."""


class InvalidRecord(QuorumlogError, code=87, name="INVALID_RECORD", status="INVALID_ARGUMENT"):
    """A record batch is well formed but violates a rule (counts, offsets, keys); nothing was
    stored."""

    record_errors: tuple[RecordError, ...] = ()
    """The invalid records, by ascending position; empty: the whole batch."""


class InvalidTimestamp(
    QuorumlogError, code=32, name="INVALID_TIMESTAMP", status="INVALID_ARGUMENT"
):
    """A record's timestamp is outside the topic's limits. Use milliseconds since 1970."""

    record_errors: tuple[RecordError, ...] = ()
    """The records outside the limits, by ascending position."""


class MessageTooLarge(QuorumlogError, code=10, name="MESSAGE_TOO_LARGE", status="INVALID_ARGUMENT"):
    """A batch is larger than the topic's max.message.bytes. Send smaller batches or increase the
    setting."""


class UnsupportedCompression(
    QuorumlogError, code=76, name="UNSUPPORTED_COMPRESSION_TYPE", status="INVALID_ARGUMENT"
):
    """The batch's codec is not supported. Use none, gzip, snappy, lz4 or zstd."""


class InvalidRequest(QuorumlogError, code=42, name="INVALID_REQUEST", status="INVALID_ARGUMENT"):
    """A field of the request is missing, contradictory or out of range; the message names it."""


class InvalidRequiredAcks(
    QuorumlogError, code=21, name="INVALID_REQUIRED_ACKS", status="INVALID_ARGUMENT"
):
    """The value of acks is invalid. Use -1 (all), 0 or 1."""


class UnsupportedForMessageFormat(
    QuorumlogError, code=43, name="UNSUPPORTED_FOR_MESSAGE_FORMAT", status="INVALID_ARGUMENT"
):
    """The records have an old, unsupported format. Use a client that writes record batches of
    version 2."""


class OffsetOutOfRange(QuorumlogError, code=1, name="OFFSET_OUT_OF_RANGE", status="OUT_OF_RANGE"):
    """The offset is below the log start or above the log end; the message has both. Seek to an
    offset between them, or set the consumer's `on_out_of_range`."""


class UnknownTopicOrPartition(
    RetriableError, code=3, name="UNKNOWN_TOPIC_OR_PARTITION", status="NOT_FOUND"
):
    """The topic or partition does not exist here; retriable, since metadata may be delayed. Check
    the name, or create the topic."""


class UnknownTopicId(RetriableError, code=100, name="UNKNOWN_TOPIC_ID", status="NOT_FOUND"):
    """No topic has this id: it was deleted or recreated. Look up its name again."""


class NotLeaderOrFollower(
    RetriableError, code=6, name="NOT_LEADER_OR_FOLLOWER", status="FAILED_PRECONDITION"
):
    """This broker is not the partition's leader. Use the leader, `leader_id` at `leader_address`,
    or refresh the metadata if they are unknown."""

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
        self.leader_address = leader_address  # "host:port" for clients; empty if unknown
        self.leader_epoch = leader_epoch  # of that leadership


class FencedLeaderEpoch(
    RetriableError, code=74, name="FENCED_LEADER_EPOCH", status="FAILED_PRECONDITION"
):
    """The request's leader epoch is older than the partition's. Refresh the metadata."""


class UnknownLeaderEpoch(
    RetriableError, code=75, name="UNKNOWN_LEADER_EPOCH", status="UNAVAILABLE"
):
    """The request's leader epoch is newer than this broker's. Retry later."""


class NotEnoughReplicas(RetriableError, code=19, name="NOT_ENOUGH_REPLICAS", status="UNAVAILABLE"):
    """The in-sync replicas are fewer than min.insync.replicas; nothing was stored. Retry when
    replicas have caught up."""


class NotEnoughReplicasAfterAppend(
    RetriableError, code=20, name="NOT_ENOUGH_REPLICAS_AFTER_APPEND", status="UNAVAILABLE"
):
    """The leader stored the batch, then the in-sync replicas fell below min.insync.replicas. It is
    not acknowledged. Retry; an idempotent producer stores nothing twice."""


class OffsetNotAvailable(
    RetriableError, code=78, name="OFFSET_NOT_AVAILABLE", status="UNAVAILABLE"
):
    """The broker does not have the partition's high watermark yet: it just became leader, or it is
    a follower that is behind. Retry later."""


class PartlyStored(QuorumlogError, name="PARTLY_STORED", status="ABORTED"):
    """Only some of the partitions of a gRPC Publish stored their records. A retry stores some
    twice: set `errors_in_results` to get the result of each."""


class StaleMetadata(RetriableError, code=-1, name="STALE_METADATA", status="UNAVAILABLE"):
    """The broker did not reach the requested metadata offset within the deadline. Retry, here or at
    another broker."""
