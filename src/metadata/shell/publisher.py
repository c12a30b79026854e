"""Publisher of committed metadata to the subscribers of this node.

Owns the committed image. `image` is the one that every subscriber has applied; records that are
committed during a round form one delta for the next round. A metadata transaction is invisible
before its end: in images, deltas and snapshots.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from ...errors import CorruptionError, Overloaded, StaleMetadata
from ...ids import Offset
from ...proto import metadata_records_pb2 as pb
from ..delta import DeltaBuilder, ImageDelta
from ..image import EMPTY_IMAGE, MetadataImage
from ..snapshots import SnapshotLoader, image_slices

WAITERS_MAX: Final = 10_000
"""The maximum number of calls that wait for an offset."""

Subscriber: TypeAlias = Callable[[ImageDelta], Awaitable[None] | None]


@dataclass(slots=True)
class Foreseen:
    """A transaction of this node and the image after its end, so that its records are not replayed
    again. Only the node that began a transaction can end it without an abort, so the image is that
    of the committed records."""

    image: MetadataImage | None = None


Foresee: TypeAlias = Callable[[int, int], Foreseen | None]
"""Maps the offset and epoch of a begin record to this node's transaction, None if it has none."""


class MetadataPublisher:
    """Applies committed records and publishes deltas; run() must run."""

    def __init__(self) -> None:
        self._image = EMPTY_IMAGE  # applied by all subscribers
        self._builder = DeltaBuilder(EMPTY_IMAGE)  # records committed since the last delta
        self._open: DeltaBuilder | None = None  # changes of a transaction without an end
        self._open_name = ""
        self._foreseen: Foreseen | None = None  # the open transaction, if it is this node's
        self._foresee: Foresee = lambda _offset, _epoch: None
        self._earlier: deque[DeltaBuilder] = deque()  # complete deltas that are not published
        self._loading = SnapshotLoader()  # of the snapshot in progress
        self._subscribers: list[Subscriber] = []
        self._applied_listeners: list[Callable[[Offset], None]] = []
        self._moved = asyncio.Event()
        self._closed = False
        # Waiters by arrival, and the lowest offset that they wait for.
        self._waiters: dict[asyncio.Future[None], Offset] = {}
        self._awaited: Offset | None = None

    @property
    def image(self) -> MetadataImage:
        """The image that every subscriber has applied."""
        return self._image

    @property
    def committed_image(self) -> MetadataImage:
        """The image of all committed records, applied or not."""
        return self._builder.image

    @property
    def open_transaction(self) -> str | None:
        """The name of the open transaction, None if there is none. A new leader aborts it."""
        return None if self._open is None else self._open_name

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

    def foresee(self, foresee: Foresee) -> None:
        """Set the source of images after this node's own transactions."""
        self._foresee = foresee

    def committed(self, base_offset: int, epoch: int, values: list[bytes]) -> None:
        """Apply one committed batch of records; raise CorruptionError if one does not fit."""
        for offset, value in enumerate(values, base_offset):
            record = pb.MetadataRecord.FromString(value)
            kind = record.WhichOneof("record")
            match kind:
                case "begin_transaction":
                    self._begin(record.begin_transaction.name, offset, epoch)
                case "end_transaction" if self._end(offset):
                    continue
                case "abort_transaction":
                    self._close_transaction(offset)
                case _:
                    pass
            if self._open is not None:
                if self._foreseen is not None:
                    self._open.note(record)
                else:
                    self._open.replay(record, offset=offset, epoch=epoch)
                continue
            if kind == "topic" and self._builder.would_recreate(record.topic):
                self._earlier.append(self._builder)
                self._builder = DeltaBuilder(self._builder.image)
            self._builder.replay(record, offset=offset, epoch=epoch)
        (self._open or self._builder).settle()
        self._moved.set()

    def _begin(self, name: str, offset: int, epoch: int) -> None:
        if self._open is not None:
            raise CorruptionError(
                f"metadata record {offset} begins a transaction inside {self._open_name!r}"
            )
        self._open, self._open_name = DeltaBuilder(self._builder.image), name
        self._foreseen = self._foresee(offset, epoch)

    def _end(self, offset: int) -> bool:
        """Make the open transaction a delta of its own; return True if its image includes the end
        record."""
        foreseen = self._foreseen
        whole = self._close_transaction(offset)
        if foreseen is not None:
            image = foreseen.image
            assert image is not None, f"transaction ended at {offset} by another leader"
            assert image.offset == offset, f"image of {image.offset} at end record {offset}"
            whole.adopt(image)
        if self._builder.image is not self._builder.before:
            self._earlier.append(self._builder)
        self._builder = whole
        return foreseen is not None

    def _close_transaction(self, offset: int) -> DeltaBuilder:
        if self._open is None:
            raise CorruptionError(f"metadata record {offset} ends a transaction without a begin")
        builder, self._open, self._foreseen = self._open, None, None
        return builder

    def snapshot(self) -> Iterator[list[bytes]] | None:
        """Return the committed state in slices of serialized records, unaffected by later records.
        None during a transaction, which a snapshot can neither include nor omit."""
        return None if self._open is not None else image_slices(self.committed_image)

    def begin_restore(self) -> None:
        """Start to restore a snapshot."""
        self._loading = SnapshotLoader()

    def restore(self, values: list[bytes]) -> None:
        """Apply the next slice of the snapshot; raise CorruptionError."""
        self._loading.take(values)

    def end_restore(self, end_offset: int, epoch: int) -> None:
        """Complete the snapshot; its changes are published as one delta."""
        image = self._loading.image(end_offset=end_offset, epoch=epoch)
        self._loading = SnapshotLoader()
        self._open = self._foreseen = None  # the snapshot is later than its end
        if self._builder.image is not self._builder.before:
            self._earlier.append(self._builder)
        self._earlier.append(DeltaBuilder.replacing(self._builder.image, image))
        self._builder = DeltaBuilder(image)
        self._moved.set()

    async def run(self) -> None:
        """Publish deltas until close()."""
        while True:
            await self._moved.wait()
            self._moved.clear()
            if self._is_closed():
                return
            while self.committed_image is not self._image and not self._is_closed():
                await self._publish(await self._next_delta())

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

    async def _next_delta(self) -> ImageDelta:
        """Return the next delta of committed records. The comparison with a snapshot runs in steps
        that yield to the event loop."""
        if self._earlier:
            earlier = self._earlier.popleft()
            for _ in earlier.comparing:
                await asyncio.sleep(0)
            return earlier.build()
        delta = self._builder.build()
        self._builder = DeltaBuilder(delta.after)
        return delta

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
