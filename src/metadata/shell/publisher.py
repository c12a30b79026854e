"""The metadata as this node has applied it: follows the committed log, hands every change to the
subscribers in order, and says how far they are.

Owns the committed image of the node. `image` is what every subscriber has applied; what was
committed meanwhile is gathered into one delta for the next round. Of a metadata transaction nothing
is seen before its end: not in an image, not in a delta, not in a snapshot.
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
"""Calls that may wait for an offset at a time."""

Subscriber: TypeAlias = Callable[[ImageDelta], Awaitable[None] | None]


@dataclass(slots=True)
class Foreseen:
    """A transaction that was decided on this node, and the image after it once it has an end: it
    need not be replayed once more. Whoever began one is alone in ending it, otherwise than by an
    abort, so the image is that of the records that are committed."""

    image: MetadataImage | None = None


Foresee: TypeAlias = Callable[[int, int], Foreseen | None]
"""From offset and epoch of the record that begins a transaction."""


class MetadataPublisher:
    """Applies committed records; run() must run for anything to be published."""

    def __init__(self) -> None:
        self._image = EMPTY_IMAGE  # applied by all subscribers
        self._builder = DeltaBuilder(EMPTY_IMAGE)  # what was committed last
        self._open: DeltaBuilder | None = None  # what a transaction changes that has no end yet
        self._open_name = ""
        self._foreseen: Foreseen | None = None  # that transaction, if it was decided here
        self._foresee: Foresee = lambda _offset, _epoch: None
        self._earlier: deque[DeltaBuilder] = deque()  # committed before, not yet published
        self._loading = SnapshotLoader()  # of the snapshot that is being restored
        self._subscribers: list[Subscriber] = []
        self._applied_listeners: list[Callable[[Offset], None]] = []
        self._moved = asyncio.Event()
        self._closed = False
        # Those who wait for an offset, in the order of their coming, and the lowest of the offsets.
        self._waiters: dict[asyncio.Future[None], Offset] = {}
        self._awaited: Offset | None = None

    @property
    def image(self) -> MetadataImage:
        """What every subscriber has applied."""
        return self._image

    @property
    def committed_image(self) -> MetadataImage:
        """What is committed, applied or not."""
        return self._builder.image

    @property
    def open_transaction(self) -> str | None:
        """The name of the transaction whose end is not committed yet, None: there is none. A new
        leader that finds one aborts it first."""
        return None if self._open is None else self._open_name

    @property
    def applied_offset(self) -> Offset:
        """Offset of the last record that every subscriber has applied, -1: none."""
        return self._image.offset

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call with every delta from now on, in order and one at a time, awaiting what it returns.

        Subscribers are called in the order of subscription; subscribe before run() to see all. An
        error of one ends run(): a node with half a metadata change must not go on.
        """
        self._subscribers.append(subscriber)

    def on_applied(self, listener: Callable[[Offset], None]) -> None:
        """Call with `applied_offset` whenever it has moved."""
        self._applied_listeners.append(listener)

    def foresee(self, foresee: Foresee) -> None:
        """Take the images after transactions that were decided on this node from here on."""
        self._foresee = foresee

    def committed(self, base_offset: int, epoch: int, values: list[bytes]) -> None:
        """Take one committed batch of records; raises CorruptionError when one does not fit."""
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
                f"metadata record {offset} begins a transaction in another one, {self._open_name!r}"
            )
        self._open, self._open_name = DeltaBuilder(self._builder.image), name
        self._foreseen = self._foresee(offset, epoch)

    def _end(self, offset: int) -> bool:
        """All of it counts, as a delta of its own; whether the end is part of it already."""
        foreseen = self._foreseen
        whole = self._close_transaction(offset)
        if foreseen is not None:
            image = foreseen.image
            assert image is not None, f"a transaction was ended at {offset}, and not by its leader"
            assert image.offset == offset, f"the image is of {image.offset}, the end at {offset}"
            whole.adopt(image)
        if self._builder.image is not self._builder.before:
            self._earlier.append(self._builder)
        self._builder = whole
        return foreseen is not None

    def _close_transaction(self, offset: int) -> DeltaBuilder:
        if self._open is None:
            raise CorruptionError(f"metadata record {offset} ends a transaction that never began")
        builder, self._open, self._foreseen = self._open, None, None
        return builder

    def snapshot(self) -> Iterator[list[bytes]] | None:
        """The committed state in slices of record values; it stays that state. None in the middle
        of a transaction: nothing that is committed then may be kept or left out."""
        return None if self._open is not None else image_slices(self.committed_image)

    def begin_restore(self) -> None:
        """A snapshot follows."""
        self._loading = SnapshotLoader()

    def restore(self, values: list[bytes]) -> None:
        """One slice of the snapshot, in order; raises CorruptionError."""
        self._loading.take(values)

    def end_restore(self, end_offset: int, epoch: int) -> None:
        """The snapshot is complete: what it changed is published as one delta."""
        image = self._loading.image(end_offset=end_offset, epoch=epoch)
        self._loading = SnapshotLoader()
        self._open = self._foreseen = None  # the snapshot is of a state behind its end
        if self._builder.image is not self._builder.before:
            self._earlier.append(self._builder)
        self._earlier.append(DeltaBuilder.replacing(self._builder.image, image))
        self._builder = DeltaBuilder(image)
        self._moved.set()

    async def run(self) -> None:
        """Publish until close()."""
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
        """Return once this node has applied the metadata up to the offset (inclusive); raises
        StaleMetadata after `timeout_ms`, Overloaded when too many wait already."""
        if self.applied_offset >= offset:
            return
        if len(self._waiters) >= WAITERS_MAX:
            raise Overloaded(
                f"{WAITERS_MAX} calls wait for this broker to apply the metadata: wait and repeat"
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
                f" {offset}, within {timeout_ms} ms: repeat the request"
            ) from None
        finally:
            self._waiters.pop(waiter, None)

    def _is_closed(self) -> bool:
        return self._closed

    async def _next_delta(self) -> ImageDelta:
        """What was committed since the last round, up to where a delta must end; a snapshot is
        compared with the state before it in steps that let others run."""
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
        """Let those go whose offset is applied; looks at nobody while there is none."""
        applied = self._image.offset
        if self._awaited is None or applied < self._awaited:
            return
        for waiter, offset in list(self._waiters.items()):
            if offset <= applied:
                del self._waiters[waiter]
                if not waiter.done():
                    waiter.set_result(None)
        self._awaited = min(self._waiters.values(), default=None)
