"""Consensus cores on virtual time: a heap of events, and a strict executor of every `Ready`.

Each step of a round (epoch and vote, snapshot chunks, installation, truncation, append with its
fsync) is a separate event, takes a drawn time, and may be the last one before a crash; `persisted`
and the messages that wait for it are two more. Entries to send are read from the member's own log.
The invariants are checked after every event.

Speed determines how much is explored: events are tuples, records are numbers, and nothing is
formatted until it is read.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.log_view import Entry, SnapshotId
from quorumlog.raftlog.messages import Message
from quorumlog.raftlog.ready import Outgoing, Ready, SendChunk, SendEntries
from quorumlog.raftlog.voters import Voter
from quorumlog.simulation.entropy import SimEntropy

from ...shrink.script import MakeRandom, plain_random
from .checks import Checks
from .clients import CoreHistory, PendingProposal, PendingRead
from .disks import SnapshotFile
from .invariants.every import INVARIANTS
from .member import CoreMember, WriteJob, read_message
from .network import CODES, MESSAGE_NAMES, Network
from .options import CoreOptions
from .oracle import Oracle
from .payloads import Payloads
from .recorder import EventKind, EventRecorder
from .trace import Crashed, Delivered, HighWatermark, RoleTaken, Started, Tracer, VotersSet

Handler: TypeAlias = Callable[[CoreMember, Any], None]
DELIVER, TICK, TURN = EventKind.DELIVER << 16, EventKind.TICK << 16, EventKind.TURN << 16
WRITE, PERSISTED, READ = EventKind.WRITE << 16, EventKind.PERSISTED << 16, EventKind.READ << 16
APPLY, RELEASE = EventKind.APPLY << 16, EventKind.RELEASE << 16
RELEASE_LATE = 0.2
"""Fraction of rounds in which messages waiting for the write are sent later than persisted()
returns."""


class Harness:
    """All members, their network, virtual time and the invariants."""

    def __init__(
        self,
        options: CoreOptions,
        members: list[CoreMember],
        entropy: SimEntropy,
        *,
        tracer: Tracer | None = None,
        make_random: MakeRandom = plain_random,
    ) -> None:
        self.options = options
        self.members = members
        self.entropy = entropy
        self.now_us = 0
        self.recorder = EventRecorder()
        self.history = CoreHistory()
        self.oracle = Oracle(
            members,
            members[0].disk.formatted,
            release_us=options.write_us[1] + options.turn_us + options.read_us[1],
            late_us=options.timer_late_us,
        )
        self.checks = Checks(invariant(self.oracle) for invariant in INVARIANTS)
        self.random = make_random("harness", entropy.stream("harness").below(1 << 62))
        self.payloads = Payloads(is_real=options.through_protobuf)
        self.network = Network(
            self,
            options,
            make_random("network", entropy.stream("network").below(1 << 62)),
            tracer=tracer,
            translate=self.payloads.translate if options.through_protobuf else None,
        )
        self.tracer = tracer
        self.is_faulty = True
        self.crash: Callable[[CoreMember], None] = self.stop  # the action of an armed crash
        self._numbers = self.recorder.numbers
        self._heap: list[tuple[int, int, Handler | None, Any, int, Any]] = []
        self._sequence = 0
        self._bootstrap = tuple(member.address for member in members)
        self._sending = self.checks.sending
        self._settled = self.checks.settled
        self._delivered = self.checks.delivered

    # --- time ----------------------------------------------------------------------------------

    def at(self, due_us: int, handler: Handler, member: CoreMember, argument: Any = None) -> None:
        """Schedule an event of a member; it is dropped if the member restarts before."""
        self._sequence += 1
        heappush(self._heap, (due_us, self._sequence, handler, member, member.life, argument))

    def later(self, due_us: int, action: Callable[[], None]) -> None:
        """Schedule an event of the simulation."""
        self._sequence += 1
        heappush(self._heap, (due_us, self._sequence, None, None, 0, action))

    def deliver_at(self, due_us: int, member: CoreMember, message: Message, number: int) -> None:
        """Schedule the arrival of a message at a machine, whatever process runs then."""
        self._sequence += 1
        item = (due_us, self._sequence, self._deliver, member, -1, (message, number))
        heappush(self._heap, item)

    def run(self, *, until_us: int, events: int | None = None) -> None:
        """Run until a time, or until that many events are recorded."""
        heap, numbers = self._heap, self._numbers
        limit = None if events is None else events * 5
        while heap and heap[0][0] <= until_us:
            if limit is not None and len(numbers) >= limit:
                return
            now_us, _, handler, member, life, argument = heappop(heap)
            self.now_us = self.oracle.now_us = now_us
            if handler is None:
                self.before_event(None, None, argument)
                argument()
                continue
            if life >= 0:
                if member.life != life:
                    continue
            elif member.raft is None:
                continue
            if member.paused_until_us > now_us:
                self._hold(handler, member, life, argument)
                continue
            self.before_event(handler, member, argument)
            handler(member, argument)
        self.now_us = max(self.now_us, until_us)

    def before_event(
        self, handler: Handler | None, member: CoreMember | None, argument: Any
    ) -> None:
        """Note that an event follows: `handler(member, argument)`, or `argument()` without a
        handler."""

    def _hold(self, handler: Handler, member: CoreMember, life: int, argument: Any) -> None:
        """Postpone an event of a paused member until it resumes; completed writes come last."""
        due_us = member.paused_until_us
        if handler == self._step_done:
            due_us += int(self.random.random() * 3000 * self.options.heartbeat_ms)
        self._sequence += 1
        heappush(self._heap, (due_us, self._sequence, handler, member, life, argument))

    def resume(self, member: CoreMember) -> None:
        """End a member's pause now; its postponed events are due."""
        until_us, member.paused_until_us = member.paused_until_us, 0
        if until_us <= self.now_us:
            return
        self._heap[:] = [
            (self.now_us, *item[1:]) if item[3] is member and item[0] == until_us else item
            for item in self._heap
        ]
        heapify(self._heap)

    def note(self, what: EventKind, member: CoreMember | None = None, detail: int = 0) -> None:
        """Record an event outside of a running core."""
        node = 0 if member is None else member.number
        self._numbers.extend((self.now_us, what << 16 | node, detail, 0, 0))

    # --- processes -----------------------------------------------------------------------------

    def start(self, member: CoreMember) -> None:
        """Start a member's process."""
        assert member.raft is None, f"{member.name} runs already"
        entropy = self.entropy.stream(f"core/{member.number}/{member.life}")
        raft = member.start(
            self.options,
            self._bootstrap,
            entropy,
            self.now_us,
            encode_control=self.payloads.control,
        )
        for check in self.checks.started:
            check(member)
        if self.tracer is not None:
            self.tracer(Started(at_us=self.now_us, node=member.number))
            self._trace_voters(member)
        raft.check_invariants()
        self.settle(member, EventKind.START << 16)

    def stop(self, member: CoreMember) -> None:
        """Kill a member's process; volatile state is lost."""
        for orphan in member.stop():
            if isinstance(orphan, PendingProposal):
                self.history.unknown += 1
        self.note(EventKind.CRASH, member)
        if self.tracer is not None:
            self.tracer(Crashed(at_us=self.now_us, node=member.number))

    # --- events --------------------------------------------------------------------------------

    def _deliver(self, member: CoreMember, argument: tuple[Message, int]) -> None:
        message, number = argument
        raft = member.raft
        assert raft is not None, "a message without a process"
        if self.tracer is not None:
            self.tracer(Delivered(at_us=self.now_us, number=number))
        before = (
            member.state.epoch,
            member.state.vote,
            member.state.log.end_offset,
            raft.role,
        )
        raft.step(message, member.now_ms(self.now_us))
        for check in self._delivered:
            check(member, message, before)
        sender = message.sender.node_id & 15
        self.settle(member, DELIVER | CODES[type(message)] << 8 | sender << 4)

    def _tick(self, member: CoreMember, due_us: int | None) -> None:
        if member.timer_us != due_us:
            return  # another timer was set since
        member.timer_us = None
        raft = member.raft
        assert raft is not None, "a timer without a process"
        raft.tick(member.now_ms(self.now_us))
        self.settle(member, TICK)

    def _turn(self, member: CoreMember, _: None) -> None:
        member.is_turn_due = False
        self.settle(member, TURN, drain=True)

    def settle(self, member: CoreMember, code: int, *, drain: bool = False) -> None:
        """Check a core after an input, record it, execute its effects, set its timer."""
        raft = member.raft
        assert raft is not None, "settled without a process"
        now_us = self.now_us
        log = member.state.log
        self._follow_log(member)
        if raft.role is not member.role or member.state.epoch != member.epoch:
            self._role_changed(member)
        high_watermark = member.state.high_watermark
        if high_watermark != member.high_watermark:
            self._commit_advanced(member, high_watermark)
        if member.is_leading:
            member.is_leading = member.state.is_leader
        for check in self._settled:
            check(member)
        self._numbers.extend(
            (now_us, code | member.number, member.state.epoch, high_watermark, log.end_offset)
        )
        if raft.has_ready():
            if drain or not self.options.turn_us:
                while raft.has_ready():
                    self._execute(member, raft.ready())
                raft.check_invariants()
            elif not member.is_turn_due:
                member.is_turn_due = True
                self.at(now_us + self.options.turn_us, self._turn, member)
        deadline_ms = raft.next_deadline_ms()
        if deadline_ms is not None:
            self._set_timer(member, member.due_us(deadline_ms))

    def _set_timer(self, member: CoreMember, due_us: int) -> None:
        """Set the timer, slightly late; an earlier timer that is set suffices."""
        timer_us, late_us = member.timer_us, self.options.timer_late_us
        if timer_us is None or due_us < timer_us - late_us:
            due_us = max(due_us, self.now_us) + int(self.random.random() * late_us)
            member.timer_us = due_us
            self.at(due_us, self._tick, member, due_us)

    def _follow_log(self, member: CoreMember) -> None:
        """Apply the core's changes of its log view to the member's running log."""
        raft, log = member.raft, member.log
        assert raft is not None, "a log without a process"
        view = member.state.log
        if view.end_offset == log.end and view.last_epoch == log.last_epoch:
            return  # the same end and epoch: the same log
        fresh: list[Entry] = []
        unwritten = member.state.writes.unwritten
        for entry in reversed(unwritten):
            if log.entries.get(entry.base_offset) is entry:
                break
            fresh.append(entry)
        fresh.reverse()
        parting = fresh[0].base_offset if fresh else view.end_offset
        if parting < log.end:
            for check in self.checks.truncating:
                check(member, parting)
            log.truncate_to(parting)
        for entry in fresh:
            chain = log.append(entry)
            for appended in self.checks.appended:
                appended(member, entry, chain)
        assert log.end == view.end_offset, f"{member.name}: {log.end} of {view.end_offset}"

    def _role_changed(self, member: CoreMember) -> None:
        raft = member.raft
        assert raft is not None, "a role without a process"
        member.role, member.epoch = raft.role, member.state.epoch
        if member.state.is_leader:
            member.led_epoch = member.state.epoch
            member.is_leading = True
        elif member.state.epoch != member.led_epoch:
            member.is_leading = False  # its commits now come from another leader
        if member.proposals and not member.state.is_leader:
            self.history.unknown += len(member.proposals)
            member.proposals.clear()
        for check in self.checks.role_changed:
            check(member)
        if self.tracer is not None:
            self.tracer(
                RoleTaken(
                    at_us=self.now_us,
                    node=member.number,
                    role=raft.role.name,
                    epoch=member.state.epoch,
                )
            )

    def _commit_advanced(self, member: CoreMember, high_watermark: int) -> None:
        before, member.high_watermark = member.high_watermark, high_watermark
        for check in self.checks.commit_advanced:
            check(member, before)
        if self.tracer is not None:
            self.tracer(HighWatermark(at_us=self.now_us, node=member.number, offset=high_watermark))
            self._trace_voters(member)

    # --- a round of effects --------------------------------------------------------------------

    def _execute(self, member: CoreMember, ready: Ready) -> None:
        """Execute a round, in the order of its fields."""
        if ready.token is not None:
            self._begin_write(member, ready)
        for message in ready.messages_now:
            self._send(member, message)
        if ready.committed is not None:
            member.to_apply.append((ready.committed.start, ready.committed.end))
            self._apply_soon(member)
        for read_ready in ready.reads:
            read = member.reads.pop(read_ready.context)
            for check in self.checks.read_ready:
                check(member, read_ready, read)
            member.ready_reads.append((read_ready.offset, read))
        for context in ready.reads_lost:
            member.reads.pop(context)
        if ready.reads:
            self._answer_reads(member)
        if ready.clean_to is not None:
            member.disk.clean_to(ready.clean_to)
            member.log.clean_to(ready.clean_to.log_end)

    def _send(self, member: CoreMember, message: Outgoing) -> None:
        if type(message) is SendEntries or type(message) is SendChunk:
            low, high = self.options.read_us
            if high and self.random.random() < 0.5:
                due_us = self.now_us + low + int((high - low) * self.random.random())
                self.at(due_us, self._read, member, message)
            else:
                self._send_read(member, message)
            return
        for check in self._sending.get(type(message), ()):
            check(member, message)
        self.network.send(member, message)  # type: ignore[arg-type]

    def _read(self, member: CoreMember, message: SendEntries | SendChunk) -> None:
        """Send entries that were read from the disk."""
        self._send_read(member, message)
        self.settle(member, READ)

    def _send_read(self, member: CoreMember, message: SendEntries | SendChunk) -> None:
        whole = read_message(member, message)
        if whole is not None:
            self._send(member, whole)

    # --- writes --------------------------------------------------------------------------------

    def _begin_write(self, member: CoreMember, ready: Ready) -> None:
        assert member.job is None, f"{member.name} has two writes in flight"
        member.job = WriteJob(ready)
        if ready.install is not None:
            for check in self.checks.installing:
                check(member, ready.install)
        self._schedule_step(member)

    def _schedule_step(self, member: CoreMember) -> None:
        options, random = self.options, self.random.random
        low, high = options.write_us
        due_us = self.now_us + low + int((high - low) * random() ** 2)
        if self.is_faulty:
            if options.disk_stall and random() < options.disk_stall:
                low, high = options.disk_stall_ms
                due_us += 1000 * (low + int((high - low) * random()))
            if member.has_slow_disk and member.is_appending:
                due_us += int(1000 * options.slow_append_ms * random())
        self.at(due_us, self._step_done, member)

    def _is_last_moment(self, member: CoreMember) -> bool:
        """Return True if an armed crash happens here."""
        if member.crash_in_steps < 0:
            return False
        member.crash_in_steps -= 1
        if member.crash_in_steps >= 0:
            return False
        self.crash(member)
        return True

    def _step_done(self, member: CoreMember, _: None) -> None:
        """Make the current step of the write durable; after the last one notify the core."""
        if self._is_last_moment(member):
            return  # during the step
        job = member.job
        assert job is not None, "a step without a write"
        if job.next_step == len(job.steps):
            self._persisted(member, job)
            return
        ready, disk = job.ready, member.disk
        match job.steps[job.next_step]:
            case "hard_state":
                assert ready.hard_state is not None, "no hard state"
                for storing in self.checks.storing:
                    storing(member, ready.hard_state)
                disk.hard_state = ready.hard_state
            case "chunk":
                first = len(job.steps) - job.steps[::-1].index("chunk") - len(ready.chunks)
                disk.write_chunk(ready.chunks[job.next_step - first])
            case "install":
                self._install(member, job)
            case "truncate":
                assert ready.truncate_to is not None, "no offset"
                for truncating in self.checks.disk_truncating:
                    truncating(disk, ready.truncate_to)
                disk.log.truncate_to(ready.truncate_to)
            case _:
                for entry in ready.append:
                    disk.log.append(entry)
        job.next_step += 1
        self._numbers.extend((self.now_us, WRITE | member.number, job.next_step, 0, disk.log.end))
        self._schedule_step(member)

    def _install(self, member: CoreMember, job: WriteJob) -> None:
        """Verify the received snapshot and replace the log and the state by it."""
        snapshot, disk = job.ready.install, member.disk
        assert snapshot is not None, "nothing to install"
        if not disk.install(snapshot):
            job.is_refused = True
            return
        for check in self.checks.snapshot_written:
            check(member, snapshot, disk.snapshots[snapshot])
        member.to_apply.clear()
        member.state_end = snapshot.end_offset
        member.state_chain = disk.log.chains[snapshot.end_offset]

    def _persisted(self, member: CoreMember, job: WriteJob) -> None:
        raft, ready = member.raft, job.ready
        assert raft is not None, "a write without a process"
        assert ready.token is not None, "a write without a token"
        member.job = None
        now_ms = member.now_ms(self.now_us)
        if job.is_refused:
            raft.persisted(ready.token, now_ms, is_snapshot_damaged=True)
        else:
            raft.persisted(ready.token, now_ms)
            if ready.install is not None:
                start = ready.install.log_end
                member.log.reset(start, member.disk.log.chains[start.offset])
        if self._is_last_moment(member):
            return  # before any message is sent
        if ready.messages_after:
            if self.random.random() < RELEASE_LATE:
                due_us = self.now_us + int(self.random.random() * self.options.write_us[1])
                self.at(due_us, self._release, member, ready.messages_after)
            else:
                for message in ready.messages_after:
                    self._send(member, message)
        self.settle(member, PERSISTED)

    def _release(self, member: CoreMember, messages: tuple[Message, ...]) -> None:
        for message in messages:
            self._send(member, message)
        self.settle(member, RELEASE)

    # --- what is committed ---------------------------------------------------------------------

    def _apply_soon(self, member: CoreMember) -> None:
        if not member.is_applying:
            member.is_applying = True
            low, high = self.options.apply_us
            due_us = self.now_us + low + int((high - low) * self.random.random())
            self.at(due_us, self._apply, member)

    def _apply(self, member: CoreMember, _: None) -> None:
        """Apply the oldest committed range; answer the operations that waited for it."""
        member.is_applying = False
        raft = member.raft
        assert raft is not None, "applied without a process"
        if not member.to_apply:
            return  # a snapshot was installed in between
        start, end = member.to_apply.popleft()
        while member.to_apply:
            following, after = member.to_apply.popleft()
            assert following == end, f"{member.name}: [{following}, {after}) after {end}"
            end = after
        assert start == member.state_end, f"{member.name}: [{start}, {end}) at {member.state_end}"
        member.state_chain = member.log.chains[end]
        member.state_end = end
        for check in self.checks.applied:
            check(member, start)
        raft.applied(Offset(end))
        proposals = member.proposals
        while proposals and proposals[0].end <= end:
            self.history.proposal_answered(proposals.popleft())
        self._answer_reads(member)
        if self.options.snapshot_every:
            self._maybe_snapshot(member)
        self.settle(member, APPLY)

    def _answer_reads(self, member: CoreMember) -> None:
        waiting = member.ready_reads
        if not waiting:
            return
        end = member.state_end
        member.ready_reads = [(offset, read) for offset, read in waiting if offset > end]
        for offset, read in waiting:
            if offset <= end:
                self.history.read_answered(read, end)

    def _maybe_snapshot(self, member: CoreMember) -> None:
        newest = member.disk.newest
        behind = member.state_end - (newest.end_offset if newest else 0)
        if member.snapshot_under_way is not None or behind < self.options.snapshot_every:
            return
        end = member.state_end
        epoch = self.oracle.committed.epoch_before(end)
        raft = member.raft
        assert raft is not None, "a snapshot without a process"
        if not member.state.voters.at(Offset(end)) or member.state.writes.durable_end < end:
            # the voters there are not known yet, or the own log would end below the snapshot
            return
        member.snapshot_under_way = SnapshotId(Offset(end), Epoch(epoch))
        file = SnapshotFile.of(
            member.snapshot_under_way,
            member.state_chain,
            member.state.voters.at(Offset(end)),
            size=end * 7919 % self.options.snapshot_bytes_max,
        )
        due_us = self.now_us + int(self.random.random() * 5 * self.options.write_us[1])
        self.at(due_us, self._snapshot_done, member, file)

    def _snapshot_done(self, member: CoreMember, file: SnapshotFile) -> None:
        """Record that the snapshot is durable under its name."""
        snapshot, member.snapshot_under_way = member.snapshot_under_way, None
        raft, newest = member.raft, member.disk.newest
        assert snapshot is not None, "a snapshot without a name"
        assert raft is not None, "a snapshot without a process"
        job = member.job
        if job is not None and job.ready.install is not None:
            return  # a newer one is being installed
        if newest is not None and newest >= snapshot:
            return
        member.disk.snapshots[snapshot] = file
        for check in self.checks.snapshot_written:
            check(member, snapshot, file)
        raft.snapshot_taken(snapshot)
        self.settle(member, EventKind.SNAPSHOT << 16)

    # --- operations
    # --------------------------------------------------------------------------------

    def propose(self, member: CoreMember, count: int, size: int) -> bool:
        """Propose at a member. Raises the core's typed error if it refuses."""
        raft, history = member.raft, self.history
        assert raft is not None, "a proposal without a process"
        number, floor = history.begin(), history.floor
        payload = self.payloads.batch(
            number,
            base_offset=member.state.log.end_offset,
            epoch=member.state.epoch,
            count=count,
            size=size,
        )
        entry = raft.propose(count=count, payload=payload)
        proposal = PendingProposal(number, floor, end=entry.next_offset, epoch=entry.epoch)
        member.proposals.append(proposal)
        self.settle(member, EventKind.PROPOSE << 16)
        return True

    def read(self, member: CoreMember) -> None:
        """Request a linearizable read from a member."""
        raft, history = member.raft, self.history
        assert raft is not None, "a read without a process"
        read = PendingRead(history.begin(), history.floor, began_us=self.now_us)
        raft.read_index(read.number, member.now_ms(self.now_us))
        member.reads[read.number] = read
        self.settle(member, EventKind.READ_INDEX << 16)

    def notice_unreachable(self, member: CoreMember, peer: Voter) -> None:
        """Notify a member after a while that its stream to the peer is broken."""
        due_us = self.now_us + int(self.random.random() * 2 * self.options.latency_us[1])
        self.at(due_us, self._unreachable, member, peer)

    def _unreachable(self, member: CoreMember, peer: Voter) -> None:
        raft = member.raft
        assert raft is not None, "a stream without a process"
        raft.unreachable(peer, member.now_ms(self.now_us))
        self.settle(member, EventKind.UNREACHABLE << 16)

    def _trace_voters(self, member: CoreMember) -> None:
        raft = member.raft
        assert raft is not None, "voters without a process"
        if self.tracer is not None and member.state.voters.latest is not member.voters_traced:
            member.voters_traced = member.state.voters.latest
            voters = tuple(voter.node_id for voter in member.state.voters.latest)
            self.tracer(VotersSet(at_us=self.now_us, node=member.number, voters=voters))

    # --- the report ----------------------------------------------------------------------------

    def last_events(self, count: int) -> list[str]:
        """Return the last events as text."""
        return list(self.recorder.lines(MESSAGE_NAMES, last=count))
