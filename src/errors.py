"""The one error table: class -> the field's error number and name, gRPC status, retriable.

Every operational error of the product is a `QuorumlogError` of this file. `wire` and the runtime's
network translate them to and from messages; nobody else does. Programmer errors are `assert`s and
never come here.

Two classes may share a number where the field has no finer one; the name is unique. `status` is
the gRPC status as its name, so that nothing below the network needs grpc.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final, NamedTuple

from .ids import NO_EPOCH, NO_NODE, NodeId


class QuorumlogError(Exception):
    """Something a caller can meet and act on; says what was wrong and what to do.

    `topic` and `partition` name what it concerns, where it concerns one.
    """

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    status: ClassVar[str] = "INTERNAL"
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, topic: str = "", partition: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.topic = topic
        self.partition = partition

    def __init_subclass__(
        cls, *, code: int = -1, name: str, status: str, retriable: bool = False
    ) -> None:
        cls.code, cls.name, cls.status, cls.retriable = code, name, status, retriable

    def __str__(self) -> str:
        if not self.topic:
            return self.message
        where = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return f"{where}: {self.message}"


# --- what the network itself can say -----------------------------------------------------------


class Lost(QuorumlogError, code=13, name="NETWORK_EXCEPTION", status="UNAVAILABLE", retriable=True):
    """The call's outcome is unknown: it may have been executed or not. Repeat what may be done
    twice; look first where it may not."""


class NotSent(Lost, code=13, name="NOT_SENT", status="UNAVAILABLE", retriable=True):
    """The peer refused the connection: the call was certainly not executed. Check the address, and
    that a node runs there."""


class StreamBroken(
    QuorumlogError, code=13, name="STREAM_BROKEN", status="UNAVAILABLE", retriable=True
):
    """A stream ended without its clean end; any suffix of what was in flight may have arrived.
    Open another one and go on from the last answer."""


class AddressInUse(QuorumlogError, name="ADDRESS_IN_USE", status="ALREADY_EXISTS"):
    """Another process listens on the address. Stop it or take another port."""


class TimedOut(
    QuorumlogError, code=7, name="REQUEST_TIMED_OUT", status="DEADLINE_EXCEEDED", retriable=True
):
    """The deadline passed before the outcome was known. Repeat what may be done twice, or allow
    more time."""


class Overloaded(
    QuorumlogError, code=89, name="OVERLOADED", status="RESOURCE_EXHAUSTED", retriable=True
):
    """A bounded queue is full; nothing of the request was done. Wait and repeat."""


class Stopping(QuorumlogError, code=-1, name="STOPPING", status="UNAVAILABLE", retriable=True):
    """The node is stopping and takes no new work. Ask another node or wait for its restart."""


# --- records and requests ----------------------------------------------------------------------


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


class PartlyStored(QuorumlogError, name="PARTLY_STORED", status="ABORTED"):
    """Records of one gRPC Publish went to several partitions, and not all of them stored theirs.
    Repeating it all stores some twice: set its `errors_in_results` to learn which."""


class StaleMetadata(
    QuorumlogError, code=-1, name="STALE_METADATA", status="UNAVAILABLE", retriable=True
):
    """The broker has not reached the metadata offset asked for within the deadline. Repeat, there
    or at another broker."""


# --- producers with an id ----------------------------------------------------------------------


class OutOfOrderSequence(
    QuorumlogError,
    code=45,
    name="OUT_OF_ORDER_SEQUENCE_NUMBER",
    status="FAILED_PRECONDITION",
):
    """A batch does not continue its producer's sequence: one before it is missing, or it came too
    late to be told from others. Go on with a new producer epoch, from sequence 0."""


class DuplicateSequence(
    QuorumlogError, code=46, name="DUPLICATE_SEQUENCE_NUMBER", status="ALREADY_EXISTS"
):
    """The batch is stored already, at offsets that nobody remembers. Do not repeat it."""


class InvalidProducerEpoch(
    QuorumlogError, code=47, name="INVALID_PRODUCER_EPOCH", status="FAILED_PRECONDITION"
):
    """A newer epoch of this producer has written: another took over. End this one."""


class InvalidTxnState(
    QuorumlogError, code=48, name="INVALID_TXN_STATE", status="FAILED_PRECONDITION"
):
    """The write does not fit its producer's transaction. End the one that is open, or begin one."""


class TransactionCoordinatorFenced(
    QuorumlogError, code=52, name="TRANSACTION_COORDINATOR_FENCED", status="FAILED_PRECONDITION"
):
    """A newer transaction coordinator has written; this one must stop."""


class UnknownProducerId(
    QuorumlogError, code=59, name="UNKNOWN_PRODUCER_ID", status="FAILED_PRECONDITION"
):
    """The log remembers nothing of this producer. Go on with a new producer epoch, from sequence
    0."""


# --- storage -----------------------------------------------------------------------------------


class StorageError(
    QuorumlogError, code=56, name="STORAGE_ERROR", status="UNAVAILABLE", retriable=True
):
    """The disk refused a write, a read or a sync; the log takes no more appends here. Mend the
    disk and restart the node."""


class DiskFull(
    QuorumlogError, code=56, name="DISK_FULL", status="RESOURCE_EXHAUSTED", retriable=True
):
    """No space is left; nothing was stored and the log stays usable. Free space and repeat."""


class DirectoryInUse(QuorumlogError, name="DIRECTORY_IN_USE", status="FAILED_PRECONDITION"):
    """Another process holds the data directory's lock. Stop that node, or name another folder."""


class DirectoryNotFormatted(
    QuorumlogError, name="DIRECTORY_NOT_FORMATTED", status="FAILED_PRECONDITION"
):
    """The data directory has no meta.properties. Run `quorumlog storage format` first."""


class DirectoryMismatch(QuorumlogError, name="DIRECTORY_MISMATCH", status="FAILED_PRECONDITION"):
    """The data directory belongs to another cluster or node. Name the right one; an empty folder
    can be formatted."""


class DirectoryUnusable(QuorumlogError, name="DIRECTORY_UNUSABLE", status="PERMISSION_DENIED"):
    """The data directory cannot be created, read or written; says why. Mend its permissions, or
    name another folder."""


# --- metadata ----------------------------------------------------------------------------------


class NotController(
    QuorumlogError, code=41, name="NOT_CONTROLLER", status="UNAVAILABLE", retriable=True
):
    """This node is not the active controller; `leader_id` is, if known. Ask that one."""

    def __init__(self, message: str, *, leader_id: NodeId = NO_NODE) -> None:
        super().__init__(message)
        self.leader_id = leader_id


class DuplicateVoter(QuorumlogError, code=126, name="DUPLICATE_VOTER", status="ALREADY_EXISTS"):
    """The node votes already, with this disk or another one. Remove that voter first."""


class VoterNotFound(QuorumlogError, code=127, name="VOTER_NOT_FOUND", status="NOT_FOUND"):
    """No voter has this node id and directory id. Look at who votes (`quorum status`)."""


class VoterChangePending(
    QuorumlogError, name="VOTER_CHANGE_PENDING", status="FAILED_PRECONDITION", retriable=True
):
    """The voter set may change by one at a time, and only once this leader has committed in its own
    epoch. Wait and repeat."""


class VoterLagging(
    QuorumlogError, name="VOTER_LAGGING", status="FAILED_PRECONDITION", retriable=True
):
    """A node that the changed voters need does not follow the log yet, is too far behind or does
    not answer. Start it, let it catch up, and repeat."""


class VoterMismatch(QuorumlogError, name="VOTER_MISMATCH", status="FAILED_PRECONDITION"):
    """The message was for another node or another disk under this node's id: a wiped disk is a new
    voter. Remove the old one from the quorum and add the new one."""


class TopicAlreadyExists(
    QuorumlogError, code=36, name="TOPIC_ALREADY_EXISTS", status="ALREADY_EXISTS"
):
    """A topic of this name exists. Take it as it is (`if_not_exists`), or another name."""


class InvalidTopic(
    QuorumlogError, code=17, name="INVALID_TOPIC_EXCEPTION", status="INVALID_ARGUMENT"
):
    """The topic name has illegal characters or length; says which."""


class InvalidPartitions(
    QuorumlogError, code=37, name="INVALID_PARTITIONS", status="INVALID_ARGUMENT"
):
    """The number of partitions is out of range; says what is taken."""


class InvalidReplicationFactor(
    QuorumlogError, code=38, name="INVALID_REPLICATION_FACTOR", status="INVALID_ARGUMENT"
):
    """The replication factor is below one or above the number of usable brokers."""


class InvalidConfig(QuorumlogError, code=40, name="INVALID_CONFIG", status="INVALID_ARGUMENT"):
    """A config key is unknown or its value out of range; names the nearest right key."""


class StaleBrokerEpoch(
    QuorumlogError, code=77, name="STALE_BROKER_EPOCH", status="FAILED_PRECONDITION"
):
    """A newer registration of the broker exists: this is a past life of it, and it must stop."""


class DuplicateBrokerRegistration(
    QuorumlogError,
    code=101,
    name="DUPLICATE_BROKER_REGISTRATION",
    status="ALREADY_EXISTS",
    retriable=True,
):
    """Another live process is registered under this node id. Stop it, or give this one its own."""


class InconsistentClusterId(
    QuorumlogError, code=104, name="INCONSISTENT_CLUSTER_ID", status="FAILED_PRECONDITION"
):
    """The peer belongs to another cluster. Check the address and the directory's cluster id."""


class NotImplementedHere(
    QuorumlogError, code=35, name="UNSUPPORTED_VERSION", status="UNIMPLEMENTED"
):
    """The server does not offer this call. Ask it what it offers (reflection), or use a newer
    one."""


class PartitionerFailed(QuorumlogError, name="PARTITIONER_FAILED", status="INVALID_ARGUMENT"):
    """The producer's partitioner raised or named no partition of the topic; only the record that
    it was asked for is refused."""


class UndeliveredRecord(NamedTuple):
    """A record that a producer accepted and could not deliver."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    error: QuorumlogError  # why
    may_be_stored: bool  # an attempt got no answer: a copy may be in the log


class NotDelivered(QuorumlogError, name="NOT_DELIVERED", status="ABORTED"):
    """Records that a producer accepted were not delivered, and nobody has looked at their outcome.

    `count` is how many, `first` the first one's error (also the `__cause__`), `records` the records
    themselves, oldest first, to be sent again or put aside; only the first so many are kept, and
    `left_out` is how many more there were.
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str = "",
        partition: int | None = None,
        count: int = 0,
        first: QuorumlogError | None = None,
        records: Sequence[UndeliveredRecord] = (),
    ) -> None:
        super().__init__(message, topic=topic, partition=partition)
        self.count = count
        self.first = first
        self.records = tuple(records)
        self.__cause__ = first

    @property
    def left_out(self) -> int:
        """How many of `count` are not in `records`."""
        return self.count - len(self.records)


class RowsNotDelivered(NotDelivered, name="ROWS_NOT_DELIVERED", status="ABORTED"):
    """Rows of an Arrow source were not delivered; says which, by their number in the source.

    Every row is in exactly one place: stored (`ranges` says where, `stored_count` how many),
    `failed` (certainly not stored), `unknown` (an attempt got no answer: they may be stored), or
    not sent, from `unsent_from` on (None: the whole source was read).
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str = "",
        partition: int | None = None,
        first: QuorumlogError | None = None,
        ranges: Sequence[Any] = (),
        stored_count: int = 0,
        failed: Sequence[int] = (),
        unknown: Sequence[int] = (),
        unsent_from: int | None = None,
    ) -> None:
        count = len(failed) + len(unknown)
        super().__init__(message, topic=topic, partition=partition, count=count, first=first)
        self.ranges = list(ranges)
        self.stored_count = stored_count
        self.failed = failed
        self.unknown = unknown
        self.unsent_from = unsent_from


class EnvironmentUnusable(
    QuorumlogError, name="ENVIRONMENT_UNUSABLE", status="FAILED_PRECONDITION"
):
    """Something around the program (Java, a package, a worker's Python) is missing or too old;
    says what, and how to put it right."""


class UnknownServerError(QuorumlogError, code=-1, name="UNKNOWN_SERVER_ERROR", status="INTERNAL"):
    """The server failed in a way it did not foresee; its log has the details."""


ERRORS: Final[tuple[type[QuorumlogError], ...]] = (
    Lost,
    NotSent,
    StreamBroken,
    AddressInUse,
    TimedOut,
    Overloaded,
    Stopping,
    CorruptionError,
    SnapshotDamaged,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompression,
    InvalidRequest,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
    UnknownTopicId,
    NotLeaderOrFollower,
    FencedLeaderEpoch,
    UnknownLeaderEpoch,
    NotEnoughReplicas,
    PartlyStored,
    StaleMetadata,
    OutOfOrderSequence,
    DuplicateSequence,
    InvalidProducerEpoch,
    InvalidTxnState,
    TransactionCoordinatorFenced,
    UnknownProducerId,
    StorageError,
    DiskFull,
    DirectoryInUse,
    DirectoryNotFormatted,
    DirectoryMismatch,
    DirectoryUnusable,
    NotController,
    DuplicateVoter,
    VoterNotFound,
    VoterChangePending,
    VoterLagging,
    VoterMismatch,
    TopicAlreadyExists,
    InvalidTopic,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidConfig,
    StaleBrokerEpoch,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    NotImplementedHere,
    PartitionerFailed,
    NotDelivered,
    RowsNotDelivered,
    EnvironmentUnusable,
    UnknownServerError,
)

ERROR_BY_NAME: Final[dict[str, type[QuorumlogError]]] = {error.name: error for error in ERRORS}
"""From the name on the wire to the class; an unknown name becomes `UnknownServerError`."""
