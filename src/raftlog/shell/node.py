"""Drives one member of the quorum: carries out what the core says, over one data directory and one
network; no decision of the protocol is made here.

Owns the core, and five tasks in the caller's scope: the driver (messages in, time, proposals), the
writer (one write in flight, so that proposals made meanwhile share the next fsync), the delivery of
committed batches, the reader of what followers need from the disk, and the taker of snapshots.
Messages and heartbeats never wait for the last four. A storage failure ends the node.
"""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from ...errors import (
    CorruptionError,
    DiskFull,
    InvalidRequest,
    Lost,
    NotController,
    Overloaded,
    QuorumlogError,
    Stopping,
    StorageError,
    TimedOut,
)
from ...ids import NO_NODE, ClusterId, Epoch, NodeId, Offset
from ...runtime import Handler, Runtime, Scope
from ...storage.shell.directory import Directory
from ..core.config import RaftConfig
from ..core.leading import Leader
from ..core.log_view import Entry, EntryKind, SnapshotId
from ..core.messages import AppendRequest, Heartbeat, Message, SnapshotChunk
from ..core.raft import Raft
from ..core.ready import Event, MessageDropped, Ready, RoleChanged, VotersChanged
from ..core.status import QuorumStatus
from ..core.voters import Voter, VoterSet
from ..formats.control import LeaderChange, control_batch
from ..formats.names import METADATA_LOG_NAME
from .delivery import Delivery
from .gathering import Gathering, Proposal
from .metadata_log import MetadataLog
from .reading import IndexReads
from .sending import Sending
from .snapshotting import Snapshotting
from .state_machine import StateMachine
from .tail import Tail
from .transport import Transport, TransportConfig, TransportStatistics
from .writing import STORAGE_FAILURES, GaveUp, Writing

_LOG = logging.getLogger("quorumlog.raftlog")

INBOX_MAX: Final = 20_000
"""Messages that wait for the driver; more are dropped, as a network may."""
MESSAGES_A_TURN: Final = 64
"""Messages taken in before what they bring about is carried out, and the loop breathes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftNodeConfig:
    """Bounds of one node's shell; raises InvalidRequest. Sizes in bytes."""

    # A snapshot is taken when the log has grown by so much since the last one.
    snapshot_every_bytes: int = 20 * 1024 * 1024  # metadata.log.max.record.bytes.between.snapshots
    # Newest batches kept in memory for followers and the delivery.
    tail_bytes_max: int = 16 * 1024 * 1024
    # Proposals gathered into one batch, or one larger proposal: what a follower's state machine
    # applies in one step.
    batch_bytes_max: int = 512 * 1024
    transport: TransportConfig = field(default_factory=TransportConfig)

    def __post_init__(self) -> None:
        for name in ("snapshot_every_bytes", "tail_bytes_max", "batch_bytes_max"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name} must be at least 1")


class RaftNode:
    """One member of the quorum, voter or observer, on one data directory. Make it with `open`."""

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
        """Use open()."""
        self._clock = runtime.clock
        self._tasks_port = runtime.tasks
        self._scope = scope
        self._log = log
        self._machine = state_machine
        self._raft = raft = Raft(
            config,
            log.view,
            log.hard_state,
            log.voters,
            runtime.entropy.stream("raftlog.election"),
            snapshots=log.snapshots,
            encode_control=self._encode_control,
            now_ms=runtime.clock.now_ms(),
        )
        self._tail = tail = Tail(raft.log.end_offset, bytes_max=node_config.tail_bytes_max)
        self._gathering = gathering = Gathering(
            bytes_max=config.uncommitted_bytes_max, batch_bytes_max=node_config.batch_bytes_max
        )
        self._transport = Transport(
            runtime,
            scope,
            cluster_id=cluster_id,
            me=config.me,
            receive=self._receive,
            unreachable=self._receive,
            config=node_config.transport,
        )
        self._sending = Sending(raft, log, tail=tail, transport=self._transport)
        self._delivery = Delivery(
            runtime.clock,
            log,
            raft,
            state_machine,
            tail=tail,
            gathering=gathering,
            applied=self._on_applied,
            opened=self._on_opened,
        )
        self._snapshotting = Snapshotting(
            raft,
            log,
            state_machine,
            every_bytes=node_config.snapshot_every_bytes,
            taken=self._wake_driver,
        )
        self._writing = Writing(
            config.node_id,
            log,
            delivery=self._delivery,
            snapshotting=self._snapshotting,
            disk_full=self._on_disk_full,
        )
        self._reads = IndexReads(raft, wake=self._wake_driver, waiters_max=config.reads_max)
        self._tasks: list[asyncio.Task[None]] = []
        self._inbox: deque[Message | Voter] = deque()  # a Voter: the way to it broke
        self._wake = asyncio.Event()  # there is something for the driver
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._write: Ready | None = None  # the round whose token is out
        self._clean_to: SnapshotId | None = None
        self._write_given = asyncio.Event()
        self._told: tuple[NodeId | None, Epoch] = (None, raft.epoch)  # who leads, as last noted
        self._was_leader = False
        self._led = asyncio.Event()  # set for good once this node led, failed or was closed
        self._leader_moved: list[asyncio.Future[None]] = []
        self._ready_end: Offset | None = None  # committed when a leader was first heard of
        self._is_ready = asyncio.Event()
        self._ended: QuorumlogError | None = None  # why it does nothing more
        self._dropped = 0  # messages that found the inbox full

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        scope: Scope,
        directory: Directory,
        *,
        cluster_id: ClusterId,
        config: RaftConfig,
        state_machine: StateMachine,
        node_config: RaftNodeConfig | None = None,
    ) -> "RaftNode":
        """Read and prove what is durable; nothing runs before start().

        Raises CorruptionError when log, snapshots or quorum-state cannot be trusted,
        DirectoryMismatch for another node's directory, StorageError.
        """
        try:
            log = await MetadataLog.open(runtime, directory, me=config.me)
        except CorruptionError as error:
            raise CorruptionError(
                f"{_damaged(error, is_alone=not config.bootstrap)}; nothing was changed",
                path=error.path or METADATA_LOG_NAME,
                position=error.position,
            ) from error
        return cls(
            runtime,
            scope,
            log,
            cluster_id=cluster_id,
            config=config,
            state_machine=state_machine,
            node_config=node_config or RaftNodeConfig(),
        )

    # --- what others may know ------------------------------------------------------------------

    @property
    def node_id(self) -> NodeId:
        """This node."""
        return self._raft.me.node_id

    @property
    def me(self) -> Voter:
        """This node with its disk."""
        return self._raft.me

    @property
    def leader_id(self) -> NodeId | None:
        """The leader of the present epoch, if known."""
        return self._raft.leader_id

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the present epoch."""
        return self._raft.is_leader

    @property
    def epoch(self) -> Epoch:
        """The present epoch."""
        return self._raft.epoch

    @property
    def voters(self) -> VoterSet:
        """Who votes, by the newest record of this node's log."""
        return self._raft.voters.latest

    @property
    def high_watermark(self) -> Offset:
        """Everything below is committed."""
        return self._raft.high_watermark

    @property
    def applied_end(self) -> Offset:
        """Everything below was delivered to the state machine."""
        return self._delivery.end

    @property
    def log_end_offset(self) -> Offset:
        """Offset of the next record, written or not."""
        return self._raft.log.end_offset

    def status(self) -> QuorumStatus:
        """What this node knows of the quorum; of the others' progress only a leader does."""
        return self._raft.status(self._clock.now_ms())

    def transport_statistics(self) -> TransportStatistics:
        """What goes on between this node and the others."""
        return self._transport.statistics()

    def address_of(self, member: Voter) -> str:
        """Where a member is reached, "" when that is not known."""
        if member == self.me:
            return self._raft.config.address
        return self._raft.voters.latest.address_of(member) or self._transport.address_of(member)

    def handlers(self) -> dict[str, Handler]:
        """What the other members call, for Network.serve; it may be served before start()."""
        return self._transport.handlers()

    # --- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the newest snapshot and run. A lone voter leads, and the log's past was delivered,
        when this returns; for others see wait_ready().

        Raises SnapshotDamaged, StorageError, and of a lone voter whatever ended it.
        """
        assert not self._tasks, "started twice"
        if self._raft.snapshots:
            await self._delivery.restore(self._raft.snapshots[-1])
        spawn = self._scope.spawn
        self._tasks = [
            spawn(self._delivery.run(), name="raftlog.delivery"),
            spawn(self._run_writer(), name="raftlog.writer"),
            spawn(self._run_driver(), name="raftlog.driver"),
            spawn(self._sending.run(), name="raftlog.reader"),
            spawn(self._snapshotting.run(), name="raftlog.snapshots"),
        ]
        self._learn(self.voters)
        self._wake.set()
        if self._is_alone:
            await self._led.wait()
            if self._ended is not None:
                raise self._ended

    async def wait_ready(self, timeout_ms: int) -> None:
        """Return once this node knows a leader and has applied what was committed when it learned
        of it; raises TimedOut, and what ended the node."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._is_ready.wait()
        except TimeoutError:
            who = "no leader is known" if self.leader_id is None else f"node {self.leader_id} leads"
            raise TimedOut(
                f"node {self.node_id} did not reach the quorum's state within {timeout_ms} ms:"
                f" {who}, applied up to {self.applied_end} of {self._ready_end}; look at the other"
                " voters and at the network"
            ) from None
        if self._ended is not None:
            raise self._ended

    async def close(self) -> None:
        """Hand the leadership over, fail what is pending, let the write in flight end. A second
        call does nothing."""
        if isinstance(self._ended, Stopping):
            return
        if self._ended is None:
            self._end(Stopping("the node is stopping"))
            self._raft.resign(self._clock.now_ms())
            self._pump()
            if self._told[0] is not None:
                self._machine.leadership(None, self.epoch)
        for task in self._tasks[3:]:
            task.cancel()  # what they read or write is of no use any more
        for task in self._tasks:
            try:
                await task
            except asyncio.CancelledError:
                if not task.cancelled():
                    raise
        await self._transport.close()

    # --- proposals -----------------------------------------------------------------------------

    async def propose(self, values: list[bytes]) -> int:
        """Append these values and return the last one's offset once they are committed and were
        delivered here.

        Raises NotController or Overloaded: nothing was appended. Lost: the leadership or the node
        ended before the outcome was known. Stopping, StorageError.
        """
        proposal = self.propose_nowait(values)
        await proposal.wait_committed()
        return proposal.last_offset

    def propose_nowait(self, values: list[bytes]) -> Proposal:
        """Append values and return their place at once; `wait_committed` says when it is done.

        Proposals of one turn of the loop, and those made while a write is in flight, share a batch.
        Raises NotController, Overloaded, Stopping, StorageError; nothing was appended then.
        """
        raft = self._raft
        self._check_leading()
        if isinstance(raft.role, Leader) and raft.role.transfer is not None:
            raise Overloaded("the leadership is being handed over: wait and repeat")
        proposal = self._gathering.add(values, log_end_offset=raft.log.end_offset, epoch=raft.epoch)
        if self._write is None:
            self._wake.set()
        return proposal

    async def read_index(self) -> Offset:
        """Return once the state holds everything that was committed before the call: what is read
        from it then is linearizable. Returns the offset that it has reached.

        Raises NotController (with the leader, if known), Overloaded, Stopping.
        """
        self._check_leading()
        return await self._reads.wait()

    # --- membership ----------------------------------------------------------------------------

    async def add_voter(self, voter: Voter, address: str) -> None:
        """Have an observer that is caught up vote; returns once that is committed.

        Raises DuplicateVoter, VoterLagging, VoterChangePending, NotController; Lost: the outcome is
        unknown.
        """
        self._append_all_gathered()
        await self._committed(self._raft.add_voter(voter, address, self._clock.now_ms()))

    async def remove_voter(self, voter: Voter) -> None:
        """Take a voter's vote away; returns once that is committed. A leader that removes itself
        leads until then. Raises VoterNotFound, VoterChangePending, InvalidRequest for the last one,
        NotController, Lost."""
        self._append_all_gathered()
        await self._committed(self._raft.remove_voter(voter, self._clock.now_ms()))

    async def move_voter(self, voter: Voter, address: str) -> None:
        """Say where a voter is reached now; returns once that is committed. Raises as
        remove_voter."""
        self._append_all_gathered()
        await self._committed(self._raft.move_voter(voter, address, self._clock.now_ms()))

    async def transfer(self, to: NodeId | None = None) -> None:
        """Hand the leadership to a voter, None: to the one that holds most; returns once this node
        does not lead any more. Raises VoterNotFound, NotController; TimedOut: it still leads."""
        self._check_leading()
        self._raft.transfer_leadership(to, self._clock.now_ms())
        self._wake.set()
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leader_moved.append(moved)
        wait_ms = self._raft.config.election_timeout_ms_min + self._raft.config.heartbeat_ms
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await moved
        except TimeoutError:
            raise TimedOut(
                f"the leadership was not taken over within {wait_ms} ms, node {self.node_id} leads"
                " on: look at the successor's lag and repeat"
            ) from None
        finally:
            self._leader_moved = [each for each in self._leader_moved if each is not moved]

    def _append_all_gathered(self) -> None:
        """What was proposed before comes before it in the log, at the offsets that were told."""
        self._check_leading()
        while self._gathering.has_gathered:
            if not self._append_gathered():
                raise Overloaded("too much is uncommitted, or the leadership is being handed over")

    async def _committed(self, entry: Entry) -> None:
        proposal = self._gathering.watch(entry)
        self._wake.set()
        await proposal.wait_committed()

    def _check_leading(self) -> None:
        if self._ended is not None:
            raise self._ended
        if not self._raft.is_leader:
            raise self._not_leading()

    def _not_leading(self) -> NotController:
        leader = self.leader_id
        return NotController(
            "this node does not lead the metadata quorum",
            leader_id=NO_NODE if leader is None or self._raft.is_leader else leader,
        )

    # --- driving the core ----------------------------------------------------------------------

    def _receive(self, message: Message | Voter) -> None:
        """Called by the transport, inside of its own tasks: the driver takes it in."""
        if self._ended is not None or len(self._inbox) >= INBOX_MAX:
            self._dropped += 1
            return
        self._inbox.append(message)
        self._wake.set()

    def _wake_driver(self) -> None:
        self._wake.set()

    async def _run_driver(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._ended is not None:
                return
            now_ms = self._clock.now_ms()
            self._take_messages(now_ms)
            deadline_ms = self._raft.next_deadline_ms()
            if deadline_ms is not None and now_ms >= deadline_ms:
                self._raft.tick(now_ms)
            self._reads.begin(now_ms)
            self._pump()
            if self._inbox:
                self._wake.set()
                await asyncio.sleep(0)

    def _take_messages(self, now_ms: int) -> None:
        raft, inbox = self._raft, self._inbox
        for _ in range(min(len(inbox), MESSAGES_A_TURN)):
            message = inbox.popleft()
            if isinstance(message, Voter):
                raft.unreachable(message, now_ms)
                self._sending.forget(message)
                continue
            raft.step(message, now_ms)
            if isinstance(message, AppendRequest):
                if message.entries:
                    self._tail.follow(raft.log, message.entries, durable_end=raft.durable_end)
                self._note_goal(message, message.high_watermark)
            elif isinstance(message, Heartbeat):
                self._note_goal(message, message.high_watermark)
            elif isinstance(message, SnapshotChunk):
                self._note_goal(message, message.snapshot.end_offset)

    def _note_goal(self, message: Message, committed_end: Offset) -> None:
        """Remember what was committed when this node first heard of a leader."""
        if not self._is_ready.is_set() and message.epoch == self._raft.epoch:
            self._ready_end = max(self._ready_end or Offset(0), committed_end)
            self._on_applied(self._delivery.end)

    def _pump(self) -> None:
        """Carry out what the core has ready; never waits."""
        raft = self._raft
        while True:
            if self._write is None and self._gathering.has_gathered:
                self._append_gathered()
            if not raft.has_ready():
                break
            self._carry_out(raft.ready())
        assert self._tail.end_offset == raft.log.end_offset, (
            f"the tail ends at {self._tail.end_offset}, the log at {raft.log.end_offset}"
        )
        self._arm_timer()

    def _append_gathered(self) -> bool:
        """Append one batch of what was proposed; false when the core takes none now."""
        batch = self._gathering.next_batch()
        raft = self._raft
        if not raft.is_leader or raft.epoch != batch.epoch:
            return False  # they are told with the next round
        assert batch.base_offset == raft.log.end_offset, f"{batch} at {raft.log.end_offset}"
        payload = batch.encode(self._clock.wall_ms())
        try:
            entry = raft.propose(count=len(batch.values), payload=payload)
        except Overloaded:
            return False  # they keep their places and wait
        self._tail.put(entry)
        self._gathering.appended(batch)
        return True

    def _carry_out(self, ready: Ready) -> None:
        """One round, in the order that its fields say, except for what waits for the disk."""
        for event in ready.events:
            self._report(event)
        for outgoing in ready.messages_now:
            self._sending.send(outgoing)
        if ready.token is not None:
            assert self._write is None, "two writes in flight"
            self._write = ready
            self._write_given.set()
        if ready.clean_to is not None:
            self._clean_to = ready.clean_to
            self._write_given.set()
        if ready.committed is not None:
            self._delivery.commit(ready.committed.end)
        self._note_leader()
        for read in ready.reads:
            self._reads.ready(read, self._delivery.end)
        for context in ready.reads_lost:
            self._reads.lost(context, self._not_leading())

    def _note_leader(self) -> None:
        """Tell the state machine and those who wait when another leads, or nobody."""
        raft = self._raft
        leads = (raft.leader_id, raft.epoch)
        if leads == self._told:
            return
        before, self._told = self._told, leads
        if self._was_leader:
            self._was_leader = False
            self._lose_leadership()
        if raft.is_leader:
            self._was_leader = True  # the state machine is told once the no-op is delivered
        elif leads[0] is not None or before[0] is not None:
            self._machine.leadership(*leads)

    def _lose_leadership(self) -> None:
        lost = Lost(
            "the leadership ended before the proposal was known to be committed: look, then repeat"
        )
        self._gathering.fail(
            self._delivery.committed_end, appended=lost, gathered=self._not_leading()
        )
        for waiter in self._leader_moved:
            if not waiter.done():
                waiter.set_result(None)

    def _arm_timer(self) -> None:
        """Have the driver run at the core's deadline; a timer that fires too early is left."""
        deadline_ms = None if self._ended is not None else self._raft.next_deadline_ms()
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(0, deadline_ms - self._clock.now_ms())
        loop = asyncio.get_running_loop()
        self._timer, self._timer_ms = loop.call_later(delay_ms / 1000, self._on_timer), deadline_ms

    def _on_timer(self) -> None:
        self._timer = None
        self._wake.set()

    # --- delivery ------------------------------------------------------------------------------

    def _on_applied(self, end: Offset) -> None:
        """The state has reached an offset."""
        self._reads.applied(end)
        self._snapshotting.applied(end)
        if not self._is_ready.is_set() and self._has_caught_up(end):
            self._is_ready.set()

    def _has_caught_up(self, end: Offset) -> bool:
        """Whether the state holds all that was committed before this node heard of its leader.

        A new leader knows of less than that until it commits in its own epoch (thesis 6.4), so what
        it says first is not enough: an entry of its epoch must have come through as well.
        """
        log = self._raft.log
        if self._ready_end is None or not self._ready_end <= end or end < log.start_offset:
            return False
        return log.epoch_before(end) == self._raft.epoch

    def _on_opened(self, epoch: Epoch) -> None:
        """The no-op of an epoch was committed and delivered."""
        if self._raft.is_leader and epoch == self._raft.epoch:
            self._machine.leadership(self.node_id, epoch)
            self._led.set()
            self._is_ready.set()

    # --- the disk ------------------------------------------------------------------------------

    async def _run_writer(self) -> None:
        """One write at a time, in the order of the tokens."""
        try:
            while True:
                await self._write_given.wait()
                self._write_given.clear()
                if self._write is not None:
                    await self._make_durable(self._write)
                elif self._ended is not None:
                    return
                if self._clean_to is not None:
                    snapshot, self._clean_to = self._clean_to, None
                    await self._writing.clean_to(snapshot)
        except GaveUp:
            return  # the node ended: what waited for room was not acknowledged
        except STORAGE_FAILURES as error:
            self._storage_failed(error)

    async def _make_durable(self, ready: Ready) -> None:
        """Persist a round and tell the core, which may hand out the next one at once."""
        assert ready.token is not None, "a write without a token"
        is_done = await self._writing.persist(ready)
        now_ms = self._clock.now_ms()
        raft = self._raft
        self._write = None
        if not is_done:
            raft.snapshot_refused(ready.token, now_ms)
        else:
            raft.persisted(ready.token, now_ms)
            if ready.install is not None:
                self._tail.reset(raft.log.end_offset)
                self._writing.installed()
                self._on_applied(self._delivery.end)
        self._tail.durable(raft.durable_end)
        raft.check_invariants()
        for message in ready.messages_after:
            self._sending.send(message)
        self._pump()
        if self._ended is not None:
            self._write_given.set()

    def _on_disk_full(self, error: DiskFull) -> bool:
        """A round finds no room; whether it may wait for some.

        A lone voter that has never led gives up at once: whoever starts it should hear of it. A
        leader with others steps aside: they can go on.
        """
        if self._ended is not None:
            return False
        if self._is_alone:
            if not self._led.is_set():
                self._storage_failed(error)
                return False
        elif self._raft.is_leader:
            self._raft.resign(self._clock.now_ms())
            self._wake.set()
        return True

    def _storage_failed(self, error: Exception) -> None:
        """What is on the disk is unknown now: fail-stop."""
        _LOG.error("raft.storage_failed node=%d error=%s", self.node_id, error)
        self._end(StorageError(f"the metadata log could not be written: {error}"))
        self._tasks_port.stop_node(f"the metadata log could not be written: {error}")

    def _end(self, error: QuorumlogError) -> None:
        """Do nothing more, and let everybody know who waits."""
        if self._ended is None:
            self._ended = error
        lost = Lost("the node stopped before the proposal was known to be committed: look there")
        self._gathering.fail(Offset(-1), appended=lost, gathered=error)
        self._reads.fail(error)
        self._delivery.close()
        self._sending.close()
        self._snapshotting.close()
        for event in (self._led, self._is_ready, self._write_given, self._wake):
            event.set()
        for waiter in self._leader_moved:
            if not waiter.done():
                waiter.set_result(None)
        if self._timer is not None:
            self._timer.cancel()

    # --- small things --------------------------------------------------------------------------

    @property
    def _is_alone(self) -> bool:
        voters = self._raft.voters.latest
        return len(voters) == 1 and self.me in voters

    def _encode_control(
        self, kind: EntryKind, base_offset: Offset, epoch: Epoch, voters: VoterSet | None
    ) -> bytes:
        """Encode a record of the consensus itself, for the core; it is in the log right after."""
        control: LeaderChange | VoterSet
        if voters is None:
            control = LeaderChange(self.node_id, tuple(self.voters), (self.me,))
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

    def _learn(self, voters: VoterSet) -> None:
        for voter, address in voters.members:
            self._transport.learn(voter, address)

    def _report(self, event: Event) -> None:
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
                self._learn(event.voters)
            case MessageDropped():
                _LOG.warning(
                    "raft.message_dropped node=%d sender=%d reason=%s",
                    self.node_id,
                    event.sender.node_id,
                    event.reason,
                )


def _damaged(error: CorruptionError, *, is_alone: bool) -> str:
    """Say what to do."""
    if is_alone:
        return (
            f"the metadata log of this only controller is damaged ({error}). Restore the data"
            " directory from a backup, or format a new one and start an empty cluster"
        )
    return (
        f"the metadata log of this controller is damaged ({error}). Remove it from the voters,"
        " format a new data directory, start the node on that and add it as a new voter; the other"
        " voters have the log"
    )
