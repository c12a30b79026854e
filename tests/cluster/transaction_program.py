"""A program that reads, processes and writes in transactions, in a separate process: `python -m
tests.cluster.transaction_program CLIENT BOOTSTRAP NAME PARTITIONS`. SIGTERM ends it.

CLIENT is confluent (librdkafka), blocking or asyncio (quorumlog's processors); the Java client has
`TransactionProgram.java`. NAME is the transactional id, the group, and a part of the output's name.
Each input record makes one output record with the input's position as its key, in the same
transaction as the offsets. One transaction in ten is aborted on purpose. A fatal error ends the
process with code 3: a successor took the transactional id, or must take it. So does a call of
librdkafka that exceeds twice its time limit.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
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

import quorumlog
from quorumlog.errors import QuorumlogError
from quorumlog.processing import AsyncProcessor, Processor

SOURCE: Final = "source"
RESULT: Final = "result-{}"
TRANSACTION_TIMEOUT_MS: Final = 10_000
CALL_S: Final = 15.0
BATCH: Final = 100
ABORT_EACH: Final = 10
FATAL: Final = 3  # exit code


class ConfluentLoop:
    """The loop of librdkafka's client, which assigns its partitions itself."""

    def __init__(self, bootstrap: str, name: str, partitions: int) -> None:
        common: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "topic.metadata.refresh.interval.ms": 1_000,
        }
        self._output = RESULT.format(name)
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
                "group.id": name,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        self._partitions = partitions
        self._transactions = 0
        self.over = threading.Event()

    def run(self) -> None:
        """Process until SIGTERM. Raise KafkaException for a fatal error."""
        self._retry(lambda: self._producer.init_transactions(CALL_S))
        self._position()
        while not self.over.is_set():
            messages = [one for one in self._consumer.consume(BATCH, 0.2) if one.error() is None]
            if messages:
                self._process(messages)
        self._consumer.close()

    def _position(self) -> None:
        """Seek to the committed offsets."""
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
                self._producer.produce(self._output, key=key, value=one.value())
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
            # librdkafka 2.16 may wait for a broker that left the metadata without end (issue 5511).
            watchdog = threading.Timer(2 * CALL_S, os._exit, (FATAL,))
            watchdog.start()
            try:
                call()
            except KafkaException as error:
                if self.over.is_set() or not _error_of(error).retriable():
                    raise
            else:
                return
            finally:
                watchdog.cancel()


def _error_of(error: KafkaException) -> KafkaError:
    found = error.args[0]
    assert isinstance(found, KafkaError)
    return found


PROCESSOR_SETTINGS: Final[dict[str, Any]] = {
    "topics": SOURCE,
    "idle_ms": 200,
    "producer_settings": {"transaction_timeout_ms": TRANSACTION_TIMEOUT_MS, "linger_ms": 2},
    "consumer_settings": {"max_poll_records": BATCH},
}


class BlockingLoop:
    """The loop of a `Processor`."""

    def __init__(self, bootstrap: str, name: str, partitions: int) -> None:
        self._bootstrap, self._name = bootstrap, name
        self.over = threading.Event()

    def run(self) -> None:
        """Process until SIGTERM. Raise QuorumlogError."""
        turn, output = 0, RESULT.format(self._name)
        with (
            quorumlog.connect(self._bootstrap) as log,
            Processor(log, self._name, group=self._name, **PROCESSOR_SETTINGS) as processor,
        ):
            while not self.over.is_set():
                for batch in processor:
                    for record in batch:
                        key = f"{record.partition}/{record.offset}"
                        batch.send(output, record.value, key=key)
                    turn += 1
                    if turn % ABORT_EACH:
                        batch.commit()
                    else:
                        batch.abort()
                    if self.over.is_set():
                        break


class AsyncLoop:
    """The loop of an `AsyncProcessor`."""

    def __init__(self, bootstrap: str, name: str, partitions: int) -> None:
        self._bootstrap, self._name = bootstrap, name
        self.over = threading.Event()

    def run(self) -> None:
        """Process until SIGTERM. Raise QuorumlogError."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        turn, output = 0, RESULT.format(self._name)
        async with (
            quorumlog.aio.connect(self._bootstrap) as log,
            AsyncProcessor(log, self._name, group=self._name, **PROCESSOR_SETTINGS) as processor,
        ):
            while not self.over.is_set():
                async for batch in processor:
                    for record in batch:
                        key = f"{record.partition}/{record.offset}"
                        await batch.send(output, record.value, key=key)
                    turn += 1
                    if turn % ABORT_EACH:
                        await batch.commit()
                    else:
                        await batch.abort()
                    if self.over.is_set():
                        break


LOOPS: Final[dict[str, Callable[[str, str, int], ConfluentLoop | BlockingLoop | AsyncLoop]]] = {
    "confluent": ConfluentLoop,
    "blocking": BlockingLoop,
    "asyncio": AsyncLoop,
}


def main(client: str, bootstrap: str, name: str, partitions: str) -> int:
    """Run; return the exit code."""
    loop = LOOPS[client](bootstrap, name, int(partitions))

    def stop(number: int, frame: FrameType | None) -> None:
        loop.over.set()  # ends after the current transaction

    signal.signal(signal.SIGTERM, stop)
    try:
        loop.run()
    except (KafkaException, QuorumlogError) as error:
        print(f"{name}: {error!r}", file=sys.stderr, flush=True)
        return 0 if loop.over.is_set() else FATAL
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
