"""Publisher of committed metadata to the subscribers of this node.

`image` is the one that every subscriber has applied; records that are committed during a round form
one delta for the next round.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from ...errors import Overloaded, StaleMetadata
from ...ids import Offset
from ..delta import ImageDelta
from ..image import EMPTY_IMAGE, MetadataImage
from .state_machine import MetadataStateMachine

WAITERS_MAX: Final = 10_000
"""The maximum number of calls that wait for an offset."""

Subscriber: TypeAlias = Callable[[ImageDelta], Awaitable[None] | None]


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
        self._waiters: dict[asyncio.Future[None], Offset] = {}
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

    async def wait_applied(self, offset: int, timeout_ms: int) -> None:
        """Wait until this node has applied the metadata up to the offset (inclusive). Raise
        StaleMetadata after `timeout_ms`, Overloaded if there are WAITERS_MAX waiters."""
        if self.applied_offset >= offset:
            return
        if len(self._waiters) >= WAITERS_MAX:
            raise Overloaded(
                f"{WAITERS_MAX} calls wait for this broker to apply metadata; retry later"
            )
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = awaited = Offset(offset)
        self._awaited = awaited if self._awaited is None else min(self._awaited, awaited)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await waiter
        except TimeoutError:
            raise StaleMetadata(
                f"this broker has applied the metadata up to offset {self.applied_offset}, not"
                f" {offset}, within {timeout_ms} ms; retry"
            ) from None
        finally:
            self._waiters.pop(waiter, None)

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
        for waiter, offset in list(self._waiters.items()):
            if offset <= applied:
                del self._waiters[waiter]
                if not waiter.done():
                    waiter.set_result(None)
        self._awaited = min(self._waiters.values(), default=None)
