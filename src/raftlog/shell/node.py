"""Drives one voter: carries out what the core says, over one data directory.

Owns the core, the metadata log and the file of epoch and vote. Three tasks in the caller's scope:
the timer, the writer (one write in flight, so that proposals made meanwhile share the next fsync)
and the delivery of committed batches. A storage failure ends the node: a voter that cannot tell
what it has on disk must not go on (B29).
"""

import asyncio
import logging
from typing import Final

from ...errors import (
    CorruptionError,
    DiskFull,
    InvalidRequest,
    NotController,
    NotImplementedHere,
    QuorumlogError,
    Stopping,
    StorageError,
)
from ...ids import NO_NODE, Epoch, NodeId, Offset
from ...records.batch import PREFIX_SIZE, check_crc, iterate_batches, parse_header, stamp
from ...records.codec import encode_batch
from ...records.record import Record
from ...runtime import Runtime, Scope
from ...storage import FlushPolicy, Log, LogConfig, Origin
from ...storage.shell.directory import Directory
from ..config import METADATA_LOG_NAME, QUORUM_STATE_NAME, RaftConfig
from ..control import encode_leader_change
from ..log_view import Entry, EntryKind, LogView
from ..quorum_state import decode_quorum_state, encode_quorum_state
from ..raft import Raft
from ..ready import Event, HardState, MessageDropped, Ready, RoleChanged
from .delivery import CommitListener, Delivery, Proposal

_LOG = logging.getLogger("quorumlog.raftlog")

SCAN_BYTES: Final = 1024 * 1024
"""Bytes read in one step while the log is scanned at the start."""
DISK_FULL_RETRY_S: Final = 0.5
"""How long a round that found no room waits before it is tried again."""


class RaftNode:
    """One voter on one data directory."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        directory: Directory,
        log: Log,
        raft: Raft,
        listener: CommitListener,
    ) -> None:
        """Use open()."""
        self._runtime = runtime
        self._scope = scope
        self._directory = directory
        self._log = log
        self._raft = raft
        self._listener = listener
        self._delivery = Delivery(
            directory, log, listener, applied=raft.applied, opened=self._on_opened
        )
        self._proposals: dict[Offset, Proposal] = {}  # by base offset, not yet handed to the disk
        self._tasks: list[asyncio.Task[None]] = []
        self._write: Ready | None = None  # the round whose token is out
        self._write_given = asyncio.Event()
        self._deadline_moved = asyncio.Event()
        self._deadline_ms: int | None = None
        self._led = asyncio.Event()  # set for good once this node led, failed or was closed
        self._ended: QuorumlogError | None = None  # why it takes no more proposals

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        scope: Scope,
        directory: Directory,
        *,
        config: RaftConfig,
        listener: CommitListener,
    ) -> "RaftNode":
        """Read what is durable; nothing runs before start().

        Raises NotImplementedHere for more than one voter, InvalidRequest when this node and disk
        are no voter, CorruptionError when log or quorum-state cannot be trusted.
        """
        if len(config.voters) > 1:
            raise NotImplementedHere(
                f"a metadata quorum of {len(config.voters)} voters is not supported yet:"
                " configure one controller"
            )
        if not config.is_voter:
            raise InvalidRequest(
                f"node {config.node_id} with this data directory is no voter of the quorum: its"
                " node id or directory id differs from what the quorum was formed with"
            )
        try:
            log, view, state = await _load(directory)
        except CorruptionError as error:
            raise CorruptionError(
                f"the metadata log of this only controller is damaged ({error}). Restore the data"
                " directory from a backup, or format a new one and start an empty cluster; nothing"
                " was changed",
                path=error.path or METADATA_LOG_NAME,
                position=error.position,
            ) from error
        entropy = runtime.entropy.stream("raftlog.election")
        raft = Raft(config, view, state, entropy, now_ms=runtime.clock.now_ms())
        return cls(runtime, scope, directory, log, raft, listener)

    # --- what others may know ------------------------------------------------------------------

    @property
    def node_id(self) -> NodeId:
        """This node."""
        return self._raft.config.node_id

    @property
    def leader_id(self) -> NodeId | None:
        """The leader of the present epoch, if known."""
        return self._raft.leader_id

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the present epoch."""
        return self._raft.leader_id == self.node_id

    @property
    def epoch(self) -> Epoch:
        """The present epoch."""
        return self._raft.epoch

    @property
    def high_watermark(self) -> Offset:
        """Everything below is committed."""
        return self._raft.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        """Offset of the next record, written or not."""
        return self._raft.log.end_offset

    # --- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Run, and return once this lone voter leads and the log's past was delivered."""
        assert not self._tasks, "started twice"
        spawn = self._scope.spawn
        self._tasks = [
            spawn(self._delivery.run(), name="raftlog.delivery"),
            spawn(self._run_writer(), name="raftlog.writer"),
            spawn(self._run_timer(), name="raftlog.timer"),
        ]
        self._raft.tick(self._runtime.clock.now_ms())
        self._pump()
        await self._led.wait()
        if self._ended is not None:
            raise self._ended

    async def close(self) -> None:
        """Give up the leadership, fail what is pending, let the write in flight end."""
        self._raft.resign(self._runtime.clock.now_ms())
        self._end(Stopping("the node is stopping"))
        self._pump()
        self._listener.leadership(None, self.epoch)
        await asyncio.gather(*self._tasks)

    # --- proposals -----------------------------------------------------------------------------

    async def propose(self, values: list[bytes]) -> int:
        """Append one batch of these record values and return its last offset once it is committed
        and was delivered to the listener.

        Raises NotController when this node does not lead or loses its leadership, Overloaded when
        too much is uncommitted, Stopping at the end of the node.
        """
        proposal = self.propose_nowait(values)
        await proposal.wait_committed()
        return proposal.last_offset

    def propose_nowait(self, values: list[bytes]) -> Proposal:
        """Append one batch and return its place at once; `wait_committed` says when it is done."""
        if self._ended is not None:
            raise self._ended
        if not self.is_leader:
            leader = self.leader_id
            raise NotController(
                "this node is not the active controller",
                leader_id=NO_NODE if leader is None else leader,
            )
        now = self._runtime.clock.wall_ms()
        payload = encode_batch([_record(now, None, value) for value in values])
        entry = self._raft.propose(count=len(values), payload=payload)
        proposal = Proposal(entry, values)
        self._proposals[entry.base_offset] = proposal
        self._pump()
        return proposal

    # --- driving the core ----------------------------------------------------------------------

    def _pump(self) -> None:
        """Carry out what the core has ready; never waits."""
        while self._raft.has_ready():
            self._carry_out(self._raft.ready())
        deadline_ms = self._raft.next_deadline_ms()
        if deadline_ms != self._deadline_ms:
            self._deadline_ms = deadline_ms
            self._deadline_moved.set()

    def _carry_out(self, ready: Ready) -> None:
        assert not ready.messages_now, "a lone voter has nobody to write to"
        assert not ready.messages_after, "a lone voter has nobody to write to"
        assert ready.truncate_to is None, "a lone voter truncates nothing"
        for event in ready.events:
            self._report(event)
        for entry in ready.append:
            proposal = self._proposals.pop(entry.base_offset, None)
            self._delivery.remember(proposal or Proposal(entry, None))
        if ready.token is not None:
            assert self._write is None, "two writes in flight"
            self._write = ready
            self._write_given.set()
        if ready.committed is not None:
            self._delivery.commit(ready.committed.end)

    def _on_opened(self, epoch: Epoch) -> None:
        """The no-op of an epoch of this life was committed and delivered."""
        if self.is_leader and epoch == self.epoch:
            self._listener.leadership(self.node_id, epoch)
            self._led.set()

    def _end(self, error: QuorumlogError) -> None:
        """Take no more proposals and let the tasks end."""
        if self._ended is None:
            self._ended = error
        for proposal in self._proposals.values():
            proposal.finish(error)
        self._delivery.fail(error)
        self._delivery.close()
        self._led.set()
        self._write_given.set()
        self._deadline_moved.set()

    async def _run_timer(self) -> None:
        while self._ended is None:
            self._deadline_moved.clear()
            deadline_ms = self._raft.next_deadline_ms()
            delay = None
            if deadline_ms is not None:
                delay = max(0, deadline_ms - self._runtime.clock.now_ms()) / 1000
            try:
                async with asyncio.timeout(delay):
                    await self._deadline_moved.wait()
            except TimeoutError:
                self._raft.tick(self._runtime.clock.now_ms())
                self._pump()

    async def _run_writer(self) -> None:
        """One write at a time, in the order of the tokens."""
        while True:
            await self._write_given.wait()
            self._write_given.clear()
            ready = self._write
            if ready is None or ready.token is None:
                if self._ended is not None:
                    return
                continue
            if not await self._make_durable(ready):
                return
            self._write = None
            self._raft.persisted(ready.token, self._runtime.clock.now_ms())
            self._raft.check_invariants()
            self._pump()
            if self._ended is not None and self._write is None:
                return

    async def _make_durable(self, ready: Ready) -> bool:
        """Persist a round; false when the node ends instead.

        A full disk undoes a write, so the same round is tried again until there is room: its
        proposals wait, nothing else of the node has to. A node that has never led gives up at
        once: whoever starts it should hear of it.
        """
        is_told = False
        while True:
            try:
                await self._persist(ready)
            except (QuorumlogError, OSError) as error:
                if not isinstance(error, DiskFull) or not self._led.is_set():
                    self._storage_failed(error)
                    return False
                if self._ended is not None:
                    return False
                if not is_told:
                    _LOG.error("raft.disk_full node=%d error=%s", self.node_id, error)
                    is_told = True
                await asyncio.sleep(DISK_FULL_RETRY_S)
            else:
                return True

    async def _persist(self, ready: Ready) -> None:
        """Make one round durable, in the order of its fields."""
        if ready.hard_state is not None:
            content = encode_quorum_state(ready.hard_state)
            await self._directory.store_file(QUORUM_STATE_NAME, content)
        if not ready.append:
            return
        batches = b"".join(self._stamped(entry) for entry in ready.append)
        appended = await self._directory.append(
            self._log,
            batches,
            leader_epoch=ready.append[-1].epoch,
            origin=Origin.REPLICATED,
            flush=True,
        )
        first, last = ready.append[0], ready.append[-1]
        assert appended.base_offset == first.base_offset, f"{appended} is not at {first}"
        assert appended.next_offset == last.next_offset, f"{appended} does not end at {last}"

    def _stamped(self, entry: Entry) -> bytes:
        payload = entry.payload
        if entry.kind is EntryKind.LEADER_CHANGE:
            config = self._raft.config
            key, value = encode_leader_change(
                config.node_id, voters=config.voters, granting=(config.me,)
            )
            now = self._runtime.clock.wall_ms()
            payload = encode_batch([_record(now, key, value)], is_control=True)
        prefix = stamp(
            parse_header(payload), base_offset=entry.base_offset, leader_epoch=entry.epoch
        )
        return prefix + payload[PREFIX_SIZE:]

    def _storage_failed(self, error: Exception) -> None:
        """What is on the disk is unknown now: fail-stop."""
        _LOG.error("raft.storage_failed node=%d error=%s", self.node_id, error)
        self._end(StorageError(f"the metadata log could not be written: {error}"))
        self._runtime.tasks.stop_node(f"the metadata log could not be written: {error}")

    def _report(self, event: Event) -> None:
        match event:
            case RoleChanged():
                _LOG.info(
                    "raft.became_%s node=%d epoch=%d log_end_offset=%d",
                    event.role,
                    self.node_id,
                    event.epoch,
                    event.log_end_offset,
                )
            case MessageDropped():
                _LOG.warning(
                    "raft.message_dropped node=%d sender=%d reason=%s",
                    self.node_id,
                    event.sender.node_id,
                    event.reason,
                )


# --- what is durable at the start --------------------------------------------------------------


async def _load(directory: Directory) -> tuple[Log, LogView, HardState]:
    """Open the log, prove every batch of it, and read epoch and vote."""
    config = LogConfig(flush_policy=FlushPolicy.FSYNC)
    log = await directory.open_log(METADATA_LOG_NAME, config, topic_id=None)
    view = await _scan(directory, log)
    content = directory.load_file(QUORUM_STATE_NAME)
    if content is None:
        if view.end_offset > 0:
            raise CorruptionError(
                f"{QUORUM_STATE_NAME} is missing beside a log of {view.end_offset} offsets",
                path=QUORUM_STATE_NAME,
            )
        return log, view, HardState(Epoch(0), None)
    state = decode_quorum_state(content)
    if state.epoch < view.last_epoch:
        raise CorruptionError(
            f"{QUORUM_STATE_NAME} says epoch {state.epoch}, the log reached {view.last_epoch}",
            path=QUORUM_STATE_NAME,
        )
    # After a killed process the log's tail may be in the page cache alone: what this voter counts
    # itself for must be durable.
    await directory.flush(log)
    return log, view, state


async def _scan(directory: Directory, log: Log) -> LogView:
    view = LogView(Offset(log.log_start_offset))
    while view.end_offset < log.log_end_offset:
        found = log.read(view.end_offset, max_bytes=SCAN_BYTES)
        content = b"" if found is None else await directory.read(found)
        if not content:
            raise CorruptionError(
                f"no batch at offset {view.end_offset} of a log that ends at {log.log_end_offset}",
                path=METADATA_LOG_NAME,
            )
        for position, header in iterate_batches(content):
            check_crc(content, position, header)
            if header.base_offset != view.end_offset or header.leader_epoch < view.last_epoch:
                raise CorruptionError(
                    f"batch {header.base_offset} of epoch {header.leader_epoch} follows offset"
                    f" {view.end_offset} of epoch {view.last_epoch}",
                    path=METADATA_LOG_NAME,
                    position=position,
                )
            epoch = Epoch(header.leader_epoch)
            view.append(view.end_offset, Offset(header.next_offset), epoch)
    return view


def _record(timestamp_ms: int, key: bytes | None, value: bytes) -> Record:
    return Record(offset=0, timestamp_ms=timestamp_ms, key=key, value=value, headers=())
