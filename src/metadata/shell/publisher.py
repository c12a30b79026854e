"""Publisher of committed metadata to the subscribers of this node.

`image` is the one that every subscriber has applied; records that are committed during a round form
one delta for the next round.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from ...errors import Overloaded, StaleMetadata
from ...ids import Offset
from ..delta import ImageDelta
from ..image import EMPTY_IMAGE, MetadataImage
from .state_machine import MetadataStateMachine

WAITERS_MAX: Final = 10_000
"""The maximum number of calls that wait for an offset. At the limit a call of the principal with
the most of them ends."""

Subscriber: TypeAlias = Callable[[ImageDelta], Awaitable[None] | None]


class _Waiter(NamedTuple):
    """A call that waits for an offset."""

    offset: Offset
    principal: str  # of the client


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
        self._waiters: dict[asyncio.Future[None], _Waiter] = {}
        self._by_principal: dict[str, dict[asyncio.Future[None], None]] = {}
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
        waiter, awaited = asyncio.get_running_loop().create_future(), Offset(offset)
        self._waiters[waiter] = _Waiter(awaited, principal)
        self._by_principal.setdefault(principal, {})[waiter] = None
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
            self._remove(waiter)

    def _end_waiter(self, principal: str) -> None:
        """End the oldest call of the principal with the most of them. Raise Overloaded if that is
        this principal."""
        error = Overloaded(
            f"{WAITERS_MAX} calls wait for this broker to apply metadata; retry later"
        )
        most = max(self._by_principal, key=lambda each: len(self._by_principal[each]))
        if most == principal:
            raise error
        waiter = next(iter(self._by_principal[most]))
        self._remove(waiter)
        if not waiter.done():
            waiter.set_exception(error)

    def _remove(self, waiter: asyncio.Future[None]) -> None:
        found = self._waiters.pop(waiter, None)
        if found is None:
            return  # released or ended
        own = self._by_principal[found.principal]
        del own[waiter]
        if not own:
            del self._by_principal[found.principal]

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
        for waiter, each in list(self._waiters.items()):
            if each.offset <= applied:
                self._remove(waiter)
                if not waiter.done():
                    waiter.set_result(None)
        self._awaited = min((each.offset for each in self._waiters.values()), default=None)
