"""Who is told what about leaders: the state machine, those who wait for one to go, and those who
wait until this node is of use."""

import asyncio

from ...ids import Epoch, NodeId, Offset
from ..core.raft import Raft
from .state_machine import StateMachine


class LeadershipNews:
    """Notices when another leads, or nobody."""

    def __init__(self, raft: Raft, machine: StateMachine) -> None:
        self._raft = raft
        self._machine = machine
        self._told: tuple[NodeId | None, Epoch] = (None, raft.epoch)  # as last noted
        self._was_leader = False
        self._waiting: list[asyncio.Future[None]] = []

    def note(self) -> bool:
        """Tell the state machine what has changed; whether this node's own leadership has ended.

        Its own leadership is told later, by opened().
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
        """This node leads, and everything before was delivered."""
        self._machine.leadership(self._raft.leader_id, self._raft.epoch)

    def end(self) -> None:
        """The node ends: whoever led, nobody does for it any more."""
        if self._told[0] is not None:
            self._told = (None, self._raft.epoch)
            self._machine.leadership(*self._told)

    async def wait_deposed(self) -> None:
        """Return once this node's leadership has ended."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(over)
        try:
            await over
        finally:
            self._waiting = [each for each in self._waiting if each is not over]

    def release(self) -> None:
        """Let those go who wait."""
        for over in self._waiting:
            if not over.done():
                over.set_result(None)


class Readiness:
    """Whether this node has been of use: it has known a leader, and applied what was committed when
    it learned of that. Set for good."""

    def __init__(self, raft: Raft) -> None:
        self._raft = raft
        self.reached = asyncio.Event()
        self.goal: Offset | None = None  # end of what was committed when a leader was heard of

    def heard(self, epoch: Epoch, committed_end: Offset, applied_end: Offset) -> None:
        """A leader has said how far the log is committed."""
        if not self.reached.is_set() and epoch == self._raft.epoch:
            self.goal = max(self.goal or Offset(0), committed_end)
            self.applied(applied_end)

    def applied(self, end: Offset) -> None:
        """The state has reached an offset."""
        if not self.reached.is_set() and self._has_caught_up(end):
            self.reached.set()

    def _has_caught_up(self, end: Offset) -> bool:
        """Whether the state holds all that was committed before this node heard of its leader.

        A new leader knows of less than that until it commits in its own epoch (thesis 6.4), so what
        it says first is not enough: an entry of its epoch must have come through as well.
        """
        log = self._raft.log
        if self.goal is None or not self.goal <= end or end < log.start_offset:
            return False
        return log.epoch_before(end) == self._raft.epoch
