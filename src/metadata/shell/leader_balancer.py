"""Periodic election of preferred leaders by the active controller."""

import asyncio
import logging
from typing import Final

from ...errors import QuorumlogError
from ...runtime import Clock
from ..cluster_configs import cluster_number
from ..commands import BalanceLeaders
from .command_queue import CommandQueue

_LOG = logging.getLogger("quorumlog.metadata")

CHECK_MS: Final = 1_000
"""Interval of the check whether a round is due; the configured interval may change any time."""


class LeaderBalancer:
    """Submits BalanceLeaders periodically; run() must run."""

    def __init__(self, clock: Clock, commands: CommandQueue) -> None:
        self._clock = clock
        self._commands = commands
        self._begun_ms = clock.now_ms()  # start of the last round, or of the leadership
        self._closing = asyncio.Event()

    def begin_leadership(self) -> None:
        """Start the interval of the first round; this node leads now."""
        self._begun_ms = self._clock.now_ms()

    async def run(self) -> None:
        """Submit rounds while this node leads, until close()."""
        while not self._closing.is_set():
            try:
                async with asyncio.timeout(CHECK_MS / 1000):
                    await self._closing.wait()
            except TimeoutError:
                if self._commands.is_active and self._is_due():
                    await self._balance()

    def close(self) -> None:
        """End run()."""
        self._closing.set()

    def _is_due(self) -> bool:
        configs = self._commands.image.cluster_configs
        interval_s = cluster_number(configs, "leader.imbalance.check.interval.seconds")
        return self._clock.now_ms() - self._begun_ms >= interval_s * 1000

    async def _balance(self) -> None:
        self._begun_ms = self._clock.now_ms()
        before = self._commands.image.offset
        try:
            outcome = await self._commands.submit(BalanceLeaders())
        except QuorumlogError as error:
            _LOG.info("controller.not_balanced reason=%s", error)
            return
        if outcome.offset != before:
            took_ms = self._clock.now_ms() - self._begun_ms
            _LOG.info("controller.balanced offset=%d ms=%d", outcome.offset, took_ms)
