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
from functools import partial
from typing import Final, TypeAlias

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
"""Questions to one coordinator that wait for a request, or are to be repeated; further ones
fail."""

CONCURRENT_MS: Final = 100
"""The time for which a question is repeated while markers are being written."""
PAUSE_MIN_MS: Final = 5
"""The first pause before a question is repeated; each further one is twice as long."""

Answered: TypeAlias = Callable[[QuorumlogError | None], None]


class _Question:
    """A question until it is answered."""

    __slots__ = ("answered", "pause_ms", "repeats_until_ms", "verification")

    def __init__(
        self, verification: Verification, answered: Answered, repeats_until_ms: int
    ) -> None:
        self.verification = verification
        self.answered = answered
        self.repeats_until_ms = repeats_until_ms  # by Clock.now_ms()
        self.pause_ms = PAUSE_MIN_MS  # before the next repeat


class _Coordinator:
    """The questions to one broker."""

    __slots__ = ("pausing", "requests", "waiting")

    def __init__(self) -> None:
        self.requests = 0  # in flight
        self.waiting: deque[_Question] = deque()
        self.pausing: dict[_Question, asyncio.TimerHandle] = {}  # to be repeated

    @property
    def is_full(self) -> bool:
        """True if no further question may wait."""
        return len(self.waiting) + len(self.pausing) >= WAITING_MAX


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
        self._is_closed = False

    def verify(self, question: Verification, answered: Answered) -> None:
        """Ask the coordinator; see `Verifier`."""
        self._enqueue(_Question(question, answered, self._clock.now_ms() + CONCURRENT_MS))

    def _enqueue(self, question: _Question) -> None:
        if self._is_closed:
            _call_back(question, _stopping())
            return
        try:
            node_id = self._transactions.leader_of(question.verification.transactional_id)
        except QuorumlogError as error:
            _call_back(question, error)
            return
        found = self._coordinators.get(node_id)
        if found is None:
            found = self._coordinators[node_id] = _Coordinator()
        if found.is_full:
            _call_back(
                question,
                Overloaded(
                    f"{WAITING_MAX} questions to the transaction coordinator on broker {node_id}"
                    " are waiting; retry later"
                ),
            )
            return
        found.waiting.append(question)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _answer(
        self, coordinator: _Coordinator, question: _Question, error: QuorumlogError | None
    ) -> None:
        """Call back, or repeat a question that comes too early after a pause."""
        left_ms = question.repeats_until_ms - self._clock.now_ms()
        if (
            not isinstance(error, ConcurrentTransactions)
            or not question.verification.adds
            or left_ms <= 0
            or coordinator.is_full
            or self._is_closed
        ):
            _call_back(question, error)
            return
        pause_ms, question.pause_ms = min(question.pause_ms, left_ms), 2 * question.pause_ms
        coordinator.pausing[question] = asyncio.get_running_loop().call_later(
            pause_ms / 1000, self._repeat, coordinator, question
        )

    def _repeat(self, coordinator: _Coordinator, question: _Question) -> None:
        del coordinator.pausing[question]
        self._enqueue(question)

    async def close(self) -> None:
        """Answer every question with an error, and ask no more. Those in flight are answered when
        their cancelled tasks have ended."""
        self._is_closed = True
        left: list[_Question] = []
        for found in self._coordinators.values():
            left += [*found.waiting, *found.pausing]
            for timer in found.pausing.values():
                timer.cancel()
            found.waiting.clear()
            found.pausing.clear()
        for question in left:
            _call_back(question, _stopping())
        for task in reversed(list(self._tasks)):
            task.cancel()

    def _send(self) -> None:
        """Start the requests that are permitted now."""
        self._is_due = False
        for node_id, found in self._coordinators.items():
            while found.waiting and found.requests < REQUESTS_MAX:
                count = min(len(found.waiting), REQUEST_QUESTIONS_MAX)
                taken = [found.waiting.popleft() for _ in range(count)]
                errors: list[QuorumlogError | None] = []
                found.requests += 1
                self.requests += 1
                task = self._spawn(
                    self._ask_all(node_id, [each.verification for each in taken], errors),
                    name=f"questions to coordinator {node_id}",
                )
                self._tasks[task] = None
                # A task that is cancelled before its first step runs nothing of its coroutine.
                task.add_done_callback(partial(self._asked, found, taken, errors))

    def _asked(
        self,
        coordinator: _Coordinator,
        taken: Sequence[_Question],
        errors: Sequence[QuorumlogError | None],
        task: "asyncio.Task[None]",
    ) -> None:
        """Call back with each answer of a request; without answers, its task was cancelled."""
        del self._tasks[task]
        coordinator.requests -= 1
        for question, error in zip(taken, errors or [_stopping()] * len(taken), strict=True):
            self._answer(coordinator, question, error)
        self._send()

    async def _ask_all(
        self,
        node_id: NodeId,
        questions: Sequence[Verification],
        errors: list[QuorumlogError | None],
    ) -> None:
        """Send one request, and append the error of each question, None: verified."""
        try:
            errors += await self._ask(node_id, questions)
        except QuorumlogError as error:
            _LOG.info("transactions.not_verified broker=%d error=%s", node_id, error)
            errors += [
                CoordinatorNotAvailable(
                    f"the transaction coordinator on broker {node_id} did not answer:"
                    f" {error.message}; retry"
                )
            ] * len(questions)
        except Exception as error:  # a bug: other questions are still asked
            _LOG.exception("transactions.verification_broke broker=%d", node_id)
            errors += [
                CoordinatorNotAvailable(
                    f"the question to the transaction coordinator on broker {node_id} failed"
                    f" unexpectedly: {error}; retry"
                )
            ] * len(questions)

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


def _call_back(question: _Question, error: QuorumlogError | None) -> None:
    try:
        question.answered(error)
    except Exception:  # a bug: other questions are still answered
        _LOG.exception(
            "transactions.answer_broke transactional_id=%s", question.verification.transactional_id
        )


def _stopping() -> Stopping:
    return Stopping("the broker is stopping; send the batch to the next leader")
