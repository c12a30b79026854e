"""Errors of idempotent and transactional producers."""

from .base import QuorumlogError


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


class TransactionCoordinatorFenced(
    QuorumlogError, code=52, name="TRANSACTION_COORDINATOR_FENCED", status="FAILED_PRECONDITION"
):
    """A newer transaction coordinator has written; this one must stop."""


class UnknownProducerId(
    QuorumlogError, code=59, name="UNKNOWN_PRODUCER_ID", status="FAILED_PRECONDITION"
):
    """The log has no state of this producer. Continue with a new producer epoch, from sequence
    0."""
