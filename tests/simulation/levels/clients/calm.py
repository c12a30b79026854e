"""The calm after the faults: what clients do in a few messages, and with how many requests.

Messages and devices become fast, and one new client has the node for itself. A record is delivered
within its linger time and a few messages, in one batch with the others of its turn, and sent once.
A flush, a full batch and a close do not wait for the linger time. A consumer returns a record a few
messages after its delivery; its position is the offset after the last returned record; it fetches
each record once. Idle clients send long polls alone, and hold no memory.
"""

from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from quorumlog.clients.consumer.consumer import AsyncConsumer
from quorumlog.clients.consumer.record import ConsumerRecord
from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.clients.producer.batches import Delivery
from quorumlog.clients.producer.producer import AsyncProducer
from quorumlog.ids import TopicPartition
from quorumlog.proto import log_pb2
from quorumlog.records.codec import decode_all
from quorumlog.runtime import Runtime
from quorumlog.services import ADMIN_DESCRIBE_TOPICS, LOG_FETCH, LOG_PRODUCE
from quorumlog.simulation.fault_options import ActiveFaults
from quorumlog.simulation.frames import Data, Open, Result
from quorumlog.simulation.links import LinkEnd
from quorumlog.simulation.world import SimNode, SimWorld

from ...checkers.violation import Violation
from ..broker import ADDRESS

T = TypeVar("T")

TOPIC: Final = "calm"
PARTITIONS: Final = 3
LATENCY_US: Final = (50, 150)
LANE_US: Final = (20, 100)
PROMPT_MS: Final = 12
"""A few messages, with the reads and writes of their receivers: less than any pause of a client."""
CONNECT_MS: Final = 500  # of first calls: connections, metadata, a producer id
LINGER_MS: Final = 40
LONG_LINGER_MS: Final = 5_000
BATCH_BYTES: Final = 2_000
BURST: Final = 6  # records of one turn in each partition
IDLE_MS: Final = 3_000
TIME_MS: Final = 1_600_000_000_000  # of some records


@dataclass(slots=True)
class SentFrames:
    """Counts the requests and the records that leave or reach a client; for `Fabric.on_sent`."""

    client: SimNode
    calls: Counter[str] = field(default_factory=Counter)  # by path; messages of a stream
    produced: Counter[bytes] = field(default_factory=Counter)  # by value
    fetched: Counter[bytes] = field(default_factory=Counter)
    _paths: dict[tuple[int, int], str] = field(default_factory=dict)  # by link and call

    def on_sent(self, sender: LinkEnd, frame: object) -> None:
        """Inspect a frame that leaves a process."""
        if isinstance(frame, Open) and sender.process is self.client.process:
            self._paths[sender.link.number, frame.call] = frame.path
            self.calls[frame.path] += frame.request is not None
        elif isinstance(frame, Data) and sender.process is self.client.process:
            path = self._paths.get((sender.link.number, frame.call))
            if path == LOG_PRODUCE.path:
                self.calls[path] += 1
                for part in log_pb2.ProduceRequest.FromString(frame.payload).partitions:
                    self.produced.update(one.value or b"" for one in decode_all(part.records))
        elif isinstance(frame, Result) and frame.response is not None:
            path = self._paths.get((sender.link.number, frame.call))
            if path == LOG_FETCH.path:
                for found in log_pb2.FetchResponse.FromString(frame.response).results:
                    self.fetched.update(one.value or b"" for one in decode_all(found.records))


class ClientCalm:
    """The phase: one client with a producer of each kind and a consumer."""

    def __init__(self, runtime: Runtime, faults: ActiveFaults, frames: SentFrames) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._faults = faults
        self._frames = frames
        self._values = 0
        self._ends: Counter[int] = Counter()  # by partition
        self._sent: dict[tuple[int, int], tuple[bytes, int]] = {}  # value and time, by place

    async def play(self) -> None:
        """Run the phase; raises Violation."""
        usual = self._faults.options
        self._faults.options = replace(usual, latency_us=LATENCY_US, lane_us=LANE_US)
        log = make_log(self._runtime, ADDRESS)
        await self._within(log.start(), "a connection", CONNECT_MS)
        create = log.admin.create_topic(TOPIC, partitions=PARTITIONS)
        await self._within(create, "a new topic", CONNECT_MS)
        for linger_ms in (0, LINGER_MS):
            await self._produce(log, linger_ms)
        await self._do_not_linger(log)
        await self._consume(log)
        await self._within(log.close(), "the close of a client", CONNECT_MS)
        if any(count != 1 for count in self._frames.produced.values()):
            raise Violation("Economy", "a record was sent more than once")
        self._faults.options = usual

    # --- producers -----------------------------------------------------------------------------

    async def _produce(self, log: AsyncLog, linger_ms: int) -> None:
        """Send records of one turn, which become one batch of each partition."""
        producer = await self._producer(log, linger_ms=linger_ms)
        for _ in range(3):
            sent = self._frames.calls[LOG_PRODUCE.path]
            began_ms = self._clock.now_ms()
            given = await self._send(producer, BURST)
            await self._delivered(given, began_ms + linger_ms)
            sent = self._frames.calls[LOG_PRODUCE.path] - sent
            if linger_ms and sent > PARTITIONS:
                raise Violation("Economy", f"a burst took {sent} requests, {PARTITIONS} suffice")
            if self._clock.now_ms() < began_ms + linger_ms * 9 // 10:
                raise Violation("Linger", f"a batch was sent before its {linger_ms} ms")
            await self._send_many(producer)
        await self._end(producer)

    async def _send_many(self, producer: AsyncProducer) -> None:
        """Send records of one partition by one call; they get offsets in their order."""
        values = [self._next(b"many") for _ in range(4 * BURST)]
        sending = producer.send_many(TOPIC, values, partition=1, timestamp_ms=TIME_MS)
        handle = await self._within(sending, "a send of many records")
        await self._within(producer.flush(), "a flush")
        ranges = await self._within(handle, "a delivery of many records")
        offsets = [at for each in ranges for at in range(each.first, each.end)]
        first = self._ends[1]
        if offsets != list(range(first, first + len(values))):
            raise Violation("Offsets", f"{ranges} of {len(values)} records, {first} was next")
        self._ends[1] += len(values)
        self._sent |= {
            (1, offset): (value, TIME_MS) for offset, value in zip(offsets, values, strict=True)
        }

    async def _do_not_linger(self, log: AsyncLog) -> None:
        """Check that a flush, a full batch and a close do not wait for the linger time."""
        producer = await self._producer(log, linger_ms=LONG_LINGER_MS)
        given = await self._send(producer, 1)
        await self._within(producer.flush(), "a flush")
        await self._delivered(given, self._clock.now_ms())
        value = b"v" * (BATCH_BYTES // 2)
        full = [
            await self._within(
                producer.send(TOPIC, self._next(value), partition=0), "the send of a large record"
            )
            for _ in range(2)
        ]
        await self._delivered([(0, full[0])], self._clock.now_ms())
        await self._within(producer.flush(), "a flush")
        await self._delivered([(0, full[1])], self._clock.now_ms())
        given = await self._send(producer, 1)
        await self._within(producer.close(), "the close of a producer")
        await self._delivered(given, self._clock.now_ms())
        self._must_be_empty(producer)

    async def _producer(self, log: AsyncLog, *, linger_ms: int) -> AsyncProducer:
        """Return a producer that has sent to every partition."""
        producer = log.producer(linger_ms=linger_ms, batch_size=BATCH_BYTES)
        given = await self._send(producer, 1, CONNECT_MS)
        await self._within(producer.flush(), "a first flush", CONNECT_MS)
        await self._delivered(given, self._clock.now_ms())
        return producer

    async def _send(
        self, producer: AsyncProducer, count: int, bound_ms: int = PROMPT_MS
    ) -> list[tuple[int, Delivery]]:
        """Send records to every partition in turn."""
        return [
            (
                partition,
                await self._within(
                    producer.send(TOPIC, self._next(b""), partition=partition), "a send", bound_ms
                ),
            )
            for _ in range(count)
            for partition in range(PARTITIONS)
        ]

    async def _delivered(self, given: Sequence[tuple[int, Delivery]], due_ms: int) -> None:
        """Check that records are delivered soon after a time, at the next offsets."""
        for partition, delivery in given:
            left_ms = max(0, due_ms - self._clock.now_ms())
            found = await self._within(delivery, "a delivery", left_ms + PROMPT_MS)
            place = (found.topic, found.partition, found.offset)
            if place != (TOPIC, partition, self._ends[partition]):
                raise Violation("Offsets", f"{place}, {self._ends[partition]} was next")
            self._ends[partition] += 1

    async def _end(self, producer: AsyncProducer) -> None:
        self._must_be_empty(producer)
        await self._within(producer.close(), "the close of a producer")

    def _must_be_empty(self, producer: AsyncProducer) -> None:
        found = producer.statistics()
        incomplete = producer._incomplete
        held = (*incomplete.statistics(), len(incomplete._new), len(incomplete._lingering))
        if any(held):
            raise Violation("Memory", f"a producer without records holds {held}: {found}")

    # --- consumers -----------------------------------------------------------------------------

    async def _consume(self, log: AsyncLog) -> None:
        consumer = log.consumer(TOPIC)
        await self._within(consumer.__aenter__(), "the start of a consumer", CONNECT_MS)
        turns: Counter[int] = Counter()
        while turns != self._ends:
            await self._take(consumer, turns, CONNECT_MS)
        producer = await self._producer(log, linger_ms=0)
        while turns != self._ends:
            await self._take(consumer, turns, CONNECT_MS)
        for number in range(6):
            given = await self._send(producer, 1 + number % 2)
            await self._delivered(given, self._clock.now_ms())
            while turns != self._ends:
                await self._take(consumer, turns, PROMPT_MS)
        repeated = {value for value, count in self._frames.fetched.items() if count > 1}
        if repeated:
            raise Violation("Economy", f"{len(repeated)} records were fetched more than once")
        await self._idle(consumer)
        await self._seek(consumer, producer, turns)
        await self._within(consumer.close(), "the close of a consumer")
        await self._end(producer)

    async def _take(
        self, consumer: AsyncConsumer, turns: Counter[int], bound_ms: int
    ) -> list[ConsumerRecord]:
        """Poll once, and compare the records and the positions with the expected ones."""
        polling = consumer.poll(timeout_ms=bound_ms)
        records = await self._within(polling, "a poll", bound_ms + PROMPT_MS)
        if not records:
            raise Violation("Prompt", f"no record within {bound_ms} ms; {turns} of {self._ends}")
        for record in records:
            if record.offset != turns[record.partition]:
                raise Violation("Offsets", f"{record}, {turns[record.partition]} was next")
            turns[record.partition] += 1
            found = (record.value, record.timestamp_ms)
            if found != self._sent.get((record.partition, record.offset), found):
                raise Violation("Content", f"{record} was sent otherwise")
        positions = {place.partition: at for place, at in consumer.positions().items()}
        if any(positions[partition] != turns[partition] for partition in range(PARTITIONS)):
            raise Violation("Position", f"{positions} after {dict(turns)}")
        return records

    async def _idle(self, consumer: AsyncConsumer) -> None:
        """Check that a consumer at the end sends long polls alone, and holds nothing."""
        calls = self._frames.calls.copy()
        wait_ms = consumer._fetcher._config.fetch_max_wait_ms
        await self._within(consumer.poll(timeout_ms=IDLE_MS), "an empty poll", IDLE_MS + PROMPT_MS)
        calls = self._frames.calls - calls
        most = IDLE_MS // wait_ms + 2
        if calls[LOG_FETCH.path] > most or calls.keys() - {LOG_FETCH.path}:
            raise Violation("Quiet", f"{calls} in {IDLE_MS} ms, {most} long polls suffice")
        if consumer._fetcher.buffered_bytes:
            raise Violation("Memory", f"{consumer._fetcher.buffered_bytes} bytes at the end")

    async def _seek(
        self, consumer: AsyncConsumer, producer: AsyncProducer, turns: Counter[int]
    ) -> None:
        """Seek to the start, and pause and resume a partition."""
        place = TopicPartition(TOPIC, 1)
        await self._within(consumer.seek(place, 0), "a seek")
        turns[1] = 0
        while turns != self._ends:
            await self._take(consumer, turns, PROMPT_MS)
        await self._within(consumer.pause([place]), "a pause")
        given = await self._send(producer, 1)
        await self._delivered(given, self._clock.now_ms())
        while turns[0] + turns[2] < self._ends[0] + self._ends[2]:
            await self._take(consumer, turns, PROMPT_MS)
        if await self._within(consumer.poll(timeout_ms=0), "an empty poll"):
            raise Violation("Paused", "a record of a paused partition was returned")
        await self._within(consumer.resume([place]), "a resumption")
        while turns != self._ends:
            await self._take(consumer, turns, PROMPT_MS)

    # --- time ----------------------------------------------------------------------------------

    async def _within(self, work: Awaitable[T], description: str, bound_ms: int = PROMPT_MS) -> T:
        """Await an operation; raises Violation if it takes longer."""
        began_ms = self._clock.now_ms()
        found = await work
        took_ms = self._clock.now_ms() - began_ms
        if took_ms > bound_ms:
            raise Violation("Prompt", f"{description} took {took_ms} ms, not {bound_ms} ms")
        return found

    def _next(self, content: bytes) -> bytes:
        self._values += 1
        return b"%d:" % self._values + content


def play_calm(world: SimWorld, machine: SimNode, virtual_ms: int) -> Counter[str]:
    """Run the phase on a machine after its application; return the number of requests."""
    frames = SentFrames(machine)
    world.fabric.on_sent = frames.on_sent

    async def run(runtime: Runtime) -> None:
        await ClientCalm(runtime, world.faults, frames).play()

    playing = machine.attach(run, name="calm")
    world.run_until(playing.done, virtual_ms=virtual_ms, why="the calm ends")
    playing.result()
    if not frames.calls[ADMIN_DESCRIBE_TOPICS.path]:
        raise Violation("Economy", "no metadata was requested")
    return frames.calls
