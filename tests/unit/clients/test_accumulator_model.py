"""The accumulator against a model: counters are exact, each record has one outcome, in order."""

import gc
import itertools
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.clients.record_buffer import RecordBuffer

from quorumlog.clients.config import ProducerConfig
from quorumlog.clients.producer.batch_encoder import batch_columns, content_size, encode_records
from quorumlog.clients.producer.batches import Batch
from quorumlog.clients.producer.bulk import accept_many
from quorumlog.clients.producer.partition_queue import Part, PartitionQueue
from quorumlog.clients.producer.record_input import make_bulk
from quorumlog.clients.producer.sequences import IN_FLIGHT_MAX
from quorumlog.errors import OutOfOrderSequence, StreamBroken, TimedOut
from quorumlog.records.compression import Codec
from quorumlog.records.record import Headers

PARTITIONS = 3


def buffer_of(
    on_work: Callable[[], object] = lambda: None, *, is_idempotent: bool = False, **given: int
) -> RecordBuffer:
    config = ProducerConfig(enable_idempotence=is_idempotent, **given)  # type: ignore[arg-type]
    buffer = RecordBuffer(config, on_work=on_work)
    buffer.accumulator.admit("t", PARTITIONS)
    buffer.queues.producer_id = 1
    return buffer


def check(buffer: RecordBuffer) -> None:
    """Check every invariant that the module states."""
    unfinished = list(buffer.incomplete._unfinished)
    assert buffer.incomplete.buffered == sum(batch.held for batch in unfinished)
    listed = Counter(buffer.queues.ready)
    for batch in unfinished:
        queue = batch.queue
        places = [queue.open, *queue.closed, *queue.in_flight]
        assert sum(place is batch for place in places) == 1
        assert batch.count > 0
        assert not batch.is_done
        if not batch.is_encoded:
            columns = (batch.values, batch.keys, batch.timestamps)
            assert {len(column) for column in columns} == {batch.count}
            assert batch.size == content_size(batch.values, batch.keys, batch.headers)
        assert all(index < batch.count for index in (*batch.headers, *batch.callbacks))
        assert listed[queue] == queue.is_listed
        assert {batch.part for batch in queue.in_flight} == set(queue.parts)
        waits = queue.is_listed or queue.in_flight or queue.is_parked
        assert waits or not queue.closed
    assert all(batch in buffer.incomplete._unfinished for batch in buffer.incomplete._lingering)


def drain(buffer: RecordBuffer) -> list[Batch]:
    """Send everything. Return the batches in order."""
    buffer.accumulator.close_all()
    sent: list[Batch] = []
    while buffer.queues.ready:
        part = buffer.queues.take(buffer.queues.ready.popleft(), 1 << 30)
        if part is not None:
            sent.extend(buffer.queues.stored(part))
    assert buffer.incomplete.buffered == 0
    assert buffer.incomplete.statistics() == (0, 0, 0)
    return sent


# --- against a model -----------------------------------------------------------------------------


class Model(RuleBasedStateMachine):
    """A sender that completes batches with every outcome in any order."""

    is_idempotent = False

    @initialize(buffer_size=st.sampled_from([400, 3_000, 1 << 20]))
    def begin(self, buffer_size: int) -> None:
        self.buffer = buffer_of(
            is_idempotent=self.is_idempotent,
            batch_size=400,
            buffer_size=buffer_size,
            linger_ms=5,
            delivery_timeout_ms=50,
        )
        self.now_ms = 0
        self.number = 0
        self.waiting: dict[PartitionQueue, list[bytes]] = {}  # without an outcome, in order
        self.parked: list[PartitionQueue] = []

    # --- application ---------------------------------------------------------------------------

    @rule(
        partition=st.integers(0, PARTITIONS - 1),
        size=st.sampled_from([0, 10, 80, 500]),
        headers=st.sampled_from([(), (("h", b"1"),)]),
    )
    def send(self, partition: int, size: int, headers: Headers) -> None:
        value = self._value() + b"v" * size
        held_before = self.buffer.incomplete.buffered
        batch = self.buffer.accumulator.accept("t", b"k", value, 1, headers, partition)
        if batch is None:
            assert held_before
            return
        self.waiting.setdefault(batch.queue, []).append(value[:8])
        is_alone = held_before == 0
        assert is_alone or self.buffer.incomplete.buffered <= self.buffer.incomplete._buffer_size

    @rule(partition=st.none() | st.integers(0, PARTITIONS - 1), count=st.integers(1, 20))
    def send_many(self, partition: int | None, count: int) -> None:
        values = [self._value() for _ in range(count)]
        bulk = make_bulk("t", values, None, size_max=1 << 20)
        spans = accept_many(
            self.buffer.accumulator,
            self.buffer.failures,
            "t",
            bulk,
            first=0,
            partition=partition,
            timestamp_ms=1,
        )
        for span in spans:
            self.waiting.setdefault(span.batch.queue, []).extend(values[span.first : span.end])

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def send_encoded(self, partition: int) -> None:
        other = buffer_of()
        values = [self._value() for _ in range(3)]
        for value in values:
            batch = other.accumulator.accept("t", None, value, 1, (), 0)
        assert batch is not None
        encoded = encode_records(batch, Codec.NONE)
        added = self.buffer.accumulator.add_encoded("t", partition, encoded, 3)
        self.waiting.setdefault(added.queue, []).extend(values)

    # --- sender --------------------------------------------------------------------------------

    @rule(wait_ms=st.sampled_from([0, 1, 5, 30]))
    def pass_time(self, wait_ms: int) -> None:
        self.now_ms += wait_ms
        self.buffer.accumulator.close_due(self.now_ms)
        late, next_ms = self.buffer.incomplete.expired(self.now_ms)
        assert all(batch.deadline_ms <= self.now_ms for batch in late)
        left = [b for b in self.buffer.incomplete._unfinished if b not in b.queue.in_flight]
        deadlines = [batch.deadline_ms for batch in left]
        assert next_ms == min(deadlines, default=None)
        for batch in late:
            self._ended(batch, is_first=not batch.queue.in_flight)
            batch.fail(TimedOut("late"))

    @rule(size_max=st.sampled_from([1, 900, 1 << 20]))
    def take(self, size_max: int) -> None:
        if not self.buffer.queues.ready:
            return
        queue = self.buffer.queues.ready.popleft()
        if self.buffer.queues.lacks_id(queue):
            self.number += 1
            self.buffer.queues.producer_id = self.number
        self.buffer.queues.take(queue, size_max, self.now_ms)

    @rule(data=st.data(), codec=st.sampled_from([Codec.NONE, Codec.GZIP]))
    def encode(self, data: st.DataObject, codec: Codec) -> None:
        part = self._in_flight(data)
        for batch in part.batches if part is not None else ():
            if not batch.is_encoded:
                self.buffer.incomplete.encoded(batch, encode_records(batch, codec))

    @rule(data=st.data())
    def store(self, data: st.DataObject) -> None:
        part = self._in_flight(data)
        if part is not None:
            is_first = part is part.queue.parts[0] and not self._waits_before(part)
            for batch in self.buffer.queues.stored(part, self.now_ms):
                self._ended(batch, is_first=is_first)
                batch.complete(0)

    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        part = self._in_flight(data)
        if part is not None:
            is_first = part is part.queue.parts[0] and not self._waits_before(part)
            for batch in self.buffer.queues.refused(part):
                self._ended(batch, is_first=is_first)
                batch.fail(TimedOut("refused"))

    @rule(data=st.data())
    def split(self, data: st.DataObject) -> None:
        part = self._in_flight(data)
        if part is not None and len(part.batches) == 1:
            count = part.batches[0].count
            assert self.buffer.queues.split(part) == (count > 1)

    @rule(data=st.data(), was_sent=st.booleans())
    def put_back(self, data: st.DataObject, was_sent: bool) -> None:
        part = self._in_flight(data)
        if part is not None:
            is_unsent = part.queue.is_recovering and not was_sent
            error = None if is_unsent else StreamBroken("cut")
            if self.buffer.queues.put_back(part, error):
                self.parked.append(part.queue)

    @rule(data=st.data(), is_fenced=st.booleans(), may_be_stored=st.booleans())
    def misplace(self, data: st.DataObject, is_fenced: bool, may_be_stored: bool) -> None:
        part = self._in_flight(data)
        if part is None or not self.is_idempotent:
            return
        part.batches[0].may_be_stored |= may_be_stored
        is_first = part is part.queue.parts[0] and not self._waits_before(part)
        is_parked, lost = self.buffer.queues.sequence_refused(
            part, OutOfOrderSequence("no"), is_fenced=is_fenced
        )
        assert is_first or not lost
        for batch in lost:
            assert batch.may_be_stored
            self._ended(batch)
            batch.fail(TimedOut("lost"))
        if is_parked:
            self.parked.append(part.queue)

    @rule()
    def unpark(self) -> None:
        while self.parked:
            self.buffer.queues.unpark(self.parked.pop())

    @rule()
    def flush(self) -> None:
        self.buffer.accumulator.close_all()

    @rule(partitions=st.integers(1, PARTITIONS))
    def shrink(self, partitions: int) -> None:
        for batch in self.buffer.accumulator.shrink("t", partitions):
            self._ended(batch, is_first=not batch.queue.in_flight)
            batch.fail(TimedOut("gone"))
        self.buffer.accumulator.admit("t", PARTITIONS)

    @rule()
    def forget(self) -> None:
        for batch in self.buffer.accumulator.forget_topic("t"):
            self._ended(batch, is_first=not batch.queue.in_flight)
            batch.fail(TimedOut("gone"))
        self.buffer.accumulator.admit("t", PARTITIONS)

    # --- helpers ----------------------------------------------------------------------------

    def _value(self) -> bytes:
        self.number += 1
        return b"%08d" % self.number

    def _in_flight(self, data: st.DataObject) -> Part | None:
        parts = [part for queue in self.waiting for part in queue.parts]
        return data.draw(st.sampled_from(parts)) if parts else None

    def _waits_before(self, part: Part) -> bool:
        """Return True if a batch that was put back precedes it."""
        closed = part.queue.closed
        return bool(closed) and closed[0].place < part.batches[0].place

    def _ended(self, batch: Batch, *, is_first: bool = True) -> None:
        """Complete the records: the oldest of the partition, each for the first time."""
        columns = batch_columns(batch)
        assert columns is not None
        values = [(value or b"")[:8] for value in columns.values]
        waiting = self.waiting[batch.queue]
        at = 0 if is_first else waiting.index(values[0])
        assert waiting[at : at + len(values)] == values
        del waiting[at : at + len(values)]

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "buffer"):
            return
        check(self.buffer)
        records, _, _ = self.buffer.incomplete.statistics()
        assert records == sum(map(len, self.waiting.values()))

    def teardown(self) -> None:
        if not hasattr(self, "buffer"):
            return
        left = self.buffer.incomplete.take_all()
        for batch in left:
            self._ended(batch)
        assert not any(self.waiting.values())
        assert self.buffer.incomplete.buffered == 0


class IdempotentModel(Model):
    """The same with several batches of a partition in flight, each in its own request."""

    is_idempotent = True

    @invariant()
    def numbers_follow(self) -> None:
        """Check that the numbers of the current identity are in order, each used once."""
        if not hasattr(self, "buffer"):
            return
        for queue in self.waiting:
            numbering, places = queue.numbering, []
            assert numbering is not None
            for batch in (*queue.in_flight, *queue.closed):
                if numbering.is_current(batch.number):
                    assert batch.number is not None
                    places.append((batch.place, batch.number.sequence, batch.count))
            places.sort()
            for (_, first, count), (_, following, _) in itertools.pairwise(places):
                assert first + count <= following
            assert len(queue.parts) <= IN_FLIGHT_MAX


SETTINGS = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestModel = Model.TestCase
TestModel.settings = SETTINGS
TestIdempotentModel = IdempotentModel.TestCase
TestIdempotentModel.settings = SETTINGS


# --- interrupts ----------------------------------------------------------------------------------


class Interruption:
    """Raises KeyboardInterrupt at the n-th step of the producer's code."""

    def __init__(self, step: int) -> None:
        self.left = step

    def __call__(self, frame: FrameType, event: str, argument: Any) -> "Interruption | None":
        if "clients/producer" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        return self


def interrupted(action: Callable[[], object], step: int) -> bool:
    """Run an action up to its `step`-th operation. Return True if it reached that step."""
    before = sys.gettrace()
    sys.settrace(Interruption(step))
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def send(buffer: RecordBuffer, number: int) -> None:
    """Send a record whose parts all contain the number."""
    text = b"%03d" % number
    headers = (("h", text),) if number % 2 else ()
    buffer.accumulator.accept("t", text, text * 10, number, headers, 0, lambda *_: None)


def send_run(buffer: RecordBuffer) -> None:
    texts = [b"%03d" % number for number in range(100, 112)]
    bulk = make_bulk("t", [text * 10 for text in texts], texts, size_max=1_000)
    buffer.accumulator.accept_run("t", bulk, 0, 0, 100)


@pytest.mark.long
@pytest.mark.parametrize("sent", [0, 1, 2, 3], ids="{} before".format)
@pytest.mark.parametrize("is_run", [False, True], ids=["one", "run"])
def test_interrupted_append_buffers_a_record_completely_or_not_at_all(
    is_run: bool, sent: int
) -> None:
    """A batch has space for three or four records: the append opens, fills and closes one."""
    step, goes_on = 0, True
    while goes_on:
        buffer = buffer_of(batch_size=180)
        for number in range(sent):
            send(buffer, number)
        action = partial(send_run, buffer) if is_run else partial(send, buffer, 50)
        goes_on = interrupted(action, step)
        check(buffer)
        for number in (51, 52, 53, 54):
            send(buffer, number)
        check(buffer)
        taken = []
        for batch in drain(buffer):
            columns = batch_columns(batch)
            assert columns is not None
            assert list(batch.callbacks) == list(range(batch.count)) or is_run
            for index, key in enumerate(columns.keys):
                assert key is not None
                taken.append(int(key))
                assert columns.values[index] == key * 10
                if not is_run:
                    assert columns.timestamps[index] == int(key)
                    assert columns.headers.get(index, ()) == ((("h", key),) if int(key) % 2 else ())
        own = range(100, 112) if is_run else [50]
        others = [number for number in taken if number not in own]
        assert others == [*range(sent), 51, 52, 53, 54]
        assert taken == [*range(sent), *list(own)[: len(taken) - len(others)], 51, 52, 53, 54]
        step += 1
    assert step > 50


# --- bounds --------------------------------------------------------------------------------------


def test_lingering_batch_keeps_no_other_batches_in_memory() -> None:
    buffer = buffer_of(batch_size=100, linger_ms=50_000)
    buffer.accumulator.accept("t", None, b"lingers", 1, (), 0)
    for now_ms in range(50):
        buffer.accumulator.accept("t", None, b"v" * 100, 1, (), 1)
        buffer.accumulator.close_due(now_ms)
        part = buffer.queues.take(buffer.queues.ready.popleft(), 1 << 20)
        assert part is not None
        for batch in buffer.queues.stored(part):
            batch.complete(0)
    del batch, part
    gc.collect()
    held = [each for each in gc.get_objects() if isinstance(each, Batch)]
    assert (
        len([batch for batch in held if batch.queue in buffer.accumulator._topics["t"].queues]) == 1
    )


def test_the_halves_of_a_young_batch_do_not_hide_an_old_one_from_its_deadline() -> None:
    buffer = buffer_of(linger_ms=0, delivery_timeout_ms=100)
    buffer.accumulator.accept("t", None, b"old", 1, (), 0)
    buffer.accumulator.close_due(0)
    old = buffer.queues.ready.popleft()
    buffer.queues.park(old)
    for _ in range(2):
        buffer.accumulator.accept("t", None, b"young", 1, (), 1)
    buffer.accumulator.close_due(60)
    young = buffer.queues.ready.popleft()
    part = buffer.queues.take(young, 1 << 20)
    assert part is not None
    assert buffer.queues.split(part)
    assert buffer.incomplete.expired(60) == ([], 100)
    late, next_ms = buffer.incomplete.expired(100)
    assert ([batch.queue for batch in late], next_ms) == ([old], 160)
