"""A modelled broker: its disk, its replicas, and its applied metadata."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from quorumlog.broker.isr import BrokerFacts, FollowerFetch, LeaderAndIsr
from quorumlog.broker.partition import Partition
from quorumlog.broker.partition_follower import (
    Append,
    FollowAnswer,
    FollowerState,
    Reset,
    Skip,
    Truncate,
    divergence,
)
from quorumlog.broker.partition_leader import NO_PROGRESS, PartitionProgress
from quorumlog.broker.purgatory import PurgatoryEntry
from quorumlog.errors import NotLeaderOrFollower
from quorumlog.ids import NO_NODE, Epoch, NodeId, Offset, TopicId
from quorumlog.metadata import EMPTY_IMAGE, MetadataImage, effective_configs
from quorumlog.metadata.image import PartitionImage, TopicImage
from quorumlog.storage.leader_epochs import EpochCache

Place = tuple[TopicId, int]
Value = int

WAITS_MAX: Final = 1 << 30
DELETED: Final = (-1, -1)
"""The entry of an offset below the log start."""


@dataclass(slots=True)
class ModelLog:
    """A partition's log as a list; entries from `flushed` on are lost in a power cut."""

    # leader epoch and value, by offset
    entries: list[tuple[int, Value]] = field(default_factory=list)
    start: int = 0  # the log start offset; entries below are DELETED
    epochs: EpochCache = field(default_factory=EpochCache)
    flushed: int = 0

    @property
    def end(self) -> int:
        """The log end offset."""
        return len(self.entries)

    def append(self, epoch: int, value: Value) -> None:
        """Append one record."""
        self.epochs.assign(epoch, self.end)
        self.entries.append((epoch, value))

    def truncate(self, end: int) -> None:
        """Remove everything from `end` on."""
        del self.entries[end:]
        self.epochs.truncate_end(end)
        self.flushed = min(self.flushed, end)

    def delete(self, start: int) -> None:
        """Delete everything below `start`, durably."""
        self.entries[self.start : start] = [DELETED] * (start - self.start)
        self.start = start
        self.epochs.truncate_start(start)
        self.flushed = max(self.flushed, start)

    def restart(self, start: int) -> None:
        """Remove everything; the log starts at `start`."""
        self.entries = [DELETED] * start
        self.epochs.clear()
        self.start = self.flushed = start

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Return the end of a leader epoch, as EpochCache does."""
        return self.epochs.end_offset_for(epoch, self.end)


@dataclass(slots=True)
class ModelDisk:
    """The state that survives a process."""

    logs: dict[Place, ModelLog] = field(default_factory=dict)
    marks: dict[Place, int] = field(default_factory=dict)  # checkpointed high watermarks
    boot: int = 1
    number: int = 0  # of this disk of its machine
    was_clean: bool = False

    def log(self, place: Place) -> ModelLog:
        """Return the log of a partition, created at first use."""
        log = self.logs.get(place)
        if log is None:
            log = self.logs[place] = ModelLog()
        return log

    def cut_power(self) -> None:
        """Drop everything that was not flushed."""
        self.boot += 1
        for log in self.logs.values():
            log.truncate(log.flushed)


@dataclass(slots=True)
class FetchRequest:
    """A follower's fetch request."""

    follower: NodeId
    leader: NodeId
    place: Place
    number: int  # a response to an older one than the newest is dropped
    fetch: FollowerFetch
    last_epoch: int
    mark: int  # the follower's high watermark


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """A leader's response with its records."""

    answer: FollowAnswer
    entries: list[tuple[int, Value]]


@dataclass(frozen=True, slots=True)
class AppliedMetadata:
    """The effect of a metadata change on a broker."""

    taken: list[Place]  # partitions whose leadership changed
    progress: list[tuple[Place, PartitionProgress]]  # of the led partitions
    # the waits of those no longer led
    failed: list[tuple[Partition, Place, tuple[PurgatoryEntry, ...]]]


class ModelBroker:
    """A machine. Its process runs from `start` to `end`."""

    def __init__(
        self, node_id: NodeId, *, lag_time_max_ms: int, waits_max: int = WAITS_MAX, rack: str = ""
    ) -> None:
        self.node_id = node_id
        self.disk = ModelDisk()
        self.is_alive = False
        self.paused_until_us = 0
        self.life = 0
        self.broker_epoch = Offset(-1)  # of this process, once registered
        self.image: MetadataImage = EMPTY_IMAGE
        self.replicas: dict[Place, Partition] = {}
        self.led: dict[Place, None] = {}
        self.parked: dict[
            Place, dict[NodeId, FetchRequest]
        ] = {}  # fetches that wait at this leader
        self.isr_candidates: dict[Place, None] = {}  # partitions whose ISR may change
        self.numbers: dict[Place, int] = {}  # of the newest fetch of each partition
        self.rack = rack
        self.waits_max = waits_max
        self._lag_time_max_ms = lag_time_max_ms

    def start(self) -> None:
        """Start a new process, without state."""
        self.life += 1
        self.is_alive = True
        self.broker_epoch = Offset(-1)
        self.image = EMPTY_IMAGE
        self.replicas, self.led, self.parked, self.isr_candidates = {}, {}, {}, {}

    def end(self, *, clean: bool) -> None:
        """End the process."""
        self.is_alive = False
        # Without a registration the controller does not know what an unclean start lost.
        self.disk.was_clean = clean and (self.disk.was_clean or self.broker_epoch >= 0)
        for place, partition in self.replicas.items():
            self.disk.marks[place] = partition.high_watermark
        if clean:
            for log in self.disk.logs.values():
                log.flushed = log.end

    def facts(self, node: NodeId) -> BrokerFacts | None:
        """Return the state of another broker in this one's metadata."""
        broker = self.image.brokers.get(node)
        return None if broker is None else BrokerFacts(broker.epoch, broker.is_active, broker.rack)

    # --- the metadata --------------------------------------------------------------------------

    def apply(self, image: MetadataImage, touched: Iterable[Place], now_ms: int) -> AppliedMetadata:
        """Apply a later image; of the partitions held here only the touched ones differ. In the
        first image of a process all may differ."""
        before, self.image = self.image, image
        if before is EMPTY_IMAGE:
            touched = [*image.partitions_on(self.node_id)]
            for place in self.disk.logs.keys() - touched:
                self._remove(place)
        applied = AppliedMetadata([], [], [])
        for place in touched:
            topic, state = image.topics_by_id[place[0]], image.partition(*place)
            if state is None or self.node_id not in state.replicas:
                partition = self.replicas.get(place)
                if partition is not None:
                    gone = NotLeaderOrFollower(f"node {self.node_id} has no replica any more")
                    applied.failed.append((partition, place, partition.resign(gone)))
                self._remove(place)
            elif state != before.partition(*place):
                self._apply_to(place, topic, state, now_ms, applied)
        return applied

    def _remove(self, place: Place) -> None:
        self.replicas.pop(place, None)
        self.led.pop(place, None)
        self.parked.pop(place, None)
        self.disk.logs.pop(place, None)
        self.disk.marks.pop(place, None)

    def _apply_to(
        self,
        place: Place,
        topic: TopicImage,
        state: PartitionImage,
        now_ms: int,
        applied: AppliedMetadata,
    ) -> None:
        if self._take(place, topic, state, now_ms, applied):
            applied.taken.append(place)
        if self.replicas[place].is_leader:
            self.led[place] = self.isr_candidates[place] = None
        else:
            self.led.pop(place, None)

    def _take(
        self,
        place: Place,
        topic: TopicImage,
        state: PartitionImage,
        now_ms: int,
        applied: AppliedMetadata,
    ) -> bool:
        """Become leader or follower. Return True if the leader epoch changed."""
        partition = self.replicas.get(place)
        if partition is None:
            partition = self.replicas[place] = Partition(
                topic.name,
                place[1],
                self.node_id,
                waits_max=self.waits_max,
                brokers=self.facts,
                lag_time_max_ms=self._lag_time_max_ms,
            )
            found = self.disk.log(place)
            kept = min(self.disk.marks.get(place, 0), found.end)
            partition.high_watermark = Offset(max(kept, found.start))
        before, log = partition.leader_epoch, self.disk.log(place)
        if state.leader == self.node_id:
            progress = partition.become_leader(
                leader_state(topic, state),
                log_end_offset=Offset(log.end),
                flushed_end_offset=Offset(log.flushed),
                now_ms=now_ms,
            )
            applied.progress.append((place, progress))
        elif partition.follower is None or state.leader_epoch > before:
            followed = FollowerState(
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
            )
            error = NotLeaderOrFollower(f"node {state.leader} leads")
            waits = partition.become_follower(followed, error)
            applied.failed.append((partition, place, waits))
        return state.leader_epoch != before

    # --- as a follower -------------------------------------------------------------------------

    def ask(self, place: Place) -> FetchRequest | None:
        """Return the next fetch of a partition, None if there is no leader to fetch from."""
        partition = self.replicas.get(place)
        if partition is None or partition.followed == NO_NODE or self.broker_epoch < 0:
            return None
        assert partition.follower is not None, f"{partition.name} follows no leader"
        log = self.disk.log(place)
        self.numbers[place] = self.numbers.get(place, 0) + 1
        return FetchRequest(
            follower=self.node_id,
            leader=partition.followed,
            place=place,
            number=self.numbers[place],
            fetch=FollowerFetch(
                broker_epoch=self.broker_epoch,
                leader_epoch=partition.follower.leader_epoch,
                log_end_offset=Offset(log.end),
                flushed_end_offset=Offset(log.flushed),
                log_start_offset=Offset(log.start),
            ),
            last_epoch=log.epochs.latest,
            mark=partition.high_watermark,
        )

    def take(self, place: Place, answer: FollowAnswer, entries: list[tuple[int, Value]]) -> bool:
        """Apply a response. Return True if the high watermark advanced."""
        partition, log = self.replicas[place], self.disk.log(place)
        step = partition.take(
            answer,
            log_start_offset=Offset(log.start),
            log_end_offset=Offset(log.end),
            end_offset_for=log.end_offset_for,
        )
        match step:
            case Truncate(offset=offset):
                log.truncate(offset)
                partition.truncated(Offset(log.end))
                return False
            case Reset(offset=offset):
                log.restart(offset)
                partition.restarted(offset)
                return True
            case Append():
                for epoch, value in entries:
                    log.append(epoch, value)
            case Skip(reason=reason):
                if reason or answer.diverging is not None:
                    return False
        progress = partition.replicated(
            leader_epoch=answer.leader_epoch,
            leader_high_watermark=answer.high_watermark,
            log_end_offset=log.end,
        )
        if log.start < answer.log_start_offset <= partition.high_watermark:
            log.delete(answer.log_start_offset)
        return progress.high_watermark_moved

    # --- as a leader ---------------------------------------------------------------------------

    def serve(
        self, asked: FetchRequest, *, entries_max: int, now_ms: int
    ) -> tuple[FetchResponse | None, PartitionProgress]:
        """Serve a fetch; return its response and progress. No response: the fetch waits.

        Raises the partition's errors.
        """
        place, fetch = asked.place, asked.fetch
        partition = self.replicas.get(place)
        if partition is None:
            raise NotLeaderOrFollower("no replica here")
        log = self.disk.log(place)
        leader = partition.check_leader(fetch.leader_epoch)  # before logs are compared
        parts = divergence(
            asked.last_epoch,
            fetch.log_end_offset,
            end_offset_for=log.end_offset_for,
            latest_epoch=log.epochs.latest,
            leader_start_offset=log.start,
            leader_end_offset=log.end,
        )
        if parts is not None:
            return FetchResponse(_answer(partition, log, parts, None), []), NO_PROGRESS
        progress = leader.fetched(asked.follower, fetch, now_ms)
        start = fetch.log_end_offset
        if start < log.start:  # the follower restarts its log
            return FetchResponse(_answer(partition, log, None, None), []), progress
        entries = log.entries[start : start + entries_max]
        if not entries and min(partition.high_watermark, start) <= asked.mark:
            self._park(asked)
            return None, progress
        return FetchResponse(
            _answer(partition, log, None, start if entries else None), entries
        ), progress

    def _park(self, asked: FetchRequest) -> None:
        """Hold a fetch; a late one does not replace its follower's newer one."""
        held = self.parked.setdefault(asked.place, {})
        other = held.get(asked.follower)
        if other is None or other.number <= asked.number:
            held[asked.follower] = asked

    def take_newer_fetch(self, asked: FetchRequest) -> FetchRequest | None:
        """Remove and return a newer waiting fetch of the same follower, if there is one."""
        held = self.parked.get(asked.place, {})
        other = held.get(asked.follower)
        if other is None or other.number <= asked.number:
            return None
        return held.pop(asked.follower)

    def holds(self, asked: FetchRequest) -> bool:
        """Return True if a fetch waits here."""
        return self.parked.get(asked.place, {}).get(asked.follower) is asked


def _answer(
    partition: Partition,
    log: ModelLog,
    parts: tuple[Epoch, Offset] | None,
    first: Offset | None,
) -> FollowAnswer:
    return FollowAnswer(
        leader_epoch=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        log_start_offset=Offset(log.start),
        first_offset=first,
        diverging=parts,
    )


def leader_state(topic: TopicImage, state: PartitionImage) -> LeaderAndIsr:
    """Return the leader state of a partition in the metadata."""
    min_isr, counts_flushed, mirrors = _settings(
        tuple(sorted(topic.configs.items())), len(state.replicas)
    )
    return LeaderAndIsr(
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        replicas=state.replicas,
        isr=state.isr,
        min_isr=min(min_isr, len(state.replicas)),
        counts_flushed=counts_flushed,
        recovering=state.recovering,
        mirrors=mirrors,
    )


@cache
def _settings(
    configs: tuple[tuple[str, str], ...], replication_factor: int
) -> tuple[int, bool, str]:
    """Return min.insync.replicas, True if only flushed offsets count, and the mirror's source."""
    effective = effective_configs(dict(configs), replication_factor=replication_factor)
    min_isr, policy = effective["min.insync.replicas"], effective["flush.policy"]
    return int(min_isr), policy == "fsync", effective.get("mirror.source", "")
