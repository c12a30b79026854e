"""Requests to a transaction coordinator and their answers, as plain values.

Both front ends (gRPC and the Kafka protocol) and the brokers translate to these. A request that is
refused as a whole raises a typed error of `quorumlog.errors`; the error of one partition is
returned for that partition.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from ...errors import QuorumlogError
from ...ids import ProducerIdentity, TopicId
from ..coordinator.shard import CoordinatorRequest
from .records import AttemptState

R = TypeVar("R")


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class TransactionRequest(CoordinatorRequest[R]):
    """A request for one transactional id; `R` is the type of its answer."""

    transactional_id: str

    @property
    def key(self) -> str:
        """The transactional id."""
        return self.transactional_id


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class InitProducerId(TransactionRequest[ProducerIdentity]):
    """The request for the producer's id and epoch, which fences all earlier producers.

    An open transaction is aborted first, and the request fails with ConcurrentTransactions until
    that is complete. Raises ProducerFenced if `current` is not current any more.
    """

    timeout_ms: int
    current: ProducerIdentity | None = None  # of a producer that continues after an error (KIP-360)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedPartitions:
    """One error or None for each partition, in the order of the request."""

    errors: tuple[QuorumlogError | None, ...]


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class AddPartitions(TransactionRequest[AddedPartitions]):
    """The request to add partitions to the transaction; the first one begins it.

    Either all partitions are added or none. Raises InvalidProducerIdMapping, ProducerFenced and
    ConcurrentTransactions.
    """

    producer: ProducerIdentity
    partitions: tuple[tuple[str, int], ...]  # topic name and index
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict, hash=False)
    """The topic ids by name, of a partition leader. A name without an id is resolved with the
    coordinator's metadata."""


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class VerifyPartitions(TransactionRequest[AddedPartitions]):
    """The query of a partition leader: are these partitions in the producer's transaction?

    A partition that is not gets TransactionAbortable. Raises as `AddPartitions`.
    """

    producer: ProducerIdentity
    partitions: tuple[tuple[str, int], ...]
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict, hash=False)


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class EndTransaction(TransactionRequest[ProducerIdentity]):
    """The request to commit or abort the transaction, answered when the decision is committed.

    The answer is the producer's identity for its next transaction. Raises ProducerFenced,
    InvalidProducerIdMapping, InvalidTxnState, and ConcurrentTransactions while the markers of a
    decided transaction are being written.
    """

    producer: ProducerIdentity
    commit: bool
    bumps_epoch: bool  # EndTxn version 5: transaction.version 2 (KIP-890)


class AbortReason(StrEnum):
    """The cause of an abort, for metrics and logs."""

    CLIENT = "client"
    FENCED = "fenced"  # by InitProducerId of another producer
    TIMEOUT = "timeout"
    OPERATOR = "operator"


class MarkerPartition(NamedTuple):
    """A partition that gets a marker. A topic that was created again has another id."""

    topic: str
    partition: int
    topic_id: TopicId
    last_sequence: int = -1  # of a staged commit: a leader without it lost records; -1: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMarkers:
    """An effect: the markers of a decided transaction have to be written to these partitions.

    The sender retries until each partition acknowledged or is deleted, then sends
    `MarkersWritten`. The marker's coordinator epoch is the leader epoch of the coordinator's
    partition.
    """

    transactional_id: str
    producer: ProducerIdentity  # of the markers
    is_commit: bool
    transaction_version: int
    partitions: tuple[MarkerPartition, ...]
    abort_reason: AbortReason | None = None  # None: a commit, or resumed after a load


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class MarkersWritten(TransactionRequest[None]):
    """The marker sender's report of partitions that are done: acknowledged, or deleted.

    Repeated until answered. A report about an earlier transaction changes nothing.
    """

    producer: ProducerIdentity  # of the markers
    partitions: tuple[MarkerPartition, ...]


# --- descriptions and operators -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """The state of a transactional id."""

    transactional_id: str
    state: str  # Kafka's name: "Empty", "Ongoing", "PrepareCommit", ...
    producer: ProducerIdentity
    timeout_ms: int
    started_ms: int  # -1: no transaction yet
    partitions: tuple[tuple[str, int], ...]  # sorted; of a decided one: without its marker


def routing_id(transactional_id: str) -> str:
    """Return the id that selects the coordinator: without suffixes `#<number>`, so that a listed
    attempt `<name>#<producer id>` has the coordinator of its name."""
    while True:
        name, _, number = transactional_id.rpartition("#")
        if not (name and number.isascii() and number.isdigit()):
            return transactional_id
        transactional_id = name


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class OperatorRequest(TransactionRequest[R]):
    """A request about an id of the list: a transactional id, or an attempt `<name>#<producer id>`.

    The coordinator alone can tell which one it is. So the request has the rights of its client on
    both resources; without the right the coordinator raises TransactionalIdNotFound.
    """

    has_right_on_id: bool = True
    has_right_on_name: bool = True  # of the attempt


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class DescribeTransaction(OperatorRequest[TransactionDescription]):
    """A query of one transactional id. Raises TransactionalIdNotFound."""


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class AbortTransaction(OperatorRequest[ProducerIdentity]):
    """An operator's request to fence the producer and abort its open transaction.

    The answer is the identity that fences it. Raises TransactionalIdNotFound, InvalidTxnState
    without an open transaction, and ConcurrentTransactions if it is decided already.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransaction:
    """One entry of the list of transactional ids. A staged attempt is `<name>#<producer id>`."""

    transactional_id: str
    resource: str  # of its ACLs: the transactional id, of an attempt the name
    producer_id: int
    state: str
    started_ms: int  # -1: no transaction yet


VISIBLE_WAIT_MS: Final = 30_000
"""The maximum time that the answer to a commit waits for the markers."""


# --- staged commits -------------------------------------------------------------------------------
# The field `transactional_id` is the name of the commits. AddPartitions, VerifyPartitions and
# MarkersWritten serve attempts as well, by their producer ids.


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedBatch:
    """The batch of a number that is committed."""

    number: int
    write_id: int
    count: int  # records
    is_visible: bool = True  # every marker is written; False: some are, the rest follows


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class BeginAttempt(TransactionRequest[ProducerIdentity | CommittedBatch]):
    """A task's request for a producer id; CommittedBatch: the number is committed already.

    A higher write id supersedes all earlier writes of the name. Raises NumberTooOld, FencedWrite,
    StageLost and StagedAttemptsExceeded.
    """

    number: int
    write_id: int
    task: int
    attempt: int  # unique in the write; a repeated request returns the same producer
    timeout_ms: int  # of the sealed stage


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class KeepAttemptAlive(TransactionRequest[None]):
    """A task's request to extend the deadlines of its attempt and stage. Raises StageLost."""

    producer: ProducerIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedPartition:
    """The acknowledged records of an attempt in one partition."""

    topic: str
    partition: int
    count: int
    last_sequence: int  # (count - 1) modulo 2^31; -1: no records


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class SealAttempt(TransactionRequest[None]):
    """A task's report that all its records are acknowledged. Raises StageLost, InvalidTxnState."""

    producer: ProducerIdentity
    partitions: tuple[SealedPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedAttempt:
    """The attempt of a task that a commit names."""

    task: int
    producer: ProducerIdentity


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class CommitStage(TransactionRequest[CommittedBatch]):
    """A driver's request to commit a number with these attempts, one for each task.

    Answered when all markers are written, or after `wait_ms`. A number is decided once: the
    write id of the answer may be another one. Raises NumberTooOld, FencedWrite and StageLost.
    """

    number: int
    write_id: int
    attempts: tuple[CommittedAttempt, ...]
    wait_ms: int = VISIBLE_WAIT_MS  # at most that


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class AbortStage(TransactionRequest[CommittedBatch | None]):
    """A driver's or a task's request to abort a write, or one attempt of it.

    CommittedBatch: the number is committed, and nothing was aborted. It never decides a number.
    Raises NumberTooOld.
    """

    number: int
    write_id: int
    producer: ProducerIdentity | None = None  # None: every attempt of the write


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDescription:
    """The commits of a name."""

    name: str
    last_committed: int
    committed_write_id: int
    committed_count: int
    write_id: int
    number: int  # of that write
    attempts: int
    open: int  # of the attempts
    sealed: int  # of the attempts; the others are decided, without all of their markers
    oldest_started_ms: int  # of the attempts; -1: there is none
    updated_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDescription:
    """A task attempt that holds a producer id."""

    task: int
    attempt: int
    write_id: int
    producer: ProducerIdentity
    state: AttemptState
    started_ms: int
    count: int  # records; 0: it is not sealed
    partitions: tuple[tuple[str, int], ...]  # sorted; of a decided attempt: without its marker


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedStage:
    """The commits of a name, with the attempts by task."""

    stage: StageDescription
    attempts: tuple[AttemptDescription, ...]


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class DescribeStage(TransactionRequest[DescribedStage]):
    """A query of one name. Raises TransactionalIdNotFound."""


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class ResetStage(TransactionRequest[None]):
    """An operator's request to set the last committed number, for a rewound checkpoint. It aborts
    the current write. Raises TransactionalIdNotFound."""

    last_committed: int


@dataclass(unsafe_hash=True, slots=True, kw_only=True)
class DeleteStage(TransactionRequest[None]):
    """An operator's request to delete a name. Raises TransactionalIdNotFound, and InvalidTxnState
    while it has attempts."""
