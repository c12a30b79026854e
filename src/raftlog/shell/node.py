"""One member of the quorum, voter or observer, on one data directory: what others may ask of it.

The work is done by tasks in the caller's scope: the driver and the writer (`driver.py`), the
delivery of committed batches, the reader of what followers need from the disk, and the taker of
snapshots. Messages and heartbeats never wait for the last four. A storage failure ends the node.
"""

import asyncio

from ...errors import CorruptionError, Overloaded, Stopping, TimedOut
from ...ids import ClusterId, Epoch, NodeId, Offset
from ...runtime import Handler, Runtime, Scope
from ...storage.shell.directory import Directory
from ..core.config import RaftConfig
from ..core.leading import Leader
from ..core.log_view import Entry
from ..core.status import QuorumStatus
from ..core.voters import Voter, VoterSet
from ..formats.names import METADATA_LOG_NAME
from .disk.metadata_log import MetadataLog
from .driver import Driver
from .gathering import Proposal
from .node_config import RaftNodeConfig
from .peers.transport import TransportStatistics
from .state_machine import StateMachine


class RaftNode:
    """One member of the quorum. Make it with `open`."""

    def __init__(self, runtime: Runtime, scope: Scope, driver: Driver, *, listener: str) -> None:
        """Use open()."""
        self._listener = listener  # "host:port" of streams
        self._clock = runtime.clock
        self._scope = scope
        self._driver = driver
        self._raft = driver.raft
        self._tasks: list[asyncio.Task[None]] = []

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
        return self._driver.delivery.end

    @property
    def log_end_offset(self) -> Offset:
        """Offset of the next record, written or not."""
        return self._raft.log.end_offset

    @property
    def next_offset(self) -> Offset:
        """Offset of the first value that is proposed next, if it is before anything else happens;
        for a leader."""
        return self._driver.gathering.next_offset(self._raft.log.end_offset)

    def status(self) -> QuorumStatus:
        """What this node knows of the quorum; of the others' progress only a leader does."""
        return self._raft.status(self._clock.now_ms())

    def transport_statistics(self) -> TransportStatistics:
        """What goes on between this node and the others."""
        return self._driver.transport.statistics()

    def address_of(self, member: Voter) -> str:
        """Where a member is reached, "" when that is not known."""
        if member == self.me:
            return self._raft.config.address
        return self._raft.voters.latest.address_of(member) or self._driver.transport.address_of(
            member
        )

    def handlers(self) -> dict[str, Handler]:
        """What the other members call, for Network.serve; it may be served before start()."""
        return self._driver.transport.handlers()

    # --- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the newest snapshot and run. A lone voter leads, and the log's past was delivered,
        when this returns; for others see wait_ready().

        Raises AddressInUse, SnapshotDamaged, StorageError, and of a lone voter whatever ended it.
        """
        assert not self._tasks, "started twice"
        await self._driver.transport.listen(self._listener)
        if self._raft.snapshots:
            await self._driver.delivery.restore(self._raft.snapshots[-1])
        spawn, driver = self._scope.spawn, self._driver
        self._tasks = [
            spawn(driver.guard(driver.delivery.run), name="raftlog.delivery"),
            spawn(driver.run_writer(), name="raftlog.writer"),
            spawn(driver.run(), name="raftlog.driver"),
            spawn(driver.guard(driver.sending.run), name="raftlog.reader"),
            spawn(driver.guard(driver.snapshotting.run), name="raftlog.snapshots"),
        ]
        self._driver.learn(self.voters)
        self._driver.wake()
        if self._driver.is_alone:
            await self._driver.led.wait()
            if self._driver.ended is not None:
                raise self._driver.ended

    async def wait_ready(self, timeout_ms: int) -> None:
        """Return once this node knows a leader and has applied what was committed when it learned
        of it; raises TimedOut, and what ended the node."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._driver.readiness.reached.wait()
        except TimeoutError:
            goal = self._driver.readiness.goal
            lacks = (
                "it knows no leader, for which a majority of the voters must be up"
                if self.leader_id is None or goal is None
                else f"node {self.leader_id} leads, {self.applied_end} of {goal} offsets applied"
            )
            raise TimedOut(
                f"node {self.node_id} did not reach the quorum's state within {timeout_ms} ms:"
                f" {lacks}; look at the other voters and at the network"
            ) from None
        if self._driver.ended is not None:
            raise self._driver.ended

    async def close(self) -> None:
        """Hand the leadership over, fail what is pending, let the write in flight end. A second
        call does nothing."""
        driver = self._driver
        if isinstance(driver.ended, Stopping):
            return
        if driver.ended is None:
            driver.end(Stopping("the node is stopping"))
            driver.resign()
        for task in self._tasks[3:]:
            task.cancel()  # what they read or write is of no use any more
        for task in self._tasks:
            try:
                await task
            except asyncio.CancelledError:
                if not task.cancelled():
                    raise
        await driver.transport.close()

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
        raft, driver = self._raft, self._driver
        role = raft.role
        if driver.ended is not None or not isinstance(role, Leader):
            raise driver.ended or driver.not_leading()
        if role.transfer is not None:
            raise Overloaded("the leadership is being handed over: wait and repeat")
        proposal = driver.gathering.add(
            values, log_end_offset=raft.log.end_offset, epoch=raft.epoch
        )
        driver.proposed()
        return proposal

    async def read_index(self) -> Offset:
        """Return once the state holds everything that was committed before the call: what is read
        from it then is linearizable. Returns the offset that it has reached.

        Raises NotController (with the leader, if known), Overloaded, Stopping.
        """
        self._check_leading()
        return await self._driver.reads.wait()

    # --- membership ----------------------------------------------------------------------------

    async def add_voter(self, voter: Voter, address: str) -> None:
        """Have an observer that is caught up vote; returns once that is committed.

        Raises DuplicateVoter, VoterLagging, VoterChangePending, NotController; Lost: the outcome is
        unknown.
        """
        self._check_leading()
        self._driver.append_all_gathered()
        await self._committed(self._raft.add_voter(voter, address, self._clock.now_ms()))

    async def remove_voter(self, voter: Voter) -> None:
        """Take a voter's vote away; returns once that is committed. A leader that removes itself
        leads until then. Raises VoterNotFound, VoterChangePending, InvalidRequest for the last one,
        NotController, Lost."""
        self._check_leading()
        self._driver.append_all_gathered()
        await self._committed(self._raft.remove_voter(voter, self._clock.now_ms()))

    async def move_voter(self, voter: Voter, address: str) -> None:
        """Say where a voter is reached now; returns once that is committed. Raises as
        remove_voter."""
        self._check_leading()
        self._driver.append_all_gathered()
        await self._committed(self._raft.move_voter(voter, address, self._clock.now_ms()))

    async def transfer(self, to: NodeId | None = None) -> None:
        """Hand the leadership to a voter, None: to the one that holds most; returns once this node
        does not lead any more. Raises VoterNotFound, NotController; TimedOut: it still leads."""
        self._check_leading()
        self._raft.transfer_leadership(to, self._clock.now_ms())
        self._driver.wake()
        wait_ms = self._raft.config.election_timeout_ms_min + self._raft.config.heartbeat_ms
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._driver.news.wait_deposed()
        except TimeoutError:
            raise TimedOut(
                f"the leadership was not taken over within {wait_ms} ms, node {self.node_id} leads"
                " on: look at the successor's lag and repeat"
            ) from None

    async def _committed(self, entry: Entry) -> None:
        proposal = self._driver.gathering.watch(entry)
        self._driver.wake()
        await proposal.wait_committed()

    def _check_leading(self) -> None:
        if self._driver.ended is not None:
            raise self._driver.ended
        if not self._raft.is_leader:
            raise self._driver.not_leading()


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
