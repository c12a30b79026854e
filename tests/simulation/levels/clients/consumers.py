"""The consumers of the application: every offset once, in order, in bounded memory."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from quorumlog.clients.consumer.consumer import AsyncConsumer
from quorumlog.clients.consumer.record import ConsumerRecord
from quorumlog.clients.log import AsyncLog
from quorumlog.errors import QuorumlogError
from quorumlog.ids import TopicPartition
from quorumlog.runtime import Entropy, Runtime
from quorumlog.testing.checkers import Place

from ...checkers.client_expectations import ExpectedOffsets, check_budget
from .history import ClientHistory, within
from .plan import CHURNED, ClientsPlan, ReaderPlan

POLL_MS: Final = 2_000
RETRY_S: Final = 0.3
CATCH_UP_MS: Final = 180_000
ANSWER_BYTES: Final = 4_096  # one batch is returned whole, whatever the bound


class ConsumerWorkload:
    """A consumer of the permanent topics."""

    def __init__(
        self,
        runtime: Runtime,
        log: AsyncLog,
        plan: ClientsPlan,
        reader: ReaderPlan,
        history: ClientHistory,
        is_over: Callable[[], bool],
    ) -> None:
        self._log = log
        self._clients = plan
        self._plan = reader
        self._history = history
        self._clock = runtime.clock
        self._entropy = runtime.entropy.stream(reader.name)
        self._is_over = is_over
        self._turns = ExpectedOffsets(reader.name, may_skip=not history.is_strict)
        self._paused: set[Place] = set()  # membership only
        self._largest_batch = max(producer.batch_size for producer in plan.producers)

    async def run(self) -> None:
        """Read until the application is over."""
        if self._plan.style == "arrow":
            await self._read_tables()
            return
        consumer = await self._open()
        if consumer is None:
            return
        while not self._is_over():
            try:
                await self._read_some(consumer)
                if self._plan.wanders and self._entropy.below(4) == 0:
                    await self._wander(consumer)
            except QuorumlogError as error:
                await self._after(error)
            if self._history.is_strict:
                self._check_memory(consumer)
            await asyncio.sleep(self._entropy.uniform(0.0, self._plan.pause_s_max))
        if not self._plan.wanders and self._history.is_strict:
            await self._catch_up(consumer)
        await within(5_000, f"close of {self._plan.name}", consumer.close())

    async def _open(self) -> AsyncConsumer | None:
        """Open a consumer, with retries; None if the application is over before."""
        while not self._is_over():
            consumer = self._log.consumer(
                list(self._clients.partitions),
                max_poll_records=self._plan.max_poll_records,
                max_partition_prefetch_bytes=self._plan.max_partition_prefetch_bytes,
                max_partition_fetch_bytes=self._plan.max_partition_fetch_bytes,
                fetch_max_bytes=4 * self._plan.max_partition_fetch_bytes,
            )
            calls = 2 * len(self._clients.partitions)
            try:
                await within(
                    calls * self._clients.call_timeout_ms,
                    f"opening {self._plan.name}",
                    consumer.__aenter__(),
                )
            except QuorumlogError as error:
                await consumer.close()
                await self._after(error)
                continue
            for place in self._clients.places:
                self._turns.seek(place, 0)
            return consumer
        return None

    async def _read_some(self, consumer: AsyncConsumer) -> None:
        match self._plan.style:
            case "poll":
                work = consumer.poll(timeout_ms=POLL_MS)
                for record in await within(POLL_MS, f"poll of {self._plan.name}", work):
                    self._take(record)
            case "next":
                for _ in range(self._plan.max_poll_records):
                    work_one = consumer.next(timeout_ms=POLL_MS)
                    one = await within(POLL_MS, f"next of {self._plan.name}", work_one)
                    if one is None:
                        break
                    self._take(one)
            case "iterate":
                await self._iterate(consumer)
            case _:
                raise AssertionError(f"no style {self._plan.style}")

    async def _iterate(self, consumer: AsyncConsumer) -> None:
        """Iterate until an interruption, which must lose no record."""
        limit = asyncio.timeout(self._entropy.uniform(0.01, POLL_MS / 1000))
        try:
            async with limit:
                async for record in consumer:
                    self._take(record)
        except TimeoutError:
            if not limit.expired():  # the consumer's TimedOut
                raise

    def _take(self, record: ConsumerRecord) -> None:
        place = (record.topic, record.partition)
        assert place not in self._paused, f"{self._plan.name} got a record of {place}, paused"
        self._turns.take(place, record.offset)
        self._history.ledger.see(place, record.offset, record.value or b"")

    async def _wander(self, consumer: AsyncConsumer) -> None:
        """Seek, pause or resume a partition."""
        place = self._clients.places[self._entropy.below(len(self._clients.places))]
        call_ms, name = self._clients.call_timeout_ms, self._plan.name
        position = await consumer.position(place)
        choice = self._entropy.below(6)
        if choice < 2:
            target = self._entropy.below(position + 1)
            await within(0, f"seek of {name}", consumer.seek(place, target))
            self._turns.seek(place, target)
        elif choice == 2:
            self._turns.seek(place, None)
            await within(2 * call_ms, f"seek of {name}", consumer.seek(place, "latest"))
        elif choice == 3:
            when = datetime.fromtimestamp(
                self._clock.wall_ms() / 1000 - self._entropy.below(20), tz=UTC
            )
            self._turns.seek(place, None)
            await within(2 * call_ms, f"seek of {name}", consumer.seek(place, when))
        elif place in self._paused:
            self._paused.discard(place)
            await within(0, f"resume of {name}", consumer.resume(place))
        else:
            await within(0, f"pause of {name}", consumer.pause(place))
            self._paused.add(place)

    async def _catch_up(self, consumer: AsyncConsumer) -> None:
        """Read on to the current ends of the partitions: no record may be missing."""
        deadline_ms = self._clock.now_ms() + CATCH_UP_MS
        ends: dict[TopicPartition, int] | None = None
        while ends is None or any(consumer.positions()[place] < end for place, end in ends.items()):
            assert self._clock.now_ms() < deadline_ms, (
                f"{self._plan.name} is at {consumer.positions()}, the partitions end at {ends}"
            )
            try:
                if ends is None:
                    ends = {
                        TopicPartition(topic, partition): offset
                        for topic in self._clients.partitions
                        for partition, offset in (await self._log.list_offsets(topic)).items()
                    }
                await self._read_some(consumer)
            except QuorumlogError as error:
                await self._after(error)

    async def _read_tables(self) -> None:
        """Read whole partitions with `read_arrow`."""
        while not self._is_over():
            topic, partition = self._clients.places[self._entropy.below(len(self._clients.places))]
            work = self._log.read_arrow(
                topic, partitions=partition, start=0, columns=["offset", "value"]
            )
            try:
                table = await within(
                    5 * self._clients.call_timeout_ms, f"read_arrow of {self._plan.name}", work
                )
            except QuorumlogError as error:
                await self._after(error)
            else:
                self._turns.seek((topic, partition), 0)
                for row in table.to_pylist():
                    self._turns.take((topic, partition), row["offset"])
                    self._history.ledger.see((topic, partition), row["offset"], row["value"])
            await asyncio.sleep(1.0 + self._entropy.uniform(0.0, self._plan.pause_s_max))

    async def _after(self, error: QuorumlogError) -> None:
        self._history.note(error)
        self._history.check_error(error)
        await asyncio.sleep(RETRY_S)

    def _check_memory(self, consumer: AsyncConsumer) -> None:
        """Check that a partition buffers less than the prefetch bound plus one response."""
        answer = max(self._plan.max_partition_fetch_bytes, self._largest_batch + ANSWER_BYTES)
        for place, reader in consumer._fetcher.readers.items():
            held = sum(len(chunk.batches) for chunk in reader.chunks)
            assert held == reader.chunks.size, f"{place} counts {reader.chunks.size}: {held}"
            allowed = self._plan.max_partition_prefetch_bytes + answer
            check_budget(f"{self._plan.name} of {place}", held, allowed)


async def follow_churned(
    log: AsyncLog, history: ClientHistory, entropy: Entropy, is_over: Callable[[], bool]
) -> None:
    """Consume the topic that is deleted and created, with a new consumer after each error; only
    records sent to it may arrive."""
    while not is_over():
        turns = ExpectedOffsets("follower of the churned topic", may_skip=True)
        try:
            async with log.consumer(CHURNED, on_out_of_range="earliest") as consumer:
                while not is_over():
                    for record in await within(POLL_MS, "poll", consumer.poll(timeout_ms=POLL_MS)):
                        value = record.value or b""
                        assert value in history.churned.asked, (
                            f"phantom: {value[:20]!r} is in the churned topic"
                        )
                        turns.handed_out += 1
        except QuorumlogError as error:
            history.note(error)
        await asyncio.sleep(entropy.uniform(0.0, 1.0))
