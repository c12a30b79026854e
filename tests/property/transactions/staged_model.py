"""The rules of staged commits in another form: one state for each attempt, and the response to each
request. An error is its name. The model does not choose producer ids: it checks the choice."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from quorumlog.broker.coordinator.decision import Ticket
from quorumlog.broker.transactions.requests import (
    AbortStage,
    AbortTransaction,
    AddPartitions,
    BeginAttempt,
    CommitStage,
    CommittedAttempt,
    CommittedBatch,
    DeleteStage,
    DescribeStage,
    KeepAttemptAlive,
    MarkersWritten,
    ResetStage,
    SealAttempt,
    TransactionRequest,
    VerifyPartitions,
)
from quorumlog.ids import ProducerIdentity

Part: TypeAlias = tuple[str, int]
Place: TypeAlias = tuple[Part, bytes]  # with the topic id
Marker: TypeAlias = tuple[int, int, bool]  # (producer id, epoch, True for a commit)

OPEN_MS: Final = 120_000
ANSWER_MS: Final = 30_000
RETENTION_MS: Final = 86_400_000
LAST_EPOCH: Final = 32_766

FENCED_PRODUCER = "PRODUCER_FENCED"
MAPPING = "INVALID_PRODUCER_ID_MAPPING"
INVALID = "INVALID_TXN_STATE"
NOT_FOUND = "TRANSACTIONAL_ID_NOT_FOUND"
ABORTABLE = "TRANSACTION_ABORTABLE"
REQUEST = "INVALID_REQUEST"
TOO_OLD = "NUMBER_TOO_OLD"
FENCED = "FENCED_WRITE"
LOST = "STAGE_LOST"
CONCURRENT = "CONCURRENT_TRANSACTIONS"
EXCEEDED = "STAGED_ATTEMPTS_EXCEEDED"


@dataclass
class Attempt:
    """A task attempt that holds a producer id."""

    name: str
    number: int
    write: int
    task: int
    attempt: int
    timeout_ms: int
    epoch: int
    renewed_ms: int
    state: str = "open"  # open, sealed, committing, aborting
    parts: dict[Place, tuple[int, int]] = field(default_factory=dict)  # count, last sequence
    left: set[Place] = field(default_factory=set)  # without an acknowledged marker

    @property
    def is_live(self) -> bool:
        return self.state in ("open", "sealed")


@dataclass
class Name:
    """The commits of one name."""

    last: int = -1
    last_write: int = -1
    count: int = 0
    write: int = -1
    number: int = -1
    ended: int = -1  # no attempt of a write up to this one is live
    stage_ms: int | None = None  # the sealed attempts expire
    forget_ms: int | None = None
    waiting: list[tuple[Ticket, int, CommittedBatch]] = field(default_factory=list)


@dataclass
class StagedModel:
    """All names of one shard."""

    limit: int
    names: dict[str, Name] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    free: dict[int, int] = field(default_factory=dict)
    answers: dict[Ticket, Any] = field(default_factory=dict)  # of the last step
    markers: dict[Marker, frozenset[Place]] = field(default_factory=dict)  # of the last step

    def handle(
        self,
        ticket: Ticket,
        request: TransactionRequest[Any],
        *,
        now_ms: int,
        topics: dict[str, bytes],
        given: ProducerIdentity | None,
    ) -> None:
        """Apply a request; `given` is the identity in the shard's response, if it has one."""
        if isinstance(request, BeginAttempt):
            answer = self.begin(request, now_ms, topics, given)
        elif isinstance(request, AddPartitions | VerifyPartitions):
            answer = self.ask_partitions(request, topics)
        elif isinstance(request, KeepAttemptAlive | SealAttempt):
            answer = self.renew(request, now_ms)
        elif isinstance(request, CommitStage):
            answer = self.commit(ticket, request, now_ms, topics)
        elif isinstance(request, AbortStage):
            answer = self.abort(request, now_ms, topics)
        elif isinstance(request, MarkersWritten):
            self.marked(request, now_ms)
            answer = None
        else:
            answer = self.operate(request, now_ms, topics)
        if answer is not ...:
            self.answers[ticket] = answer

    # --- attempts ---------------------------------------------------------------------------------

    def begin(
        self,
        request: BeginAttempt,
        now_ms: int,
        topics: dict[str, bytes],
        given: ProducerIdentity | None,
    ) -> Any:
        name, number, write = request.transactional_id, request.number, request.write_id
        if name in self.names:
            known_answer = self.repeated(request, self.names[name], now_ms)
            if known_answer is not ...:
                return known_answer
            if sum(not one.is_live for one in self.of(name)) >= 2 * self.limit:
                return CONCURRENT
        assert given is not None, "no identity"
        if self.free:
            assert self.free.pop(given.producer_id) == given.producer_epoch, given
        else:
            assert given.producer_epoch == 0, given
        assert given.producer_id not in self.attempts, "an id has two attempts"
        known = self.names.setdefault(name, Name())
        if write > known.write:
            known.write, known.number = write, number
            self.end(name, write - 1, now_ms, topics)
        self.attempts[given.producer_id] = Attempt(
            name,
            number,
            write,
            request.task,
            request.attempt,
            request.timeout_ms,
            given.producer_epoch,
            now_ms,
        )
        known.stage_ms = now_ms + request.timeout_ms
        return given

    def repeated(self, request: BeginAttempt, known: Name, now_ms: int) -> Any:
        """Return the response to a repeat, which needs no new attempt; `...`: no repeat."""
        name, number, write = request.transactional_id, request.number, request.write_id
        if number <= known.last:
            return self.batch(name) if number == known.last else TOO_OLD
        if write < known.write or write <= known.ended:
            return FENCED
        if write > known.write:
            return ...
        if number != known.number:
            return REQUEST
        mine = {key: one for key, one in self.attempts.items() if one.name == name}
        for producer_id, one in mine.items():
            if (one.write, one.attempt) == (write, request.attempt):
                if one.task != request.task:
                    return REQUEST
                if not one.is_live:
                    return LOST
                one.renewed_ms, known.stage_ms = now_ms, now_ms + one.timeout_ms
                return ProducerIdentity(producer_id, one.epoch)
        return EXCEEDED if sum(one.is_live for one in mine.values()) >= self.limit else ...

    def live(self, name: str, producer: ProducerIdentity) -> Attempt | str:
        one = self.attempts.get(producer.producer_id)
        if one is None:
            return FENCED_PRODUCER if producer.producer_id in self.free else MAPPING
        is_it = (one.name, one.epoch, one.is_live) == (name, producer.producer_epoch, True)
        return one if is_it else FENCED_PRODUCER

    def ask_partitions(
        self, request: AddPartitions | VerifyPartitions, topics: dict[str, bytes]
    ) -> list[str] | str:
        one = self.live(request.transactional_id, request.producer)
        if isinstance(one, str):
            return one
        if one.state == "sealed":
            return INVALID
        if isinstance(request, VerifyPartitions):
            return [
                "" if (part, topics.get(part[0])) in one.parts else ABORTABLE
                for part in request.partitions
            ]
        if any(topic not in topics for topic, _ in request.partitions):
            return [
                "OPERATION_NOT_ATTEMPTED" if topic in topics else "UNKNOWN_TOPIC_OR_PARTITION"
                for topic, _ in request.partitions
            ]
        for part in request.partitions:
            one.parts.setdefault((part, topics[part[0]]), (0, -1))
        return [""] * len(request.partitions)

    def renew(self, request: KeepAttemptAlive | SealAttempt, now_ms: int) -> str | None:
        one = self.live(request.transactional_id, request.producer)
        if isinstance(one, str):
            return LOST
        if isinstance(request, SealAttempt):
            counts = {
                (each.topic, each.partition): (each.count, each.last_sequence)
                for each in request.partitions
            }
            if not counts.keys() <= {part for part, _ in one.parts}:
                return REQUEST
            sealed = {place: counts.get(place[0], (0, -1)) for place in one.parts}
            if one.state == "sealed" and sealed != one.parts:
                return INVALID
            one.state, one.parts = "sealed", sealed
        one.renewed_ms = now_ms
        self.names[one.name].stage_ms = now_ms + one.timeout_ms
        return None

    # --- decisions --------------------------------------------------------------------------------

    def commit(
        self, ticket: Ticket, request: CommitStage, now_ms: int, topics: dict[str, bytes]
    ) -> Any:
        """Return the response; `...`: it waits for the markers."""
        name, number, write = request.transactional_id, request.number, request.write_id
        known = self.names.get(name)
        if known is None:
            return LOST
        if number == known.last:
            if known.ended < write == known.write:
                self.end(name, write, now_ms, topics)
            return self.wait(ticket, name, now_ms)
        if number < known.last or write != known.write:
            return TOO_OLD if number < known.last else FENCED
        if not 0 < len(request.attempts) == len({winner.task for winner in request.attempts}):
            return REQUEST
        found = [self.winner(request, winner, topics) for winner in request.attempts]
        winners = [one for one in found if one is not None]
        if len(winners) < len(found):
            return LOST
        known.last, known.last_write = number, write
        known.count = sum(count for one in winners for count, _ in one.parts.values())
        for one in winners:
            one.state = "committing"
        self.end(name, write, now_ms, topics)
        for producer_id, one in list(self.attempts.items()):
            if one in winners:
                self.decide(producer_id, one, now_ms, topics)
        known.stage_ms = None
        return self.wait(ticket, name, now_ms)

    def winner(
        self, request: CommitStage, winner: CommittedAttempt, topics: dict[str, bytes]
    ) -> Attempt | None:
        """Return the attempt of a task in a commit if it can commit."""
        one = self.attempts.get(winner.producer.producer_id)
        expected = (request.transactional_id, request.number, request.write_id, winner.task)
        if one is None or (one.name, one.number, one.write, one.task) != expected:
            return None
        if (one.epoch, one.state) != (winner.producer.producer_epoch, "sealed"):
            return None
        are_there = all(topics.get(part[0]) == topic_id for part, topic_id in one.parts)
        return one if are_there else None

    def wait(self, ticket: Ticket, name: str, now_ms: int) -> Any:
        batch = self.batch(name)
        if batch.is_visible:
            return batch
        self.names[name].waiting.append((ticket, now_ms + ANSWER_MS, batch))
        return ...

    def abort(
        self, request: AbortStage, now_ms: int, topics: dict[str, bytes]
    ) -> CommittedBatch | str | None:
        name, producer = request.transactional_id, request.producer
        known = self.names.get(name)
        if known is None:
            return None
        if request.number <= known.last:
            return self.batch(name) if request.number == known.last else TOO_OLD
        if producer is None:
            if request.write_id > known.write:
                known.write, known.number = request.write_id, request.number
            if request.write_id == known.write:
                self.end(name, known.write, now_ms, topics)
            return None
        one = self.live(name, producer)
        if not isinstance(one, str):
            one.state = "aborting"
            self.decide(producer.producer_id, one, now_ms, topics)
        return None

    def end(self, name: str, write: int, now_ms: int, topics: dict[str, bytes]) -> None:
        """Abort the live attempts of all writes up to this one."""
        known = self.names[name]
        known.ended = max(known.ended, write)
        for producer_id, one in list(self.attempts.items()):
            if one.name == name and one.is_live and one.write <= write:
                one.state = "aborting"
                self.decide(producer_id, one, now_ms, topics)
        self.settle(name, now_ms)

    def operate(
        self, request: TransactionRequest[Any], now_ms: int, topics: dict[str, bytes]
    ) -> Any:
        name = request.transactional_id
        known = self.names.get(name)
        if known is None:
            return NOT_FOUND
        if isinstance(request, DescribeStage):
            return (
                (known.last, known.last_write, known.count),
                (known.write, known.number),
                sorted((one.task, one.attempt, one.state) for one in self.of(name)),
            )
        if isinstance(request, DeleteStage):
            if self.of(name):
                return INVALID
            del self.names[name]
            return None
        if isinstance(request, AbortTransaction):
            if not any(one.is_live for one in self.of(name)):
                return INVALID
            self.end(name, known.write, now_ms, topics)
            return ProducerIdentity(-1, -1)
        assert isinstance(request, ResetStage)
        known.last, known.last_write, known.count = request.last_committed, -1, 0
        self.end(name, known.write, now_ms, topics)
        return None

    # --- markers ----------------------------------------------------------------------------------

    def decide(self, producer_id: int, one: Attempt, now_ms: int, topics: dict[str, bytes]) -> None:
        one.left = {place for place in one.parts if topics.get(place[0][0]) == place[1]}
        if one.left:
            key = (producer_id, one.epoch + 1, one.state == "committing")
            self.markers[key] = frozenset(one.left)
        else:
            self.release(producer_id, now_ms)

    def marked(self, request: MarkersWritten, now_ms: int) -> None:
        producer_id, epoch = request.producer
        one = self.attempts.get(producer_id)
        if one is not None and not one.is_live and one.epoch + 1 == epoch:
            done = {((each.topic, each.partition), each.topic_id) for each in request.partitions}
            self.done(producer_id, done, now_ms)

    def topics_deleted(self, gone: set[bytes], now_ms: int) -> None:
        for producer_id, one in list(self.attempts.items()):
            if not one.is_live:
                self.done(producer_id, {place for place in one.left if place[1] in gone}, now_ms)

    def done(self, producer_id: int, places: Iterable[Any], now_ms: int) -> None:
        self.attempts[producer_id].left.difference_update(places)
        if not self.attempts[producer_id].left:
            self.release(producer_id, now_ms)

    def release(self, producer_id: int, now_ms: int) -> None:
        one = self.attempts.pop(producer_id)
        self.free[producer_id] = one.epoch + 1
        self.settle(one.name, now_ms)

    def forget_id(self, producer_id: int) -> None:
        """Apply the removal of an id by the shard: its epochs are exhausted, or the pool is
        full."""
        assert self.free[producer_id] > LAST_EPOCH or len(self.free) > self.limit, producer_id
        del self.free[producer_id]

    def settle(self, name: str, now_ms: int) -> None:
        known = self.names[name]
        for ticket, due_ms, batch in list(known.waiting):
            if self.is_visible(name, batch.number):
                known.waiting.remove((ticket, due_ms, batch))
                self.answers[ticket] = _with(batch, is_visible=True)
        if name == f"batch/{known.write}" and not self.of(name):
            known.forget_ms = now_ms + RETENTION_MS

    # --- time -------------------------------------------------------------------------------------

    def expire(self, now_ms: int, topics: dict[str, bytes], forgotten: set[str]) -> None:
        """Advance time; `forgotten` are the names that the shard deleted."""
        due = {
            name
            for name, known in self.names.items()
            if known.forget_ms is not None and known.forget_ms <= now_ms
        }
        for producer_id, one in list(self.attempts.items()):
            if one.state == "open" and one.renewed_ms + OPEN_MS <= now_ms:
                one.state = "aborting"
                self.decide(producer_id, one, now_ms, topics)
        for name, known in list(self.names.items()):
            if known.stage_ms is not None and known.stage_ms <= now_ms:
                known.stage_ms = None
                if any(one.state == "sealed" for one in self.of(name)):
                    self.end(name, known.write, now_ms, topics)
            for ticket, due_ms, batch in list(known.waiting):
                if due_ms <= now_ms:
                    known.waiting.remove((ticket, due_ms, batch))
                    self.answers[ticket] = batch
            if name in due and self.of(name) and (known.forget_ms or 0) <= now_ms:
                known.forget_ms = None
        for name in forgotten:
            assert name in due, f"{name} is deleted too early"
            assert not self.of(name), f"{name} is deleted with attempts"
            del self.names[name]
        left = {name for name in due & self.names.keys() if not self.of(name)}
        assert all((self.names[name].forget_ms or 0) > now_ms for name in left), left

    def loaded(self, now_ms: int, topics: dict[str, bytes]) -> None:
        """Apply a change of leader: acknowledgements and pending responses are lost; live attempts
        restart their timeout."""
        for known in self.names.values():
            known.waiting.clear()
            known.stage_ms = known.forget_ms = None
        for producer_id, one in list(self.attempts.items()):
            if one.is_live:
                one.renewed_ms = now_ms
                self.names[one.name].stage_ms = now_ms + one.timeout_ms
            else:
                self.decide(producer_id, one, now_ms, topics)
        for name in self.names:
            self.settle(name, now_ms)

    # --- state ------------------------------------------------------------------------------------

    def of(self, name: str) -> list[Attempt]:
        return [one for one in self.attempts.values() if one.name == name]

    def is_visible(self, name: str, number: int) -> bool:
        return not any(one.state == "committing" and one.number <= number for one in self.of(name))

    def batch(self, name: str) -> CommittedBatch:
        known = self.names[name]
        return CommittedBatch(
            number=known.last,
            write_id=known.last_write,
            count=known.count,
            is_visible=self.is_visible(name, known.last),
        )


def _with(batch: CommittedBatch, *, is_visible: bool) -> CommittedBatch:
    return CommittedBatch(
        number=batch.number, write_id=batch.write_id, count=batch.count, is_visible=is_visible
    )
