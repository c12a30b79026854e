"""DescribeProducers: return the producers with an id that write to a partition (KIP-664)."""

from collections.abc import Iterable, Iterator
from typing import Final

from ....broker import ActiveProducer
from ....errors import QuorumlogError
from ....metadata.acls import AclOperation, AclResourceType
from ....runtime.steps import step_counter
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..error_codes import error_fields
from ..item_results import PARTS_A_STEP


async def describe_producers(broker: BrokerContext, call: Call) -> Answer:
    """Describe each named partition once of which this broker has a replica, leader or follower."""
    take_turn, topics = step_counter(PARTS_A_STEP), list[Fields]()
    wanted: dict[str, dict[int, None]] = {}
    for topic in call.body.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    for name, indexes in wanted.items():
        denial = broker.api.authorizer.denial(
            call.client.identity, AclOperation.READ, AclResourceType.TOPIC, name
        )
        await take_turn()
        partitions: Iterable[Fields]
        if denial is not None:
            partitions = _failed(indexes, denial)
        else:
            partitions = found = list[Fields]()
            for index in indexes:
                await take_turn()
                found.append(await _partition(broker, name, index))
        topics.append({"name": name, "partitions": partitions})
    return {"topics": topics}


def _failed(indexes: Iterable[int], error: QuorumlogError) -> Iterator[Fields]:
    """Yield the same error for each partition. Lazy, as `by_topic`."""
    fields = {**error_fields(error), "active_producers": ()}
    for index in indexes:
        yield {"partition_index": index, **fields}


async def _partition(broker: BrokerContext, topic: str, partition: int) -> Fields:
    try:
        producers = await broker.log_admin.producers(topic, partition)
    except QuorumlogError as error:
        return next(_failed((partition,), error))
    return {
        "partition_index": partition,
        **error_fields(None),
        "active_producers": [_producer(each) for each in producers],
    }


def _producer(producer: ActiveProducer) -> Fields:
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": producer.last_timestamp_ms,
        "coordinator_epoch": producer.coordinator_epoch,
        "current_txn_start_offset": producer.transaction_start,
    }


API: Final = KafkaApi(
    key=61,
    name="DescribeProducers",
    low=0,
    high=0,
    flexible=0,
    handle=describe_producers,
)
