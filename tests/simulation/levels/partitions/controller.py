"""The metadata of a modelled cluster: sequential decisions, and the changes for each broker."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from quorumlog.ids import NodeId, Offset, TopicId
from quorumlog.metadata import (
    EMPTY_IMAGE,
    Command,
    ControllerConfig,
    Decision,
    MetadataImage,
    Reply,
    decide,
    replay_batch,
)
from quorumlog.metadata.image import PartitionImage
from quorumlog.metadata.invariants import changed_partitions, check_change, check_invariants
from quorumlog.proto import metadata_records_pb2 as pb

Place = tuple[TopicId, int]
IMAGES_KEPT: Final = 40
Watch = Callable[[Place, PartitionImage | None, PartitionImage | None], None]
"""Called with a partition before and after a change."""


@dataclass(slots=True)
class Batch:
    """The changes in a batch of the metadata log, by affected broker."""

    touched: dict[NodeId, list[Place]] = field(default_factory=dict)  # by replicas, old and new
    brokers: dict[NodeId, None] = field(default_factory=dict)


class ModelController:
    """A controller that never fails: consensus is simulated elsewhere.

    The log itself is not kept: brokers apply shared images and the changes of their partitions. So
    a change costs its own size, independent of the number of brokers.
    """

    def __init__(self, decided: Callable[[MetadataImage, Iterable[Place]], None]) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.end = 0  # number of records
        self.config: Final = ControllerConfig()
        self.watches: list[Watch] = []
        self.recent: Final = deque[MetadataImage](maxlen=IMAGES_KEPT)  # the earlier images
        self._decided = decided
        self._ends: list[int] = []  # ends of the batches
        self._batches: list[Batch] = []
        self.changes = 0  # of partitions
        self.moves = 0  # of leaderships

    def submit(self, command: Command) -> Reply:
        """Decide and commit; raises the errors of `decide`."""
        decision = decide(self.image, command, self.config)
        if isinstance(decision, Decision):
            self._append(decision.records)
            check_invariants(self.image)
            return decision.reply
        for records in decision.slices:
            self._append(records)
        check_invariants(self.image)
        return decision.finish(self.image)[0]

    def submit_to_deposed(self, command: Command, image: MetadataImage) -> Reply | None:
        """Decide at a deposed controller that has applied no later changes than `image`; return
        its reply, None if it waits for a commit. Raises the errors of `decide`."""
        decision = decide(image, command, self.config)
        if not isinstance(decision, Decision) or decision.records:
            return None
        return decision.reply

    def epoch_of(self, node: NodeId) -> Offset:
        """Return a broker's epoch, -1 if it is not registered."""
        broker = self.image.brokers.get(node)
        return Offset(-1) if broker is None else broker.epoch

    def touched(self, node: NodeId, *, start: int, end: int) -> Iterator[Place]:
        """Yield the partitions of a node, old and new, that the records in [start, end) change,
        each once; both are ends of batches."""
        places: dict[Place, None] = {}
        for batch in self._between(start, end):
            places.update(dict.fromkeys(batch.touched.get(node, ())))
        yield from places

    def touches_brokers(self, *, start: int, end: int) -> bool:
        """Return True if the records in [start, end) change a broker."""
        return any(batch.brokers for batch in self._between(start, end))

    def _between(self, start: int, end: int) -> list[Batch]:
        return self._batches[bisect_right(self._ends, start) : bisect_right(self._ends, end)]

    def _append(self, records: tuple[pb.MetadataRecord, ...]) -> None:
        if not records:
            return
        before, base = self.image, self.end
        self.recent.append(before)
        self.image = replay_batch(before, records, base_offset=base, epoch=0)
        check_change(before, self.image, changed_partitions(records))
        self.end += len(records)
        batch, places = Batch(), dict[Place, None]()
        for record in records:
            match record.WhichOneof("record"):
                case "partition_change":
                    change = record.partition_change
                    places[TopicId(change.topic_id), change.partition] = None
                    self.changes += 1
                    self.moves += change.HasField("leader")
                case "partition":
                    made = record.partition
                    places[TopicId(made.topic_id), made.partition] = None
                case "broker":
                    batch.brokers[NodeId(record.broker.id)] = None
                case "broker_change":
                    batch.brokers[NodeId(record.broker_change.id)] = None
                case _:
                    pass  # topics are never deleted here, and configs never changed
        for place in places:
            self._tell(batch, place, before.partition(*place), self.image.partition(*place))
        self._ends.append(self.end)
        self._batches.append(batch)
        self._decided(self.image, places)

    def _tell(
        self,
        batch: Batch,
        place: Place,
        before: PartitionImage | None,
        after: PartitionImage | None,
    ) -> None:
        holders = [*(before.replicas if before else ()), *(after.replicas if after else ())]
        for node in dict.fromkeys(holders):
            batch.touched.setdefault(node, []).append(place)
        for watch in self.watches:
            watch(place, before, after)
