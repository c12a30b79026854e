"""ListTransactions: list the transactional ids that this broker coordinates, by state, producer id,
age (KIP-994) and name pattern (KIP-1152)."""

from ....errors import QuorumlogError
from ..api import Answer, BrokerContext, Call
from ..error_codes import group_code


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """List the transactional ids that pass every filter."""
    body = call.body
    states = frozenset(body.state_filters)
    try:
        found = await broker.api.transactions.list_transactions(
            call.context,
            states=states,
            producer_ids=frozenset(body.producer_id_filters),
            open_for_ms_min=getattr(body, "duration_filter", -1),
            pattern=getattr(body, "transactional_id_pattern", None) or "",
        )
    except QuorumlogError as error:
        return {"error_code": group_code(error)}
    return {
        "error_code": 0,
        "unknown_state_filters": sorted(states.difference(_state_names())),
        "transaction_states": [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "transaction_state": each.state,
            }
            for each in found
        ],
    }


def _state_names() -> list[str]:
    from ....broker.transactions.records import TransactionState

    return [state.kafka_name for state in TransactionState]
