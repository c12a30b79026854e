"""A client on librdkafka by its Python package: produces or consumes records, and prints its costs.

It imports nothing else, so any Python with confluent-kafka can run it:
rdkafka_client.py produce|consume PORT TOPIC PARTITIONS VALUE_BYTES RECORDS HELD CODEC
A consumer reads the HELD records of the topic repeatedly. The clocks begin after connecting.
"""

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

TOGETHER = 10_000  # records of one call of consume()
DISTINCT = 1_000
FLUSH_S = 120.0
POLL_S = 30.0
WAIT_MS = 20  # of a fetch at the end of the topic, which delays the next pass


class Costs:
    """Clocks of this process, from the creation on."""

    def __init__(self) -> None:
        self._threads = self._spent()
        self._cpu_s = time.process_time()
        self._began_s = time.perf_counter()

    def say(self, records: int) -> dict[str, Any]:
        """Return seconds and CPU."""
        spent = self._spent()
        busiest = max(each - self._threads.get(name, 0) for name, each in spent.items())
        return {
            "seconds": time.perf_counter() - self._began_s,
            "cpu_s": time.process_time() - self._cpu_s,
            "thread_cpu_s": busiest / 1e9,
            "records": records,
        }

    @staticmethod
    def _spent() -> dict[str, int]:
        """Return the nanoseconds on a processor by thread."""
        spent: dict[str, int] = {}
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                spent[task.name] = int((task / "schedstat").read_text().split()[0])
        return spent


def produce(port: int, topic: str, size: int, count: int, codec: str) -> dict[str, Any]:
    """Produce values without keys; the first half of a value is random."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "acks": "1",
            "compression.type": codec,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    values = [os.urandom(size // 2).ljust(size, b"\0") for _ in range(DISTINCT)]
    producer.produce(topic, values[0], on_delivery=delivered)
    producer.flush(FLUSH_S)
    costs = Costs()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, values[number % DISTINCT], on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1_000 == 0:
            producer.poll(0)
    left = producer.flush(FLUSH_S)
    said = costs.say(count)
    if left or failures:
        sys.exit(f"{left} records are not sent, {len(failures)} failed: {failures[:1]}")
    return said


def consume(port: int, topic: str, partitions: int, count: int, held: int) -> dict[str, Any]:
    """Consume from the start, again after each pass, until `count` records arrived."""
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "load",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": WAIT_MS,
        }
    )
    start = [TopicPartition(topic, number, 0) for number in range(partitions)]
    consumer.assign(start)
    seen = passed = len(consumer.consume(1, POLL_S))
    costs, first = Costs(), seen
    while seen < count:
        messages = consumer.consume(min(TOGETHER, count - seen, held - passed), POLL_S)
        failed = [message for message in messages if message.error() is not None]
        if failed or not messages:
            sys.exit(f"{seen} of {count} records came, then {[m.error() for m in failed[:1]]}")
        seen += len(messages)
        passed += len(messages)
        if passed >= held:
            consumer.assign(start)
            passed = 0
    said = costs.say(seen - first)
    consumer.close()
    return said


def main() -> None:
    """Run, and print one JSON line."""
    way, port, topic, partitions, size, count, held, codec = sys.argv[1:]
    if way == "produce":
        said = produce(int(port), topic, int(size), int(count), codec)
    else:
        said = consume(int(port), topic, int(partitions), int(count), int(held))
    print(json.dumps(said))


if __name__ == "__main__":
    main()
