"""DescribeTransactions: return the state of transactional ids that this broker coordinates
(KIP-664)."""

from collections.abc import Sequence

from ....errors import QuorumlogError
from ..api import Answer, BrokerContext, Call, Fields
from ..error_codes import group_code
from ..item_results import outcomes
from ..transactions import NO_PRODUCER, producer_fields


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Describe each named transactional id once, with its own result."""
    ids = list(dict.fromkeys(call.body.transactional_ids))

    async def describe(transactional_id: str) -> Fields:
        found = await broker.api.transactions.describe(transactional_id, call.context)
        return {
            "error_code": 0,
            "transactional_id": transactional_id,
            "transaction_state": found.state,
            "transaction_timeout": found.timeout_ms,
            "transaction_start_time": found.started_ms,
            **producer_fields(found.producer),
            "topics": _topics(found.partitions),
        }

    results = await outcomes(broker, ids, describe, context=call.context)
    return {
        "transaction_states": [
            _failed(transactional_id, result) if isinstance(result, QuorumlogError) else result
            for transactional_id, result in zip(ids, results, strict=True)
        ]
    }


def _topics(partitions: Sequence[tuple[str, int]]) -> list[Fields]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()]


def _failed(transactional_id: str, error: QuorumlogError) -> Fields:
    return {
        "error_code": group_code(error),
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout": 0,
        "transaction_start_time": 0,
        **NO_PRODUCER,
        "topics": (),
    }
