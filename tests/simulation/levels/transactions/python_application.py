"""The common part of applications that use our Python client over gRPC: they connect, begin and end
transactions, sleep as zombies, and close their client."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import ClassVar, TypeVar

from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.errors import ClientClosed, ProducerUnusable, QuorumlogError
from quorumlog.runtime import Entropy, Runtime
from quorumlog.testing.checkers import Transaction, TransactionOutcome

from .application import RETRY_S, ApplicationState

Entered = TypeVar("Entered")


class PythonApplication(ABC):
    """One process of an application, an ApplicationProcess."""

    CLOSE_S: ClassVar[float] = 30.0  # bound for the client to close
    has_crashed = False

    def __init__(self, state: ApplicationState, runtime: Runtime, number: int) -> None:
        self.name = f"{state.plan.name}/{number}"
        self.is_replaced = False  # it slept, or has ended: its successor starts
        self._state = state
        self._runtime = runtime
        self._entropy: Entropy = runtime.entropy.stream(f"application/{self.name}")
        self._numbers = 0
        self._transactional_id = state.plan.transactional_id or f"{state.plan.name}-{number}"
        state.transactional_ids.append(self._transactional_id)

    async def run(self) -> None:
        """Run transactions until the application is over, or the producer is unusable."""
        log = await self._connect()
        try:
            await self._run(log)
        except (ProducerUnusable, ClientClosed) as error:
            self._state.observed.errors[f"fatal {type(error).__name__}"] += 1
        finally:
            self.is_replaced = True
            async with asyncio.timeout(self.CLOSE_S):
                await log.close()

    @abstractmethod
    async def _run(self, log: AsyncLog) -> None:
        """Run transactions until the application is over."""

    async def _connect(self) -> AsyncLog:
        """Connect, with retries; a client that failed to connect is closed."""
        while True:
            log = make_log(
                self._runtime,
                self._state.grpc_bootstrap,
                request_timeout_ms=self._state.behaviour.request_timeout_ms,
            )
            try:
                await log.start()
            except QuorumlogError as error:
                await self._back_off(error)
            else:
                return log

    async def _enter(self, make: Callable[[], AbstractAsyncContextManager[Entered]]) -> Entered:
        """Create a producer or processor, which fences the previous incarnation, with retries."""
        while True:
            try:
                return await make().__aenter__()
            except ProducerUnusable:
                raise
            except QuorumlogError as error:
                await self._back_off(error)

    def _begin(self, kind: str) -> Transaction:
        """Record the begin of a transaction."""
        observed = self._state.observed
        self._numbers += 1
        observed.counts["transactions"] += 1
        observed.counts[kind] += 1
        name = f"{self.name}#{self._numbers}"
        return observed.history.begin(name, self.name, at=observed.now_ns())

    def _end(self, transaction: Transaction, outcome: TransactionOutcome) -> None:
        observed = self._state.observed
        observed.history.end(transaction, outcome, at=observed.now_ns())
        observed.ended += 1
        observed.counts[outcome] += 1

    async def _sleep(self) -> None:
        """Sleep as a zombie, by a drawn chance."""
        behaviour = self._state.behaviour
        if not self._state.is_calm and self._entropy.uniform(0, 1) < behaviour.sleeps:
            self._state.observed.counts["zombies"] += 1
            self.is_replaced = True
            await asyncio.sleep(self._entropy.uniform(*behaviour.sleep_ms) / 1000)

    async def _back_off(self, error: QuorumlogError) -> None:
        self._note(error)
        await asyncio.sleep(RETRY_S)

    def _note(self, error: QuorumlogError) -> None:
        self._state.observed.errors[type(error).__name__] += 1
