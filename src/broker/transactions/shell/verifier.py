"""The verifier of a broker: sends the verifications of its partition leaders to transaction
coordinators (KIP-890).

The verifications of one turn of the loop by one coordinator are one request. While the permitted
requests are in flight, further verifications wait for the next one.

A producer may write its next transaction while the markers of the last one are being written. If
its partition is to be added then, the verification is retried for a short time: the refusal would
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
from ...shell.broker_calls import BrokerCalls
from ...verification import Verification
from .coordination_service import verify_all
from .coordinator import TransactionCoordinator

_LOG = logging.getLogger("quorumlog.transactions")

REQUEST_TIMEOUT_MS: Final = 3_000
"""The timeout of one request."""
REQUEST_VERIFICATIONS_MAX: Final = 500
"""Verifications in one request."""
REQUESTS_MAX: Final = 4
"""Requests in flight to one coordinator."""
WAITING_MAX: Final = 5_000
"""Verifications that wait for a request to one coordinator or for their retry; further ones
fail."""

RETRY_WINDOW_MS: Final = 100
"""The time for which a verification is retried while markers are being written."""
BACKOFF_MIN_MS: Final = 5
"""The backoff before the first retry; each further one is twice as long."""

VerificationCallback: TypeAlias = Callable[[QuorumlogError | None], None]


class _PendingVerification:
    """A verification without a result."""

    __slots__ = ("backoff_ms", "callback", "retries_until_ms", "verification")

    def __init__(
        self, verification: Verification, callback: VerificationCallback, retries_until_ms: int
    ) -> None:
        self.verification = verification
        self.callback = callback
        self.retries_until_ms = retries_until_ms  # by Clock.now_ms()
        self.backoff_ms = BACKOFF_MIN_MS  # before the next retry


class _CoordinatorQueue:
    """The pending verifications of one coordinator."""

    __slots__ = ("backing_off", "requests", "waiting")

    def __init__(self) -> None:
        self.requests = 0  # in flight
        self.waiting: deque[_PendingVerification] = deque()
        self.backing_off: dict[_PendingVerification, asyncio.TimerHandle] = {}  # until their retry

    @property
    def is_full(self) -> bool:
        """True if no further verification may wait."""
        return len(self.waiting) + len(self.backing_off) >= WAITING_MAX


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
        self._coordinators: dict[NodeId, _CoordinatorQueue] = {}
        self._is_due = False  # requests are sent at the end of this turn of the loop
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_closed = False

    def verify(self, verification: Verification, callback: VerificationCallback) -> None:
        """Send a verification to its coordinator; see `Verifier`."""
        self._enqueue(
            _PendingVerification(verification, callback, self._clock.now_ms() + RETRY_WINDOW_MS)
        )

    def _enqueue(self, pending: _PendingVerification) -> None:
        if self._is_closed:
            _call_back(pending, _stopping())
            return
        try:
            node_id = self._transactions.leader_of(pending.verification.transactional_id)
        except QuorumlogError as error:
            _call_back(pending, error)
            return
        found = self._coordinators.get(node_id)
        if found is None:
            found = self._coordinators[node_id] = _CoordinatorQueue()
        if found.is_full:
            _call_back(
                pending,
                Overloaded(
                    f"{WAITING_MAX} verifications wait for the transaction coordinator on broker"
                    f" {node_id}; retry later"
                ),
            )
            return
        found.waiting.append(pending)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _finish(
        self,
        coordinator: _CoordinatorQueue,
        pending: _PendingVerification,
        error: QuorumlogError | None,
    ) -> None:
        """Call back with the result; after ConcurrentTransactions, retry within the window."""
        left_ms = pending.retries_until_ms - self._clock.now_ms()
        if (
            not isinstance(error, ConcurrentTransactions)
            or not pending.verification.adds
            or left_ms <= 0
            or coordinator.is_full
            or self._is_closed
        ):
            _call_back(pending, error)
            return
        backoff_ms, pending.backoff_ms = min(pending.backoff_ms, left_ms), 2 * pending.backoff_ms
        coordinator.backing_off[pending] = asyncio.get_running_loop().call_later(
            backoff_ms / 1000, self._retry, coordinator, pending
        )

    def _retry(self, coordinator: _CoordinatorQueue, pending: _PendingVerification) -> None:
        del coordinator.backing_off[pending]
        self._enqueue(pending)

    async def close(self) -> None:
        """Fail every verification, and send no more. Those in flight fail when their cancelled
        tasks have ended."""
        self._is_closed = True
        left: list[_PendingVerification] = []
        for found in self._coordinators.values():
            left += [*found.waiting, *found.backing_off]
            for timer in found.backing_off.values():
                timer.cancel()
            found.waiting.clear()
            found.backing_off.clear()
        for pending in left:
            _call_back(pending, _stopping())
        for task in reversed(list(self._tasks)):
            task.cancel()

    def _send(self) -> None:
        """Start the requests that are permitted now."""
        self._is_due = False
        for node_id, found in self._coordinators.items():
            while found.waiting and found.requests < REQUESTS_MAX:
                count = min(len(found.waiting), REQUEST_VERIFICATIONS_MAX)
                taken = [found.waiting.popleft() for _ in range(count)]
                errors: list[QuorumlogError | None] = []
                found.requests += 1
                self.requests += 1
                task = self._spawn(
                    self._send_request(node_id, [each.verification for each in taken], errors),
                    name=f"verifications by coordinator {node_id}",
                )
                self._tasks[task] = None
                # A task that is cancelled before its first step runs nothing of its coroutine.
                task.add_done_callback(partial(self._request_done, found, taken, errors))

    def _request_done(
        self,
        coordinator: _CoordinatorQueue,
        taken: Sequence[_PendingVerification],
        errors: Sequence[QuorumlogError | None],
        task: "asyncio.Task[None]",
    ) -> None:
        """Call back with each result of a request; without results, its task was cancelled."""
        del self._tasks[task]
        coordinator.requests -= 1
        for pending, error in zip(taken, errors or [_stopping()] * len(taken), strict=True):
            self._finish(coordinator, pending, error)
        self._send()

    async def _send_request(
        self,
        node_id: NodeId,
        verifications: Sequence[Verification],
        errors: list[QuorumlogError | None],
    ) -> None:
        """Send one request, and append the error of each verification, None: verified."""
        try:
            errors += await self._call(node_id, verifications)
        except QuorumlogError as error:
            _LOG.info("transactions.not_verified broker=%d error=%s", node_id, error)
            errors += [
                CoordinatorNotAvailable(
                    f"the transaction coordinator on broker {node_id} did not answer:"
                    f" {error.message}; retry"
                )
            ] * len(verifications)
        except Exception as error:  # a bug: other requests are still sent
            _LOG.exception("transactions.verification_broke broker=%d", node_id)
            errors += [
                CoordinatorNotAvailable(
                    f"the request to the transaction coordinator on broker {node_id} failed"
                    f" unexpectedly: {error}; retry"
                )
            ] * len(verifications)

    async def _call(
        self, node_id: NodeId, verifications: Sequence[Verification]
    ) -> Sequence[QuorumlogError | None]:
        if node_id == self._transactions.node_id:
            deadline_ms = self._clock.now_ms() + REQUEST_TIMEOUT_MS
            return await verify_all(self._transactions, verifications, deadline_ms)
        message = pb.VerifyTransactionsRequest(cluster_id=self._cluster_id, broker_id=node_id)
        for each in verifications:
            entry = message.verifications.add(
                transactional_id=each.transactional_id,
                producer_id=each.producer.producer_id,
                producer_epoch=each.producer.producer_epoch,
                adds=each.adds,
            )
            entry.target.topic = each.topic
            entry.target.partition = each.partition
            entry.target.topic_id = each.topic_id
        answer = await self._calls.call(
            node_id,
            TRANSACTION_COORDINATION_VERIFY_TRANSACTIONS,
            message,
            timeout_ms=REQUEST_TIMEOUT_MS,
        )
        errors = [
            decode_error(each.error) if each.HasField("error") else None for each in answer.results
        ]
        if len(errors) != len(verifications):
            raise CoordinatorNotAvailable(
                f"broker {node_id} returned {len(errors)} results for {len(verifications)}"
                " verifications"
            )
        return errors


def _call_back(pending: _PendingVerification, error: QuorumlogError | None) -> None:
    try:
        pending.callback(error)
    except Exception:  # a bug: other callbacks still run
        _LOG.exception(
            "transactions.answer_broke transactional_id=%s", pending.verification.transactional_id
        )


def _stopping() -> Stopping:
    return Stopping("the broker is stopping; send the batch to the next leader")
