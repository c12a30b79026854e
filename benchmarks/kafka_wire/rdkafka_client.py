"""A client on librdkafka by its Python package: writes or reads records, and says what it took.

It stands alone, so that any Python with confluent-kafka can run it:
    rdkafka_client.py produce|consume PORT TOPIC PARTITIONS VALUE_BYTES RECORDS ACKS
The clocks begin when it is connected: for a producer with a record that is acknowledged before.
"""

import json
import os
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

TOGETHER = 10_000  # records of one call of consume()
FLUSH_S = 120.0
POLL_S = 30.0


def produce(port: int, topic: str, size: int, count: int, acks: str) -> dict[str, Any]:
    """Write random values, without keys."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "acks": acks,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    values = [os.urandom(size) for _ in range(1_000)]
    producer.produce(topic, values[0], on_delivery=delivered)
    producer.flush(FLUSH_S)
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, values[number % 1_000], on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1_000 == 0:
            producer.poll(0)
    left = producer.flush(FLUSH_S)
    spent_s, spent_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    if left or failures:
        sys.exit(f"{left} records are not sent, {len(failures)} failed: {failures[:1]}")
    return {"seconds": spent_s, "cpu_s": spent_cpu_s, "records": count}


def consume(port: int, topic: str, partitions: int, count: int) -> dict[str, Any]:
    """Read from the start until so many records have come."""
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "load",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    seen = len(consumer.consume(1, POLL_S))
    began_s, began_cpu_s, began = time.perf_counter(), time.process_time(), seen
    while seen < count:
        messages = consumer.consume(min(TOGETHER, count - seen), POLL_S)
        failed = [message for message in messages if message.error() is not None]
        if failed or not messages:
            sys.exit(f"{seen} of {count} records came, then {[m.error() for m in failed[:1]]}")
        seen += len(messages)
    spent_s, spent_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    consumer.close()
    return {"seconds": spent_s, "cpu_s": spent_cpu_s, "records": seen - began}


def main() -> None:
    """Do it, and print one JSON line."""
    way, port, topic, partitions, size, count, acks = sys.argv[1:]
    if way == "produce":
        said = produce(int(port), topic, int(size), int(count), acks)
    else:
        said = consume(int(port), topic, int(partitions), int(count))
    print(json.dumps(said))


if __name__ == "__main__":
    main()
