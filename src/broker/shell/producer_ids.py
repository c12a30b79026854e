"""Allocation of producer ids from blocks of the controller.

No id is allocated twice: a block belongs to one run of one broker, and the rest of it is lost when
that ends. Callers that find the block empty share one request for the next one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol, TypeVar

from ...errors import (
    BrokerIdNotRegistered,
    NotController,
    QuorumlogError,
    StaleBrokerEpoch,
    TimedOut,
    UnknownServerError,
)
from ...ids import NodeId, Offset
from ...metadata.commands import (
    AllocateProducerIds,
    ProducerIdsAllocated,
    RelayedCommand,
    Submitted,
)
from ...runtime import Clock

_R = TypeVar("_R")

STOCK_TIMEOUT_MS: Final = 1_000
"""The maximum time that a start waits for the first block."""


class ControllerRelay(Protocol):
    """The broker's session with the controller, for commands of the broker itself."""

    broker_epoch: Offset

    @property
    def broker_id(self) -> NodeId: ...

    async def submit(self, command: RelayedCommand[_R], *, timeout_ms: int) -> Submitted[_R]: ...


class ProducerIds:
    """The producer ids of one broker. Belongs to the loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._relay: ControllerRelay | None = None
        self._next = self._end = 0  # the block: unused ids are [next, end)
        self._asking = asyncio.Lock()

    def attach(self, relay: ControllerRelay) -> None:
        """Set the session for block requests; the front ends exist before it."""
        self._relay = relay

    async def stock(self, *, timeout_ms: int = STOCK_TIMEOUT_MS) -> None:
        """Request a block if there are no ids, so that producers can be initialised without a
        controller later. After a failure, the next caller requests it again."""
        deadline_ms = self._clock.now_ms() + timeout_ms
        with suppress(QuorumlogError):
            async with self._turn(deadline_ms):
                if self._next == self._end:
                    await self._take_block(timeout_ms)

    def take_now(self) -> int | None:
        """Return a new producer id, or None if the block is empty; `stock` requests another."""
        if self._next == self._end:
            return None
        taken = self._next
        self._next += 1
        return taken

    async def take(self, *, timeout_ms: int) -> int:
        """Return a new producer id; raise NotController, TimedOut, Stopping, OutcomeUnknown."""
        deadline_ms = self._clock.now_ms() + timeout_ms
        while self._next == self._end:
            async with self._turn(deadline_ms):
                if self._next == self._end:
                    await self._take_block(max(1, deadline_ms - self._clock.now_ms()))
        taken = self.take_now()
        assert taken is not None, "a block has ids"
        return taken

    @asynccontextmanager
    async def _turn(self, deadline_ms: int) -> AsyncIterator[None]:
        """Wait for the request under way, which may have a later deadline."""
        left_ms = max(0, deadline_ms - self._clock.now_ms())
        try:
            async with asyncio.timeout(left_ms / 1000):
                await self._asking.acquire()
        except TimeoutError:
            raise TimedOut("no controller allocated producer ids in time; retry") from None
        try:
            yield
        finally:
            self._asking.release()

    async def draw(self, *, timeout_ms: int) -> int:
        """Return an id from the controller, never from the block: greater than each id that any
        broker drew before this call. Raises as `take`."""
        return (await self._allocate(1, timeout_ms)).start

    async def _take_block(self, timeout_ms: int) -> None:
        block = await self._allocate(0, timeout_ms)
        self._next = block.start
        self._end = block.start + block.count

    async def _allocate(self, count: int, timeout_ms: int) -> ProducerIdsAllocated:
        """Request a block of `count` ids, or of the controller's own size for 0."""
        relay = self._relay
        if relay is None or relay.broker_epoch < 0:
            raise NotController("the broker is starting and has no producer ids yet; retry")
        command = AllocateProducerIds(
            broker_id=relay.broker_id, broker_epoch=relay.broker_epoch, count=count
        )
        try:
            block = (await relay.submit(command, timeout_ms=timeout_ms)).reply
        except (StaleBrokerEpoch, BrokerIdNotRegistered) as error:
            raise NotController(
                "the broker is registering again and has no producer ids; retry"
            ) from error
        if block.start < 0 or block.count < 1:
            raise UnknownServerError(
                f"the controller returned {block.count} producer ids from {block.start} on; check"
                " that it runs the same version"
            )
        return block
