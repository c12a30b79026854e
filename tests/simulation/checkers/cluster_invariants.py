"""Invariants across the nodes of a cluster, checked after every step of any node.

A step is one turn of a node's loop. Changed partitions of that node are checked against all nodes
and against the logs on their disks. A violation is an AssertionError with the offsets and epochs.

Partitions (KIP-966's model, KIP-101):

- `OneLeader`: a partition is led by one node in each leader epoch.
- `OneHistory`: two replicas hold the same batches below both their high watermarks.
- `CompleteCandidates`: every electable replica (ISR and ELR) holds everything committed, flushed if
  the flush policy is fsync.
- `MaximalIsr`: a leader counts every member of the ISR that the controller has committed.
- `MinIsrCommit`: no high watermark advances under min.insync.replicas.
- `MonotonicReplica`: a replica's high watermark and leader epoch never decrease in a process.
- Every log's own invariants, one check in `COMPLETE_EVERY` complete (`Log.check_invariants`).
- `StoredEnd`: a replica's log end is not above the end of the batches in its files.
- `HighWatermarkInLog`: a replica's high watermark is not above its log end.
- `MonotonicStable`: a replica's last stable offset never decreases in a process.
- `StartIsStable`: a leader's log does not start behind the first offset of an open transaction.

Metadata:

- `OneMetadata`: nodes that have applied up to the same offset have the same image.
- `SoundMetadata`: ISR and ELR are disjoint sets of replicas; the leader is in the ISR; with
  min.insync.replicas in the ISR the ELR is empty; epochs only grow, the leader epoch with each
  change of the leader.
- `UnfencedIsr`: no member of an ISR is fenced.
- `NoUncleanElection`: no leader was elected with possible loss, unless unclean elections are
  enabled.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from quorumlog.broker.isr import IsrProposal, LeaderAndIsr
from quorumlog.broker.shell.replica import Replica
from quorumlog.ids import TopicId
from quorumlog.metadata import MetadataImage, PartitionImage, TopicImage
from quorumlog.metadata.invariants import check_change, check_invariants
from quorumlog.simulation.process import Process
from quorumlog.storage import Log

from ..cluster.machines import DATA
from ..cluster.nodes import Cluster, ClusterNode
from ..cluster.options import TopicPlan
from .stored_batches import PartitionFiles, StoredBatch, key_of
from .violation import Violation

IMAGES_KEPT: Final = 400

COMPLETE_EVERY: Final = 16
"""One in this many checks of a log is complete; the others cost O(epochs)."""


@dataclass(frozen=True, slots=True)
class WatchedPartition:
    """A partition of a topic; a topic that is created again has another id."""

    topic: str
    topic_id: bytes
    index: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


@dataclass(slots=True)
class Committed:
    """The committed batches of a partition, as the first replica that committed them held them."""

    ends: list[int] = field(default_factory=list)
    batches: list[StoredBatch] = field(default_factory=list)
    leaders: dict[int, str] = field(default_factory=dict)  # by leader epoch
    log_end_max: int = 0  # of any replica at any time

    @property
    def end_offset(self) -> int:
        """The end of the offsets committed by any replica."""
        return self.ends[-1] if self.ends else 0

    def take(self, node: str, what: WatchedPartition, batch: StoredBatch) -> None:
        """Record that a replica has committed a batch; compare it with others."""
        if batch.end_offset > self.end_offset:
            assert batch.base_offset >= self.end_offset, (
                f"OneHistory: {node} has a batch [{batch.base_offset}, {batch.end_offset}) of"
                f" {what} committed, others one that ends at {self.end_offset}"
            )
            self.ends.append(batch.end_offset)
            self.batches.append(batch)
            return
        known = self.batches[bisect_right(self.ends, batch.base_offset)]
        assert key_of(known) == key_of(batch), (
            f"OneHistory: {node} has {_shown(batch)} of {what} committed, another replica had"
            f" {_shown(known)}"
        )


@dataclass(slots=True)
class _View:
    """The state of a replica at its last check."""

    name: str  # of its machine
    what: WatchedPartition
    files: PartitionFiles
    process: Process
    seen_mark: int = -1
    seen_end: int | None = None
    seen_epoch: int = -1
    seen_state: LeaderAndIsr | None = None
    seen_proposal: IsrProposal | None = None
    high_watermark: int = 0
    stable: int = 0  # last stable offset
    epoch: int = -1
    checked_to: int = -1  # compared with the committed log up to this offset


class ClusterInvariants:
    """Checks a cluster after every step."""

    def __init__(self, cluster: Cluster) -> None:
        self.steps = 0
        self.checks = 0
        self._cluster = cluster
        self._nodes = {node.name: node for node in cluster.nodes}
        self._views: dict[Replica, _View] = {}  # of every process
        self._files: dict[tuple[str, WatchedPartition], PartitionFiles] = {}
        self._committed: dict[WatchedPartition, Committed] = {}
        self._images: dict[int, MetadataImage] = {}  # by offset, the newest
        self._newest: MetadataImage = cluster.newest_image  # published by any node
        self._known: MetadataImage = cluster.newest_image  # the newest committed one
        self._published: dict[str, MetadataImage] = {}
        cluster.world.loop.after_handle = self.look

    def committed_end(self, topic: str, index: int) -> int:
        """Return the end of a partition's committed offsets."""
        ends = [
            committed.end_offset
            for what, committed in self._committed.items()
            if (what.topic, what.index) == (topic, index)
        ]
        return max(ends, default=0)

    def written_end(self, topic: str, index: int) -> int:
        """Return the highest log end offset that any replica of a partition had."""
        ends = [
            committed.log_end_max
            for what, committed in self._committed.items()
            if (what.topic, what.index) == (topic, index)
        ]
        return max(ends, default=0)

    def look(self, process: Process) -> None:
        """Check a process after a step."""
        node = self._nodes.get(process.name)
        if node is None or node.node is None:
            return
        self.steps += 1
        try:
            self._look(node, process)
        except AssertionError as error:
            name, _, detail = str(error).partition(": ")
            self._cluster.violations.append(Violation(name, detail))

    def _look(self, node: ClusterNode, process: Process) -> None:
        assert node.node is not None, f"{node.name} has no node"
        parts = node.node.parts
        if parts.publisher is not None and parts.metadata is not None:
            if parts.publisher.image is not self._published.get(node.name):
                self._published[node.name] = parts.publisher.image
                self._image_published(node, parts.publisher.image)
            committed = parts.metadata.committed_image
            if committed.offset > self._known.offset:
                before, self._known = self._known, committed
                self._image_committed(before, committed)
        if parts.replicas is None:
            return
        for replica in parts.replicas.hosted:
            partition = replica.partition
            leading = partition.leader
            end = log_end_of(replica)
            view = self._views.get(replica)
            if view is None:
                view = self._views[replica] = self._new_view(node, process, replica)
            elif (
                view.seen_mark == partition.high_watermark
                and view.seen_end == end
                and view.seen_epoch == partition.leader_epoch
                and view.seen_state is (None if leading is None else leading.state)
                and view.seen_proposal is (None if leading is None else leading.isr.proposal)
            ):
                continue
            view.seen_mark, view.seen_end = partition.high_watermark, end
            view.seen_epoch = partition.leader_epoch
            view.seen_state = None if leading is None else leading.state
            view.seen_proposal = None if leading is None else leading.isr.proposal
            self.checks += 1
            log = open_log_of(replica)
            if log is not None:
                log.check_invariants(is_complete=self.checks % COMPLETE_EVERY == 0)
                self._check_stored_end(node, view, log)
                self._check_stable(node, view, log, is_leader=leading is not None)
            self._replica_changed(node, view.what, replica, view, end)
            partition.check_invariants()

    def _new_view(self, node: ClusterNode, process: Process, replica: Replica) -> _View:
        partition = replica.partition
        what = WatchedPartition(partition.topic, replica.topic_id, partition.index)
        return _View(node.name, what, self.files_of(node.name, what), process)

    # --- partitions ----------------------------------------------------------------------------

    def _replica_changed(
        self,
        node: ClusterNode,
        what: WatchedPartition,
        replica: Replica,
        view: _View,
        end: int | None,
    ) -> None:
        partition, leading = replica.partition, replica.partition.leader
        plan = self._plan_of(what)
        committed = self._committed.setdefault(what, Committed())
        mark = partition.high_watermark
        assert partition.leader_epoch >= view.epoch, (
            f"MonotonicReplica: {node.name} went from leader epoch {view.epoch} of {what} back to"
            f" {partition.leader_epoch}"
        )
        view.epoch = partition.leader_epoch
        if leading is not None:
            epoch = leading.state.leader_epoch
            leader = committed.leaders.setdefault(epoch, node.name)
            assert leader == node.name, (
                f"OneLeader: {what} is led by {leader} and {node.name} in epoch {epoch}"
            )
        if end is None:
            return  # the log is not open
        committed.log_end_max = max(committed.log_end_max, end)
        assert mark <= end, (
            f"HighWatermarkInLog: {node.name} has the high watermark of {what} at {mark}, its log"
            f" ends at {end}"
        )
        if plan is None or plan.is_unclean:
            return
        assert mark >= view.high_watermark, (
            f"MonotonicReplica: {node.name} moves the high watermark of {what} from"
            f" {view.high_watermark} to {mark}"
        )
        if leading is not None and view.checked_to >= 0 and mark > view.high_watermark:
            isr = leading.state.isr
            # a reassignment may leave fewer
            needed = min(plan.min_isr, len(leading.state.replicas))
            assert len(isr) >= needed, (
                f"MinIsrCommit: {node.name} commits [{view.high_watermark}, {mark}) of {what} with"
                f" {isr} in sync, {needed} are needed"
            )
        view.high_watermark = mark
        if leading is not None:
            self._check_superset(what, node, leading.state.leader_epoch, leading.isr.maximal_isr())
        self._compare(node, what, view, mark, committed, plan)

    def _check_stored_end(self, node: ClusterNode, view: _View, log: Log) -> None:
        if log.is_changing or log.failure is not None:
            return  # a truncation cuts the file first
        stored = view.files.end_offset()
        assert log.log_end_offset <= max(stored, log.log_start_offset), (
            f"StoredEnd: {node.name} has {view.what} up to {log.log_end_offset}, its files end at"
            f" {stored}"
        )

    def _check_stable(self, node: ClusterNode, view: _View, log: Log, *, is_leader: bool) -> None:
        stable, plan = log.last_stable_offset, self._plan_of(view.what)
        if plan is None or plan.is_unclean:
            return
        assert stable >= view.stable, (
            f"MonotonicStable: {node.name} moves the last stable offset of {view.what} from"
            f" {view.stable} to {stable}"
        )
        view.stable = stable
        undecided = log.producers.states.undecided.first_offset
        assert not is_leader or undecided is None or log.log_start_offset <= undecided, (
            f"StartIsStable: {node.name} starts {view.what} at {log.log_start_offset}; a"
            f" transaction is open from {undecided} on"
        )

    def _compare(
        self,
        node: ClusterNode,
        what: WatchedPartition,
        view: _View,
        mark: int,
        committed: Committed,
        plan: TopicPlan,
    ) -> None:
        """Compare a replica's log below its high watermark with the committed batches."""
        start = max(view.checked_to, 0)
        if mark <= start or plan.is_compacted:
            view.checked_to = start
            return
        before = committed.end_offset
        for batch in view.files.batches(start, mark):
            committed.take(node.name, what, batch)
        view.checked_to = mark
        if committed.end_offset > before:
            self._check_candidates(what, plan)

    def _check_superset(
        self, what: WatchedPartition, node: ClusterNode, epoch: int, counted: tuple[int, ...]
    ) -> None:
        state = self._state_of(self._known, what)
        if state is None or state.leader_epoch != epoch or state.leader != node.node_id:
            return
        missing = [member for member in state.isr if member not in counted]
        assert not missing, (
            f"MaximalIsr: {node.name} leads {what} in epoch {epoch} and counts on {list(counted)};"
            f" the controller has {list(state.isr)} in partition epoch {state.partition_epoch}"
        )

    def _check_candidates(self, what: WatchedPartition, plan: TopicPlan) -> None:
        """Check that every electable replica holds everything committed."""
        state = self._state_of(self._known, what)
        end = self._committed.setdefault(what, Committed()).end_offset
        if state is None:
            return
        for node_id in (*state.isr, *state.elr):
            node = self._cluster.node(node_id)
            if node.name in self._cluster.damaged:
                continue  # the controller has not learned of its loss yet
            files = self.files_of(node.name, what)
            held_end = (
                files.durable_end_offset() if plan.flush_policy == "fsync" else files.end_offset()
            )
            assert held_end >= end, (
                f"CompleteCandidates: {what}: {node.name} may be elected (isr {list(state.isr)},"
                f" elr {list(state.elr)}) and holds [.., {held_end}) of [.., {end}) committed"
            )

    # --- metadata ------------------------------------------------------------------------------

    def _image_published(self, node: ClusterNode, image: MetadataImage) -> None:
        known = self._images.get(image.offset)
        if known is not None:
            assert _same(known, image), (
                f"OneMetadata: {node.name} has another image than others at metadata offset"
                f" {image.offset}"
            )
            return
        if image.offset <= self._newest.offset:
            return  # a later node may publish other offsets in between
        self._images[image.offset] = image
        if len(self._images) > IMAGES_KEPT:
            del self._images[next(iter(self._images))]
        before, self._newest = self._newest, image
        for what, old, new in _changed(before, image):
            self._check_partition(what, old, new, image)
        if before.brokers is not image.brokers:
            for broker in image.sorted_brokers():
                earlier = before.broker(broker.id)
                assert earlier is None or broker.epoch >= earlier.epoch, (
                    f"SoundMetadata: broker {broker.id} of epoch {broker.epoch} was {earlier}"
                )
            for topic in image.sorted_topics():
                for index, state in topic.sorted_partitions():
                    _check_fenced(f"{topic.name}-{index}", state, image)

    def _image_committed(self, before: MetadataImage, image: MetadataImage) -> None:
        check_invariants(image)
        changed = [what for what, _, _ in _changed(before, image)]
        touched = ((TopicId(what.topic_id), what.index) for what in changed)
        check_change(before, image, touched)
        for what in changed:
            plan = self._plan_of(what)
            if plan is None or plan.is_unclean:
                continue
            self._check_candidates(what, plan)
            for replica, view in self._views.items():
                leading = replica.partition.leader
                if view.what == what and view.process.alive and leading is not None:
                    node, epoch = self._nodes[view.name], leading.state.leader_epoch
                    self._check_superset(what, node, epoch, leading.isr.maximal_isr())

    def _check_partition(
        self,
        what: WatchedPartition,
        before: PartitionImage | None,
        state: PartitionImage,
        image: MetadataImage,
    ) -> None:
        isr, elr, plan = set(state.isr), set(state.elr), self._plan_of(what)
        assert isr <= set(state.replicas), (
            f"SoundMetadata: {what}: ISR {isr} of replicas {state.replicas}"
        )
        assert elr <= set(state.replicas), (
            f"SoundMetadata: {what}: ELR {elr} of replicas {state.replicas}"
        )
        assert not isr & elr, f"SoundMetadata: {what}: {isr & elr} are in the ISR and in the ELR"
        assert state.leader < 0 or state.leader in isr, (
            f"SoundMetadata: {what}: leader {state.leader} is not in the ISR {isr}"
        )
        _check_fenced(str(what), state, image)
        if plan is not None and len(isr) >= min(_min_isr(image, plan), len(state.replicas)):
            assert not elr, f"SoundMetadata: {what}: ELR {elr} beside an ISR of {isr}"
        if plan is not None and not plan.is_unclean:
            assert not state.recovering, (
                f"NoUncleanElection: {what}: leader {state.leader} elected with possible loss"
            )
        if before is not None:
            assert state.leader_epoch >= before.leader_epoch, (
                f"SoundMetadata: {what}: leader epoch goes back"
            )
            assert state.partition_epoch > before.partition_epoch, (
                f"SoundMetadata: {what}: partition epoch {state.partition_epoch} follows"
                f" {before.partition_epoch}"
            )
            assert state.leader == before.leader or state.leader_epoch > before.leader_epoch, (
                f"SoundMetadata: {what}: leader {before.leader} became {state.leader} in one epoch"
            )

    # --- inside --------------------------------------------------------------------------------

    def files_of(self, name: str, what: WatchedPartition) -> PartitionFiles:
        """Return a partition's folder on the disk of a machine."""
        key = (name, what)
        if key not in self._files:
            self._files[key] = PartitionFiles(self._nodes[name].sim, f"{DATA}/{what}")
        return self._files[key]

    def _state_of(self, image: MetadataImage, what: WatchedPartition) -> PartitionImage | None:
        topic = image.topic_of_id(what.topic_id)
        return None if topic is None else topic.partitions.get(what.index)

    def _plan_of(self, what: WatchedPartition) -> TopicPlan | None:
        return next(
            (topic for topic in self._cluster.options.topics if topic.name == what.topic), None
        )


def _min_isr(image: MetadataImage, plan: TopicPlan) -> int:
    """Return min.insync.replicas of a topic, which may differ from its plan for a while."""
    topic = image.topic(plan.name)
    found = None if topic is None else topic.configs.get("min.insync.replicas")
    return plan.min_isr if found is None else int(found)


def open_log_of(replica: Replica) -> Log | None:
    """Return the log of a replica; None while it is not open."""
    return replica._log


def log_end_of(replica: Replica) -> int | None:
    """Return the log end offset of a replica; None while its log is not open."""
    return None if replica._log is None else replica._log.log_end_offset


def _check_fenced(name: str, state: PartitionImage, image: MetadataImage) -> None:
    for member in state.isr:
        broker = image.broker(member)
        assert broker is not None, (
            f"UnfencedIsr: {name}: broker {member} in the ISR is not registered"
        )
        assert not broker.fenced, (
            f"UnfencedIsr: {name}: broker {member} in the ISR {state.isr} is fenced"
        )


def _changed(
    before: MetadataImage, after: MetadataImage
) -> Iterator[tuple[WatchedPartition, PartitionImage | None, PartitionImage]]:
    """Yield the partitions of the later image that differ from the earlier one."""
    for topic in after.sorted_topics():
        earlier: TopicImage | None = before.topics_by_id.get(topic.id)
        if earlier is topic:
            continue
        for index, state in topic.sorted_partitions():
            old = None if earlier is None else earlier.partitions.get(index)
            if old is not state and old != state:
                yield WatchedPartition(topic.name, topic.id, index), old, state


def _same(one: MetadataImage, other: MetadataImage) -> bool:
    return one is other or (
        one.epoch == other.epoch
        and one.brokers == other.brokers
        and one.topics_by_id == other.topics_by_id
        and one.topics_by_name == other.topics_by_name
        and one.next_producer_id == other.next_producer_id
        and one.cluster_configs == other.cluster_configs
        and one.group_configs == other.group_configs
        and one.features == other.features
        and one.client_quotas == other.client_quotas
        and one.acls == other.acls
        and one.scram_credentials == other.scram_credentials
    )


def _shown(batch: StoredBatch) -> str:
    return f"[{batch.base_offset}, {batch.end_offset}) of leader epoch {batch.leader_epoch}"
