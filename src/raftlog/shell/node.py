"""One Raft node, voter or observer, on one data directory.

Its tasks run in the caller's scope: the driver and the writer (`driver.py`), the delivery of
committed batches, the reader of followers' entries, and the snapshot writer. Messages and
heartbeats do not wait for the last four. A storage failure ends the node.
"""

import asyncio

from ...errors import CorruptionError, Overloaded, Stopping, TimedOut
from ...ids import ClusterId, NodeId, Offset
from ...runtime import Handler, Runtime, Scope
from ...storage.shell.data_directory import DataDirectory
from ..config import METADATA_LOG_NAME, RaftConfig
from ..leader import Leader
from ..log_view import LogEnd
from ..status import QuorumStatus, describe_quorum
from ..voters import Voter, VoterChange, VoterSet
from .driver import Driver, RaftNodeConfig
from .metadata_log import MetadataLog
from .proposal_queue import Proposal
from .state_machine import StateMachine
from .transport import TransportStatistics


class RaftNode:
    """One Raft node. Create it with `open`."""

    def __init__(self, runtime: Runtime, scope: Scope, driver: Driver, *, listener: str) -> None:
        """Use open()."""
        self._listener = listener  # "host:port" of streams
        self._clock = runtime.clock
        self._scope = scope
        self._driver = driver
        self._raft = driver.raft
        self._state = driver.state
        self.me = driver.state.me  # this node and its data directory
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        scope: Scope,
        directory: DataDirectory,
        *,
        cluster_id: ClusterId,
        config: RaftConfig,
        state_machine: StateMachine,
        node_config: RaftNodeConfig | None = None,
    ) -> "RaftNode":
        """Read and verify the durable state. Nothing runs before start().

        Raise CorruptionError if the log, a snapshot or quorum-state is damaged, DirectoryMismatch
        for another node's directory, or DiskFailed.
        """
        try:
            log = await MetadataLog.open(runtime, directory, me=config.me)
        except CorruptionError as error:
            raise CorruptionError(
                f"{_damage_text(error, is_alone=not config.bootstrap)}; nothing was changed",
                path=error.path or METADATA_LOG_NAME,
                position=error.position,
            ) from error
        node_config = node_config or RaftNodeConfig()
        driver = Driver(
            runtime,
            scope,
            log,
            cluster_id=cluster_id,
            config=config,
            state_machine=state_machine,
            node_config=node_config,
        )
        host = config.address.rpartition(":")[0] or "127.0.0.1"
        return cls(runtime, scope, driver, listener=node_config.listener or f"{host}:0")

    # --- status --------------------------------------------------------------------------------

    @property
    def leader_id(self) -> NodeId | None:
        """The leader of the current epoch, if known."""
        return self._state.leader_id

    @property
    def voters(self) -> VoterSet:
        """The latest voter set in this node's log."""
        return self._state.voters.latest

    @property
    def next_position(self) -> LogEnd:
        """The epoch and offset of the next proposed value on a leader, unless another entry is
        appended first."""
        state = self._state
        return LogEnd(state.epoch, self._driver.proposals.next_offset(state.log.end_offset))

    def status(self) -> QuorumStatus:
        """Return the quorum's state as known to this node. Only a leader has the progress of the
        others."""
        return describe_quorum(self._state, self._raft.role, self._clock.now_ms())

    def transport_statistics(self) -> TransportStatistics:
        """Return the state of the links to the other nodes."""
        return self._driver.transport.statistics()

    def address_of(self, member: Voter) -> str:
        """Return the address of a node, "" if unknown."""
        if member == self.me:
            return self._state.config.address
        return self._state.voters.latest.address_of(member) or self._driver.transport.address_of(
            member
        )

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers of the other nodes' calls, for Network.serve. They may serve before
        start()."""
        return self._driver.transport.handlers()

    # --- lifecycle -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the newest snapshot and start the tasks.

        A lone voter leads and has delivered its log when this returns. For others see wait_ready().
        Raise AddressInUse, SnapshotDamaged, DiskFailed, or the error that ended a lone voter.
        """
        assert not self._tasks, "started twice"
        await self._driver.transport.listen(self._listener)
        if self._state.snapshots:
            await self._driver.applier.restore(self._state.snapshots[-1])
        spawn, driver = self._scope.spawn, self._driver
        self._tasks = [
            spawn(driver.guard(driver.applier.run), name="raftlog.delivery"),
            spawn(driver.run_writer(), name="raftlog.writer"),
            spawn(driver.run(), name="raftlog.driver"),
            spawn(driver.guard(driver.sender.run), name="raftlog.reader"),
            spawn(driver.guard(driver.snapshot_writer.run), name="raftlog.snapshots"),
        ]
        self._driver.learn_addresses(self.voters)
        self._driver.wake()
        if self._state.is_alone:
            await self._driver.has_led.wait()
            if self._driver.ended is not None:
                raise self._driver.ended

    async def wait_ready(self, timeout_ms: int) -> None:
        """Wait until this node has a leader and has applied the entries that were committed at the
        first contact with it.

        Raise TimedOut, or the error that ended the node.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._driver.catch_up.reached.wait()
        except TimeoutError:
            goal = self._driver.catch_up.goal
            lacks = (
                "no leader is known, which needs a majority of the voters"
                if self.leader_id is None or goal is None
                else f"node {self.leader_id} leads, {self._driver.applier.end} of {goal} offsets"
                " applied"
            )
            raise TimedOut(
                f"node {self.me.node_id}: not caught up with the quorum within {timeout_ms} ms;"
                f" {lacks}; check the other voters and the network"
            ) from None
        if self._driver.ended is not None:
            raise self._driver.ended

    async def close(self) -> None:
        """Resign, fail pending calls and complete the write in flight. A second call has no
        effect."""
        driver = self._driver
        if isinstance(driver.ended, Stopping):
            return
        if driver.ended is None:
            driver.end(Stopping("node: stopping"))
            driver.resign()
        for task in self._tasks[3:]:
            task.cancel()  # their reads and writes are not needed any more
        for task in self._tasks:
            try:
                await task
            except asyncio.CancelledError:
                if not task.cancelled():
                    raise
        await driver.transport.close()

    # --- proposals -----------------------------------------------------------------------------

    def propose_nowait(self, values: list[bytes]) -> Proposal:
        """Queue values and return the proposal with its offsets at once; see `wait_committed`.

        Proposals of one turn of the event loop, and those made during a write, share a batch. Raise
        NotController, Overloaded, Stopping or DiskFailed: nothing was appended.
        """
        state, driver, role = self._state, self._driver, self._raft.role
        if driver.ended is not None or not isinstance(role, Leader):
            raise driver.ended or driver.not_leader_error()
        if role.transfer is not None:
            raise Overloaded("metadata log: a leadership transfer is in progress; retry later")
        proposal = driver.proposals.add(
            values, log_end_offset=state.log.end_offset, epoch=state.epoch
        )
        driver.wake_for_proposal()
        return proposal

    async def read_index(self) -> Offset:
        """Wait until the state has every entry committed before the call, and return the applied
        offset. A read of the state is then linearizable.

        Raise NotController (with the leader, if known), Overloaded or Stopping.
        """
        self._require_leader()
        return await self._driver.reads.wait()

    # --- membership ----------------------------------------------------------------------------

    async def change_voters(self, change: VoterChange) -> None:
        """Add, remove or move a voter. Return after the change is committed.

        An added voter is a caught-up observer before. A leader that removes itself leads until
        then. Raise VoterChangePending, DuplicateVoter, VoterLagging, VoterNotFound, InvalidRequest
        for the last voter, NotController, or OutcomeUnknown.
        """
        self._require_leader()
        self._driver.append_queued()
        entry = self._raft.change_voters(change, self._clock.now_ms())
        proposal = self._driver.proposals.watch(entry)
        self._driver.wake()
        await proposal.wait_committed()

    async def transfer(self, to: NodeId | None = None) -> None:
        """Transfer the leadership to a voter, or to the most up-to-date one if None.

        Return after this node's leadership ended. Raise VoterNotFound, NotController, or TimedOut
        if it still leads.
        """
        self._require_leader()
        self._raft.transfer_leadership(to, self._clock.now_ms())
        self._driver.wake()
        wait_ms = self._state.config.election_timeout_ms_min + self._state.config.heartbeat_ms
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._driver.leadership.wait_deposed()
        except TimeoutError:
            raise TimedOut(
                f"leadership transfer: not completed within {wait_ms} ms, node {self.me.node_id}"
                " is still the leader; check the successor's lag and retry"
            ) from None

    def _require_leader(self) -> None:
        if self._driver.ended is not None:
            raise self._driver.ended
        if not self._state.is_leader:
            raise self._driver.not_leader_error()


def _damage_text(error: CorruptionError, *, is_alone: bool) -> str:
    """Return the error text with the remedy for a damaged log."""
    if is_alone:
        return (
            f"metadata log of the only controller: damaged ({error}); restore the data directory"
            " from a backup, or format a new one and start an empty cluster"
        )
    return (
        f"metadata log of this controller: damaged ({error}); remove it from the voters, format"
        " a new data directory, start the node on it and add it as a new voter; the other voters"
        " have the log"
    )
