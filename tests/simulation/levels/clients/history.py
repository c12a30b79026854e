"""The history of an application's clients, and the time bounds of their calls."""

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

GRACE_MS: Final = 3_000  # beyond the promised time: stalled lanes, new connections
# errors that a permanent topic must never return
NEVER: Final = (CorruptionError, OffsetOutOfRange, UnknownServerError)


@dataclass(slots=True)
class ClientHistory:
    """The shared history of the tasks of one application."""

    clock: Clock
    ledger: Ledger = field(default_factory=Ledger)  # of the permanent topics
    churned: Ledger = field(default_factory=Ledger)  # of the topic that is deleted and created
    outcomes: Outcomes = field(default_factory=Outcomes)
    # delivered to an unknown partition: membership
    anywhere: set[bytes] = field(default_factory=set)
    once: set[bytes] = field(default_factory=set)  # given to an idempotent producer
    errors: Counter[str] = field(default_factory=Counter)
    given: int = 0
    generation: int = 0  # of the churned topic: odd while it certainly exists
    is_strict: bool = True  # errors that no fault explains are anomalies

    def __post_init__(self) -> None:
        self.churned.sent = self.ledger.sent  # one observer counts for both

    def ledger_of(self, topic: str) -> Ledger:
        """Return the ledger of a topic."""
        return self.churned if topic == CHURNED else self.ledger

    def ask(self, topic: str, task: str, size: int) -> bytes:
        """Return a unique value, recorded with its sender."""
        self.given += 1
        value = f"{task}:{self.given}:".encode() + b"v" * size
        self.ledger_of(topic).ask(f"{task}/{topic}", value)
        return value

    def give(self, value: bytes, plan: ProducerPlan, *, more_ms: int = 0) -> None:
        """Record that a producer accepted the record: its outcome is due in time."""
        if plan.is_idempotent:
            self.once.add(value)
        promised_ms = plan.delivery_timeout_ms + plan.linger_ms + ANSWER_GRACE_MS
        self.outcomes.give(value, due_ms=self.clock.now_ms() + promised_ms + GRACE_MS + more_ms)

    def refuse(self, value: bytes, error: QuorumlogError) -> None:
        """Record that a producer rejected the record."""
        self.note(error)
        self.outcomes.settled[value] = DeliveryOutcome.FAILED

    def fail(self, topic: str, value: bytes, error: QuorumlogError) -> None:
        """Record a failed record; the error determines whether that is definite."""
        self.note(error)
        outcome = DeliveryOutcome.UNKNOWN if error.retriable else DeliveryOutcome.FAILED
        self.outcomes.settle(value, outcome, now_ms=self.clock.now_ms())
        self.ledger_of(topic).given_up.add(value)
        if self.is_strict and topic != CHURNED:
            self.check_error(error)

    def lose(self, topic: str, value: bytes, error: QuorumlogError) -> None:
        """Record a failed batch that contained this record: it may be stored."""
        self.note(error)
        self.outcomes.settle(value, DeliveryOutcome.UNKNOWN, now_ms=self.clock.now_ms())
        self.ledger_of(topic).given_up.add(value)

    def deliver(
        self, topic: str, value: bytes, partition: int, offset: int, generation: int
    ) -> None:
        """Record a delivered record; offset -1: unknown."""
        self.outcomes.settle(value, DeliveryOutcome.DELIVERED, now_ms=self.clock.now_ms())
        if offset < 0:
            self.ledger_of(topic).given_up.add(value)  # its order is unknown too
        elif not self.is_strict:
            pass  # the offset may be a lie
        elif topic != CHURNED or generation == self.generation:
            self.ledger_of(topic).acknowledge(value, (topic, partition), offset)

    def note(self, error: QuorumlogError) -> None:
        """Count an error."""
        self.errors[type(error).__name__] += 1

    def check_error(self, error: QuorumlogError) -> None:
        """Raise AssertionError for an error that a permanent topic must never return."""
        if self.is_strict and isinstance(error, (*NEVER, UnknownTopicOrPartition)):
            raise AssertionError(f"no fault explains {error!r}") from error

    def start_generation(self) -> None:
        """Record a deletion or creation of the churned topic: earlier acknowledgements are void."""
        self.generation += 1
        self.churned.acknowledged.clear()


async def within(bound_ms: int, what: str, work: Awaitable[T]) -> T:
    """Await an operation with a promised bound; raises AssertionError if it exceeds that."""
    limit = asyncio.timeout((bound_ms + GRACE_MS) / 1000)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if limit.expired():
            raise AssertionError(f"{what} hangs: {bound_ms} ms were promised") from None
        raise
