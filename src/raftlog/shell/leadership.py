"""Leadership notifications for the state machine and for waiting calls."""

import asyncio

from ...ids import Epoch, NodeId, Offset
from ..core.raft import Raft
from .state_machine import StateMachine


class LeadershipNews:
    """Detects changes of the leader."""

    def __init__(self, raft: Raft, machine: StateMachine) -> None:
        self._raft = raft
        self._machine = machine
        self._told: tuple[NodeId | None, Epoch] = (None, raft.epoch)  # last notified
        self._was_leader = False
        self._waiting: list[asyncio.Future[None]] = []

    def note(self) -> bool:
        """Notify the state machine of a change. Return True if this node's leadership ended.

        The start of this node's leadership is notified later by opened().
        """
        raft = self._raft
        leads = (raft.leader_id, raft.epoch)
        if leads == self._told:
            return False
        before, self._told = self._told, leads
        is_over, self._was_leader = self._was_leader, raft.is_leader
        if is_over:
            self.release()
        if not raft.is_leader and (leads[0] is not None or before[0] is not None):
            self._machine.leadership(*leads)
        return is_over

    def opened(self) -> None:
        """Notify that this node leads and that everything before was delivered."""
        self._machine.leadership(self._raft.leader_id, self._raft.epoch)

    def end(self) -> None:
        """Notify that there is no leader when the node ends."""
        if self._told[0] is not None:
            self._told = (None, self._raft.epoch)
            self._machine.leadership(*self._told)

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


class Readiness:
    """Detects when this node first caught up: it has a leader, and applied the entries that were
    committed when it first had contact with the leader. Set permanently."""

    def __init__(self, raft: Raft) -> None:
        self._raft = raft
        self.reached = asyncio.Event()
        self.goal: Offset | None = None  # committed end at the first contact with a leader

    def heard(self, epoch: Epoch, committed_end: Offset, applied_end: Offset) -> None:
        """Record a leader's high watermark."""
        if not self.reached.is_set() and epoch == self._raft.epoch:
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
        log = self._raft.log
        if self.goal is None or not self.goal <= end or end < log.start_offset:
            return False
        return log.epoch_before(end) == self._raft.epoch
