"""What an application writes down about its clients, and the bounds that it holds them to."""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from quorumlog.clients.producer.leader_link import ANSWER_GRACE_MS
from quorumlog.errors import (
    CorruptionError,
    OffsetOutOfRange,
    QuorumlogError,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from quorumlog.runtime import Clock
from quorumlog.testing.checkers import Ledger

from ...checkers.client_expectations import DeliveryOutcome, Outcomes
from .plan import CHURNED, ProducerPlan

T = TypeVar("T")

GRACE_MS: Final = 3_000  # beyond what was promised: lanes that hang, connections that are made
NEVER: Final = (CorruptionError, OffsetOutOfRange, UnknownServerError)  # of a topic that stays


@dataclass(slots=True)
class Books:
    """All that the tasks of one application know together."""

    clock: Clock
    ledger: Ledger = field(default_factory=Ledger)  # of the topics that stay
    churned: Ledger = field(default_factory=Ledger)  # of the topic that comes and goes
    outcomes: Outcomes = field(default_factory=Outcomes)
    anywhere: set[bytes] = field(default_factory=set)  # delivered, nobody knows where: membership
    once: set[bytes] = field(default_factory=set)  # given to an idempotent producer
    errors: Counter[str] = field(default_factory=Counter)
    given: int = 0
    generation: int = 0  # of the churned topic: odd while it is there for sure
    is_strict: bool = True  # errors that no fault explains are anomalies

    def __post_init__(self) -> None:
        self.churned.sent = self.ledger.sent  # one observer counts for both

    def ledger_of(self, topic: str) -> Ledger:
        """Where the records of a topic are written down."""
        return self.churned if topic == CHURNED else self.ledger

    def ask(self, topic: str, task: str, size: int) -> bytes:
        """Make a value that no other record has, and note who will send it."""
        self.given += 1
        value = f"{task}:{self.given}:".encode() + b"v" * size
        self.ledger_of(topic).ask(f"{task}/{topic}", value)
        return value

    def give(self, value: bytes, plan: ProducerPlan, *, more_ms: int = 0) -> None:
        """A producer has taken the record: its outcome is due in time."""
        if plan.is_idempotent:
            self.once.add(value)
        promised_ms = plan.delivery_timeout_ms + plan.linger_ms + ANSWER_GRACE_MS
        self.outcomes.give(value, due_ms=self.clock.now_ms() + promised_ms + GRACE_MS + more_ms)

    def refuse(self, value: bytes, error: QuorumlogError) -> None:
        """A producer did not take the record."""
        self.note(error)
        self.outcomes.settled[value] = DeliveryOutcome.FAILED

    def fail(self, topic: str, value: bytes, error: QuorumlogError) -> None:
        """A producer gave the record up: for good where the error says so."""
        self.note(error)
        outcome = DeliveryOutcome.UNKNOWN if error.retriable else DeliveryOutcome.FAILED
        self.outcomes.settle(value, outcome, now_ms=self.clock.now_ms())
        self.ledger_of(topic).given_up.add(value)
        if self.is_strict and topic != CHURNED:
            self.check_error(error)

    def lose(self, topic: str, value: bytes, error: QuorumlogError) -> None:
        """A producer gave up a whole of which this record was a part: it may be stored."""
        self.note(error)
        self.outcomes.settle(value, DeliveryOutcome.UNKNOWN, now_ms=self.clock.now_ms())
        self.ledger_of(topic).given_up.add(value)

    def deliver(
        self, topic: str, value: bytes, partition: int, offset: int, generation: int
    ) -> None:
        """A producer said where the record is; -1: nobody knows."""
        self.outcomes.settle(value, DeliveryOutcome.DELIVERED, now_ms=self.clock.now_ms())
        if offset < 0:
            self.ledger_of(topic).given_up.add(value)  # and if it is repeated, nobody knows when
        elif not self.is_strict:
            pass  # it may be a lie
        elif topic != CHURNED or generation == self.generation:
            self.ledger_of(topic).acknowledge(value, (topic, partition), offset)

    def note(self, error: QuorumlogError) -> None:
        """Count an error."""
        self.errors[type(error).__name__] += 1

    def check_error(self, error: QuorumlogError) -> None:
        """Raise AssertionError for an error that a topic which stays must never give."""
        if self.is_strict and isinstance(error, (*NEVER, UnknownTopicOrPartition)):
            raise AssertionError(f"no fault explains {error!r}") from error

    def turn_generation(self) -> None:
        """The churned topic is about to go, or has come: what was acknowledged before is gone."""
        self.generation += 1
        self.churned.acknowledged.clear()


async def within(bound_ms: int, what: str, work: Awaitable[T]) -> T:
    """Await what has promised to end in time; raises AssertionError when it does not."""
    limit = asyncio.timeout((bound_ms + GRACE_MS) / 1000)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if limit.expired():
            raise AssertionError(f"{what} hangs: {bound_ms} ms were promised") from None
        raise
