"""What producers with an id can meet."""

from .base import QuorumlogError


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
