"""One client during a rolling upgrade: `upgrade_client.py KIND BOOTSTRAP TOPIC REPORT`, until its
input ends.

KIND is "python" or "kafka" (librdkafka). An idempotent producer with acks=all sends numbered
records at a steady rate, and a consumer of a group reads them; both have default settings. Each
line on stdout is the number of records that were acknowledged and read so far. The report, JSON,
has the fields of `Tally`.

It runs on every release, so it imports the public interface only.
"""

import json
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

PARTITIONS = 3
PAUSE_S = 0.01  # between two records
PROGRESS_S = 0.1
READ_S = 60.0  # for the rest of the records, after the producer has ended


@dataclass
class Tally:
    """The facts of a run; each list has one writer."""

    sent: int = 0
    acknowledged: int = 0
    latencies_ms: list[float] = field(default_factory=list)  # from `send` to the acknowledgement
    read: list[tuple[int, int, int]] = field(default_factory=list)  # partition, offset, number
    errors: list[str] = field(default_factory=list)

    def delivered(self, began_s: float, error: object) -> None:
        """Record the outcome of a record."""
        if error is not None:
            self.errors.append(f"record: {error}")
            return
        self.acknowledged += 1
        self.latencies_ms.append(round((time.monotonic() - began_s) * 1000, 2))


class PythonClient:
    """The clients of this package."""

    def __init__(self, bootstrap: str, topic: str, tally: Tally) -> None:
        import quorumlog

        self._log = quorumlog.connect(bootstrap)
        self._producer = self._log.producer()
        self._consumer = self._log.group_consumer(f"readers of {topic}", [topic])
        self._topic, self._tally = topic, tally

    def send(self, number: int) -> None:
        """Send a record."""
        began_s = time.monotonic()
        self._producer.send(
            self._topic,
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda _, error: self._tally.delivered(began_s, error),
        )

    def flush(self) -> None:
        """Wait for all outcomes."""
        self._producer.flush()

    def poll(self) -> None:
        """Read records."""
        for record in self._consumer.poll():
            number = int(record.value or b"")
            self._tally.read.append((record.partition, record.offset, number))

    def close_consumer(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def close(self) -> None:
        """Close the connections."""
        self._log.close()


class KafkaClient:
    """The clients of librdkafka."""

    def __init__(self, bootstrap: str, topic: str, tally: Tally) -> None:
        from confluent_kafka import Consumer, Producer

        servers: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._producer = Producer({**servers, "enable.idempotence": True, "acks": "all"})
        group = {"group.id": f"readers of {topic}", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**servers, **group})
        self._consumer.subscribe([topic])
        self._topic, self._tally = topic, tally

    def send(self, number: int) -> None:
        """Send a record."""
        began_s = time.monotonic()
        self._producer.produce(
            self._topic,
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: self._tally.delivered(began_s, error),
        )
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait for all outcomes."""
        self._producer.flush()

    def poll(self) -> None:
        """Read records."""
        for message in self._consumer.consume(500, timeout=1.0):
            error = message.error()
            if error is not None:
                raise RuntimeError(f"consumer: {error}")
            partition, offset = message.partition(), message.offset()
            assert partition is not None, "a record has a partition"
            assert offset is not None, "a record has an offset"
            self._tally.read.append((partition, offset, int(message.value() or b"")))

    def close_consumer(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def close(self) -> None:
        """Do nothing: the producer has no connection of its own to close."""


Client: TypeAlias = PythonClient | KafkaClient
KINDS: dict[str, type[PythonClient] | type[KafkaClient]] = {
    "python": PythonClient,
    "kafka": KafkaClient,
}


def produce(client: Client, tally: Tally, is_over: threading.Event) -> None:
    """Send records until the input ends, then wait for their outcomes."""
    told_s = 0.0
    while not is_over.wait(PAUSE_S):
        client.send(tally.sent)
        tally.sent += 1
        if time.monotonic() > told_s + PROGRESS_S:
            told_s = time.monotonic()
            print(min(tally.acknowledged, len(tally.read)), flush=True)
    client.flush()


def consume(client: Client, tally: Tally, is_produced: threading.Event) -> None:
    """Read records until all that were acknowledged are read."""
    end_s: float | None = None
    try:
        while True:
            client.poll()
            if not is_produced.is_set():
                continue
            end_s = end_s or time.monotonic() + READ_S
            if len(tally.read) >= tally.acknowledged or time.monotonic() > end_s:
                break
        client.close_consumer()
    except Exception as error:
        tally.errors.append(f"consumer: {error!r}")


def main(kind: str, bootstrap: str, topic: str, report: str) -> None:
    """Run the clients and write the report."""
    tally = Tally()
    client = KINDS[kind](bootstrap, topic, tally)
    is_over, is_produced = threading.Event(), threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    reader = threading.Thread(target=consume, args=(client, tally, is_produced))
    reader.start()
    try:
        produce(client, tally, is_over)
    except Exception as error:
        tally.errors.append(f"producer: {error!r}")
    is_produced.set()
    reader.join()
    client.close()
    Path(report).write_text(json.dumps(asdict(tally)))


if __name__ == "__main__":
    main(*sys.argv[1:])
