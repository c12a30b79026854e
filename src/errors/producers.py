"""Errors of idempotent and transactional producers."""

from .base import QuorumlogError, RetriableError


class OutOfOrderSequence(
    QuorumlogError, code=45, name="OUT_OF_ORDER_SEQUENCE_NUMBER", status="FAILED_PRECONDITION"
):
    """A batch does not continue its producer's sequence: an earlier one is missing, or it is too
    late for duplicate detection. Continue with a new producer epoch, from sequence 0."""


class DuplicateSequence(
    QuorumlogError, code=46, name="DUPLICATE_SEQUENCE_NUMBER", status="ALREADY_EXISTS"
):
    """The batch was stored before, at offsets that are no longer known. Do not retry it."""


class InvalidProducerEpoch(
    QuorumlogError, code=47, name="INVALID_PRODUCER_EPOCH", status="FAILED_PRECONDITION"
):
    """A newer epoch of this producer has written. Close this producer."""


class InvalidTxnState(
    QuorumlogError, code=48, name="INVALID_TXN_STATE", status="FAILED_PRECONDITION"
):
    """The write does not match the state of its producer's transaction. End the open one, or begin
    one."""


class InvalidProducerIdMapping(
    QuorumlogError, code=49, name="INVALID_PRODUCER_ID_MAPPING", status="FAILED_PRECONDITION"
):
    """The transactional id has another producer id, or it expired. Close this producer."""


class InvalidTransactionTimeout(
    QuorumlogError, code=50, name="INVALID_TRANSACTION_TIMEOUT", status="INVALID_ARGUMENT"
):
    """The transaction timeout is not positive, or above `transaction.max.timeout.ms`."""


class ConcurrentTransactions(
    RetriableError, code=51, name="CONCURRENT_TRANSACTIONS", status="UNAVAILABLE"
):
    """The previous transaction of this transactional id is not complete yet. Retry."""


class TransactionCoordinatorFenced(
    QuorumlogError, code=52, name="TRANSACTION_COORDINATOR_FENCED", status="FAILED_PRECONDITION"
):
    """A newer transaction coordinator has written; this one must stop."""


class OperationNotAttempted(
    QuorumlogError, code=55, name="OPERATION_NOT_ATTEMPTED", status="ABORTED"
):
    """This part of the request was not executed, because another part of it was refused."""


class UnknownProducerId(
    QuorumlogError, code=59, name="UNKNOWN_PRODUCER_ID", status="FAILED_PRECONDITION"
):
    """The log has no state of this producer. Continue with a new producer epoch, from sequence
    0."""


class ProducerUnusable(QuorumlogError, name="PRODUCER_UNUSABLE", status="FAILED_PRECONDITION"):
    """A transactional producer cannot continue. Close it and create another one."""


class ProducerFenced(
    ProducerUnusable, code=90, name="PRODUCER_FENCED", status="FAILED_PRECONDITION"
):
    """A newer producer with this transactional id exists. Close this one."""


class TransactionalIdNotFound(
    QuorumlogError, code=105, name="TRANSACTIONAL_ID_NOT_FOUND", status="NOT_FOUND"
):
    """The coordinator has no such transactional id."""


class TransactionAbortable(
    QuorumlogError, code=120, name="TRANSACTION_ABORTABLE", status="ABORTED"
):
    """The transaction cannot commit. Abort it; then the producer can begin the next one."""


# --- staged commits ---------------------------------------------------------------------------


class NumberTooOld(QuorumlogError, name="NUMBER_TOO_OLD", status="FAILED_PRECONDITION"):
    """A later batch of this name is committed. Use the next number, or reset the name with
    `quorumlog commits reset`."""

    def __init__(self, message: str, *, number: int = -1) -> None:
        """`number` is the last committed one, -1 if unknown."""
        super().__init__(message)
        self.number = number


class FencedWrite(QuorumlogError, name="FENCED_WRITE", status="FAILED_PRECONDITION"):
    """A later write of this name exists, or this one ended. Stop this driver if another one
    runs."""

    def __init__(self, message: str, *, write_id: int = -1) -> None:
        """`write_id` is the highest one of the name, -1 if unknown."""
        super().__init__(message)
        self.write_id = write_id


class StageLost(QuorumlogError, name="STAGE_LOST", status="ABORTED"):
    """A task's attempt expired, was aborted or wrote to a deleted topic. Run the task again as a
    new attempt; after a refused commit, run the batch again."""

    def __init__(self, message: str, *, task: int = -1) -> None:
        """`task` is the first one without its attempt, -1 if unknown."""
        super().__init__(message)
        self.task = task


class CommittedBatchDiffers(
    QuorumlogError, name="COMMITTED_BATCH_DIFFERS", status="FAILED_PRECONDITION"
):
    """The batch was committed before with another number of records. Give each job a name of its
    own, and each batch the same input in every run."""


class StagedAttemptsExceeded(
    QuorumlogError, name="STAGED_ATTEMPTS_EXCEEDED", status="RESOURCE_EXHAUSTED"
):
    """The write has `staged.attempts.max` attempts, or its coordinator has 100,000 names. Use fewer
    tasks, raise `staged.attempts.max`, or delete names."""


class TransactionalIdInUse(
    QuorumlogError, code=42, name="TRANSACTIONAL_ID_IN_USE", status="FAILED_PRECONDITION"
):
    """The transactional id of a producer is a name of staged commits, or the reverse. Choose
    another one."""
