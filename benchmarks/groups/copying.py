"""Copies a topic of one cluster into another in one of three ways, and prints the cost.

    python -m benchmarks.groups.copying WAY SOURCE TARGET TOPIC RECORDS

WAY is `mirror`, which runs the code of `quorumlog mirror --once`; `client`, a loop that consumes
and produces with the quorumlog client; or `librdkafka`, such a loop on librdkafka. Addresses are
those of the gRPC listeners, or of the Kafka listeners for librdkafka. The clocks begin when both
sides are connected.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import quorumlog.aio
from quorumlog.clients.config import ClientConfig, parse_bootstrap
from quorumlog.clients.connection import Connection
from quorumlog.clients.mirror import ClusterSource, Mirror, Target
from quorumlog.runtime import Runtime
from quorumlog.runtime.memory import keep_freed_memory
from quorumlog.runtime.real import run

TOGETHER: Final = 10_000  # records of one poll
FLUSH_S: Final = 120.0
POLL_S: Final = 1.0


class Clock:
    """The wall and CPU time since its creation."""

    def __init__(self) -> None:
        self._began_s, self._began_cpu_s = time.perf_counter(), time.process_time()

    def took(self, records: int) -> dict[str, Any]:
        """Return the seconds of wall and CPU time."""
        return {
            "records": records,
            "seconds": time.perf_counter() - self._began_s,
            "cpu_s": time.process_time() - self._began_cpu_s,
        }


def by_mirror(source: str, target: str, topic: str, records: int) -> dict[str, Any]:
    """Copy with the code of the command."""

    async def main(runtime: Runtime) -> dict[str, Any]:
        sides = [
            Connection(runtime, parse_bootstrap(each), ClientConfig()) for each in (source, target)
        ]
        try:
            for side in sides:
                await side.open()
            clock = Clock()
            mirror = Mirror(
                runtime, ClusterSource(sides[0]), Target(sides[1], replication=1), topics=topic
            )
            report = await mirror.run(once=True)
            took = clock.took(report.records)
        finally:
            for side in sides:
                await side.close()
        if report.problems:
            sys.exit(f"the mirror has problems: {report.problems}")
        return took

    keep_freed_memory()
    return run(main, name="mirror")


def by_client(source: str, target: str, topic: str, records: int) -> dict[str, Any]:
    """Copy with the quorumlog client."""
    return asyncio.run(_by_client(source, target, topic, records))


async def _by_client(source: str, target: str, topic: str, records: int) -> dict[str, Any]:
    async with quorumlog.aio.connect(source) as read, quorumlog.aio.connect(target) as written:
        partitions = len((await read.admin.describe_topic(topic)).partitions)
        await written.admin.create_topic(topic, partitions=partitions, replication=1)
        async with (
            read.consumer(topic, until_end=True) as consumer,
            written.producer() as producer,
        ):
            clock, count = Clock(), 0
            async for record in consumer:
                count += 1
                await producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    timestamp_ms=record.timestamp_ms,
                    partition=record.partition,
                )
            await producer.flush()
            took = clock.took(count)
    return took


def by_librdkafka(source: str, target: str, topic: str, records: int) -> dict[str, Any]:
    """Copy with the Python package of librdkafka, acks=all."""
    from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    consumer = Consumer({"bootstrap.servers": source, "group.id": "none"})
    partitions = len(consumer.list_topics(topic, FLUSH_S).topics[topic].partitions)
    admin = AdminClient({"bootstrap.servers": target})
    for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        made.result(FLUSH_S)
    producer = Producer(
        {"bootstrap.servers": target, "queue.buffering.max.messages": 10 * TOGETHER}
    )
    producer.list_topics(topic, FLUSH_S)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    clock, count = Clock(), 0
    while count < records:
        for message in consumer.consume(TOGETHER, POLL_S):
            if message.error() is not None:
                sys.exit(f"a record cannot be read: {message.error()}")
            count += 1
            while True:
                try:
                    producer.produce(
                        topic,
                        message.value(),
                        message.key(),
                        message.partition() or 0,
                        on_delivery=delivered,
                        timestamp=message.timestamp()[1],
                    )
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
    left = producer.flush(FLUSH_S)
    if left or failures:
        sys.exit(f"{left} records are not sent, {len(failures)} failed: {failures[:1]}")
    took = clock.took(count)
    consumer.close()
    return took


WAYS: Final[dict[str, Callable[[str, str, str, int], dict[str, Any]]]] = {
    "mirror": by_mirror,
    "client": by_client,
    "librdkafka": by_librdkafka,
}


def main(arguments: list[str]) -> int:
    """Copy and print the cost as JSON."""
    way, source, target, topic, records = arguments
    print(json.dumps(WAYS[way](source, target, topic, int(records))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
