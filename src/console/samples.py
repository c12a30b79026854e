"""Sample data for the first minutes: a topic of small JSON records, and a group with a lag."""

import json
from typing import Final

from ..aio import AsyncLog
from ..ids import TopicPartition

SAMPLE_TOPIC: Final = "sample-orders"
SAMPLE_GROUP: Final = "sample-readers"
PARTITIONS: Final = 3
RECORDS: Final = 1_000
_ITEMS: Final = ("apples", "bread", "coffee", "dates", "eggs", "figs", "grapes")
_CITIES: Final = ("Berlin", "Lagos", "Lima", "Osaka", "Oslo", "Quito", "Zagreb")


async def create_samples(log: AsyncLog) -> int:
    """Create the sample topic, write its records, commit the group's offsets at half of them;
    return the number of records. Raises TopicAlreadyExists."""
    await log.admin.create_topic(SAMPLE_TOPIC, partitions=PARTITIONS)
    async with log.producer(linger_ms=20) as producer:
        for number in range(RECORDS):
            order = {
                "order": number,
                "item": _ITEMS[number % len(_ITEMS)],
                "city": _CITIES[number * 3 % len(_CITIES)],
                "amount": number * 37 % 100 + 1,
            }
            await producer.send(SAMPLE_TOPIC, json.dumps(order), key=f"customer-{number * 7 % 50}")
    ends = await log.list_offsets(SAMPLE_TOPIC)
    half = {TopicPartition(SAMPLE_TOPIC, partition): end // 2 for partition, end in ends.items()}
    await log.admin.reset_offsets(SAMPLE_GROUP, half)
    return RECORDS
