"""Snapshots of this node's state, taken after a configured growth of the log. `Persister` installs
received ones.

The state machine returns slices of a fixed state, and the disk writes them between two writes of
the log. A snapshot never ends above this node's durable log: if others commit faster than this node
writes, it waits. A snapshot that fails for lack of space is retried after further growth; until
then the log is kept.
"""

import asyncio
import logging
from collections.abc import Callable

from ...errors import DiskFull
from ...ids import Offset
from ..log_view import LogView, SnapshotId
from ..state import RaftState
from .metadata_log import MetadataLog
from .state_machine import StateMachine

_LOG = logging.getLogger("quorumlog.raftlog")


def grown_past(log: LogView, start_offset: Offset, end_offset: Offset, *, bytes_min: int) -> bool:
    """Return True if the batches of [start, end), both boundaries, have more than `bytes_min`
    bytes."""
    reached, _ = log.range_end(start_offset, bytes_max=bytes_min)
    return reached < end_offset


class SnapshotWriter:
    """Takes the snapshots of one node."""

    def __init__(
        self,
        state: RaftState,
        log: MetadataLog,
        machine: StateMachine,
        every_bytes: int,
        *,
        taken: Callable[[SnapshotId], None],
    ) -> None:
        """`taken` registers each snapshot with the core."""
        self._state = state
        self._log = log
        self._machine = machine
        self._every_bytes = every_bytes
        self._taken = taken
        self._tried_end = _newest_end(state)  # end of the last attempt
        self._due = asyncio.Event()
        self._moved = asyncio.Event()  # the durable end advanced, or the snapshot must stop
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_held = False
        self._closed = False

    def applied(self, end: Offset) -> None:
        """Schedule a snapshot if the log has grown enough since the last one."""
        if self._is_held or not self._idle.is_set():
            return
        start = max(self._tried_end, _newest_end(self._state))
        if grown_past(self._state.log, start, end, bytes_min=self._every_bytes):
            self._due.set()

    def written(self) -> None:
        """Record that the durable end may have advanced."""
        self._moved.set()

    async def hold(self) -> None:
        """Start no snapshot, and wait for the current one to end, because the log will be
        replaced."""
        self._is_held = True
        self._moved.set()
        await self._idle.wait()

    def resume(self) -> None:
        """End hold()."""
        self._is_held = False

    def close(self) -> None:
        """End run(). The task may also be cancelled: an unfinished file is not a snapshot."""
        self._closed = True
        self._due.set()
        self._moved.set()

    async def run(self) -> None:
        """Take snapshots until close(). Raise DiskFailed."""
        while True:
            await self._due.wait()
            self._due.clear()
            if self._closed:
                return
            if self._is_held:
                continue  # held since it became due
            self._idle.clear()
            try:
                await self._write()
            finally:
                self._idle.set()

    async def _write(self) -> None:
        """Write the current state and register the snapshot."""
        state = self._state
        end = state.applied_end
        snapshot = SnapshotId(end, state.log.epoch_before(end))
        if state.snapshots and snapshot <= state.snapshots[-1]:
            return
        slices, voters = self._machine.snapshot(), state.voters.at(end)
        if slices is None or not await self._wait_durable(end):
            return
        self._tried_end = end
        try:
            size = await self._log.write_snapshot(snapshot, voters, slices)
        except DiskFull as error:
            _LOG.warning("raft.snapshot_failed end_offset=%d error=%s", end, error)
            return
        _LOG.info("raft.snapshot_taken end_offset=%d epoch=%d bytes=%d", end, snapshot.epoch, size)
        self._taken(snapshot)

    async def _wait_durable(self, end: Offset) -> bool:
        """Wait until the durable log reaches the offset. Return False if the snapshot must stop."""
        while not (self._is_held or self._closed):
            if self._state.writes.durable_end >= end:
                return True
            self._moved.clear()
            await self._moved.wait()
        return False


def _newest_end(state: RaftState) -> Offset:
    return state.snapshots[-1].end_offset if state.snapshots else state.log.start_offset
