"""The producers of the application: four styles of sending, with every outcome recorded."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

import pyarrow as pa

from quorumlog.clients.log import AsyncLog
from quorumlog.clients.producer.batches import Delivered, Delivery
from quorumlog.clients.producer.producer import AsyncProducer
from quorumlog.errors import Overloaded, QuorumlogError
from quorumlog.runtime import Entropy, Runtime

from ...checkers.client_expectations import check_budget
from .history import ClientHistory, within
from .plan import CHURNED, ClientsPlan, ProducerPlan

Burst: TypeAlias = Callable[[str, Entropy], Awaitable[None]]

ROWS_MAX: Final = 50  # of one Arrow table
ROW_TYPE: Final = pa.array([b""]).type  # the first array loads half of pyarrow: once for all seeds
RECORD_BYTES: Final = 200  # overhead that a buffer may count for a record or a batch


class ProducerWorkload:
    """A producer and its tasks."""

    def __init__(
        self,
        runtime: Runtime,
        log: AsyncLog,
        plan: ClientsPlan,
        producer: ProducerPlan,
        history: ClientHistory,
    ) -> None:
        self.plan = producer
        self._clients = plan
        self._history = history
        self._clock = runtime.clock
        self._entropy = runtime.entropy.stream(producer.name)
        self._held = 0  # bytes of values without an outcome
        self._producer: AsyncProducer = log.producer(
            acks=producer.acks,
            enable_idempotence=producer.enable_idempotence,
            linger_ms=producer.linger_ms,
            batch_size=producer.batch_size,
            compression=producer.compression,
            buffer_size=producer.buffer_size,
            max_request_size=producer.max_request_size,
            delivery_timeout_ms=producer.delivery_timeout_ms,
            max_block_ms=producer.max_block_ms,
        )

    async def run(self, task: str) -> None:
        """Produce in bursts until the time is up."""
        entropy = self._entropy.stream(task)
        burst = self._burst_of_style()
        end_ms = self._clock.now_ms() + self._clients.produce_ms
        while self._clock.now_ms() < end_ms:
            await burst(task, entropy)
            await asyncio.sleep(entropy.uniform(0.0, self.plan.pause_s_max))

    async def close(self, *, flush: bool) -> None:
        """Close the producer: with `flush` after all outcomes, otherwise at once."""
        try:
            promised_ms = self.plan.delivery_timeout_ms + 10_000 if flush else 5_000
            await within(
                promised_ms, f"close of {self.plan.name}", self._producer.close(flush=flush)
            )
        except QuorumlogError as error:
            self._history.note(error)

    def _burst_of_style(self) -> Burst:
        bursts: dict[str, Burst] = {
            "record": self._records,
            "nowait": self._without_waiting,
            "flush": self._flushed,
            "arrow": self._arrow,
        }
        return bursts[self.plan.style]

    # --- the styles ---

    async def _records(self, task: str, entropy: Entropy) -> None:
        """Use `send`, with outcomes by callback, some awaited."""
        deliveries: list[Delivery] = []
        for _ in range(1 + entropy.below(self.plan.burst_max)):
            topic, partition, value = self._draw(task, entropy)
            generation = self._history.generation
            try:
                delivery = await within(
                    self.plan.max_block_ms,
                    f"send of {self.plan.name}",
                    self._producer.send(topic, value, key=self._key(entropy), partition=partition),
                )
            except QuorumlogError as error:
                self._history.refuse(value, error)
                continue
            self._watch(topic, value, delivery, generation)
            deliveries.append(delivery)
        for delivery in deliveries:
            if entropy.below(2):
                with suppress(QuorumlogError):  # the callback records it
                    await delivery
                assert delivery.done(), f"{self.plan.name} has an outcome and is not done"

    async def _without_waiting(self, task: str, entropy: Entropy) -> None:
        """Use `send_nowait`, and `wait_acceptable` after a rejection."""
        for _ in range(1 + entropy.below(self.plan.burst_max)):
            topic, partition, value = self._draw(task, entropy)
            generation = self._history.generation
            try:
                delivery = self._producer.send_nowait(topic, value, partition=partition)
            except QuorumlogError as error:
                self._history.refuse(value, error)
                if isinstance(error, Overloaded):
                    await self._wait_for_room(topic, len(value))
            else:
                self._watch(topic, value, delivery, generation)

    async def _wait_for_room(self, topic: str, size: int) -> None:
        try:
            await within(
                self.plan.max_block_ms,
                f"wait_acceptable of {self.plan.name}",
                self._producer.wait_acceptable(topic, size),
            )
        except QuorumlogError as error:
            self._history.note(error)

    async def _flushed(self, task: str, entropy: Entropy) -> None:
        """Use `send` without waiting, then `flush`: it raises if and only if a record failed."""
        sent: list[tuple[str, bytes, int, Delivery]] = []
        for _ in range(1 + entropy.below(self.plan.burst_max)):
            topic, partition, value = self._draw(task, entropy)
            generation = self._history.generation
            try:
                delivery = await self._producer.send(topic, value, partition=partition)
            except QuorumlogError as error:
                self._history.refuse(value, error)
            else:
                self._history.give(value, self.plan)
                sent.append((topic, value, generation, delivery))
        failure: QuorumlogError | None = None
        try:
            promised_ms = self.plan.delivery_timeout_ms + 10_000
            await within(promised_ms, f"flush of {self.plan.name}", self._producer.flush())
        except QuorumlogError as error:
            failure = error
        failed = 0
        for topic, value, generation, delivery in sent:
            assert delivery.done(), f"flush of {self.plan.name} left {value[:20]!r} behind"
            self._settle(topic, value, delivery, generation)
            failed += delivery.exception() is not None
        assert (failure is None) == (failed == 0), (
            f"flush said {failure!r}, {failed} records failed"
        )

    async def _arrow(self, task: str, entropy: Entropy) -> None:
        """Use `send_arrow`: it returns the position of every row, or raises."""
        topic, partition = self._place(entropy)
        names = [
            self._history.ask(topic, task, entropy.below(self.plan.value_size_max))
            for _ in range(1 + entropy.below(ROWS_MAX))
        ]
        held = sum(len(name) for name in names)
        waits = 2 + held // min(self.plan.batch_size, self.plan.buffer_size)  # for room
        generation = self._history.generation
        for name in names:
            self._history.give(name, self.plan, more_ms=waits * self.plan.max_block_ms)
        table = pa.table({"value": pa.array(names, ROW_TYPE)})
        try:
            ranges = await within(
                self.plan.delivery_timeout_ms + 10_000 + waits * self.plan.max_block_ms,
                f"send_arrow of {self.plan.name}",
                self._producer.send_arrow(topic, table, value="value", partition=partition),
            )
        except QuorumlogError as error:
            for name in names:  # the error concerns the first failed batch; others may be stored
                self._history.lose(topic, name, error)
            return
        self._check_buffer(held)
        if self.plan.acks == "none" or not self._history.is_strict:
            places = [(topic, partition or 0, -1) for _ in names]
        else:
            places = [
                (each.topic, each.partition, offset)
                for each in ranges
                for offset in range(each.first, each.end)
            ]
        assert len(places) == len(names), f"{len(names)} rows were sent, and {ranges} returned"
        for name, (_, where, offset) in zip(names, places, strict=True):
            # without a partition the rows are spread, in another order
            known = offset if partition is not None else -1
            self._history.deliver(topic, name, where, known, generation)
            if partition is None and offset >= 0 and topic != CHURNED:
                self._history.anywhere.add(name)

    # --- shared ---

    def _draw(self, task: str, entropy: Entropy) -> tuple[str, int | None, bytes]:
        topic, partition = self._place(entropy)
        value = self._history.ask(topic, task, entropy.below(self.plan.value_size_max))
        return topic, partition, value

    def _place(self, entropy: Entropy) -> tuple[str, int | None]:
        """Draw a partition: mostly of permanent topics; half of the draws let the producer
        choose."""
        if entropy.below(5) == 0:
            return CHURNED, None
        topic, partition = self._clients.places[entropy.below(len(self._clients.places))]
        return topic, partition if entropy.below(2) else None

    def _key(self, entropy: Entropy) -> bytes | None:
        number = entropy.below(6)
        return b"key %d" % number if number < 3 else None

    def _watch(self, topic: str, value: bytes, delivery: Delivery, generation: int) -> None:
        """Record the outcome at the moment it is known."""
        self._history.give(value, self.plan)
        self._held += len(value)
        self._check_buffer(len(value))

        def settle(done: Delivery) -> None:
            self._held -= len(value)
            self._settle(topic, value, done, generation)

        delivery.add_done_callback(settle)

    def _settle(self, topic: str, value: bytes, delivery: Delivery, generation: int) -> None:
        error = delivery.exception()
        if error is not None:
            self._history.fail(topic, value, error)
            return
        where: Delivered = delivery.result()
        assert where.topic == topic, f"{value[:20]!r} was sent to {topic} and is in {where.topic}"
        self._history.deliver(topic, value, where.partition, where.offset, generation)

    def _check_buffer(self, size: int) -> None:
        allowed = max(self.plan.buffer_size, size + RECORD_BYTES)
        # otherwise a closed batch counts with its compressed size
        if self.plan.compression == "none":
            check_budget(f"producer {self.plan.name}", self._held, allowed)
        check_budget(f"buffer of {self.plan.name}", self._producer._incomplete.buffered, allowed)
