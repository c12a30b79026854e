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
from typing import Final

from ...errors import DiskFull, Lost, NotController, Overloaded, QuorumlogError, StorageError
from ...ids import NO_NODE, ClusterId, Epoch, NodeId, Offset
from ...runtime import Runtime, Scope
from ..core.config import RaftConfig
from ..core.log_view import Entry, EntryKind, SnapshotId
from ..core.messages import AppendRequest, Heartbeat, Message, SnapshotChunk
from ..core.raft import Raft
from ..core.ready import Event, MessageDropped, Ready, RoleChanged, VotersChanged
from ..core.voters import Voter, VoterSet
from ..formats.control import LeaderChange, control_batch
from .alarm import Alarm
from .delivery import Delivery
from .disk.metadata_log import MetadataLog
from .gathering import Gathering
from .leadership import LeadershipNews, Readiness
from .node_config import RaftNodeConfig
from .peers.transport import Transport
from .reading import IndexReads
from .sending import Sending
from .snapshotting import Snapshotting
from .state_machine import StateMachine
from .tail import Tail
from .writing import STORAGE_FAILURES, GaveUp, Writing

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
        self.raft = raft = Raft(
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
        self.gathering = gathering = Gathering(
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
        self.sending = Sending(raft, log, tail=tail, transport=self.transport)
        self.delivery = Delivery(
            runtime.clock,
            log,
            raft,
            state_machine,
            tail=tail,
            gathering=gathering,
            applied=self._on_applied,
            opened=self._on_opened,
        )
        self.snapshotting = Snapshotting(
            raft, log, state_machine, node_config.snapshot_every_bytes, taken=self.wake
        )
        self._writing = Writing(
            config.node_id,
            log,
            delivery=self.delivery,
            snapshotting=self.snapshotting,
            disk_full=self._on_disk_full,
        )
        self.news = LeadershipNews(raft, state_machine)
        self.readiness = Readiness(raft)
        self.reads = IndexReads(raft, wake=self.wake, waiters_max=config.reads_max)
        self.led = asyncio.Event()  # set permanently when this node first led, failed or was closed
        self.ended: QuorumlogError | None = None  # the error that ended the driver
        self.dropped = 0  # messages dropped because the inbox was full
        self._inbox: deque[Message | Voter] = deque()  # a Voter: the connection to it broke
        self._woken = asyncio.Event()  # the driver has work
        self._alarm = Alarm(runtime.clock, self.wake)
        self._write: Ready | None = None  # the round whose token is outstanding
        self._write_given = asyncio.Event()
        self._clean_to: SnapshotId | None = None

    # --- requests of the node -------------------------------------------------------------------

    @property
    def node_id(self) -> NodeId:
        return self.raft.me.node_id

    @property
    def is_alone(self) -> bool:
        """Return True if this node is the only voter."""
        voters = self.raft.voters.latest
        return len(voters) == 1 and self.raft.me in voters

    def wake(self) -> None:
        """Schedule a run of the driver."""
        self._woken.set()

    def proposed(self) -> None:
        """Schedule the append of a queued proposal, unless a write is in flight. Then it is
        appended after the write."""
        if self._write is None:
            self._woken.set()

    def append_all_gathered(self) -> None:
        """Append all queued proposals, so that the next entry follows them at the promised offsets.

        Raise Overloaded.
        """
        while self.gathering.has_gathered:
            if not self._append_gathered():
                raise Overloaded(
                    "metadata log: proposals at the limit or a transfer in progress; retry later"
                )

    def not_leading(self) -> NotController:
        """Return the error for a request that only the leader can execute."""
        leader = self.raft.leader_id
        return NotController(
            "metadata quorum: this node is not the leader",
            leader_id=NO_NODE if leader is None or self.raft.is_leader else leader,
        )

    def resign(self) -> None:
        """Resign at the end of the node and announce it."""
        self.raft.resign(self._clock.now_ms())
        self._pump()
        self.news.end()

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
            self._take_messages(now_ms)
            deadline_ms = self.raft.next_deadline_ms()
            if deadline_ms is not None and now_ms >= deadline_ms:
                self.raft.tick(now_ms)
            self.reads.begin(now_ms)
            self._pump()
            if self._inbox:
                self._woken.set()
                await asyncio.sleep(0)

    def _take_messages(self, now_ms: int) -> None:
        raft, inbox = self.raft, self._inbox
        for _ in range(min(len(inbox), MESSAGES_A_TURN)):
            message = inbox.popleft()
            if isinstance(message, Voter):
                raft.unreachable(message, now_ms)
                self.sending.forget(message)
                continue
            raft.step(message, now_ms)
            if isinstance(message, AppendRequest):
                if message.entries:
                    self._tail.follow(raft.log, message.entries, durable_end=raft.durable_end)
                self._heard(message, message.high_watermark)
            elif isinstance(message, Heartbeat):
                self._heard(message, message.high_watermark)
            elif isinstance(message, SnapshotChunk):
                self._heard(message, message.snapshot.end_offset)

    def _heard(self, message: Message, committed_end: Offset) -> None:
        self.readiness.heard(message.epoch, committed_end, self.delivery.end)

    def _pump(self) -> None:
        """Perform all effects that the core has ready. Never waits."""
        raft = self.raft
        while True:
            if self._write is None and self.gathering.has_gathered:
                self._append_gathered()
            if not raft.has_ready():
                break
            self._carry_out(raft.ready())
        assert self._tail.end_offset == raft.log.end_offset, (
            f"the tail ends at {self._tail.end_offset}, the log at {raft.log.end_offset}"
        )
        deadline_ms = raft.next_deadline_ms()
        if deadline_ms is not None and self.ended is None:
            self._alarm.set(deadline_ms)

    def _append_gathered(self) -> bool:
        """Append one batch of queued proposals. Return False if the core accepts none now."""
        batch = self.gathering.next_batch()
        raft = self.raft
        if not raft.is_leader or raft.epoch != batch.epoch:
            return False  # the next round fails them
        assert batch.base_offset == raft.log.end_offset, f"{batch} at {raft.log.end_offset}"
        payload = batch.encode(self._clock.wall_ms())
        try:
            entry = raft.propose(count=len(batch.values), payload=payload)
        except Overloaded:
            return False  # they keep their offsets and wait
        self._tail.put(entry)
        self.gathering.appended(batch)
        return True

    def _carry_out(self, ready: Ready) -> None:
        """Perform one round in the order of its fields.

        The write is started first, so that the disk works while messages are sent.
        """
        for event in ready.events:
            self._report(event)
        if ready.token is not None:
            assert self._write is None, "two writes in flight"
            self._write = ready
            self._write_given.set()
        for outgoing in ready.messages_now:
            self.sending.send(outgoing)
        if ready.clean_to is not None:
            self._clean_to = ready.clean_to
            self._write_given.set()
        if ready.committed is not None:
            self.delivery.commit(ready.committed.end)
        if self.news.note():
            self._lose_leadership()
        for read in ready.reads:
            self.reads.ready(read, self.delivery.end)
        for context in ready.reads_lost:
            self.reads.lost(context, self.not_leading())

    def _lose_leadership(self) -> None:
        lost = Lost(
            "proposal: outcome unknown, the leadership ended first; check the state, then retry"
        )
        self.gathering.fail(self.delivery.committed_end, appended=lost, gathered=self.not_leading())

    # --- delivery ------------------------------------------------------------------------------

    def _on_applied(self, end: Offset) -> None:
        """Report the applied offset to reads, snapshots and readiness."""
        self.reads.applied(end)
        self.snapshotting.applied(end)
        self.readiness.applied(end)

    def _on_opened(self, epoch: Epoch) -> None:
        """Report that the no-op of an epoch was committed and delivered."""
        if self.raft.is_leader and epoch == self.raft.epoch:
            self.news.opened()
            self.led.set()
            self.readiness.reached.set()

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
                        await self._writing.clean_to(snapshot)
        except GaveUp:
            return  # the node ended: unwritten entries were not acknowledged

    async def _make_durable(self, ready: Ready) -> None:
        """Persist a round and confirm it to the core, which may return the next one at once."""
        assert ready.token is not None, "a write without a token"
        with self._fail_stop():
            is_done = await self._writing.persist(ready)
        now_ms = self._clock.now_ms()
        raft = self.raft
        self._write = None
        if not is_done:
            raft.snapshot_refused(ready.token, now_ms)
        else:
            raft.persisted(ready.token, now_ms)
            if ready.install is not None:
                self._clean_to = None  # of the replaced log
                self._tail.reset(raft.log.end_offset)
                self._writing.installed()
                self._on_applied(self.delivery.end)
        self._tail.durable(raft.durable_end)
        self.snapshotting.written()
        raft.check_invariants()
        for message in ready.messages_after:
            self.sending.send(message)
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
        if self.is_alone:
            if not self.led.is_set():
                self._storage_failed(error)
                return False
        elif self.raft.is_leader:
            self.raft.resign(self._clock.now_ms())
            self._woken.set()
        return True

    @contextmanager
    def _fail_stop(self) -> Iterator[None]:
        """End the node and raise GaveUp if the storage fails. State machine errors are not
        caught."""
        try:
            yield
        except STORAGE_FAILURES as error:
            self._storage_failed(error)
            raise GaveUp(str(error)) from error

    async def guard(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run work that uses the disk beside the writer. End the node if the disk fails."""
        try:
            await work()
        except (StorageError, OSError) as error:
            self._storage_failed(error, what="read, or its snapshot written")

    def _storage_failed(self, error: Exception, *, what: str = "written") -> None:
        """Stop the node, because the state on disk is unknown."""
        reason = f"metadata log: not {what}; {error}"
        _LOG.error("raft.storage_failed node=%d error=%s", self.node_id, error)
        self.end(StorageError(reason))
        self._stop_node(reason)

    def end(self, error: QuorumlogError) -> None:
        """End the driver and fail all waiting calls."""
        if self.ended is None:
            self.ended = error
        lost = Lost(
            "proposal: outcome unknown, the node stopped first; check the state, then retry"
        )
        self.gathering.fail(Offset(-1), appended=lost, gathered=error)
        self.reads.fail(error)
        self.delivery.close()
        self.sending.close()
        self.snapshotting.close()
        for event in (self.led, self.readiness.reached, self._write_given, self._woken):
            event.set()
        self.news.release()
        self._alarm.cancel()

    # --- helpers -------------------------------------------------------------------------------

    def _encode_control(
        self, kind: EntryKind, base_offset: Offset, epoch: Epoch, voters: VoterSet | None
    ) -> bytes:
        """Encode a control record for the core, which appends it at once."""
        control: LeaderChange | VoterSet
        if voters is None:
            control = LeaderChange(self.node_id, tuple(self.raft.voters.latest), (self.raft.me,))
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

    def learn(self, voters: VoterSet) -> None:
        """Record the addresses of voters."""
        for voter, address in voters.members:
            self.transport.learn(voter, address)

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
                self.learn(event.voters)
            case MessageDropped():
                _LOG.warning(
                    "raft.message_dropped node=%d sender=%d reason=%s",
                    self.node_id,
                    event.sender.node_id,
                    event.reason,
                )
