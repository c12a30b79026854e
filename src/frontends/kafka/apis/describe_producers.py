"""DescribeProducers: return the producers with an id that write to a partition (KIP-664)."""

from typing import Final

from ....broker import ActiveProducer
from ....errors import QuorumlogError
from ....metadata.acls import AclOperation, AclResourceType
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..error_codes import error_fields


async def describe_producers(broker: BrokerContext, call: Call) -> Answer:
    """Describe each partition of which this broker has a replica, leader or follower."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    await _partition(broker, call, topic.name, index)
                    for index in topic.partition_indexes
                ],
            }
            for topic in call.body.topics
        ]
    }


async def _partition(broker: BrokerContext, call: Call, topic: str, partition: int) -> Fields:
    try:
        broker.api.authorizer.check(
            call.client.identity, AclOperation.READ, AclResourceType.TOPIC, topic
        )
        producers = await broker.log_admin.producers(topic, partition)
    except QuorumlogError as error:
        return {"partition_index": partition, **error_fields(error), "active_producers": ()}
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
