"""The lifecycle of brokers: start, registration, metadata, end."""

from typing import Any, Final

from quorumlog.broker.partition import Partition
from quorumlog.errors import QuorumlogError
from quorumlog.ids import DirectoryId, NodeId, Offset
from quorumlog.metadata import Command, FenceBroker, MetadataImage, RegisterBroker, UnfenceBroker

from .broker import ModelBroker, Place
from .world import PartitionWorld

SECOND_US: Final = 1_000_000


class BrokerLifecycle:
    """The processes and registrations of brokers, and the metadata they apply."""

    def __init__(self, world: PartitionWorld) -> None:
        self.world = world
        self.crashes = 0

    def start(self, node: NodeId) -> None:
        """Start a new process, which registers."""
        broker = self.world.brokers[node]
        broker.start()
        self.world.note("start", node)
        self.world.at(
            self.world.latency_us(),
            self.world.when_awake,
            broker,
            broker.life,
            self._register,
            node,
        )

    def _register(self, node: NodeId) -> None:
        broker = self.world.brokers[node]
        self.submit(
            RegisterBroker(
                broker_id=node,
                incarnation_id=bytes([node]) * 8 + broker.life.to_bytes(8),
                directory_id=DirectoryId(bytes([node]) * 15 + bytes([broker.disk.number])),
                grpc_address=f"n{node}:1",
                rack=broker.rack,
                boot_id=str(broker.disk.boot),
                clean_start=broker.disk.was_clean,
            )
        )
        broker.disk.was_clean = False
        broker.broker_epoch = self.world.controller.epoch_of(node)
        self._apply(node, self.world.controller.end, self.world.controller.image)
        self.world.isr.check_isr_later(broker, broker.life)
        self.world.at(
            self.world.latency_us(), self.world.when_awake, broker, broker.life, self._unfence, node
        )

    def _unfence(self, node: NodeId) -> None:
        broker = self.world.brokers[node]
        if broker.image.offset < broker.broker_epoch:
            self.world.at(
                self.world.latency_us(),
                self.world.when_awake,
                broker,
                broker.life,
                self._unfence,
                node,
            )
            return
        self.attempt(UnfenceBroker(broker_id=node, broker_epoch=broker.broker_epoch))

    def end(self, node: NodeId, *, clean: bool, back_us: float) -> None:
        """End a process; it restarts after `back_us`."""
        broker = self.world.brokers[node]
        epoch = broker.broker_epoch
        broker.end(clean=clean)
        self.world.waits.ended(broker)
        for held in broker.parked.values():
            for _, asked in sorted(held.items()):
                self.world.traffic.fetch_again_later(asked)  # its connection broke
        self.crashes += 1
        fence_us = self.world.random.randint(1, self.world.options.session_timeout_ms) * 1000
        self.world.at(fence_us, self.fence, node, epoch)
        self.world.at(back_us, self._back, node)

    def _back(self, node: NodeId) -> None:
        if not self.world.brokers[node].is_alive:
            self.start(node)

    def fence(self, node: NodeId, epoch: Offset) -> None:
        """Fence a registration."""
        self.attempt(FenceBroker(broker_id=node, broker_epoch=epoch))

    def unfence_after_pause(self, node: NodeId, life: int) -> None:
        """Unfence a process that was paused beyond its session."""
        broker = self.world.brokers[node]
        if broker.is_alive and broker.life == life and broker.broker_epoch >= 0:
            self._unfence(node)

    def submit(self, command: Command) -> Any:
        """Submit a command, and schedule the metadata change at every broker."""
        before = self.world.controller.end
        reply = self.world.controller.submit(command)
        end, image = self.world.controller.end, self.world.controller.image
        if end > before:
            self.world.note(type(command).__name__, end)
            for node, broker in self.world.brokers.items():
                self.world.at(
                    self._metadata_us(),
                    self.world.when_awake,
                    broker,
                    broker.life,
                    self._apply,
                    node,
                    end,
                    image,
                )
        return reply

    def attempt(self, command: Command) -> None:
        """Submit a command that may be refused."""
        try:
            self.submit(command)
        except QuorumlogError as error:
            self.world.note(f"{type(command).__name__} refused: {type(error).__name__}")

    def _metadata_us(self) -> int:
        if self.world.is_faulty and self.world.random.random() < self.world.options.metadata_stall:
            return self.world.random.randint(0, 2 * SECOND_US)
        return self.world.random.randint(*self.world.options.metadata_us)

    def _apply(self, node: NodeId, end: int, image: MetadataImage) -> None:
        broker = self.world.brokers[node]
        start = broker.image.offset + 1
        if end <= start or broker.broker_epoch < 0:
            return
        controller = self.world.controller
        touched = controller.touched(node, start=start, end=end)
        applied = broker.apply(image, touched, self.world.now_ms)
        for partition, place, waits in applied.failed:
            for wait in waits:
                self.world.waits.released(broker, place, partition, wait)
            self.world.waits.check_count(broker, place, partition)
        for place in applied.taken:
            partition = broker.replicas[place]
            self.world.traffic.flush(
                broker, place
            )  # data found on the disk count once they are durable
            if partition.is_leader:
                self._became_leader(broker, place, partition)
            else:
                self.world.traffic.fetch(node, broker.life, place)
        for place, progress in sorted(applied.progress, key=lambda each: each[0]):
            self.world.traffic.progressed(broker, place, progress)
        if controller.touches_brokers(start=start, end=end):
            self.world.isr.look_at_lacking(broker)
        self.world.isr.ask_for_isr(node)

    def _became_leader(self, broker: ModelBroker, place: Place, partition: Partition) -> None:
        self.world.note("leads", broker.node_id, place[1], partition.leader_epoch)
        state = self.world.controller.image.topics_by_id[place[0]].partitions.get(place[1])
        if state is not None and state.leader_epoch == partition.leader_epoch:
            self.world.checks.became_leader(broker, place, partition)
        self.world.checks.mark_moved(broker, place, partition)
