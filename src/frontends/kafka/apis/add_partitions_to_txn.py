"""AddPartitionsToTxn: add partitions to a producer's open transaction (KIP-98), or verify them
(KIP-890).

Clients use versions 0 to 3, of one transaction. Versions 4 and 5 have a batch of transactions, each
with its own result; partition leaders verify with them before they append.
"""

from collections.abc import Sequence
from typing import Any, Final

from ....errors import InvalidRequest, QuorumlogError
from ....ids import ProducerIdentity
from ..api import Answer, BrokerContext, Call, Fields
from ..item_results import by_topic, outcomes, repeated
from ..transactions import KNOWS_FENCED, producer_of, transaction_code

_TAKES_MANY: Final = 4
_KNOWS_ABORTABLE: Final = 5  # the first version with TRANSACTION_ABORTABLE


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Add or verify the partitions of each transaction: all of a transaction, or none."""
    body = call.body
    if call.version < _TAKES_MANY:
        partitions = _partitions(body.v3_and_below_topics)
        producer = ProducerIdentity(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        codes = await _add(broker, call, body.v3_and_below_transactional_id, producer, partitions)
        return {"results_by_topic_v3_and_below": _results(partitions, codes)}
    twice = repeated(each.transactional_id for each in body.transactions)

    async def add(each: Any) -> Fields:
        partitions = _partitions(each.topics)
        if each.transactional_id in twice:
            codes = [InvalidRequest.code] * len(partitions)
        else:
            codes = await _add(
                broker,
                call,
                each.transactional_id,
                producer_of(each),
                partitions,
                verify_only=each.verify_only,
            )
        return {
            "transactional_id": each.transactional_id,
            "topic_results": _results(partitions, codes),
        }

    found = await outcomes(broker, body.transactions, add, context=call.context)
    return {
        "results_by_transaction": [
            _failed(each, _code(call, result)) if isinstance(result, QuorumlogError) else result
            for each, result in zip(body.transactions, found, strict=True)
        ]
    }


async def _add(
    broker: BrokerContext,
    call: Call,
    transactional_id: str,
    producer: ProducerIdentity,
    partitions: Sequence[tuple[str, int]],
    *,
    verify_only: bool = False,
) -> list[int]:
    """Return the error code of each partition."""
    try:
        added = await broker.api.transactions.add_partitions(
            transactional_id, producer, partitions, call.context, verify_only=verify_only
        )
    except QuorumlogError as error:
        return [_code(call, error)] * len(partitions)
    return [_code(call, error) for error in added]


def _partitions(topics: Sequence[Any]) -> list[tuple[str, int]]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _results(partitions: Sequence[tuple[str, int]], codes: Sequence[int]) -> list[Fields]:
    rows = (
        (topic, {"partition_index": index, "partition_error_code": code})
        for (topic, index), code in zip(partitions, codes, strict=True)
    )
    return list(by_topic(rows, topic_as="name", partitions_as="results_by_partition"))


def _failed(transaction: Any, code: int) -> Fields:
    """Return the result of a transaction that was not started."""
    partitions = _partitions(transaction.topics)
    return {
        "transactional_id": transaction.transactional_id,
        "topic_results": _results(partitions, [code] * len(partitions)),
    }


def _code(call: Call, error: QuorumlogError | None) -> int:
    return transaction_code(
        error,
        knows_fenced=call.version >= KNOWS_FENCED,
        knows_abortable=call.version >= _KNOWS_ABORTABLE,
    )
