"""EndTxn: commit or abort a producer's transaction (KIP-98).

Since version 5 each end raises the producer's epoch and returns the identity for the next
transaction (KIP-890).
"""

from typing import Final

from ....errors import QuorumlogError
from ..api import Answer, BrokerContext, Call
from ..item_results import outcome
from ..transactions import (
    KNOWS_FENCED,
    NO_PRODUCER,
    producer_fields,
    producer_of,
    transaction_code,
)

_BUMPS_EPOCH: Final = 5
_KNOWS_ABORTABLE: Final = 4


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """End the transaction; the answer follows the durable decision, not the markers."""
    body = call.body
    ended = await outcome(
        broker.api.transactions.end_transaction(
            body.transactional_id,
            producer_of(body),
            call.context,
            commit=body.committed,
            bumps_epoch=call.version >= _BUMPS_EPOCH,
        )
    )
    if isinstance(ended, QuorumlogError):
        code = transaction_code(
            ended,
            knows_fenced=call.version >= KNOWS_FENCED,
            knows_abortable=call.version >= _KNOWS_ABORTABLE,
        )
        return {"error_code": code, **NO_PRODUCER}
    return {"error_code": 0, **producer_fields(ended)}
