"""The metadata of a modelled cluster: decisions, one after the other, and the log of them."""

from collections.abc import Callable, Iterable
from typing import Final

from ...ids import NodeId, Offset, TopicId
from ...metadata import (
    EMPTY_IMAGE,
    Command,
    ControllerConfig,
    Decision,
    MetadataImage,
    Reply,
    decide,
    replay_batch,
)
from ...proto import metadata_records_pb2 as pb

Place = tuple[TopicId, int]


class ModelController:
    """One controller that never fails: consensus is simulated elsewhere."""

    def __init__(self, decided: Callable[[MetadataImage, Iterable[Place]], None]) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.log: list[pb.MetadataRecord] = []
        self.config: Final = ControllerConfig()
        self._decided = decided
        self.changes = 0  # of partitions
        self.moves = 0  # of leaderships

    def submit(self, command: Command) -> Reply:
        """Decide and commit; raises what `decide` raises."""
        decision = decide(self.image, command, self.config)
        if isinstance(decision, Decision):
            self._append(decision.records)
            return decision.reply
        for records in decision.slices:
            self._append(records)
        return decision.finish(self.image)[0]

    def epoch_of(self, node: NodeId) -> Offset:
        """A broker's registration, -1: it has none."""
        broker = self.image.brokers.get(node)
        return Offset(-1) if broker is None else broker.epoch

    def _append(self, records: tuple[pb.MetadataRecord, ...]) -> None:
        base = len(self.log)
        self.log.extend(records)
        self.image = replay_batch(self.image, records, base_offset=base, epoch=0)
        touched: dict[Place, None] = {}
        for record in records:
            if record.HasField("partition_change"):
                change = record.partition_change
                touched[TopicId(change.topic_id), change.partition] = None
                self.changes += 1
                self.moves += change.HasField("leader")
            elif record.HasField("broker_change") or record.HasField("broker"):
                continue
        self._decided(self.image, touched)
