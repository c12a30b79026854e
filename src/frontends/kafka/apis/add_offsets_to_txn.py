"""AddOffsetsToTxn: add a group's offsets to a producer's open transaction, before TxnOffsetCommit
up to version 4 (KIP-98)."""

from ..api import Answer, BrokerContext, Call
from ..item_results import outcome
from ..transactions import KNOWS_FENCED, producer_of, transaction_code


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Add the group's partition of the offsets topic."""
    body = call.body
    error = await outcome(
        broker.api.transactions.add_offsets(
            body.transactional_id, producer_of(body), body.group_id, call.context
        )
    )
    return {"error_code": transaction_code(error, knows_fenced=call.version >= KNOWS_FENCED)}
