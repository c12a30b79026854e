"""Detection and fencing of failed brokers: after the session timeout, or earlier by a probe.

Early fencing is an optimisation; safety never depends on it. Before the session timeout a broker is
fenced only if it is suspect (its stream broke and no new one was opened, or it has not connected to
a new leadership) *and* its listener refuses connections, as that of a dead process does. A timeout
or an unreachable host proves nothing.
"""

import asyncio
import logging
from typing import Final

from ...errors import QuorumlogError
from ...ids import NodeId, Offset
from ...runtime import Runtime
from ..commands import FenceBroker
from ..sessions import BrokerSessions
from .background_tasks import BackgroundTasks
from .command_queue import CommandQueue

_LOG = logging.getLogger("quorumlog.metadata")

PROBE_TIMEOUT_MS: Final = 500
"""Timeout of the probe of a listener."""


class BrokerFencer:
    """Fences brokers with expired sessions or dead listeners; run() must run."""

    def __init__(
        self,
        runtime: Runtime,
        commands: CommandQueue,
        sessions: BrokerSessions,
        tasks: BackgroundTasks,
    ) -> None:
        self._runtime = runtime
        self._commands = commands
        self._sessions = sessions
        self._tasks = tasks
        self._leading = asyncio.Event()
        self._closing = asyncio.Event()

    def begin_leadership(self) -> None:
        """Start a leadership: every broker gets one timeout to connect."""
        brokers = self._commands.image.sorted_brokers()
        self._sessions.begin_leadership(brokers, self._runtime.clock.now_ms())
        self._leading.set()

    def end_leadership(self) -> None:
        """Stop the checks."""
        self._leading.clear()

    async def run(self) -> None:
        """Check sessions while this node leads, until close()."""
        clock, sessions = self._runtime.clock, self._sessions
        while not self._closing.is_set():
            if not self._leading.is_set():
                await self._leading.wait()
                continue
            try:
                async with asyncio.timeout(sessions.next_look_ms(clock.now_ms()) / 1000):
                    await self._closing.wait()
            except TimeoutError:
                self._check(clock.now_ms())

    def close(self) -> None:
        """End run()."""
        self._closing.set()
        self._leading.set()

    def fence_soon(self, broker_id: NodeId, broker_epoch: Offset, *, reason: str) -> None:
        """Fence a registration in the background; `reason` is for the log."""
        self._tasks.start(
            ("fence", broker_id, broker_epoch),
            lambda: self._fence(broker_id, broker_epoch, reason),
        )

    def _check(self, now_ms: int) -> None:
        if not self._leading.is_set():
            return
        failed = self._sessions.tick(self._commands.image.brokers.values(), now_ms)
        for broker_id, broker_epoch in failed.expired:
            self.fence_soon(broker_id, broker_epoch, reason="silent")
        for broker_id, broker_epoch in failed.suspects:
            self._probe_soon(broker_id, broker_epoch)

    def _probe_soon(self, broker_id: NodeId, broker_epoch: Offset) -> None:
        self._tasks.start(
            ("probe", broker_id, broker_epoch), lambda: self._probe(broker_id, broker_epoch)
        )

    async def _probe(self, broker_id: NodeId, broker_epoch: Offset) -> None:
        """Fence the broker if its listener refuses connections and it has not reconnected."""
        broker = self._commands.image.broker(broker_id)
        if broker is None or broker.epoch != broker_epoch or broker.fenced:
            self._sessions.remove(broker_id, broker_epoch)
            return
        address = broker.node_address
        if not await self._runtime.network.refuses(address, PROBE_TIMEOUT_MS):
            return
        if self._sessions.is_absent(broker_id, broker_epoch):
            await self._fence(broker_id, broker_epoch, f"{address} refuses connections")

    async def _fence(self, broker_id: NodeId, broker_epoch: Offset, reason: str) -> None:
        try:
            await self._commands.submit(FenceBroker(broker_id=broker_id, broker_epoch=broker_epoch))
        except QuorumlogError as error:
            _LOG.info("controller.not_fenced broker=%d reason=%s", broker_id, error)
            return
        self._sessions.remove(broker_id, broker_epoch)
        _LOG.info("controller.fenced broker=%d epoch=%d: %s", broker_id, broker_epoch, reason)
