"""Publisher of committed metadata to the subscribers of this node.

`image` is the one that every subscriber has applied; records that are committed during a round form
one delta for the next round.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from ...errors import Overloaded, StaleMetadata
from ...ids import Offset
from ...runtime.client_bounds import ClientEntries
from ..delta import ImageDelta
from ..image import EMPTY_IMAGE, MetadataImage
from .state_machine import MetadataStateMachine

WAITERS_MAX: Final = 10_000
"""The maximum number of calls that wait for an offset. At the limit a call of the principal with
the most of them ends."""

Subscriber: TypeAlias = Callable[[ImageDelta], Awaitable[None] | None]


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A call that waits for an offset."""

    offset: Offset
    wake: asyncio.Future[None]


class MetadataPublisher:
    """Publishes the deltas of the state machine; run() must run."""

    def __init__(self, metadata: MetadataStateMachine) -> None:
        self._metadata = metadata
        self._image = EMPTY_IMAGE  # applied by all subscribers
        self._subscribers: list[Subscriber] = []
        self._applied_listeners: list[Callable[[Offset], None]] = []
        self._moved = asyncio.Event()
        self._closed = False
        # Waiters by arrival, and the lowest offset that they wait for.
        self._waiters: ClientEntries[_Waiter] = ClientEntries()
        self._awaited: Offset | None = None
        metadata.on_committed(self._moved.set)

    @property
    def image(self) -> MetadataImage:
        """The image that every subscriber has applied."""
        return self._image

    @property
    def applied_offset(self) -> Offset:
        """The offset of the last record that every subscriber has applied; -1: none."""
        return self._image.offset

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call the subscriber with every later delta, in order, and await its result.

        Subscribers are called in the order of subscription; subscribe before run() to get all
        deltas. An error of a subscriber ends run(): a node must not continue with a partially
        applied change.
        """
        self._subscribers.append(subscriber)

    def on_applied(self, listener: Callable[[Offset], None]) -> None:
        """Call the listener with `applied_offset` after each change."""
        self._applied_listeners.append(listener)

    async def run(self) -> None:
        """Publish deltas until close()."""
        while True:
            await self._moved.wait()
            self._moved.clear()
            if self._is_closed():
                return
            while self._metadata.committed_image is not self._image and not self._is_closed():
                await self._publish(await self._metadata.next_delta())

    def close(self) -> None:
        """End run()."""
        self._closed = True
        self._moved.set()

    async def wait_applied(self, offset: int, timeout_ms: int, *, principal: str = "") -> None:
        """Wait until this node has applied the metadata up to the offset (inclusive). Raise
        StaleMetadata after `timeout_ms`, and Overloaded at WAITERS_MAX, for the newest call if its
        principal has the most of them. `principal` is that of a client."""
        if self.applied_offset >= offset:
            return
        if len(self._waiters) >= WAITERS_MAX:
            self._end_waiter(principal)
        awaited = Offset(offset)
        waiter = _Waiter(awaited, asyncio.get_running_loop().create_future())
        self._waiters.add(waiter, principal)
        self._awaited = awaited if self._awaited is None else min(self._awaited, awaited)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await waiter.wake
        except TimeoutError:
            raise StaleMetadata(
                f"this broker has applied the metadata up to offset {self.applied_offset}, not"
                f" {offset}, within {timeout_ms} ms; retry"
            ) from None
        finally:
            self._waiters.discard(waiter)

    def _end_waiter(self, principal: str) -> None:
        """End the oldest call of the principal with the most of them. Raise Overloaded if this
        principal has as many."""
        error = Overloaded(
            f"{WAITERS_MAX} calls wait for this broker to apply metadata; retry later"
        )
        most = self._waiters.of_most(principal)
        if most is None:
            raise error
        waiter = next(iter(most))
        self._waiters.discard(waiter)
        if not waiter.wake.done():
            waiter.wake.set_exception(error)

    def _is_closed(self) -> bool:
        return self._closed

    async def _publish(self, delta: ImageDelta) -> None:
        assert delta.before is self._image, f"a delta of {delta.before.offset} was skipped"
        for subscriber in self._subscribers:
            waiting = subscriber(delta)
            if waiting is not None:
                await waiting
        self._image = delta.after
        self._release_waiters()
        for listener in self._applied_listeners:
            listener(self._image.offset)

    def _release_waiters(self) -> None:
        """Release the waiters whose offset is applied; visits none if there are none."""
        applied = self._image.offset
        if self._awaited is None or applied < self._awaited:
            return
        for waiter in list(self._waiters):
            if waiter.offset <= applied:
                self._waiters.discard(waiter)
                if not waiter.wake.done():
                    waiter.wake.set_result(None)
        self._awaited = min((each.offset for each in self._waiters), default=None)
