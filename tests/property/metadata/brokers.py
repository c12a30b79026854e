"""A model of brokers around the controller's decisions: logs, leaders, followers, power cuts.

One partition. Every broker acts on metadata that it applied after a random delay, and only by the
rules of replication: a leader commits the offsets that all of its maximal ISR reported in its
epoch, as long as enough replicas are in sync; followers truncate entries that their leader does not
have. So a replica that is elected without reported loss must have all acknowledged entries.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from quorumlog.errors import IneligibleReplica, QuorumlogError
from quorumlog.ids import NO_NODE, DirectoryId, Epoch, NodeId, Offset, TopicId
from quorumlog.metadata import (
    EMPTY_IMAGE,
    AlterConfigs,
    AlteredPartition,
    AlterPartitions,
    AlterReassignments,
    BalanceLeaders,
    BrokerStopping,
    Command,
    ControllerConfig,
    CreateTopic,
    Decision,
    ElectLeaders,
    FenceBroker,
    IsrChange,
    MetadataImage,
    PartitionImage,
    PartitionsAltered,
    Reassignment,
    RegisterBroker,
    Reply,
    UnfenceBroker,
    UnregisterBroker,
    decide,
    replay_batch,
)
from quorumlog.metadata.topic_configs import effective_min_isr

TOPIC = TopicId(b"a" * 16)
NEVER = Offset(-1)
NODES = tuple(NodeId(node) for node in (1, 2, 3, 4))

Entry = tuple[int, int]  # (leader epoch, number)


@dataclass
class Leading:
    """The state of a broker that leads."""

    epoch: Epoch
    epoch_start: int
    isr: tuple[NodeId, ...]  # as in its metadata
    partition_epoch: int
    remotes: dict[NodeId, tuple[Offset, int]] = field(default_factory=dict)  # epoch, end
    proposal: IsrChange | None = None
    is_waiting: bool = False  # for metadata, after a rejection that requires newer ones


@dataclass
class Broker:
    """A broker process and its disk."""

    node: NodeId
    log: list[Entry] = field(default_factory=list)
    flushed: int = 0  # entries of the log that survive a power cut
    high_watermark: int = 0
    view: MetadataImage = EMPTY_IMAGE
    epoch: Offset = NEVER  # of its registration
    leading: Leading | None = None
    is_alive: bool = False
    has_lost: bool = False  # since the registration that the controller has
    lives: int = 0
    boots: int = 0
    disks: int = 0


class World:
    """The controller, with decisions that commit at once, and the brokers."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.image = EMPTY_IMAGE
        self.images = [EMPTY_IMAGE]
        self.brokers = {node: Broker(node) for node in NODES}
        self.acknowledged: list[Entry] = []
        self.lossy_epoch = -1  # leader epoch of the last election with possible loss
        self.entries = 0
        self.elections = self.losses = 0
        self.counts_flushed = rng.random() < 0.4
        self.history: list[str] = []
        self.flying: list[AlterPartitions] = []  # without a sender that waits for the response
        for node in NODES:
            self.start(node)
            self.learn(self.brokers[node], newest=True)
            self.unfence(node)
        self.decide(
            CreateTopic(
                name="a",
                topic_id=TOPIC,
                assignments=(NODES[: rng.choice((2, 3, 3, 3))],),
                configs=(
                    ("flush.policy", "fsync" if self.counts_flushed else "replicated"),
                    ("min.insync.replicas", rng.choice("122")),
                ),
            )
        )

    # --- the controller ------------------------------------------------------------------------

    @property
    def partition(self) -> PartitionImage:
        return self.image.topics_by_id[TOPIC].partitions[0]

    def decide(self, command: Command) -> Reply | None:
        """Return the reply to a command; None: rejected."""
        try:
            decision = decide(self.image, command, ControllerConfig())
        except QuorumlogError as error:
            self.history.append(f"  refused: {error}")
            return None
        assert isinstance(decision, Decision)
        before = self.image
        self.image = replay_batch(before, decision.records, base_offset=before.offset + 1, epoch=1)
        if decision.records:
            self.images.append(self.image)
            if TOPIC in before.topics_by_id:
                asked = command.changes[0].isr if isinstance(command, AlterPartitions) else ()
                joined = {node for node, _ in asked}
                self._elected(before.topics_by_id[TOPIC].partitions[0], self.partition, joined)
        return decision.reply

    def _elected(self, before: PartitionImage, after: PartitionImage, joined: set[NodeId]) -> None:
        assert after.partition_epoch - before.partition_epoch in (0, 1)
        assert after.leader_epoch - before.leader_epoch in (0, 1)
        if after != before:
            self.history.append(f"  {after}")
        if after.leader_epoch == before.leader_epoch or after.leader == NO_NODE:
            return
        self.elections += 1
        was_clean = after.leader in {*before.isr, *before.elr, *joined}
        assert was_clean or after.recovering, "possible loss of records is not reported"
        if not was_clean:
            self.losses += 1
            self.lossy_epoch = after.leader_epoch
            log = self.brokers[after.leader].log
            kept = common(self.acknowledged, log)
            del self.acknowledged[kept:]

    def check(self) -> None:
        """Check the invariants."""
        if TOPIC not in self.image.topics_by_id:
            return
        partition = self.partition
        isr, elr = set(partition.isr), set(partition.elr)
        assert not isr & elr
        assert (isr | elr | set(partition.last_known_elr)) <= set(partition.replicas)
        assert all(self.image.brokers[node].is_active for node in isr)
        assert (partition.leader == NO_NODE) == (not isr)
        assert partition.leader == NO_NODE or partition.leader in isr
        assert not partition.last_known_elr or not isr | elr
        min_isr = effective_min_isr(
            self.image.topics_by_id[TOPIC].configs,
            replication_factor=partition.replication_factor,
        )
        assert not elr or len(isr) < min_isr
        count = len(self.acknowledged)
        for node in isr | elr:
            broker = self.brokers[node]
            if not broker.has_lost:
                assert broker.log[:count] == self.acknowledged, f"broker {node} lacks records"

    # --- starts and stops of brokers -----------------------------------------------------------

    def start(self, node: NodeId, *, clean: bool = False) -> None:
        broker = self.brokers[node]
        broker.lives += 1
        broker.is_alive, broker.leading, broker.high_watermark = True, None, 0
        broker.view = EMPTY_IMAGE
        reply = self.decide(
            RegisterBroker(
                broker_id=node,
                incarnation_id=bytes([node, broker.lives % 256]) * 8,
                directory_id=DirectoryId(bytes([node, broker.disks % 256]) * 8),
                grpc_address="localhost:1",
                boot_id=f"boot {broker.boots}",
                clean_start=clean,
            )
        )
        assert reply is not None
        broker.epoch = self.image.brokers[node].epoch
        broker.has_lost = False

    def end(self, node: NodeId, how: str) -> None:
        broker = self.brokers[node]
        broker.is_alive, broker.leading = False, None
        if how == "power cut":
            broker.boots += 1
            del broker.log[broker.flushed :]
            broker.has_lost = broker.has_lost or not self.counts_flushed
        elif how == "disk":
            broker.disks += 1
            broker.log, broker.flushed, broker.has_lost = [], 0, True

    def unfence(self, node: NodeId) -> None:
        broker = self.brokers[node]
        registered = self.image.brokers.get(node)
        is_known = registered is not None and registered.epoch == broker.epoch
        if broker.is_alive and is_known and broker.view.offset >= broker.epoch:
            self.decide(UnfenceBroker(broker_id=node, broker_epoch=broker.epoch))

    def learn(self, broker: Broker, *, newest: bool = False) -> None:
        """Apply metadata, not always the newest; none from before the own registration, where the
        previous process still leads."""
        after = max(broker.view.offset + 1, broker.epoch)
        later = [image for image in self.images if image.offset >= after]
        if not later or not broker.is_alive:
            return
        broker.view = later[-1] if newest else self.rng.choice(later)
        topic = broker.view.topics_by_id.get(TOPIC)
        if topic is None:
            return
        partition = topic.partitions[0]
        if broker.node not in partition.replicas:
            broker.log, broker.flushed, broker.high_watermark = [], 0, 0
        leading = broker.leading
        if partition.leader != broker.node:
            broker.leading = None
        elif leading is None or leading.epoch != partition.leader_epoch:
            broker.leading = Leading(
                epoch=partition.leader_epoch,
                epoch_start=len(broker.log),
                isr=partition.isr,
                partition_epoch=partition.partition_epoch,
            )
        elif partition.partition_epoch > leading.partition_epoch:
            leading.isr, leading.partition_epoch = partition.isr, partition.partition_epoch
            leading.proposal, leading.is_waiting = None, False

    # --- data ----------------------------------------------------------------------------------

    def end_of(self, broker: Broker) -> int:
        return broker.flushed if self.counts_flushed else len(broker.log)

    def write(self, broker: Broker) -> None:
        if broker.leading is not None:
            self.entries += 1
            broker.log.append((broker.leading.epoch, self.entries))
            self.commit(broker)

    def flush(self, broker: Broker) -> None:
        broker.flushed = self.rng.randint(broker.flushed, len(broker.log))
        if broker.is_alive and broker.leading is not None:
            self.commit(broker)

    def fetch(self, follower: Broker) -> None:
        """Run one fetch: the request has the follower's end, the response extends its log."""
        topic = follower.view.topics_by_id.get(TOPIC)
        if topic is None or not follower.is_alive or follower.leading is not None:
            return
        partition = topic.partitions[0]
        leader = self.brokers.get(partition.leader)
        if follower.node not in partition.replicas or leader is None or not leader.is_alive:
            return
        leading = leader.leading
        if leading is None or leading.epoch != partition.leader_epoch:
            return
        known = leader.view.topics_by_id[TOPIC].partitions[0].replicas
        if follower.node not in known:
            return
        shared = common(follower.log, leader.log)
        if shared < len(follower.log):
            del follower.log[shared:]
            follower.flushed = min(follower.flushed, shared)
            return
        leading.remotes[follower.node] = (follower.epoch, self.end_of(follower))
        self.commit(leader)
        more = self.rng.randint(0, len(leader.log) - shared)
        follower.log.extend(leader.log[shared : shared + more])
        if self.rng.random() < 0.5:
            follower.flushed = len(follower.log)

    def commit(self, leader: Broker) -> None:
        leading = leader.leading
        assert leading is not None
        topic = leader.view.topics_by_id[TOPIC]
        factor = topic.partitions[0].replication_factor
        if len(leading.isr) < effective_min_isr(topic.configs, replication_factor=factor):
            return
        maximal = set(leading.isr)
        if leading.proposal is not None:
            maximal.update(node for node, _ in leading.proposal.isr)
        ends = [
            self.end_of(leader) if node == leader.node else leading.remotes.get(node, (0, -1))[1]
            for node in sorted(maximal)
        ]
        end = min(ends)
        if end <= leader.high_watermark:
            return
        leader.high_watermark = end
        if leading.epoch < self.lossy_epoch:
            return  # the leader has no metadata yet that accept the loss
        assert leader.log[: len(self.acknowledged)][:end] == self.acknowledged[:end]
        if end > len(self.acknowledged):
            self.acknowledged = leader.log[:end]

    # --- in-sync replicas ----------------------------------------------------------------------

    def propose(self, leader: Broker) -> None:
        leading = leader.leading
        if leading is None or leading.proposal is not None:
            return
        image = leader.view
        partition = image.topics_by_id[TOPIC].partitions[0]
        members = [leader.node]
        for node in partition.replicas:
            if node == leader.node:
                continue
            if node in leading.isr:
                if self.rng.random() < 0.9:
                    members.append(node)
                continue
            epoch, end = leading.remotes.get(node, (Offset(-2), -1))
            broker = image.brokers.get(node)
            if (
                broker is not None
                and broker.is_active
                and broker.epoch == epoch
                and end >= leader.high_watermark
                and end >= leading.epoch_start
                and not partition.recovering
            ):
                members.append(node)
        if set(members) == set(leading.isr) and not partition.recovering:
            return
        if any(node not in image.brokers for node in members):
            return
        leading.proposal = IsrChange(
            topic_id=TOPIC,
            partition=0,
            leader_epoch=leading.epoch,
            partition_epoch=leading.partition_epoch,
            isr=tuple((node, image.brokers[node].epoch) for node in members),
            recovered=partition.recovering,
        )

    def ask(self, leader: Broker) -> None:
        """Send the proposal; the request may arrive late or twice, the response may be lost."""
        leading = leader.leading
        if leading is None or leading.proposal is None or leading.is_waiting:
            return
        change = leading.proposal
        self.history.append(f"  {leader.node} asks {change}")
        command = AlterPartitions(
            broker_id=leader.node, broker_epoch=leader.epoch, changes=(change,)
        )
        if self.rng.random() < 0.3:
            self.flying = [*self.flying[-3:], command]
            return
        reply = self.decide(command)
        if not isinstance(reply, PartitionsAltered) or self.rng.random() < 0.3:
            return
        [result] = reply.results
        if isinstance(result, AlteredPartition):
            leading.isr, leading.partition_epoch = result.isr, result.partition_epoch
            leading.proposal = None
            self.commit(leader)
        elif isinstance(result, IneligibleReplica):
            leading.proposal = None
        else:
            leading.is_waiting = True

    # --- events --------------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        what = rng.choices(tuple(_RATES), tuple(_RATES.values()))[0]
        leaders = [each for each in self.brokers.values() if each.leading is not None]
        whose = leaders if what in _OF_LEADERS and leaders else list(self.brokers.values())
        broker = rng.choice(whose)
        self.history.append(f"{what} {broker.node}")
        happens: dict[str, Callable[[Broker], None]] = {
            "write": self.write,
            "flush": self.flush,
            "fetch": self.fetch,
            "learn": lambda each: self.learn(each, newest=rng.random() < 0.5),
            "propose": self.propose,
            "ask": self.ask,
            "fence": self.fence,
            "unfence": lambda each: self.unfence(each.node),
            "stop": self.stop,
            "end": self.end_somehow,
            "restart": self.restart,
            "late": lambda _: self.arrive_late(),
            "operator": lambda _: self.operate(),
        }
        happens[what](broker)

    def fence(self, broker: Broker) -> None:
        registered = self.image.brokers.get(broker.node)
        if registered is not None and (not broker.is_alive or self.rng.random() < 0.2):
            self.decide(FenceBroker(broker_id=broker.node, broker_epoch=registered.epoch))

    def stop(self, broker: Broker) -> None:
        if broker.is_alive:
            self.decide(BrokerStopping(broker_id=broker.node, broker_epoch=broker.epoch))

    def end_somehow(self, broker: Broker) -> None:
        if broker.is_alive:
            how = self.rng.choices(("kill", "power cut", "disk"), (5, 3, 2))[0]
            self.history.append(f"  by {how}")
            self.end(broker.node, how)

    def restart(self, broker: Broker) -> None:
        if not broker.is_alive:
            self.start(broker.node)
        elif self.rng.random() < 0.1:
            broker.flushed = len(broker.log)
            broker.boots += self.rng.randint(0, 1)
            self.start(broker.node, clean=True)

    def arrive_late(self) -> None:
        if self.flying:
            self.decide(self.flying.pop(self.rng.randrange(len(self.flying))))

    def operate(self) -> None:
        self.decide(self.operator())

    def operator(self) -> Command:
        rng = self.rng
        kind = rng.choice((0, 1, 2, 2, 2, 3, 4, 5))
        if kind == 0:
            return AlterConfigs(topic="a", changes=(("min.insync.replicas", rng.choice("12")),))
        if kind == 1:
            value = rng.choice(("true", "false", "false", "false"))
            return AlterConfigs(topic="a", changes=(("unclean.leader.election.enable", value),))
        if kind == 2:
            return AlterReassignments(reassignments=(self.move(),))
        if kind == 3:
            unclean = rng.random() < 0.2
            return ElectLeaders(unclean=unclean, partitions=(("a", 0),))
        if kind == 4:
            return UnregisterBroker(broker_id=rng.choice(NODES))
        return BalanceLeaders()

    def move(self) -> Reassignment:
        """Return a random reassignment, one with one replica more or less, or a cancellation."""
        rng = self.rng
        present = self.partition.replicas
        target: tuple[NodeId, ...] | None = tuple(rng.sample(NODES, rng.choice((1, 2, 3, 3))))
        change = rng.randrange(4)
        if change == 0:
            target = None
        elif change == 1 and len(present) > 1:
            leaves = rng.choice(present)
            target = tuple(node for node in present if node != leaves)
        elif change == 2 and len(present) < len(NODES):
            target = (*present, rng.choice([node for node in NODES if node not in present]))
        return Reassignment(topic="a", partition=0, replicas=target)


def common(left: list[Entry], right: list[Entry]) -> int:
    """Return the length of the common prefix."""
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))


_RATES = {
    "write": 12,
    "flush": 8,
    "fetch": 40,
    "learn": 40,
    "propose": 14,
    "ask": 16,
    "fence": 6,
    "unfence": 16,
    "stop": 0.3,
    "end": 2,
    "restart": 8,
    "operator": 2,
    "late": 6,
}
_OF_LEADERS = ("write", "propose", "ask")
