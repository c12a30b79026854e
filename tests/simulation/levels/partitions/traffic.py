"""Replication traffic: clients append, followers fetch, leaders respond."""

from collections.abc import Callable
from typing import Final

from quorumlog.broker.partition import Partition
from quorumlog.broker.partition_leader import PartitionProgress
from quorumlog.broker.purgatory import Acks, Purgatory, PurgatoryEntry
from quorumlog.errors import Overloaded, QuorumlogError
from quorumlog.ids import NodeId, Offset

from ...checkers.violation import Violation
from .broker import FetchRequest, FetchResponse, ModelBroker, Place
from .waits import Wait
from .world import PartitionWorld

SECOND_US: Final = 1_000_000


class Traffic:
    """Fetches, responses and appends."""

    def __init__(
        self,
        world: PartitionWorld,
        *,
        target: Callable[[], tuple[ModelBroker, Place] | None] | None = None,
    ) -> None:
        """Create the traffic; `target` draws the partition of an append, by default any
        partition that is led."""
        self.world = world
        self.target = target or self.led_partition
        self.refused = 0  # appends
        self.sent = 0  # fetches and responses
        self._values = 0

    def fetch(self, node: NodeId, life: int, place: Place) -> None:
        """Send a follower's next fetch to its leader."""
        broker = self.world.brokers[node]
        asked = broker.ask(place)
        if asked is None:
            return
        leader = self.world.brokers[broker.replicas[place].followed]
        self.fetch_again_later(asked)
        self.sent += 1
        if not self.world.is_lost():
            self.world.at(self.world.latency_us(), self._serve, leader, asked, life)
        if self.world.is_faulty and self.world.random.random() < self.world.options.late:
            self.world.at(20 * self.world.latency_us(), self._serve_late, leader, asked, life)

    def fetch_again_later(self, asked: FetchRequest) -> None:
        """Repeat a fetch that gets no response.

        If messages are neither lost nor late, a fetch that waits at its leader is not repeated, so
        that idle partitions cost nothing.
        """
        life = self.world.brokers[asked.follower].life
        self.world.at(self.world.options.session_timeout_ms * 500, self._fetch_again, asked, life)

    def _fetch_again(self, asked: FetchRequest, life: int) -> None:
        node, leader = asked.follower, self.world.brokers[asked.leader]
        broker = self.world.brokers[node]
        if broker.life != life or broker.numbers.get(asked.place) != asked.number:
            return
        is_strict = not self.world.options.loss and not self.world.options.late
        if not (is_strict and leader.is_alive and leader.holds(asked)):
            self.world.when_awake(broker, life, self.fetch, node, life, asked.place)

    def _serve(self, leader: ModelBroker, asked: FetchRequest, life: int) -> None:
        self.world.when_awake(leader, leader.life, self._serve_now, leader, asked, life)

    def _serve_late(self, leader: ModelBroker, asked: FetchRequest, life: int) -> None:
        if self.world.is_faulty:
            self._serve(leader, asked, life)

    def _serve_now(self, leader: ModelBroker, asked: FetchRequest, life: int) -> None:
        try:
            reply, progress = leader.serve(
                asked,
                entries_max=self.world.options.fetch_entries_max if self.world.is_faulty else 1_000,
                now_ms=self.world.now_ms,
            )
        except QuorumlogError as error:
            self.world.note(
                f"fetch refused: {type(error).__name__}", asked.follower, asked.place[1]
            )
            return  # the follower fetches again later
        self.progressed(leader, asked.place, progress)
        leader.isr_candidates[asked.place] = None
        self.world.isr.ask_for_isr(leader.node_id)
        if reply is not None:
            self._reply(asked, life, reply)
        held = leader.take_newer_fetch(asked)
        if held is not None:  # its state is newer than that of this fetch
            self._serve_again(leader, held)

    def _serve_again(self, leader: ModelBroker, held: FetchRequest) -> None:
        self.world.at(0, self._serve, leader, held, self.world.brokers[held.follower].life)
        self.fetch_again_later(held)

    def _reply(self, asked: FetchRequest, life: int, reply: FetchResponse) -> None:
        self.sent += 1
        if not self.world.is_lost():
            self.world.at(self.world.latency_us(), self._answered, asked, life, reply)

    def _answered(self, asked: FetchRequest, life: int, reply: FetchResponse) -> None:
        broker = self.world.brokers[asked.follower]
        self.world.when_awake(broker, life, self._take, broker, asked, reply)

    def _take(self, broker: ModelBroker, asked: FetchRequest, reply: FetchResponse) -> None:
        place = asked.place
        partition = broker.replicas.get(place)
        if partition is None:
            return
        # Responses of one leader arrive in order. One of an earlier leader may arrive later; only
        # its epoch reveals it.
        is_of_another = reply.answer.leader_epoch != partition.leader_epoch
        if broker.numbers.get(place) != asked.number and not is_of_another:
            return
        log, before = broker.disk.log(place), self.world.checks.copied(broker, asked, reply)
        moved = broker.take(place, reply.answer, reply.entries)
        partition.check_invariants()
        self.world.checks.took(broker, asked, reply, before)
        self.world.checks.mark_seen(broker, place, partition)
        self.world.note("took", broker.node_id, place[1], log.end, partition.high_watermark)
        if moved:
            self.world.checks.mark_moved(broker, place, partition)
        self.flush(broker, place)
        if not is_of_another:
            self.fetch(broker.node_id, broker.life, place)

    def flush(self, broker: ModelBroker, place: Place) -> None:
        """Flush the log soon if the policy is fsync, otherwise sometimes."""
        log = broker.disk.log(place)
        if self.world.options.fsync and log.flushed < log.end:
            delay_us = self.world.random.randint(*self.world.options.flush_us)
            self.world.at(delay_us, self._flushed, broker, broker.life, place, log.end)
        elif self.world.random.random() < 0.1:
            log.flushed = log.end

    def _flushed(self, broker: ModelBroker, life: int, place: Place, end: int) -> None:
        if not broker.is_alive or broker.life != life or place not in broker.replicas:
            return
        log, partition = broker.disk.log(place), broker.replicas[place]
        log.flushed = max(log.flushed, min(end, log.end))
        if partition.is_leader:
            self._advance(broker, place)
        else:
            self.world.when_awake(broker, life, self.fetch, broker.node_id, life, place)

    def _advance(self, broker: ModelBroker, place: Place) -> None:
        log = broker.disk.log(place)
        progress = (
            broker.replicas[place]
            .check_leader(None)
            .advance(log_end_offset=Offset(log.end), flushed_end_offset=Offset(log.flushed))
        )
        self.progressed(broker, place, progress)

    def progressed(self, leader: ModelBroker, place: Place, progress: PartitionProgress) -> None:
        """Check a leader's progress and answer the waiting clients and followers."""
        partition = leader.replicas[place]
        partition.check_invariants()
        for entry in progress.released:
            self._ended(leader, partition, entry.token, entry)
        self.world.waits.check(leader, place, partition)
        self.world.checks.led(leader, place, partition)
        self.world.checks.mark_seen(
            leader, place, partition, is_reported=progress.high_watermark_moved
        )
        if progress.high_watermark_moved:
            self.world.note("mark", leader.node_id, place[1], partition.high_watermark)
            self.world.checks.mark_moved(leader, place, partition)
            self._news(leader, place)

    def _ended(
        self, leader: ModelBroker, partition: Partition, wait: Wait, entry: PurgatoryEntry
    ) -> None:
        self.world.waits.released(leader, wait.place, partition, entry)
        if wait.acks is Acks.ALL:
            self.world.checks.acknowledged(wait.place, wait.offset, wait.value)

    def _news(self, leader: ModelBroker, place: Place) -> None:
        """Serve the fetches that wait for this partition."""
        for _, asked in sorted(leader.parked.pop(place, {}).items()):
            self._serve_again(leader, asked)

    def append_later(self) -> None:
        """Schedule the next append of a client."""
        delay_us = self.world.random.expovariate(self.world.options.appends_per_s) * SECOND_US
        self.world.at(delay_us, self._append)

    def _append(self) -> None:
        if self.world.is_faulty:
            self.append_later()
        target = self.target()
        if target is None:
            self.refused += 1
            return
        broker, place = target
        drawn = self.world.random.random()
        acks = Acks.ALL if drawn < 0.8 else Acks.LEADER if drawn < 0.95 else Acks.NONE
        try:
            self.append(broker, place, acks)
        except QuorumlogError:
            self.refused += 1

    def append(self, broker: ModelBroker, place: Place, acks: Acks) -> Wait:
        """Append a record at the leader. Raises the errors of `admit`."""
        partition, log = broker.replicas[place], broker.disk.log(place)
        leader = partition.check_leader(None)
        is_full = self.world.waits.count(broker, place) >= broker.waits_max
        try:
            state = leader.admit(acks, is_mirrored=self.world.is_mirror(place[0][0] - 1))
        except Overloaded:
            if not is_full:
                raise Violation("WaitsBounded", f"{partition.name}: refused too early") from None
            raise
        if is_full and acks is not Acks.NONE:
            raise Violation("WaitsBounded", f"{partition.name}: admitted above the limit")
        self._values += 1
        log.append(state.leader_epoch, self._values)
        wait = Wait(place, acks, log.end - 1, self._values)
        self._advance(broker, place)
        if acks is not Acks.NONE:
            self._wait(broker, partition, wait)
        self.flush(broker, place)
        self._news(broker, place)
        return wait

    def _wait(self, broker: ModelBroker, partition: Partition, wait: Wait) -> None:
        leader, end = partition.check_leader(None), Offset(wait.offset + 1)
        if leader.is_acknowledged(wait.acks, end):
            self.world.waits.add(broker, wait)
            self._ended(broker, partition, wait, PurgatoryEntry(end, wait, Purgatory()))
            return
        wait.entry = leader.wait_for(wait.acks, end, wait)
        self.world.waits.add(broker, wait)
        timeout_ms = self.world.options.timeout_ms
        if timeout_ms and self.world.is_faulty:
            cancel = self.world.waits.cancel
            self.world.at(timeout_ms * 1_000, cancel, broker, broker.life, wait)

    def led_partition(self) -> tuple[ModelBroker, Place] | None:
        """Draw a partition of a running leader; None if the drawn broker leads none."""
        broker = self.world.brokers[self.world.random.choice(sorted(self.world.brokers))]
        if not broker.is_alive or broker.paused_until_us > self.world.now_us or not broker.led:
            return None
        return broker, self.world.random.choice(sorted(broker.led))
