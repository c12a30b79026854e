"""WriteTxnMarkers: end transactions in partitions that this broker leads, for their coordinator or
an operator (KIP-98, KIP-664).

Version 2 has the transaction version of each marker (KIP-1228).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ....errors import CoordinatorLoading, CoordinatorNotAvailable, NotCoordinator, QuorumlogError
from ....records.control import TransactionMarker
from ..api import Answer, BrokerContext, Call, Fields
from ..error_codes import NOT_LEADER_OR_FOLLOWER, produce_code
from ..item_results import outcomes
from ..transactions import producer_of

GROUPS_NOT_READY: Final = (CoordinatorLoading, CoordinatorNotAvailable, NotCoordinator)
"""Errors of a partition of group offsets. Transaction coordinators retry those of a partition's
leader only."""


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Write each marker to each of its partitions. The response is sent once they are committed or
    refused."""
    markers = call.body.markers
    parts = [
        (_marker(each), topic.name, index)
        for each in markers
        for topic in each.topics
        for index in topic.partition_indexes
    ]

    async def write(part: tuple[TransactionMarker, str, int]) -> None:
        marker, topic, index = part
        await broker.api.transactions.write_marker(marker, topic, index, call.context)

    written = iter(await outcomes(broker, parts, write, context=call.context))
    return {
        "markers": [
            {"producer_id": each.producer_id, "topics": _topics(each.topics, written)}
            for each in markers
        ]
    }


def _marker(each: Any) -> TransactionMarker:
    return TransactionMarker(
        producer=producer_of(each),
        coordinator_epoch=each.coordinator_epoch,
        is_commit=each.transaction_result,
        transaction_version=getattr(each, "transaction_version", 0),
    )


def _topics(topics: Sequence[Any], written: Iterator[QuorumlogError | None]) -> list[Fields]:
    return [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": index, "error_code": _code(next(written))}
                for index in topic.partition_indexes
            ],
        }
        for topic in topics
    ]


def _code(error: QuorumlogError | None) -> int:
    if isinstance(error, GROUPS_NOT_READY):
        return NOT_LEADER_OR_FOLLOWER
    return 0 if error is None else produce_code(error)
