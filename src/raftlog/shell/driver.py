"""The driver of the consensus core: messages, time and proposals in, rounds of effects out.

It has two tasks: the driver and the writer. One write is in flight at a time, so proposals made
during a write share the next fsync. The driver does not wait for the disk, reads or the state
machine. It performs the core's decisions and makes no protocol decision.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from ...errors import (
    DiskFailed,
    DiskFull,
    InvalidRequest,
    NotController,
    OutcomeUnknown,
    Overloaded,
    QuorumlogError,
)
from ...ids import NO_NODE, ClusterId, Epoch, NodeId, Offset
from ...runtime import Clock, Entropy, Runtime, Scope
from ..config import RaftConfig
from ..control_records import LeaderChange, control_batch
from ..log_view import Entry, EntryKind, SnapshotId
from ..messages import AppendRequest, Heartbeat, Message, SnapshotChunk
from ..raft import Raft
from ..ready import Event, MessageDropped, Ready, RoleChanged, VotersChanged
from ..state import RaftState
from ..voters import Voter, VoterSet
from .applier import Applier
from .index_reads import IndexReads
from .link import TransportConfig
from .log_tail import LogTail
from .metadata_log import MetadataLog
from .persistence import STORAGE_FAILURES, Persister, WriteAbandoned
from .proposal_queue import ProposalQueue
from .sender import Sender
from .snapshot_writer import SnapshotWriter
from .state_machine import StateMachine
from .transport import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftNodeConfig:
    """The limits of one node's shell, in bytes. Raise InvalidRequest if one is invalid."""

    # "host:port" for streams of other nodes; port 0 selects a free one. Empty: a free port on the
    # host of this node's address, or on 127.0.0.1.
    listener: str = ""
    # A snapshot is taken after this log growth since the last one.
    snapshot_every_bytes: int = 20 * 1024 * 1024  # metadata.log.max.record.bytes.between.snapshots
    # Limit on the newest batches in memory, for followers and the delivery.
    tail_bytes_max: int = 16 * 1024 * 1024
    # Limit on the proposals in one batch, or one larger proposal. A follower's state machine
    # applies a batch in one step.
    batch_bytes_max: int = 512 * 1024
    transport: TransportConfig = field(default_factory=TransportConfig)

    def __post_init__(self) -> None:
        for name in ("snapshot_every_bytes", "tail_bytes_max", "batch_bytes_max"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name}: {getattr(self, name)} is too small; set at least 1")


class LeadershipNotifier:
    """Detects changes of the leader."""

    def __init__(self, state: RaftState, machine: StateMachine) -> None:
        self._state = state
        self._machine = machine
        self._notified: tuple[NodeId | None, Epoch] = (None, state.epoch)  # last notified
        self._was_leader = False
        self._waiting: list[asyncio.Future[None]] = []

    def update(self) -> bool:
        """Notify the state machine of a change. Return True if this node's leadership ended.

        The start of this node's leadership is notified later by opened().
        """
        state = self._state
        leads = (state.leader_id, state.epoch)
        if leads == self._notified:
            return False
        before, self._notified = self._notified, leads
        is_over, self._was_leader = self._was_leader, state.is_leader
        if is_over:
            self.release()
        if not state.is_leader and (leads[0] is not None or before[0] is not None):
            self._machine.leadership(*leads)
        return is_over

    def opened(self) -> None:
        """Notify that this node leads and that everything before was delivered."""
        self._machine.leadership(self._state.leader_id, self._state.epoch)

    def end(self) -> None:
        """Notify that there is no leader when the node ends."""
        if self._notified[0] is not None:
            self._notified = (None, self._state.epoch)
            self._machine.leadership(*self._notified)

    async def wait_deposed(self) -> None:
        """Return after this node's leadership has ended."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(over)
        try:
            await over
        finally:
            self._waiting = [each for each in self._waiting if each is not over]

    def release(self) -> None:
        """Release all waiting calls."""
        for over in self._waiting:
            if not over.done():
                over.set_result(None)


class CatchUp:
    """Detects when this node first caught up: it has a leader, and applied the entries that were
    committed when it first had contact with the leader. Set permanently."""

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self.reached = asyncio.Event()
        self.goal: Offset | None = None  # committed end at the first contact with a leader

    def record_commit(self, epoch: Epoch, committed_end: Offset, applied_end: Offset) -> None:
        """Record a leader's high watermark."""
        if not self.reached.is_set() and epoch == self._state.epoch:
            self.goal = max(self.goal or Offset(0), committed_end)
            self.applied(applied_end)

    def applied(self, end: Offset) -> None:
        """Record the applied offset."""
        if not self.reached.is_set() and self._has_caught_up(end):
            self.reached.set()

    def _has_caught_up(self, end: Offset) -> bool:
        """Return True if the state has all entries committed before the contact with the leader.

        A new leader's high watermark may be low until it commits in its own epoch (thesis 6.4). An
        entry of its epoch must therefore be applied as well.
        """
        log = self._state.log
        if self.goal is None or not self.goal <= end or end < log.start_offset:
            return False
        return log.epoch_before(end) == self._state.epoch


class DeadlineTimer:
    """One timer."""

    __slots__ = ("_clock", "_due_ms", "_timer", "_wake")

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        """`wake` may be called before the deadline, and is called soon after it."""
        self._clock = clock
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0

    def set(self, deadline_ms: int) -> None:
        """Schedule a call of `wake` at the deadline or earlier."""
        if self._timer is not None:
            if self._due_ms <= deadline_ms:
                return
            self._timer.cancel()
        delay_s = max(0, deadline_ms - self._clock.now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._fire)
        self._due_ms = deadline_ms

    def cancel(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._wake()


_LOG = logging.getLogger("quorumlog.raftlog")

INBOX_MAX: Final = 20_000
"""Limit on messages queued for the driver. More are dropped, as a network may do."""
MESSAGES_A_TURN: Final = 64
"""Messages processed before their effects are performed and the event loop runs other tasks."""


class Driver:
    """The core of one node and the parts that perform its effects."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        log: MetadataLog,
        *,
        cluster_id: ClusterId,
        config: RaftConfig,
        state_machine: StateMachine,
        node_config: RaftNodeConfig,
    ) -> None:
        self._clock = runtime.clock
        self._stop_node = runtime.tasks.stop_node
        self.state = state = self._opened_state(
            config, log, runtime.entropy.stream("raftlog.election")
        )
        self.raft = raft = Raft(state, now_ms=runtime.clock.now_ms())
        self._tail = tail = LogTail(state.log.end_offset, bytes_max=node_config.tail_bytes_max)
        self.proposals = proposals = ProposalQueue(
            bytes_max=config.uncommitted_bytes_max, batch_bytes_max=node_config.batch_bytes_max
        )
        self.transport = Transport(
            runtime,
            scope,
            cluster_id=cluster_id,
            me=config.me,
            receive=self._receive,
            unreachable=self._receive,
            config=node_config.transport,
        )
        self.sender = Sender(state, log, tail=tail, transport=self.transport)
        self.applier = Applier(
            runtime.clock,
            log,
            raft,
            state,
            state_machine,
            tail=tail,
            proposals=proposals,
            applied=self._on_applied,
            opened=self._on_opened,
        )
        self.snapshot_writer = SnapshotWriter(
            state,
            log,
            state_machine,
            node_config.snapshot_every_bytes,
            taken=self._on_snapshot_taken,
        )
        self._persister = Persister(
            config.node_id,
            log,
            applier=self.applier,
            snapshot_writer=self.snapshot_writer,
            disk_full=self._on_disk_full,
        )
        self.leadership = LeadershipNotifier(state, state_machine)
        self.catch_up = CatchUp(state)
        self.reads = IndexReads(raft, wake=self.wake, waiters_max=config.reads_max)
        # set permanently when this node first led, failed or was closed
        self.has_led = asyncio.Event()
        self.ended: QuorumlogError | None = None  # the error that ended the driver
        self.dropped = 0  # messages dropped because the inbox was full
        self._inbox: deque[Message | Voter] = deque()  # a Voter: the connection to it broke
        self._woken = asyncio.Event()  # the driver has work
        self._alarm = DeadlineTimer(runtime.clock, self.wake)
        self._write: Ready | None = None  # the round whose token is outstanding
        self._write_given = asyncio.Event()
        self._clean_to: SnapshotId | None = None

    def _opened_state(self, config: RaftConfig, log: MetadataLog, entropy: Entropy) -> RaftState:
        return RaftState(
            config,
            log.view,
            log.hard_state,
            log.voters,
            entropy,
            snapshots=log.snapshots,
            encode_control=self._encode_control,
        )

    # --- requests of the node -------------------------------------------------------------------

    @property
    def node_id(self) -> NodeId:
        return self.state.me.node_id

    def wake(self) -> None:
        """Schedule a run of the driver."""
        self._woken.set()

    def wake_for_proposal(self) -> None:
        """Schedule the append of a queued proposal, unless a write is in flight. Then it is
        appended after the write."""
        if self._write is None:
            self._woken.set()

    def append_queued(self) -> None:
        """Append all queued proposals, so that the next entry follows them at the promised offsets.

        Raise Overloaded.
        """
        while self.proposals.has_queued:
            if not self._append_batch():
                raise Overloaded(
                    "metadata log: proposals at the limit or a transfer in progress; retry later"
                )

    def not_leader_error(self) -> NotController:
        """Return the error for a request that only the leader can execute."""
        leader = self.state.leader_id
        return NotController(
            "metadata quorum: this node is not the leader",
            leader_id=NO_NODE if leader is None or self.state.is_leader else leader,
        )

    def resign(self) -> None:
        """Resign at the end of the node and announce it."""
        self.raft.resign(self._clock.now_ms())
        self._pump()
        self.leadership.end()

    # --- driving the core ----------------------------------------------------------------------

    def _receive(self, message: Message | Voter) -> None:
        """Queue a message for the driver. The transport calls it in its own tasks."""
        if self.ended is not None or len(self._inbox) >= INBOX_MAX:
            self.dropped += 1
            return
        self._inbox.append(message)
        self._woken.set()

    async def run(self) -> None:
        """Process inputs and perform effects until end()."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            if self.ended is not None:
                return
            now_ms = self._clock.now_ms()
            self._step_messages(now_ms)
            deadline_ms = self.raft.next_deadline_ms()
            if deadline_ms is not None and now_ms >= deadline_ms:
                self.raft.tick(now_ms)
            self.reads.begin(now_ms)
            self._pump()
            if self._inbox:
                self._woken.set()
                await asyncio.sleep(0)

    def _step_messages(self, now_ms: int) -> None:
        raft, state, inbox = self.raft, self.state, self._inbox
        for _ in range(min(len(inbox), MESSAGES_A_TURN)):
            message = inbox.popleft()
            if isinstance(message, Voter):
                raft.unreachable(message, now_ms)
                self.sender.forget(message)
                continue
            raft.step(message, now_ms)
            if isinstance(message, AppendRequest):
                if message.entries:
                    durable_end = state.writes.durable_end
                    self._tail.follow(state.log, message.entries, durable_end=durable_end)
                self._record_commit(message, message.high_watermark)
            elif isinstance(message, Heartbeat):
                self._record_commit(message, message.high_watermark)
            elif isinstance(message, SnapshotChunk):
                self._record_commit(message, message.snapshot.end_offset)

    def _record_commit(self, message: Message, committed_end: Offset) -> None:
        self.catch_up.record_commit(message.epoch, committed_end, self.applier.end)

    def _pump(self) -> None:
        """Perform all effects that the core has ready. Never waits."""
        raft, log = self.raft, self.state.log
        while True:
            if self._write is None and self.proposals.has_queued:
                self._append_batch()
            if not raft.has_ready():
                break
            self._perform(raft.ready())
        assert self._tail.end_offset == log.end_offset, (
            f"the tail ends at {self._tail.end_offset}, the log at {log.end_offset}"
        )
        deadline_ms = raft.next_deadline_ms()
        if deadline_ms is not None and self.ended is None:
            self._alarm.set(deadline_ms)

    def _append_batch(self) -> bool:
        """Append one batch of queued proposals. Return False if the core accepts none now."""
        batch = self.proposals.next_batch()
        state = self.state
        if not state.is_leader or state.epoch != batch.epoch:
            return False  # the next round fails them
        assert batch.base_offset == state.log.end_offset, f"{batch} at {state.log.end_offset}"
        payload = batch.encode(self._clock.wall_ms())
        try:
            entry = self.raft.propose(count=len(batch.values), payload=payload)
        except Overloaded:
            return False  # they keep their offsets and wait
        self._tail.put(entry)
        self.proposals.appended(batch)
        return True

    def _perform(self, ready: Ready) -> None:
        """Perform one round in the order of its fields.

        The write is started first, so that the disk works while messages are sent.
        """
        for event in ready.events:
            self._log_event(event)
        if ready.token is not None:
            assert self._write is None, "two writes in flight"
            self._write = ready
            self._write_given.set()
        for outgoing in ready.messages_now:
            self.sender.send(outgoing)
        if ready.clean_to is not None:
            self._clean_to = ready.clean_to
            self._write_given.set()
        if ready.committed is not None:
            self.applier.commit(ready.committed.end)
        if self.leadership.update():
            self._fail_proposals()
        for read in ready.reads:
            self.reads.ready(read, self.applier.end)
        for context in ready.reads_lost:
            self.reads.lost(context, self.not_leader_error())

    def _fail_proposals(self) -> None:
        lost = OutcomeUnknown(
            "proposal: outcome unknown, the leadership ended first; check the state, then retry"
        )
        self.proposals.fail(
            self.applier.committed_end, appended=lost, queued=self.not_leader_error()
        )

    # --- delivery ------------------------------------------------------------------------------

    def _on_applied(self, end: Offset) -> None:
        """Report the applied offset to reads, snapshots and catch_up."""
        self.reads.applied(end)
        self.snapshot_writer.applied(end)
        self.catch_up.applied(end)

    def _on_snapshot_taken(self, snapshot: SnapshotId) -> None:
        self.raft.snapshot_taken(snapshot)
        self.wake()

    def _on_opened(self, epoch: Epoch) -> None:
        """Report that the no-op of an epoch was committed and delivered."""
        if self.state.is_leader and epoch == self.state.epoch:
            self.leadership.opened()
            self.has_led.set()
            self.catch_up.reached.set()

    # --- the disk ------------------------------------------------------------------------------

    async def run_writer(self) -> None:
        """Perform one write at a time, in the order of the tokens."""
        try:
            while True:
                await self._write_given.wait()
                self._write_given.clear()
                if self._write is not None:
                    await self._make_durable(self._write)
                elif self.ended is not None:
                    return
                if self._clean_to is not None:
                    snapshot, self._clean_to = self._clean_to, None
                    with self._fail_stop():
                        await self._persister.clean_to(snapshot)
        except WriteAbandoned:
            return  # the node ended: unwritten entries were not acknowledged

    async def _make_durable(self, ready: Ready) -> None:
        """Persist a round and confirm it to the core, which may return the next one at once."""
        assert ready.token is not None, "a write without a token"
        with self._fail_stop():
            is_done = await self._persister.persist(ready)
        now_ms = self._clock.now_ms()
        raft, state = self.raft, self.state
        self._write = None
        raft.persisted(ready.token, now_ms, is_snapshot_damaged=not is_done)
        if is_done and ready.install is not None:
            self._clean_to = None  # of the replaced log
            self._tail.reset(state.log.end_offset)
            self._persister.snapshot_installed()
            self._on_applied(self.applier.end)
        self._tail.durable(state.writes.durable_end)
        self.snapshot_writer.written()
        raft.check_invariants()
        for message in ready.messages_after:
            self.sender.send(message)
        self._pump()
        if self.ended is not None:
            self._write_given.set()

    def _on_disk_full(self, error: DiskFull) -> bool:
        """Handle a full disk. Return True if the round may wait for space.

        A lone voter that has never led fails at once, so that the start reports the error. A leader
        of several voters resigns, so that another voter can lead.
        """
        if self.ended is not None:
            return False
        if self.state.is_alone:
            if not self.has_led.is_set():
                self._storage_failed(error)
                return False
        elif self.state.is_leader:
            self.raft.resign(self._clock.now_ms())
            self._woken.set()
        return True

    @contextmanager
    def _fail_stop(self) -> Iterator[None]:
        """End the node and raise WriteAbandoned if the storage fails. State machine errors are not
        caught."""
        try:
            yield
        except STORAGE_FAILURES as error:
            self._storage_failed(error)
            raise WriteAbandoned(str(error)) from error

    async def guard(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run work that uses the disk beside the writer. End the node if the disk fails."""
        try:
            await work()
        except (DiskFailed, OSError) as error:
            self._storage_failed(error, what="read, or its snapshot written")

    def _storage_failed(self, error: Exception, *, what: str = "written") -> None:
        """Stop the node, because the state on disk is unknown."""
        reason = f"metadata log: not {what}; {error}"
        _LOG.error("raft.storage_failed node=%d error=%s", self.node_id, error)
        self.end(DiskFailed(reason))
        self._stop_node(reason)

    def end(self, error: QuorumlogError) -> None:
        """End the driver and fail all waiting calls."""
        if self.ended is None:
            self.ended = error
        lost = OutcomeUnknown(
            "proposal: outcome unknown, the node stopped first; check the state, then retry"
        )
        self.proposals.fail(Offset(-1), appended=lost, queued=error)
        self.reads.fail(error)
        self.applier.close()
        self.sender.close()
        self.snapshot_writer.close()
        for event in (self.has_led, self.catch_up.reached, self._write_given, self._woken):
            event.set()
        self.leadership.release()
        self._alarm.cancel()

    # --- helpers -------------------------------------------------------------------------------

    def _encode_control(
        self, kind: EntryKind, base_offset: Offset, epoch: Epoch, voters: VoterSet | None
    ) -> bytes:
        """Encode a control record for the core, which appends it at once."""
        control: LeaderChange | VoterSet
        if voters is None:
            control = LeaderChange(self.node_id, tuple(self.state.voters.latest), (self.state.me,))
        else:
            control = voters
        now_ms = self._clock.wall_ms()
        batch = control_batch(control, base_offset=base_offset, epoch=epoch, timestamp_ms=now_ms)
        self._tail.put(
            Entry(
                kind=kind,
                epoch=epoch,
                base_offset=base_offset,
                count=1,
                payload=batch,
                voters=voters,
            )
        )
        return batch

    def learn_addresses(self, voters: VoterSet) -> None:
        """Record the addresses of voters."""
        for voter, address in voters.members:
            self.transport.learn(voter, address)

    def _log_event(self, event: Event) -> None:
        match event:
            case RoleChanged():
                _LOG.info(
                    "raft.became_%s node=%d epoch=%d log_end_offset=%d reason=%s",
                    event.role,
                    self.node_id,
                    event.epoch,
                    event.log_end_offset,
                    event.reason,
                )
            case VotersChanged():
                ids = ",".join(str(voter.node_id) for voter in event.voters)
                _LOG.info("raft.voters node=%d ids=%s offset=%d", self.node_id, ids, event.offset)
                self.learn_addresses(event.voters)
            case MessageDropped():
                _LOG.warning(
                    "raft.message_dropped node=%d sender=%d reason=%s",
                    self.node_id,
                    event.sender.node_id,
                    event.reason,
                )
