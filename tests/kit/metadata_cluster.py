"""A metadata cluster that decides commands and replays their records without a log."""

from dataclasses import dataclass, field

from quorumlog.errors import QuorumlogError
from quorumlog.ids import DirectoryId, Epoch, NodeId, Offset, TopicId
from quorumlog.metadata import (
    EMPTY_IMAGE,
    AlteredPartition,
    AlterPartitions,
    BrokerStopping,
    Command,
    ControllerConfig,
    CreateTopic,
    Decision,
    FenceBroker,
    IsrChange,
    MetadataImage,
    PartitionImage,
    PartitionsAltered,
    RegisterBroker,
    TopicImage,
    UnfenceBroker,
    decide,
    replay_batch,
)
from quorumlog.metadata.decision import RECORDS_A_STEP
from quorumlog.metadata.invariants import changed_partitions, check_change, check_invariants
from quorumlog.proto.metadata_records_pb2 import MetadataRecord


@dataclass
class Cluster:
    """Executes commands and keeps the image, with the offsets of a log."""

    image: MetadataImage = EMPTY_IMAGE
    config: ControllerConfig = field(default_factory=ControllerConfig)
    slices: int = 1  # of the last decision, including empty ones

    def do(self, command: Command) -> Decision:
        """Execute a command; return a sliced decision as one with all records."""
        decision = decide(self.image, command, self.config)
        self.slices = 1
        if isinstance(decision, Decision):
            self.replay(decision.records)
            check_invariants(self.image)
            return decision
        records: list[MetadataRecord] = []
        self.slices = 0
        for part in decision.slices:
            assert len(part) <= RECORDS_A_STEP
            self.slices += 1
            self.replay(part)
            records.extend(part)
        check_invariants(self.image)
        reply, brokers = decision.finish(self.image)
        return Decision(records=tuple(records), reply=reply, brokers=brokers)

    def replay(self, records: tuple[MetadataRecord, ...]) -> None:
        base_offset = self.image.offset + 1
        before = self.image
        self.image = replay_batch(before, records, base_offset=base_offset, epoch=1)
        check_change(before, self.image, changed_partitions(records))

    # --- brokers -------------------------------------------------------------------------------

    def register(
        self,
        node: int,
        incarnation: int = 0,
        *,
        boot: str = "boot",
        clean: bool = False,
        disk: int = 0,
    ) -> Decision:
        """Register a broker. The same boot id is a process crash, another one a power cut, unless
        `clean`. Another disk is a loss of all data."""
        return self.do(
            RegisterBroker(
                broker_id=NodeId(node),
                incarnation_id=bytes([node, incarnation]) * 8,
                directory_id=DirectoryId(bytes([node, disk]) * 8),
                grpc_address=f"localhost:{9000 + node}",
                boot_id=boot,
                clean_start=clean,
            )
        )

    def start(self, *nodes: int) -> None:
        for node in nodes:
            self.register(node)
            self.unfence(node)

    def unfence(self, node: int) -> Decision:
        return self.do(UnfenceBroker(broker_id=NodeId(node), broker_epoch=self.epoch(node)))

    def fence(self, node: int) -> Decision:
        return self.do(FenceBroker(broker_id=NodeId(node), broker_epoch=self.epoch(node)))

    def stop(self, node: int) -> Decision:
        return self.do(BrokerStopping(broker_id=NodeId(node), broker_epoch=self.epoch(node)))

    def epoch(self, node: int) -> Offset:
        return self.image.brokers[NodeId(node)].epoch

    # --- topics --------------------------------------------------------------------------------

    def create(self, name: str, **fields: object) -> Decision:
        topic_id = TopicId((name.encode() * 16)[:16])
        command = CreateTopic(**{"name": name, "topic_id": topic_id, **fields})  # type: ignore[arg-type]
        return self.do(command)

    def assign(self, name: str, *replicas: tuple[int, ...], **configs: str) -> None:
        """Create a topic with the replicas of each partition; configs with '_' for '.'."""
        self.create(
            name,
            assignments=tuple(tuple(NodeId(node) for node in each) for each in replicas),
            configs=tuple((key.replace("_", "."), value) for key, value in configs.items()),
        )

    def topic(self, name: str) -> TopicImage:
        topic = self.image.topic(name)
        assert topic is not None
        return topic

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        return self.topic(name).partitions[index]

    def standing(
        self, name: str, index: int = 0
    ) -> tuple[NodeId, tuple[NodeId, ...], tuple[NodeId, ...]]:
        """Return the leader, the ISR and the ELR of a partition."""
        partition = self.partition(name, index)
        return partition.leader, partition.isr, partition.elr

    def change(self, name: str, isr: tuple[int, ...], *, index: int = 0) -> IsrChange:
        """Return the ISR change of a leader with the current metadata."""
        partition = self.partition(name, index)
        return IsrChange(
            topic_id=self.topic(name).id,
            partition=index,
            leader_epoch=Epoch(partition.leader_epoch),
            partition_epoch=partition.partition_epoch,
            isr=tuple((NodeId(n), self.epoch(n)) for n in isr),
            recovered=partition.recovering,
        )

    def ask(self, asker: int, *changes: IsrChange) -> list[AlteredPartition | QuorumlogError]:
        """Return the results of one AlterPartition request of a broker."""
        command = AlterPartitions(
            broker_id=NodeId(asker), broker_epoch=self.epoch(asker), changes=changes
        )
        reply = self.do(command).reply
        assert isinstance(reply, PartitionsAltered)
        return list(reply.results)

    def set_isr(self, name: str, *isr: int, index: int = 0) -> None:
        """Change the ISR by a request of the partition's leader."""
        asker = self.partition(name, index).leader
        [result] = self.ask(asker, self.change(name, isr, index=index))
        assert isinstance(result, AlteredPartition), result
        assert result == self.partition(name, index).as_altered
