"""The clients of a simulated cluster; they record all requests and results.

A client machine has producers and consumers. Producers write unique values in bursts; consumers
follow all partitions by assignment, and sometimes start again from the beginning. One history has
the operations of all, in the order of virtual time.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from quorumlog.clients.config import ISOLATION_LEVELS
from quorumlog.clients.consumer.consumer import AsyncConsumer
from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.clients.producer.batches import Delivery
from quorumlog.clients.producer.producer import AsyncProducer
from quorumlog.errors import (
    CorruptionError,
    InvalidRequest,
    MessageTooLarge,
    OffsetOutOfRange,
    QuorumlogError,
    TopicAlreadyExists,
    UnknownServerError,
)
from quorumlog.runtime import Entropy, Runtime
from quorumlog.testing.checkers import History, Place

from ...cluster.options import ClusterOptions, Workload

RETRY_S: Final = 0.3
POLL_MS: Final = 500
CERTAINLY_REFUSED: Final = (MessageTooLarge, InvalidRequest)
NEVER: Final = (CorruptionError, OffsetOutOfRange, UnknownServerError)  # no fault explains these
TIRED: Final = 10  # factor of the pauses after `records_max`


@dataclass(slots=True)
class Notes:
    """The shared state of the clients of a run."""

    now_ns: Callable[[], int]
    history: History = field(default_factory=History)
    errors: Counter[str] = field(default_factory=Counter)
    acknowledged: Counter[Place] = field(default_factory=Counter)
    is_over: bool = False  # the producers must stop
    values: int = 0
    readers: int = 0  # lives of readers
    is_clean: bool = True  # no topic of the run may lose data
    # reads of all stored records in a run with transactions, where `history` has those of
    # committed ones; None: without transactions
    uncommitted: History | None = None

    def reads(self, isolation_level: str) -> History:
        """Return the history of the reads of an isolation level."""
        if self.uncommitted is None or isolation_level == "read_committed":
            return self.history
        return self.uncommitted

    def next_value(self, name: str, size: int) -> bytes:
        """Return a unique value."""
        self.values += 1
        return f"{name}:{self.values}:".encode() + b"v" * size

    def note(self, error: QuorumlogError) -> None:
        """Count an error; raises AssertionError if no fault explains it."""
        self.errors[type(error).__name__] += 1
        if self.is_clean and isinstance(error, NEVER):
            raise AssertionError(f"no fault explains {error!r}") from error


@dataclass(slots=True)
class Application:
    """The clients of one machine."""

    runtime: Runtime
    name: str
    bootstrap: str
    options: ClusterOptions
    workload: Workload
    notes: Notes
    creates: bool  # this application creates the topics
    has_ended: bool = False

    async def run(self) -> None:
        """Write and read until the run is over, then wait for the end."""
        log = await self.connect()
        await self.find_topics(log)
        async with self.runtime.tasks.scope("application") as scope:
            for number in range(self.workload.readers):
                scope.spawn(self._read(log, f"{self.name}.r{number}"), name=f"r{number}")
            async with self.runtime.tasks.scope("producing") as producing:
                for number in range(self.workload.producers):
                    name = f"{self.name}.p{number}"
                    producing.spawn(self._produce(log, name), name=name)
            self.has_ended = True
        await log.close()
        await asyncio.Event().wait()

    async def connect(self) -> AsyncLog:
        """Connect, with retries."""
        while True:
            log = make_log(
                self.runtime,
                self.bootstrap,
                request_timeout_ms=self.workload.request_timeout_ms,
            )
            try:
                await log.start()
            except QuorumlogError as error:
                await self._after(error)
            else:
                return log

    async def read_all(self) -> dict[Place, list[tuple[int, bytes]]]:
        """Read every partition with a new client, from its start to its end."""
        log = await self.connect()
        stored: dict[Place, list[tuple[int, bytes]]] = {}
        for topic, index in self.options.places:
            stored[topic, index] = await self.read_partition(log, topic, index)
        await log.close()
        return stored

    async def prove_writable(self, places: list[Place]) -> None:
        """Write one record to each of these partitions, with retries until it is acknowledged."""
        log = await self.connect()
        async with log.producer(linger_ms=0) as producer:
            for place in places:
                await self._write_one(producer, place)
        await log.close()

    # --- inside --------------------------------------------------------------------------------

    async def _write_one(self, producer: AsyncProducer, place: Place) -> None:
        """Send records, each with another value, until one is acknowledged."""
        topic, index = place
        while True:
            value = self.notes.next_value(f"{self.name}.proof", 0)
            self._invoke(f"{self.name}.proof", place, value)
            try:
                delivery = await producer.send(topic, value, partition=index)
                self._settle(place, value, delivery, await _waited(delivery))
            except QuorumlogError as error:
                self._failed(value, error)
                await self._after(error)
            else:
                if delivery.exception() is None:
                    return
                await asyncio.sleep(RETRY_S)

    async def read_partition(
        self, log: AsyncLog, topic: str, index: int
    ) -> list[tuple[int, bytes]]:
        """Read a partition from its start to its end."""
        while True:
            found: list[tuple[int, bytes]] = []
            try:
                async with log.consumer({topic: [index]}, until_end=True) as consumer:
                    found += [(record.offset, record.value or b"") async for record in consumer]
            except QuorumlogError as error:
                await self._after(error)
            else:
                return found

    async def find_topics(self, log: AsyncLog) -> None:
        """Create the topics of the run, or wait until they exist."""
        for topic in self.options.topics:
            while not topic.is_inner:
                try:
                    if self.creates:
                        await log.admin.create_topic(
                            topic.name,
                            partitions=topic.partitions,
                            replication=topic.replication,
                            configs=topic.configs,
                            if_not_exists=True,
                        )
                    else:
                        await log.partition_count(topic.name)
                except TopicAlreadyExists:
                    break
                except QuorumlogError as error:
                    await self._after(error)
                else:
                    break

    # --- producing ---

    async def _produce(self, log: AsyncLog, name: str) -> None:
        workload, entropy = self.workload, self.runtime.entropy.stream(name)
        producers = {
            acks: log.producer(
                acks=acks,
                linger_ms=workload.linger_ms,
                batch_size=workload.batch_size,
                compression=workload.compression,
                delivery_timeout_ms=workload.delivery_timeout_ms,
            )
            for acks in ("all", "leader")
        }
        while not self.notes.is_over:
            await self._burst(producers, name, entropy)
            await self._pause(entropy)
        for producer in producers.values():
            try:
                await producer.close()
            except QuorumlogError as error:
                self.notes.note(error)

    async def _burst(
        self, producers: dict[str, AsyncProducer], name: str, entropy: Entropy
    ) -> None:
        given: list[Delivery] = []
        for _ in range(1 + entropy.below(self.workload.burst_max)):
            place = self.options.places[entropy.below(len(self.options.places))]
            is_strict = self.options.topic(place[0]).is_strict
            value = self.notes.next_value(name, entropy.below(self.workload.value_size_max + 1))
            self._invoke(name, place, value)
            try:
                producer = producers["all" if is_strict else "leader"]
                delivery = await producer.send(place[0], value, partition=place[1])
            except QuorumlogError as error:
                self._failed(value, error)
                await self._after(error)
            else:
                delivery.add_done_callback(self._settling(place, value))
                given.append(delivery)
        for delivery in given:
            await _waited(delivery)

    def _settling(self, place: Place, value: bytes) -> Callable[[Delivery], None]:
        return lambda delivery: self._settle(place, value, delivery, delivery.exception())

    def _invoke(self, name: str, place: Place, value: bytes) -> None:
        self.notes.history.invoke(name, place, value, at=self.notes.now_ns())

    def _settle(
        self, place: Place, value: bytes, delivery: Delivery, error: BaseException | None
    ) -> None:
        if isinstance(error, QuorumlogError):
            self._failed(value, error)
        elif error is None:
            delivered = delivery.result()
            assert (delivered.topic, delivered.partition) == place, f"{delivered} for {place}"
            is_promise = self.options.topic(place[0]).is_strict
            self.notes.acknowledged[place] += 1
            self.notes.history.acknowledge(
                value, delivered.offset, at=self.notes.now_ns(), is_promise=is_promise
            )

    def _failed(self, value: bytes, error: QuorumlogError) -> None:
        self.notes.errors[type(error).__name__] += 1
        is_certain = isinstance(error, CERTAINLY_REFUSED)
        self.notes.history.fail(value, at=self.notes.now_ns(), is_certain=is_certain)

    async def _pause(self, entropy: Entropy) -> None:
        pause_ms = entropy.uniform(*self.workload.pause_ms)
        is_tired = self.notes.values > self.workload.records_max
        await asyncio.sleep(pause_ms / 1000 * (TIRED if is_tired else 1))

    # --- reading ---

    async def _read(self, log: AsyncLog, name: str) -> None:
        """Follow all topics; sometimes start again with a consumer of the other isolation level."""
        entropy, clock = self.runtime.entropy.stream(name), self.runtime.clock
        low, high = self.workload.reader_lives_ms
        while not self.notes.is_over:
            self.notes.readers += 1
            life = f"{name}/{self.notes.readers}"
            end_ms = clock.now_ms() + low + entropy.below(high - low)
            isolation_level = ISOLATION_LEVELS[self.notes.readers % 2]  # each bounds its reads
            consumer = log.consumer(
                [topic.name for topic in self.options.topics if not topic.is_inner],
                isolation_level=isolation_level,
            )
            history = self.notes.reads(isolation_level)
            while clock.now_ms() < end_ms and not self.notes.is_over:
                await self._poll(consumer, life, history)
            await consumer.close()

    async def _poll(self, consumer: AsyncConsumer, life: str, history: History) -> None:
        try:
            records = await consumer.poll(timeout_ms=POLL_MS)
        except QuorumlogError as error:
            await self._after(error)
            return
        found: dict[Place, list[tuple[int, bytes]]] = {}
        for record in records:
            place = (record.topic, record.partition)
            found.setdefault(place, []).append((record.offset, record.value or b""))
        for place, some in found.items():
            history.poll(life, place, some, at=self.notes.now_ns())

    async def _after(self, error: QuorumlogError) -> None:
        self.notes.note(error)
        await asyncio.sleep(RETRY_S)


async def _waited(delivery: Delivery) -> BaseException | None:
    """Wait for an outcome and return its error, if any."""
    try:
        await delivery
    except QuorumlogError as error:
        return error
    return None
