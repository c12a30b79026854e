"""The producer ids that this broker gives away, from blocks that the controller gives it.

No id is given twice: a block belongs to one life of one broker, and what is left of it when that
ends is lost. Callers who find the block empty share one request for the next one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from ...errors import (
    BrokerIdNotRegistered,
    NotController,
    QuorumlogError,
    StaleBrokerEpoch,
    TimedOut,
    UnknownServerError,
)
from ...proto import controller_pb2 as pb
from ...runtime import Clock

STOCK_TIMEOUT_MS: Final = 1_000
"""A start waits no longer for the first block."""


class ControllerRelay(Protocol):
    """What it asks of the broker's session."""

    @property
    def broker_epoch(self) -> int: ...

    async def relay(
        self, request: pb.RelayRequest, *, timeout_ms: int, repeatable: bool
    ) -> pb.RelayResponse: ...


class ProducerIds:
    """See the module. Belongs to the loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._relay: ControllerRelay | None = None
        self._next = self._end = 0  # the block: ids of [next, end) are left
        self._asking = asyncio.Lock()

    def attach(self, relay: ControllerRelay) -> None:
        """Take blocks through this session from now on; it comes later than the front doors."""
        self._relay = relay

    async def stock(self, *, timeout_ms: int = STOCK_TIMEOUT_MS) -> None:
        """Take a block before anybody asks, so that producers may begin while no controller lives;
        what fails now is tried again by who needs an id."""
        deadline_ms = self._clock.now_ms() + timeout_ms
        with suppress(QuorumlogError):
            async with self._turn(deadline_ms):
                if self._next == self._end:
                    await self._take_block(timeout_ms)

    async def take(self, *, timeout_ms: int) -> int:
        """Return an id that nobody had before; raises NotController, TimedOut, Stopping, Lost."""
        deadline_ms = self._clock.now_ms() + timeout_ms
        while self._next == self._end:
            async with self._turn(deadline_ms):
                if self._next == self._end:
                    await self._take_block(max(1, deadline_ms - self._clock.now_ms()))
        taken = self._next
        self._next += 1
        return taken

    @asynccontextmanager
    async def _turn(self, deadline_ms: int) -> AsyncIterator[None]:
        """Wait for the request before, which may have a later deadline than this one."""
        left_ms = max(0, deadline_ms - self._clock.now_ms())
        try:
            async with asyncio.timeout(left_ms / 1000):
                await self._asking.acquire()
        except TimeoutError:
            raise TimedOut("no controller gave this broker producer ids in time: repeat") from None
        try:
            yield
        finally:
            self._asking.release()

    async def _take_block(self, timeout_ms: int) -> None:
        relay = self._relay
        if relay is None or relay.broker_epoch < 0:
            raise NotController("the broker is starting and has no producer ids yet: repeat")
        command = pb.AllocateProducerIdsRequest(broker_epoch=relay.broker_epoch)
        try:
            # A block whose answer was lost is lost with it: asking again harms nobody.
            answer = await relay.relay(
                pb.RelayRequest(allocate_producer_ids=command),
                timeout_ms=timeout_ms,
                repeatable=True,
            )
        except (StaleBrokerEpoch, BrokerIdNotRegistered) as error:
            raise NotController(
                "the broker is registering anew and has no producer ids meanwhile: repeat"
            ) from error
        block = answer.allocate_producer_ids
        if block.producer_id_start < 0 or block.producer_id_len < 1:
            raise UnknownServerError(
                f"the controller gave {block.producer_id_len} producer ids from "
                f"{block.producer_id_start} on: is it of this version?"
            )
        self._next = block.producer_id_start
        self._end = block.producer_id_start + block.producer_id_len
