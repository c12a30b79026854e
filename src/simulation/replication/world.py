"""Plays a modelled cluster on virtual time: a heap of events, faults, clients, and who watches.

A safety phase under faults, in which nothing but the invariants is demanded; then all faults end,
everybody is started, and every partition must have its leader, a whole ISR and equal logs within a
bound.

What may be promised bounds the faults: where a machine's power may take what was acknowledged
(flush.policy=replicated), no more than min ISR - 1 of them are lost before all is in sync again.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

from ...broker.partition import Acks, IsrProposal, Partition, Progress, Wait
from ...errors import Lost, NotController, QuorumlogError, StaleBrokerEpoch
from ...ids import DirectoryId, Epoch, NodeId, Offset, TopicId
from ...metadata import (
    AlterPartitions,
    AlterReassignments,
    BrokerStopping,
    Command,
    CreateTopic,
    ElectLeaders,
    FenceBroker,
    IsrChange,
    PartitionsAltered,
    Reassignment,
    RegisterBroker,
    UnfenceBroker,
)
from ..entropy import SimEntropy
from .broker import Asked, ModelBroker, Place, Reply
from .checks import Checks
from .controller import ModelController
from .options import ReplicationOptions, draw

SECOND_US: Final = 1_000_000
HEAL_US: Final = 60 * SECOND_US  # how long everything may take once the faults are over
SAFETY_US_MAX: Final = 120 * SECOND_US
LINES_KEPT: Final = 60


class ReplicationRun:
    """A run of one seed; `play` raises Violation, or an AssertionError of what is played."""

    def __init__(
        self,
        seed: int,
        *,
        options: ReplicationOptions | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        entropy = SimEntropy(f"partitions/{seed}")
        self.options = options or draw(entropy.stream("options"))
        self.random = Random(entropy.stream("events").below(1 << 62))
        self.checks = Checks()
        self.controller = ModelController(self.checks.decided)
        self.now_us = 0
        self.events = 0
        self.facts: dict[str, int] = {}
        self.last: deque[str] = deque(maxlen=LINES_KEPT)
        self._trace = trace
        self._digest = hashlib.blake2b(digest_size=16)
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self.is_faulty = True
        self.values = 0
        self.crashes = 0
        self.brokers = {
            NodeId(n): ModelBroker(NodeId(n), lag_time_max_ms=self.options.lag_time_max_ms)
            for n in range(1, self.options.brokers + 1)
        }
        self._weak: dict[NodeId, None] = {}  # lost their power since all was in sync
        self._asking: dict[NodeId, bool] = {}  # whose request for other ISRs is under way
        self._waits: dict[Place, int] = {}

    @property
    def event_count(self) -> int:
        """Events played so far."""
        return self.events

    # --- time ----------------------------------------------------------------------------------

    def hash(self) -> str:
        """The digest of all events, 32 hex digits."""
        return self._digest.hexdigest()

    def at(self, delay_us: float, what: Callable[..., None], *arguments: Any) -> None:
        """Have something happen later."""
        self._sequence += 1
        heappush(self._queue, (self.now_us + int(delay_us), self._sequence, what, arguments))

    def run(self, *, until_us: int, events: int | None = None) -> None:
        """Play until the time, or the number of events."""
        while self._queue and self._queue[0][0] <= until_us:
            if events is not None and self.events >= events:
                return
            self.now_us, _, what, arguments = heappop(self._queue)
            self.events += 1
            what(*arguments)
        self.now_us = max(self.now_us, until_us) if events is None else self.now_us

    def note(self, what: str, *numbers: int) -> None:
        """One event, for the hash and for people."""
        line = f"{self.now_us / 1e6:10.6f} {what} {' '.join(map(str, numbers))}"
        self._digest.update(line.encode())
        self.last.append(line)
        if self._trace is not None:
            self._trace(line)

    @property
    def now_ms(self) -> int:
        """Virtual time in milliseconds."""
        return self.now_us // 1000

    # --- the run -------------------------------------------------------------------------------

    def play(self) -> None:
        """Both phases."""
        self.begin()
        self.run(until_us=SAFETY_US_MAX, events=self.options.events)
        self.heal()
        deadline_us = self.now_us + HEAL_US
        while self.now_us < deadline_us and self._unfinished():
            self.run(until_us=self.now_us + SECOND_US // 4)
        self.note("healed", self.now_ms)
        left = self._unfinished()
        assert not left, f"not in order {HEAL_US // SECOND_US} s after the faults: {left}"
        for place, state in self._partitions():
            logs = [self.brokers[node].disk.log(place) for node in state.replicas]
            self.checks.final(place, logs)
        self.facts = {
            "brokers": self.options.brokers,
            "acks": self.checks.acks,
            "committed": sum(len(known) for known in self.checks.committed.values()),
            "crashes": self.crashes,
            "changes": self.controller.changes,
            "leaders": self.controller.moves,
        }

    def begin(self) -> None:
        """Start every broker, create the topics, and let it happen."""
        options = self.options
        for node in self.brokers:
            self._start(node)
        self.run(until_us=10 * SECOND_US, events=None)
        for number in range(options.topics):
            policy = "fsync" if options.fsync else "replicated"
            self.submit(
                CreateTopic(
                    name=f"topic-{number}",
                    topic_id=TopicId(bytes([number + 1]) * 16),
                    partitions=options.partitions,
                    replication_factor=options.replication_factor,
                    configs=(
                        ("min.insync.replicas", str(options.min_isr)),
                        ("flush.policy", policy),
                    ),
                )
            )
        self.events = 0
        self._append_later()
        for every_ms, fault in (
            (options.crash_every_ms, self._crash),
            (options.power_every_ms, self._cut_power),
            (options.stop_every_ms, self._stop),
            (options.pause_every_ms, self._pause),
            (options.move_every_ms, self._move),
            (options.elect_every_ms, self._elect),
        ):
            if every_ms:
                self._again(every_ms, fault)

    def heal(self) -> None:
        """No faults from here on; everybody comes back."""
        self.is_faulty = False
        self.note("heal")
        for node, broker in self.brokers.items():
            broker.paused_until_us = 0
            if not broker.is_alive:
                self._start(node)

    def _again(self, every_ms: int, fault: Callable[[], None]) -> None:
        def happen() -> None:
            if self.is_faulty:
                fault()
                self._again(every_ms, fault)

        self.at(self.random.expovariate(1 / every_ms) * 1000, happen)

    def _partitions(self) -> Iterable[tuple[Place, Any]]:
        for topic in self.controller.image.sorted_topics():
            for index, state in topic.sorted_partitions():
                yield (topic.id, index), state

    def _unfinished(self) -> list[str]:
        """What is not in order yet."""
        found = []
        for place, state in self._partitions():
            leader = self.brokers.get(state.leader)
            whole = len(state.isr) == len(state.replicas) and not state.is_moving
            if leader is None or not whole or leader.replicas.get(place) is None:
                found.append(f"{place[1]}: {state}")
                continue
            end = leader.disk.log(place).end
            for node in state.replicas:
                replica = self.brokers[node].replicas.get(place)
                if replica is None or not replica.high_watermark == end == (
                    self.brokers[node].disk.log(place).end
                ):
                    found.append(f"{place[1]}: node {node} behind {end}")
        return found[:3]

    # --- messages ------------------------------------------------------------------------------

    def _latency_us(self) -> int:
        return self.random.randint(*self.options.latency_us)

    def _is_lost(self) -> bool:
        return self.is_faulty and self.random.random() < self.options.loss

    def _when_awake(
        self, broker: ModelBroker, life: int, what: Callable[..., None], *arguments: Any
    ) -> None:
        """Have a process do something: later if it stands still, never if it is another one."""
        if not broker.is_alive or broker.life != life:
            return
        if broker.paused_until_us > self.now_us:
            left_us = broker.paused_until_us - self.now_us
            self.at(left_us, self._when_awake, broker, life, what, *arguments)
            return
        what(*arguments)

    # --- brokers come and go -------------------------------------------------------------------

    def _start(self, node: NodeId) -> None:
        broker = self.brokers[node]
        broker.start()
        self.note("start", node)
        self.at(self._latency_us(), self._when_awake, broker, broker.life, self._register, node)

    def _register(self, node: NodeId) -> None:
        broker = self.brokers[node]
        self.submit(
            RegisterBroker(
                broker_id=node,
                incarnation_id=bytes([node]) * 8 + broker.life.to_bytes(8),
                directory_id=DirectoryId(bytes([node]) * 16),
                grpc_address=f"n{node}:1",
                boot_id=str(broker.disk.boot),
                clean_start=broker.disk.was_clean,
            )
        )
        broker.disk.was_clean = False
        broker.broker_epoch = self.controller.epoch_of(node)
        self._apply(node, len(self.controller.log))
        self._check_isr_later(broker, broker.life)
        self.at(self._latency_us(), self._when_awake, broker, broker.life, self._unfence, node)

    def _unfence(self, node: NodeId) -> None:
        broker = self.brokers[node]
        if broker.image.offset < broker.broker_epoch:
            self.at(self._latency_us(), self._when_awake, broker, broker.life, self._unfence, node)
            return
        self._try(UnfenceBroker(broker_id=node, broker_epoch=broker.broker_epoch))

    def _end(self, node: NodeId, *, clean: bool, back_us: float) -> None:
        broker = self.brokers[node]
        epoch = broker.broker_epoch
        broker.end(clean=clean)
        self.crashes += 1
        fence_us = self.random.randint(1, self.options.session_timeout_ms) * 1000
        self.at(fence_us, self._fence, node, epoch)
        self.at(back_us, self._back, node)

    def _back(self, node: NodeId) -> None:
        if not self.brokers[node].is_alive:
            self._start(node)

    def _fence(self, node: NodeId, epoch: Offset) -> None:
        self._try(FenceBroker(broker_id=node, broker_epoch=epoch))

    def _alive(self) -> list[NodeId]:
        return [node for node, broker in self.brokers.items() if broker.is_alive]

    def _crash(self) -> None:
        if alive := self._alive():
            node = self.random.choice(alive)
            self.note("crash", node)
            self._end(node, clean=False, back_us=self._absence_us())

    def _absence_us(self) -> float:
        return self.random.choice((0.01, 0.5, 3.0, 8.0)) * self.random.random() * SECOND_US

    def _cut_power(self) -> None:
        if not self._weak_may_grow():
            return
        alive = self._alive()
        if alive:
            node = self.random.choice(alive)
            self.note("power", node)
            self._weak[node] = None
            self._end(node, clean=False, back_us=self._absence_us())
            self.brokers[node].disk.cut_power()

    def _weak_may_grow(self) -> bool:
        """Whether one more machine may lose its memory without breaking the promise."""
        if self.options.fsync:
            return True
        back = all(
            broker.is_alive and self.controller.epoch_of(node) == broker.broker_epoch >= 0
            for node, broker in self.brokers.items()
        )
        if self._weak and back and not self._unfinished_isr():
            self._weak.clear()
        lost_max = min(self.options.min_isr, self.options.replication_factor) - 1
        return len(self._weak) < lost_max

    def _unfinished_isr(self) -> bool:
        return any(
            len(state.isr) < len(state.replicas) or state.is_moving
            for _, state in self._partitions()
        )

    def _stop(self) -> None:
        if not (alive := self._alive()):
            return
        node = self.random.choice(alive)
        broker = self.brokers[node]
        self.note("stop", node)
        self._try(BrokerStopping(broker_id=node, broker_epoch=broker.broker_epoch))
        self.at(self._latency_us() * 3, self._stopped, node, broker.life)

    def _stopped(self, node: NodeId, life: int) -> None:
        broker = self.brokers[node]
        if broker.is_alive and broker.life == life:
            self._end(node, clean=True, back_us=self._absence_us())

    def _pause(self) -> None:
        if not (alive := self._alive()):
            return
        node = self.random.choice(alive)
        broker = self.brokers[node]
        span_us = int(self.random.random() * 3 * self.options.session_timeout_ms * 1000)
        broker.paused_until_us = self.now_us + span_us
        self.note("pause", node, span_us)
        if span_us > self.options.session_timeout_ms * 1000:
            self._fence_silent(node, broker.life, broker.broker_epoch)
            self.at(span_us + self._latency_us(), self._awake_again, node, broker.life)

    def _fence_silent(self, node: NodeId, life: int, epoch: Offset) -> None:
        self.at(self.options.session_timeout_ms * 1000, self._fence, node, epoch)

    def _awake_again(self, node: NodeId, life: int) -> None:
        broker = self.brokers[node]
        if broker.is_alive and broker.life == life and broker.broker_epoch >= 0:
            self._unfence(node)

    def _move(self) -> None:
        places = list(self._partitions())
        if not places:
            return
        (topic_id, index), _ = self.random.choice(places)
        name = self.controller.image.topics_by_id[topic_id].name
        nodes = sorted(self.brokers)
        self.random.shuffle(nodes)
        target = tuple(nodes[: self.options.replication_factor])
        wanted = target if self.random.random() < 0.8 else None
        self.note("move", index, *(wanted or ()))
        self._try(
            AlterReassignments(
                reassignments=(Reassignment(topic=name, partition=index, replicas=wanted),)
            )
        )

    def _elect(self) -> None:
        self._try(ElectLeaders())

    # --- the metadata --------------------------------------------------------------------------

    def submit(self, command: Command) -> Any:
        """Decide, and let every broker know in time."""
        before = len(self.controller.log)
        reply = self.controller.submit(command)
        end = len(self.controller.log)
        if end > before:
            self.note(type(command).__name__, end)
            for node, broker in self.brokers.items():
                self.at(
                    self._metadata_us(),
                    self._when_awake,
                    broker,
                    broker.life,
                    self._apply,
                    node,
                    end,
                )
        return reply

    def _try(self, command: Command) -> None:
        try:
            self.submit(command)
        except QuorumlogError as error:
            self.note(f"{type(command).__name__} refused: {type(error).__name__}")

    def _metadata_us(self) -> int:
        if self.is_faulty and self.random.random() < self.options.metadata_stall:
            return self.random.randint(0, 2 * SECOND_US)
        return self.random.randint(*self.options.metadata_us)

    def _apply(self, node: NodeId, end: int) -> None:
        broker = self.brokers[node]
        start = broker.image.offset + 1
        if end <= start or broker.broker_epoch < 0:
            return
        led = {place for place, p in broker.replicas.items() if p.is_leader}
        marks = {place: p.high_watermark for place, p in broker.replicas.items() if p.is_leader}
        changed = list(broker.apply(self.controller.log[start:end], self.now_ms))
        for place in changed:
            partition = broker.replicas[place]
            self._flush(broker, place)  # what a process found on its disk counts once it is durable
            if partition.is_leader:
                self._became_leader(broker, place, partition)
            else:
                self._fetch(node, broker.life, place)
        for place in sorted(led - set(changed)):
            still = broker.replicas.get(place)
            if still is not None and still.is_leader:
                moved = still.high_watermark > marks[place]
                self._progressed(broker, place, Progress((), moved))
        self._ask_for_isr(node)

    def _became_leader(self, broker: ModelBroker, place: Place, partition: Partition) -> None:
        self.note("leads", broker.node_id, place[1], partition.leader_epoch)
        state = self.controller.image.topics_by_id[place[0]].partitions.get(place[1])
        if state is not None and state.leader_epoch == partition.leader_epoch:
            self.checks.became_leader(broker, place, partition)
        self.checks.mark_moved(broker, place, partition)

    # --- replication ---------------------------------------------------------------------------

    def _fetch(self, node: NodeId, life: int, place: Place) -> None:
        broker = self.brokers[node]
        asked = broker.ask(place)
        if asked is None:
            return
        leader = self.brokers[broker.replicas[place].followed]
        self.at(self.options.session_timeout_ms * 500, self._fetch_again, node, life, asked)
        if not self._is_lost():
            self.at(self._latency_us(), self._serve, leader, asked, life)
        if self.is_faulty and self.random.random() < self.options.late:
            self.at(20 * self._latency_us(), self._serve, leader, asked, life)

    def _fetch_again(self, node: NodeId, life: int, asked: Asked) -> None:
        broker = self.brokers[node]
        if broker.life == life and broker.numbers.get(asked.place) == asked.number:
            self._when_awake(broker, life, self._fetch, node, life, asked.place)

    def _serve(self, leader: ModelBroker, asked: Asked, life: int) -> None:
        self._when_awake(leader, leader.life, self._serve_now, leader, asked, life)

    def _serve_now(self, leader: ModelBroker, asked: Asked, life: int) -> None:
        try:
            reply, progress = leader.serve(
                asked,
                entries_max=self.options.fetch_entries_max if self.is_faulty else 1_000,
                now_ms=self.now_ms,
            )
        except QuorumlogError as error:
            self.note(f"fetch refused: {type(error).__name__}", asked.follower, asked.place[1])
            return  # the follower asks again in time
        self._progressed(leader, asked.place, progress)
        self._ask_for_isr(leader.node_id)
        if reply is not None:
            self._reply(asked, life, reply)

    def _reply(self, asked: Asked, life: int, reply: Reply) -> None:
        if not self._is_lost():
            self.at(self._latency_us(), self._answered, asked, life, reply)

    def _answered(self, asked: Asked, life: int, reply: Reply) -> None:
        broker = self.brokers[asked.follower]
        self._when_awake(broker, life, self._take, broker, asked, reply)

    def _take(self, broker: ModelBroker, asked: Asked, reply: Reply) -> None:
        place = asked.place
        partition = broker.replicas.get(place)
        if partition is None:
            return
        # Answers of one leader come in turn; that of another one may come when it is followed no
        # more: nothing but its epoch tells.
        is_of_another = reply.answer.leader_epoch != partition.leader_epoch
        if broker.numbers.get(place) != asked.number and not is_of_another:
            return
        moved = broker.take(place, reply.answer, reply.entries)
        log = broker.disk.log(place)
        self.note("took", broker.node_id, place[1], log.end, partition.high_watermark)
        if moved:
            self.checks.mark_moved(broker, place, partition)
        self._flush(broker, place)
        if not is_of_another:
            self._fetch(broker.node_id, broker.life, place)

    def _flush(self, broker: ModelBroker, place: Place) -> None:
        """What is written becomes durable soon where the policy is fsync, else now and then."""
        log = broker.disk.log(place)
        if self.options.fsync and log.flushed < log.end:
            delay_us = self.random.randint(*self.options.flush_us)
            self.at(delay_us, self._flushed, broker, broker.life, place, log.end)
        elif self.random.random() < 0.1:
            log.flushed = log.end

    def _flushed(self, broker: ModelBroker, life: int, place: Place, end: int) -> None:
        if not broker.is_alive or broker.life != life or place not in broker.replicas:
            return
        log, partition = broker.disk.log(place), broker.replicas[place]
        log.flushed = max(log.flushed, min(end, log.end))
        if partition.is_leader:
            self._advance(broker, place)
        else:
            self._when_awake(broker, life, self._fetch, broker.node_id, life, place)

    def _advance(self, broker: ModelBroker, place: Place) -> None:
        log = broker.disk.log(place)
        progress = broker.replicas[place].advance(
            log_end_offset=Offset(log.end), flushed_end_offset=Offset(log.flushed)
        )
        self._progressed(broker, place, progress)

    def _progressed(self, leader: ModelBroker, place: Place, progress: Progress) -> None:
        partition = leader.replicas[place]
        partition.check_invariants()
        for wait in progress.released:
            self._released(leader, place, wait)
        if progress.high_watermark_moved:
            self.note("mark", leader.node_id, place[1], partition.high_watermark)
            self.checks.mark_moved(leader, place, partition)
            self._news(leader, place)

    def _released(self, leader: ModelBroker, place: Place, wait: Wait) -> None:
        if wait.error is None:
            offset, value = wait.token
            assert leader.disk.log(place).entries[offset][1] == value, "what was written is there"
            self.checks.acknowledged(place, offset, value)

    def _news(self, leader: ModelBroker, place: Place) -> None:
        """Whoever waits for this place is served again."""
        for node in self.brokers:
            asked = leader.parked.pop((node, place), None)
            if asked is not None:
                follower = self.brokers[node]
                self.at(0, self._serve, leader, asked, follower.life)

    # --- in-sync replicas ----------------------------------------------------------------------

    def _check_isr_later(self, broker: ModelBroker, life: int) -> None:
        self.at(
            self.options.lag_time_max_ms * 500,
            self._when_awake,
            broker,
            life,
            self._check_isr,
            broker,
        )

    def _check_isr(self, broker: ModelBroker) -> None:
        for place, partition in list(broker.replicas.items()):
            if partition.is_leader:
                self._progressed(broker, place, partition.check_isr(self.now_ms))
        self._ask_for_isr(broker.node_id)
        self._check_isr_later(broker, broker.life)

    def _ask_for_isr(self, node: NodeId) -> None:
        broker = self.brokers[node]
        if self._asking.get(node):
            return
        asked = {
            place: proposal
            for place, partition in broker.replicas.items()
            if (proposal := partition.isr_proposal()) is not None
        }
        if not asked:
            return
        self._asking[node] = True
        self.at(self._latency_us(), self._decide_isr, broker, broker.life, asked)

    def _decide_isr(self, broker: ModelBroker, life: int, asked: dict[Place, IsrProposal]) -> None:
        outcome: Any = Lost("the request was lost")
        if not self._is_lost():
            changes = tuple(_change(place, proposal) for place, proposal in asked.items())
            command = AlterPartitions(
                broker_id=broker.node_id, broker_epoch=broker.broker_epoch, changes=changes
            )
            try:
                if self.is_faulty and self.random.random() < self.options.loss:
                    raise NotController("another one leads")
                outcome = self.submit(command)
            except QuorumlogError as error:
                outcome = error
            if self._is_lost():
                outcome = Lost("the answer was lost")
        self.at(self._latency_us(), self._isr_answered, broker, life, asked, outcome)

    def _isr_answered(
        self, broker: ModelBroker, life: int, asked: dict[Place, IsrProposal], outcome: Any
    ) -> None:
        self._asking[broker.node_id] = False
        self._when_awake(broker, life, self._take_isr, broker, asked, outcome)

    def _take_isr(self, broker: ModelBroker, asked: dict[Place, IsrProposal], outcome: Any) -> None:
        results = (
            outcome.results if isinstance(outcome, PartitionsAltered) else [outcome] * len(asked)
        )
        for (place, proposal), result in zip(asked.items(), results, strict=True):
            partition = broker.replicas.get(place)
            if partition is None:
                continue
            if isinstance(result, QuorumlogError):
                self.note(f"isr refused: {type(result).__name__}", broker.node_id, place[1])
                progress = partition.isr_refused(proposal, result)
            else:
                progress = partition.isr_accepted(
                    proposal,
                    leader_epoch=result.leader_epoch,
                    partition_epoch=result.partition_epoch,
                    isr=result.isr,
                )
            self._progressed(broker, place, progress)
        if isinstance(outcome, StaleBrokerEpoch):
            return
        self.at(self._latency_us(), self._ask_awake, broker, broker.life)

    def _ask_awake(self, broker: ModelBroker, life: int) -> None:
        self._when_awake(broker, life, self._ask_for_isr, broker.node_id)

    # --- clients -------------------------------------------------------------------------------

    def _append_later(self) -> None:
        delay_us = self.random.expovariate(self.options.appends_per_s) * SECOND_US
        self.at(delay_us, self._append)

    def _append(self) -> None:
        if self.is_faulty:
            self._append_later()
        broker = self.brokers[self.random.choice(sorted(self.brokers))]
        if not broker.is_alive or broker.paused_until_us > self.now_us:
            return
        led = [place for place, p in broker.replicas.items() if p.is_leader]
        if not led:
            return
        place = self.random.choice(sorted(led))
        partition, log = broker.replicas[place], broker.disk.log(place)
        acks = Acks.ALL if self.random.random() < 0.8 else Acks.LEADER
        try:
            state = partition.admit(acks, None)
        except QuorumlogError:
            return
        self.values += 1
        log.append(state.leader_epoch, self.values)
        if acks is Acks.ALL:
            partition.wait_for(acks, Offset(log.end), (log.end - 1, self.values))
        self._advance(broker, place)
        self._flush(broker, place)
        self._news(broker, place)


def _change(place: Place, proposal: IsrProposal) -> IsrChange:
    return IsrChange(
        topic_id=place[0],
        partition=place[1],
        leader_epoch=Epoch(proposal.leader_epoch),
        partition_epoch=proposal.partition_epoch,
        isr=proposal.isr,
        recovered=proposal.recovered,
    )
