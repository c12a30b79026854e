"""A program that reads, processes and writes in transactions, in a process of its own:
`transaction_program.py BOOTSTRAP NAME PARTITIONS`. SIGTERM ends it.

It uses librdkafka. Each input record makes one output record with the input's position as its key,
in the same transaction as the offsets. One transaction in ten is aborted on purpose. A fatal error
ends the process with code 3: a successor took the transactional id, or must take it.
"""

import signal
import sys
from types import FrameType
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

SOURCE: Final = "source"
RESULT: Final = "result"
GROUP: Final = "counting"
TRANSACTION_TIMEOUT_MS: Final = 10_000
CALL_S: Final = 15.0
BATCH: Final = 100
ABORT_EACH: Final = 10
FATAL: Final = 3  # exit code


class Program:
    """One process."""

    def __init__(self, bootstrap: str, name: str, partitions: int) -> None:
        common: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "topic.metadata.refresh.interval.ms": 1_000,
        }
        self._producer = Producer(
            common
            | {
                "transactional.id": name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 2,
            }
        )
        self._consumer = Consumer(
            common
            | {
                "group.id": GROUP,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        self._partitions = partitions
        self._transactions = 0
        self.is_over = False

    def run(self) -> None:
        """Process until SIGTERM; raises KafkaException for a fatal error."""
        self._retry(lambda: self._producer.init_transactions(CALL_S))
        self._position()
        while not self.is_over:
            messages = [one for one in self._consumer.consume(BATCH, 0.2) if one.error() is None]
            if messages:
                self._process(messages)
        self._consumer.close()

    def stop(self, number: int, frame: FrameType | None) -> None:
        """End after the current transaction."""
        self.is_over = True

    def _position(self) -> None:
        """Read from the committed offsets on."""
        places = [TopicPartition(SOURCE, index) for index in range(self._partitions)]
        found: list[TopicPartition] = []

        def fetch() -> None:
            found[:] = self._consumer.committed(places, CALL_S)
            for one in found:
                if one.error is not None:
                    raise KafkaException(one.error)

        self._retry(fetch)
        self._consumer.assign(
            [TopicPartition(one.topic, one.partition, max(0, one.offset)) for one in found]
        )

    def _process(self, messages: list[Message]) -> None:
        self._transactions += 1
        try:
            self._producer.begin_transaction()
            for one in messages:
                key = f"{one.partition()}/{one.offset()}"
                self._producer.produce(RESULT, key=key, value=one.value())
            places = [TopicPartition(SOURCE, index) for index in range(self._partitions)]
            offsets = [one for one in self._consumer.position(places) if one.offset >= 0]
            self._retry(
                lambda: self._producer.send_offsets_to_transaction(
                    offsets, self._consumer.consumer_group_metadata(), CALL_S
                )
            )
            if self._transactions % ABORT_EACH:
                self._retry(lambda: self._producer.commit_transaction(CALL_S))
                return
        except KafkaException as error:
            if not _error_of(error).txn_requires_abort():
                raise
        self._retry(lambda: self._producer.abort_transaction(CALL_S))
        self._position()

    def _retry(self, call: Any) -> None:
        while True:
            try:
                call()
            except KafkaException as error:
                if self.is_over or not _error_of(error).retriable():
                    raise
            else:
                return


def _error_of(error: KafkaException) -> KafkaError:
    found = error.args[0]
    assert isinstance(found, KafkaError)
    return found


def main(bootstrap: str, name: str, partitions: str) -> int:
    """Run; return the exit code."""
    program = Program(bootstrap, name, int(partitions))
    signal.signal(signal.SIGTERM, program.stop)
    try:
        program.run()
    except KafkaException as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        return 0 if program.is_over else FATAL
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
