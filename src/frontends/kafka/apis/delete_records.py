"""DeleteRecords: advance the log start offsets of partitions that this broker leads, each with its
own result.

Offset -1 means the last stable offset, which is at most the high watermark.
"""

from collections.abc import Iterator
from typing import Any, Final

from ....api.validation import check_partition
from ....broker import DeletionSpec
from ....errors import InvalidRequest, QuorumlogError
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..encoding_offload import encode_if_large
from ..error_codes import code_of
from ..item_results import Place, by_topic, check_count, outcome, place, split_valid, with_timeout

NO_OFFSET: Final = -1


async def delete_records(broker: BrokerContext, call: Call) -> Answer:
    """Delete what is valid; the response waits until the deletion is durable on this broker."""
    count = sum(len(topic.partitions) for topic in call.body.topics)
    try:
        check_count(count)
    except InvalidRequest as too_many:
        refused = {"topics": _each(call.body, too_many)}
        return await encode_if_large(broker, call, refused, elements=count)
    return await _deleted(broker, call)


async def _deleted(broker: BrokerContext, call: Call) -> Answer:
    parts = [
        DeletionSpec(topic.name, part.partition_index, part.offset)
        for topic in call.body.topics
        for part in topic.partitions
    ]
    good, refused = split_valid(parts, _check, at=place)
    results: dict[Place, Fields] = {at: _fields(at, error) for at, error in refused.items()}
    if good:
        context = with_timeout(call, call.body.timeout)
        outcomes = await outcome(broker.api.partitions.delete_records(good, context))
        if isinstance(outcomes, QuorumlogError):
            results.update((place(part), _fields(place(part), outcomes)) for part in good)
        else:
            for each in outcomes:
                at = place(each.spec)
                results[at] = _fields(at, each.error, each.log_start_offset)
    topics = by_topic(
        ((topic, fields) for (topic, _), fields in results.items()),
        topic_as="name",
        partitions_as="partitions",
    )
    return await encode_if_large(broker, call, {"topics": topics}, elements=len(results))


def _each(body: Any, error: QuorumlogError) -> Iterator[Fields]:
    """Return the same error for each partition of the request."""
    for topic in body.topics:
        places = ((topic.name, part.partition_index) for part in topic.partitions)
        yield {"name": topic.name, "partitions": (_fields(at, error) for at in places)}


def _check(part: DeletionSpec) -> None:
    check_partition(part.topic, part.partition)


def _fields(at: Place, error: QuorumlogError | None, start: int = NO_OFFSET) -> Fields:
    return {"partition_index": at[1], "low_watermark": start, "error_code": code_of(error)}


API: Final = KafkaApi(
    key=21, name="DeleteRecords", low=0, high=2, flexible=2, handle=delete_records
)
