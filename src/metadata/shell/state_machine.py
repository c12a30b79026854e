"""The replicated state machine of the metadata log, the same on every node.

Owns the committed image and the deltas that lead to it, until the publisher takes them. A metadata
transaction is invisible before its end: in images, deltas and snapshots.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ...errors import CorruptionError
from ...ids import NodeId
from ...proto import metadata_records_pb2 as pb
from ..delta import DeltaBuilder, ImageDelta
from ..image import EMPTY_IMAGE, MetadataImage
from ..snapshots import SnapshotLoader, image_slices


@dataclass(slots=True)
class Foreseen:
    """A transaction of this node and the image after its end, so that its records are not replayed
    again. Only the node that began a transaction can end it without an abort, so the image is that
    of the committed records."""

    image: MetadataImage | None = None


Foresee: TypeAlias = Callable[[int, int], Foreseen | None]
"""Maps the offset and epoch of a begin record to this node's transaction, None if it has none."""
LeadershipListener: TypeAlias = Callable[[NodeId | None], None]
"""Receives the quorum's leader, None if it is unknown."""


class MetadataStateMachine:
    """Applies committed records; hand it to the RaftNode."""

    def __init__(self) -> None:
        self._builder = DeltaBuilder(EMPTY_IMAGE)  # records committed since the last delta
        self._open: DeltaBuilder | None = None  # changes of a transaction without an end
        self._open_name = ""
        self._foreseen: Foreseen | None = None  # the open transaction, if it is this node's
        self._foresee: Foresee = lambda _offset, _epoch: None
        self._earlier: deque[DeltaBuilder] = deque()  # complete deltas that are not taken yet
        self._loading = SnapshotLoader()  # of the snapshot in progress
        self._committed_listeners: list[Callable[[], None]] = []
        self._leadership_listeners: list[LeadershipListener] = []

    @property
    def committed_image(self) -> MetadataImage:
        """The image of all committed records, applied by the node or not."""
        return self._builder.image

    @property
    def open_transaction(self) -> str | None:
        """The name of the open transaction, None if there is none. A new leader aborts it."""
        return None if self._open is None else self._open_name

    def foresee(self, foresee: Foresee) -> None:
        """Set the source of images after this node's own transactions."""
        self._foresee = foresee

    def on_committed(self, listener: Callable[[], None]) -> None:
        """Call the listener after each committed batch and each restored snapshot."""
        self._committed_listeners.append(listener)

    def on_leadership(self, listener: LeadershipListener) -> None:
        """Call the listener after each change of the quorum's leader. Listeners are called in the
        order of their registration."""
        self._leadership_listeners.append(listener)

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
        self._announce()

    def leadership(self, leader_id: NodeId | None, epoch: int) -> None:
        """See StateMachine."""
        for listener in self._leadership_listeners:
            listener(leader_id)

    def _announce(self) -> None:
        for listener in self._committed_listeners:
            listener()

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
        self._announce()

    async def next_delta(self) -> ImageDelta:
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
