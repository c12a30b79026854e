"""The verifier of a broker: asks transaction coordinators for its partition leaders (KIP-890).

The questions of one turn of the loop to one coordinator are one request. While the permitted
requests are in flight, questions wait for the next one.

A producer may write its next transaction while the markers of the last one are being written. If
its partition is to be added then, the question is repeated for a short time: the refusal would
reach the client, which waits much longer before it retries (KAFKA-18654).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from ....errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    Overloaded,
    QuorumlogError,
    Stopping,
)
from ....ids import NodeId
from ....proto import transaction_coordination_pb2 as pb
from ....runtime import Clock, Network
from ....runtime.error_detail import decode_error
from ....services import TRANSACTION_COORDINATION_VERIFY_TRANSACTIONS
from ...verification import Verification
from .broker_calls import BrokerCalls
from .coordination_service import verify_all
from .coordinator import TransactionCoordinator

_LOG = logging.getLogger("quorumlog.transactions")

ANSWER_MS: Final = 3_000
"""The timeout of one request."""
REQUEST_QUESTIONS_MAX: Final = 500
"""Questions of one request."""
REQUESTS_MAX: Final = 4
"""Requests in flight to one coordinator."""
WAITING_MAX: Final = 5_000
"""Questions to one coordinator that wait for a request; further ones fail."""

CONCURRENT_MS: Final = 100
"""The time for which a question is repeated while markers are being written."""
CONCURRENT_PAUSE_S: Final = 0.005
"""The pause before a question is repeated."""

Answered: TypeAlias = Callable[[QuorumlogError | None], None]


class _Question(NamedTuple):
    verification: Verification
    answered: Answered
    repeats_until_ms: int  # by Clock.now_ms()


class _Coordinator:
    """The questions to one broker."""

    __slots__ = ("requests", "waiting")

    def __init__(self) -> None:
        self.requests = 0  # in flight
        self.waiting: deque[_Question] = deque()


class TransactionVerifier:
    """Asks the coordinators of transactional ids; a `Verifier`. Belongs to the loop's thread."""

    def __init__(
        self,
        clock: Clock,
        spawn: Callable[..., "asyncio.Task[None]"],
        transactions: TransactionCoordinator,
        *,
        network: Network,
        cluster_id: str,
    ) -> None:
        """`spawn` starts a task, as `Scope.spawn`."""
        self.requests = 0
        self._clock = clock
        self._spawn = spawn
        self._calls = BrokerCalls(network, lambda: transactions.image)
        self._transactions = transactions
        self._cluster_id = cluster_id
        self._coordinators: dict[NodeId, _Coordinator] = {}
        self._is_due = False  # requests are sent at the end of this turn of the loop
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._pausing: dict[_Question, asyncio.TimerHandle] = {}
        self._is_closed = False

    def verify(self, question: Verification, answered: Answered) -> None:
        """Ask the coordinator; see `Verifier`."""
        self._enqueue(_Question(question, answered, self._clock.now_ms() + CONCURRENT_MS))

    def _enqueue(self, question: _Question) -> None:
        answered = question.answered
        if self._is_closed:
            answered(Stopping("the broker is stopping; send the batch to the next leader"))
            return
        try:
            node_id = self._transactions.leader_of(question.verification.transactional_id)
        except QuorumlogError as error:
            answered(error)
            return
        found = self._coordinators.get(node_id)
        if found is None:
            found = self._coordinators[node_id] = _Coordinator()
        if len(found.waiting) >= WAITING_MAX:
            answered(
                Overloaded(
                    f"{len(found.waiting)} questions to the transaction coordinator on broker"
                    f" {node_id} are waiting; retry later"
                )
            )
            return
        found.waiting.append(question)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _repeat(self, question: _Question) -> None:
        """Ask again after a pause."""
        timer = asyncio.get_running_loop().call_later(CONCURRENT_PAUSE_S, self._paused, question)
        self._pausing[question] = timer

    def _paused(self, question: _Question) -> None:
        del self._pausing[question]
        self._enqueue(question)

    def _answer(self, question: _Question, error: QuorumlogError | None) -> None:
        """Call back, or repeat a question that comes too early."""
        if (
            isinstance(error, ConcurrentTransactions)
            and question.verification.adds
            and self._clock.now_ms() < question.repeats_until_ms
            and not self._is_closed
        ):
            self._repeat(question)
        else:
            question.answered(error)

    async def close(self) -> None:
        """Answer every question with an error, and ask no more."""
        self._is_closed = True
        left = [each for found in self._coordinators.values() for each in found.waiting]
        for found in self._coordinators.values():
            found.waiting.clear()
        for question, timer in self._pausing.items():
            timer.cancel()
            left.append(question)
        self._pausing.clear()
        for question in left:
            question.answered(Stopping("the broker is stopping"))
        for task in reversed(list(self._tasks)):
            task.cancel()

    def _forget(self, task: "asyncio.Task[None]") -> None:
        del self._tasks[task]

    def _send(self) -> None:
        """Start the requests that are permitted now."""
        self._is_due = False
        for node_id, found in self._coordinators.items():
            while found.waiting and found.requests < REQUESTS_MAX:
                count = min(len(found.waiting), REQUEST_QUESTIONS_MAX)
                taken = [found.waiting.popleft() for _ in range(count)]
                found.requests += 1
                self.requests += 1
                task = self._spawn(
                    self._ask_all(node_id, found, taken), name=f"questions to coordinator {node_id}"
                )
                self._tasks[task] = None
                task.add_done_callback(self._forget)

    async def _ask_all(
        self,
        node_id: NodeId,
        coordinator: _Coordinator,
        taken: Sequence[_Question],
    ) -> None:
        """Send one request, and call back with each answer, whatever happens."""
        errors: Sequence[QuorumlogError | None] = [
            CoordinatorNotAvailable("the broker is stopping; retry")
        ] * len(taken)
        try:
            errors = await self._ask(node_id, [each.verification for each in taken])
        except QuorumlogError as error:
            _LOG.info("transactions.not_verified broker=%d error=%s", node_id, error)
            errors = [
                CoordinatorNotAvailable(
                    f"the transaction coordinator on broker {node_id} did not answer:"
                    f" {error.message}; retry"
                )
            ] * len(taken)
        except Exception as error:  # a bug: other questions are still asked
            _LOG.exception("transactions.verification_broke broker=%d", node_id)
            errors = [
                CoordinatorNotAvailable(
                    f"the question to the transaction coordinator on broker {node_id} failed"
                    f" unexpectedly: {error}; retry"
                )
            ] * len(taken)
        finally:
            coordinator.requests -= 1
            for question, outcome in zip(taken, errors, strict=True):
                self._answer(question, outcome)
            self._send()

    async def _ask(
        self, node_id: NodeId, questions: Sequence[Verification]
    ) -> Sequence[QuorumlogError | None]:
        if node_id == self._transactions.node_id:
            deadline_ms = self._clock.now_ms() + ANSWER_MS
            return await verify_all(self._transactions, questions, deadline_ms)
        message = pb.VerifyTransactionsRequest(cluster_id=self._cluster_id, broker_id=node_id)
        for each in questions:
            asked = message.verifications.add(
                transactional_id=each.transactional_id,
                producer_id=each.producer.producer_id,
                producer_epoch=each.producer.producer_epoch,
                adds=each.adds,
            )
            asked.target.topic = each.topic
            asked.target.partition = each.partition
            asked.target.topic_id = each.topic_id
        answer = await self._calls.call(
            node_id, TRANSACTION_COORDINATION_VERIFY_TRANSACTIONS, message, timeout_ms=ANSWER_MS
        )
        errors = [
            decode_error(each.error) if each.HasField("error") else None for each in answer.results
        ]
        if len(errors) != len(questions):
            raise CoordinatorNotAvailable(
                f"broker {node_id} returned {len(errors)} answers to {len(questions)} questions"
            )
        return errors
