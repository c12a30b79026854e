"""A producer on librdkafka's Python package that a benchmark controls line by line.

Run: rdkafka_producer.py PORT TOPIC VALUE_BYTES TRANSACTIONAL_ID
An empty TRANSACTIONAL_ID makes an idempotent producer without transactions. Each line of standard
input is a JSON object: `seconds` to write, and the end of a transaction: `records` in it, or
`interval_ms`. Each response is a JSON object with the records written within that time. Any Python
with confluent-kafka runs it. TransactionProducer.java does the same.
"""

import json
import os
import sys
import time
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

CALL_S = 60.0
DISTINCT = 1_000
LOOK_EVERY = 64  # records between two reads of the clock


class Writer:
    """Writes random values without keys, in transactions or without."""

    def __init__(self, port: int, topic: str, size: int, transactional_id: str) -> None:
        self._topic = topic
        self._values = [os.urandom(size) for _ in range(DISTINCT)]
        self._failures: list[KafkaError] = []
        self._written = 0
        settings: dict[str, Any] = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
        if transactional_id:
            settings["transactional.id"] = transactional_id
        self._producer = Producer(settings)
        self._is_transactional = bool(transactional_id)
        if self._is_transactional:
            self._producer.init_transactions(CALL_S)

    def write(self, seconds: float, records: int, interval_ms: float) -> dict[str, Any]:
        """Write for so long; return counts and the duration of each commit in microseconds."""
        began_s, began_cpu_s, before = time.perf_counter(), time.process_time(), self._written
        commits: list[int] = []
        while (now_s := time.perf_counter()) < began_s + seconds:
            if not self._is_transactional:
                self._send(0, began_s + seconds)
                continue
            self._producer.begin_transaction()
            self._send(records, now_s + interval_ms / 1e3 if interval_ms else float("inf"))
            self._flush()
            commit_s = time.perf_counter()
            self._producer.commit_transaction(CALL_S)
            commits.append(round((time.perf_counter() - commit_s) * 1e6))
        self._flush()
        return {
            "records": self._written - before,
            "seconds": time.perf_counter() - began_s,
            "cpu_s": time.process_time() - began_cpu_s,
            "commits_us": commits,
        }

    def _send(self, records: int, until_s: float) -> None:
        """Write so many records (0: any number), at most until a time."""
        sent = 0
        while not records or sent < records:
            try:
                self._producer.produce(
                    self._topic, self._values[sent % DISTINCT], on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(0.01)
                continue
            sent += 1
            if sent % LOOK_EVERY == 0:
                self._producer.poll(0)
                if time.perf_counter() >= until_s:
                    break
        self._written += sent

    def _flush(self) -> None:
        left = self._producer.flush(CALL_S)
        if left or self._failures:
            sys.exit(f"{left} records are not sent, {len(self._failures)}: {self._failures[:1]}")

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failures.append(error)


def main() -> None:
    """Respond to each line."""
    port, topic, size, transactional_id = sys.argv[1:]
    writer = Writer(int(port), topic, int(size), transactional_id)
    for request in sys.stdin:
        print(json.dumps(writer.write(**json.loads(request))), flush=True)


if __name__ == "__main__":
    main()
