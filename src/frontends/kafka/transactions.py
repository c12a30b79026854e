"""Common parts of the requests of transactional producers."""

from datetime import timedelta
from typing import Any, Final

from ...errors import InvalidProducerEpoch, InvalidTxnState, QuorumlogError
from ...errors.producers import ProducerFenced, TransactionAbortable
from ...ids import ProducerIdentity
from .api import Fields
from .error_codes import group_code

NO_PRODUCER: Final[Fields] = {"producer_id": -1, "producer_epoch": -1}

KNOWS_FENCED: Final = 2
"""The first version of keys 24 to 26 with PRODUCER_FENCED (KIP-588)."""

_MS: Final = timedelta(milliseconds=1)


def transaction_code(
    error: QuorumlogError | None, *, knows_fenced: bool, knows_abortable: bool = True
) -> int:
    """Return the code of an error, 0 for None, as the client's version has it (KIP-588,
    KIP-890)."""
    if error is None:
        return 0
    if isinstance(error, ProducerFenced) and not knows_fenced:
        return InvalidProducerEpoch.code
    if isinstance(error, TransactionAbortable) and not knows_abortable:
        return InvalidTxnState.code
    return group_code(error)


def producer_of(body: Any) -> ProducerIdentity:
    """Return the producer that a request, or an item of one, names."""
    return ProducerIdentity(body.producer_id, body.producer_epoch)


def producer_fields(producer: ProducerIdentity) -> Fields:
    """Return the fields of a producer in a response."""
    return {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}


def milliseconds(duration: timedelta) -> int:
    """Return a duration of a request in ms."""
    return duration // _MS
