"""A model test of an idempotent producer's queue: no duplicate, no reordering.

Streams break, responses are lost, requests arrive late, deadlines pass, leaders change.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from tests.unit.clients.record_buffer import RecordBuffer

from quorumlog.clients.config import ProducerConfig
from quorumlog.clients.producer.batches import Batch
from quorumlog.clients.producer.partition_queue import Part
from quorumlog.clients.producer.partitioner import KeyPartitioner
from quorumlog.clients.producer.sequences import IN_FLIGHT_MAX, ProducerSequence
from quorumlog.errors import (
    InvalidProducerEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequence,
    QuorumlogError,
    StreamBroken,
    TimedOut,
)


@dataclass(frozen=True)
class Copy:
    """A batch in a request."""

    number: ProducerSequence
    values: tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """A batch in the leader's log."""

    copy: Copy
    is_committed: bool = False


@dataclass
class PartitionLeader:
    """A log and the producer state that follows from it."""

    log: list[Entry] = field(default_factory=list)

    def take(self, copy: Copy) -> QuorumlogError | int:
        """Return the offset of a copy in the log, stored now or before, or a refusal."""
        number, count = copy.number, len(copy.values)
        own = [
            (place, entry.copy)
            for place, entry in enumerate(self.log)
            if entry.copy.number.producer_id == number.producer_id
        ]
        if own:
            epoch = max(before.number.epoch for _, before in own)
            if number.epoch < epoch:
                return InvalidProducerEpoch("an older epoch")
            present = [(place, before) for place, before in own if before.number.epoch == epoch]
            last = present[-1][1]
            expected = last.number.after(len(last.values)).sequence
            if number.epoch > epoch:
                expected, present = 0, []
            if number.sequence != expected:
                for place, before in present[-5:]:
                    if before.number == number and len(before.values) == count:
                        return place
                return OutOfOrderSequence(f"{expected} is next")
        self.log.append(Entry(copy))
        return len(self.log) - 1

    def commit(self, place: int) -> None:
        for index in range(place + 1):
            self.log[index] = replace(self.log[index], is_committed=True)

    def values(self) -> list[int]:
        return [value for entry in self.log for value in entry.copy.values]


Result = QuorumlogError | int


class Play:
    """One partition.

    `stream` has sent requests without responses; the leader has processed a prefix of them,
    `answers`.
    """

    def __init__(self, seed: int) -> None:
        self.drawn = drawn = random.Random(seed)
        self.buffer = RecordBuffer(
            ProducerConfig(
                batch_size=40 * drawn.randint(1, 3), linger_ms=0, delivery_timeout_ms=100
            ),
            partitioner=KeyPartitioner(),
        )
        self.accumulator = self.buffer.accumulator
        self.accumulator.admit("t", 1)
        self.queue = self.accumulator.queue("t", 0)
        self.leader = PartitionLeader()
        self.now_ms = self.ids = self.count = 0
        self.stream: deque[tuple[Part, Copy]] = deque()
        self.answers: deque[Result] = deque()
        self.stragglers: list[deque[Copy]] = []  # of broken streams, each in its order
        self.acknowledged: set[int] = set()
        self.refused: set[int] = set()  # certainly not stored
        self.most_in_flight = 0
        steps = [
            (self.send, 6.0),
            (self.deliver, 12.0),
            (self.answer, 12.0),
            (self.pass_time, 3.0),
            (self.deliver_badly, drawn.choice([0.0, 0.5, 2.0])),
            (self.refuse, drawn.choice([0.0, 0.5, 2.0])),
            (self.break_stream, drawn.choice([0.0, 0.5, 2.0])),
            (self.straggle, drawn.choice([0.5, 3.0])),
            (self.change_leader, drawn.choice([0.0, 0.0, 0.5])),
        ]
        self.steps = [step for step, _ in steps]
        self.weights = [weight for _, weight in steps]

    def run(self, count: int) -> None:
        """Take steps, then deliver the rest."""
        for step in self.drawn.choices(self.steps, self.weights, k=count):
            step()
            self.flow()
        self.check()
        self.end()

    # --- the producer ----------------------------------------------------------------------------

    def send(self) -> None:
        for _ in range(self.drawn.choice([1, 3, 20])):
            self.count += 1
            value = b"%020d" % self.count
            assert self.accumulator.accept("t", None, value, 1, (), 0) is not None

    def flow(self) -> None:
        """Send all requests that may be sent."""
        self.accumulator.close_due(self.now_ms)
        while self.buffer.queues.ready:
            queue = self.buffer.queues.ready.popleft()
            if self.buffer.queues.lacks_id(queue):
                self.ids += 1
                self.buffer.queues.producer_id = self.ids
            part = self.buffer.queues.take(queue, 1 << 20, self.now_ms)
            if part is not None:
                (batch,) = part.batches
                assert batch.number is not None
                self.stream.append((part, Copy(batch.number, values_of(batch))))
        self.most_in_flight = max(self.most_in_flight, len(self.stream))

    def pass_time(self) -> None:
        """Resume parked queues and expire late batches."""
        self.now_ms += self.drawn.choice([1, 5, 30])
        if self.queue.is_parked:
            self.buffer.queues.unpark(self.queue)
        late, _ = self.buffer.incomplete.expired(self.now_ms)
        self.fail(late)

    # --- leader and network --------------------------------------------------------------------

    def deliver(self) -> None:
        if len(self.answers) < len(self.stream):
            self.answers.append(self.leader.take(self.stream[len(self.answers)][1]))

    def deliver_badly(self) -> None:
        """Refuse the request for now, or store it and lose the leadership or the time."""
        if len(self.answers) == len(self.stream):
            return
        if self.drawn.random() < 0.5:
            self.answers.append(NotEnoughReplicas("for now"))
            return
        result = self.leader.take(self.stream[len(self.answers)][1])
        self.answers.append(TimedOut("not in time") if isinstance(result, int) else result)

    def answer(self) -> None:
        if not self.answers:
            return
        result = self.answers.popleft()
        part, copy = self.stream.popleft()
        (batch,) = part.batches
        if isinstance(result, int):
            self.leader.commit(result)
            assert self.leader.log[result].copy == copy
            assert self.buffer.queues.stored(part, self.now_ms) == (batch,)
            self.acknowledged.update(copy.values)
            batch.complete(0)
        elif isinstance(result, OutOfOrderSequence | InvalidProducerEpoch):
            is_fenced = isinstance(result, InvalidProducerEpoch)
            _, lost = self.buffer.queues.sequence_refused(part, result, is_fenced=is_fenced)
            assert all(each.may_be_stored for each in lost)
            self.fail(lost)
        else:
            batch.may_be_stored |= isinstance(result, TimedOut)
            self.buffer.queues.put_back(part, result)

    def refuse(self) -> None:
        """Refuse the oldest batch with a final error unless it is stored."""
        if not self.answers or isinstance(self.answers[0], int | TimedOut):
            return
        self.answers.popleft()
        part, _ = self.stream.popleft()
        (batch,) = part.batches
        is_too_large = self.drawn.random() < 0.5
        if is_too_large and not batch.may_be_stored and self.buffer.queues.split(part):
            return
        self.fail(self.buffer.queues.refused(part))

    def break_stream(self) -> None:
        """Break the stream. Unprocessed requests may arrive late, or a prefix of them."""
        left = [copy for _, copy in self.stream][len(self.answers) :]
        self.stragglers.append(deque(left[: self.drawn.randint(0, len(left))]))
        self.hand_back(StreamBroken("cut"))

    def straggle(self) -> None:
        late = [stream for stream in self.stragglers if stream]
        if late:
            self.leader.take(self.drawn.choice(late).popleft())

    def change_leader(self) -> None:
        """Change the leader. The new one has the committed batches and some of the others."""
        log = self.leader.log
        committed = sum(entry.is_committed for entry in log)
        del log[committed + self.drawn.randint(0, 6) :]
        self.stragglers.clear()  # the requests were for the old leader
        self.hand_back(NotLeaderOrFollower("ask another"))

    def hand_back(self, error: QuorumlogError) -> None:
        parts = [part for part, _ in self.stream]
        self.stream.clear()
        self.answers.clear()
        for part in parts:
            part.batches[0].may_be_stored = True
            self.buffer.queues.put_back(part, error)

    # --- checks ---------------------------------------------------------------------------------

    def fail(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            if not batch.may_be_stored:
                self.refused.update(values_of(batch))
            batch.fail(TimedOut("late"))

    def check(self) -> None:
        values = self.leader.values()
        assert values == sorted(set(values)), values
        assert not self.refused & set(values)
        assert self.acknowledged <= set(values)

    def end(self) -> None:
        """Deliver everything without further faults; the last late requests arrive."""
        self.accumulator.close_all()
        for _ in range(600):
            if self.queue.is_parked:
                self.buffer.queues.unpark(self.queue)
            self.flow()
            self.deliver()
            self.answer()
            self.straggle()
        self.check()
        assert self.buffer.incomplete.statistics() == (0, 0, 0)


def values_of(batch: Batch) -> tuple[int, ...]:
    return tuple(int(value or b"") for value in batch.values)


@pytest.mark.long
def test_nothing_is_stored_twice_or_out_of_order() -> None:
    most_in_flight = 0
    for seed in range(150):
        play = Play(seed)
        try:
            play.run(300)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        most_in_flight = max(most_in_flight, play.most_in_flight)
    assert most_in_flight == IN_FLIGHT_MAX
