"""One partition on its leader: high watermark, fencing, and who waits for what.

Pure: numbers in, released waits out. Owns the leader's knowledge of a partition; knows no file,
no clock and no task. The shell appends, tells `advance()` how far its own log has come, and wakes
whatever the answer names.

Rules held here (design: replication; KIP-101, KIP-966 prose):

1. The high watermark is the least end over the maximal ISR, never goes back, and is frozen while
   the ISR is smaller than min.insync.replicas.
2. Under `flush.policy=fsync` the end of a replica is its *flushed* end, wherever a rule says log
   end: for the high watermark and for what acks=1 means.
3. Every request that names a leader epoch is fenced by it: older is FencedLeaderEpoch, newer is
   UnknownLeaderEpoch.
4. A wait is released once: by progress, or with the error of the end of this leadership.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    Overloaded,
    QuorumlogError,
    UnknownLeaderEpoch,
)
from ..ids import NO_EPOCH, Epoch, NodeId, Offset

LOG_START = Offset(0)


class Acks(Enum):
    """How many replicas must hold a batch before it is acknowledged."""

    ALL = "all"  # every in-sync replica
    NONE = "0"  # none: nobody waits
    LEADER = "1"  # the leader alone


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderState:
    """What the metadata image says of a partition that this node leads."""

    leader_epoch: Epoch
    partition_epoch: int
    isr: tuple[NodeId, ...]
    min_isr: int  # min.insync.replicas, never above the number of replicas
    counts_flushed: bool  # flush.policy=fsync: ends are flushed ends


@dataclass(slots=True)
class ReplicaEnds:
    """How far one replica's log has come; both only grow within a leader epoch."""

    log_end_offset: Offset
    flushed_end_offset: Offset  # <= log_end_offset


@dataclass(slots=True, eq=False)
class Wait:
    """A produce request's partition waiting for its acknowledgement."""

    next_offset: Offset  # released when everything below this offset is held
    token: Any  # the shell's handle; this module only carries it
    error: QuorumlogError | None = None
    released: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """What `advance()` brought about."""

    released: tuple[Wait, ...]
    high_watermark_moved: bool


NO_PROGRESS = Progress((), False)


@dataclass(slots=True)
class Partition:
    """The leader's view of one partition. Before `become_leader` and after `resign` it leads
    nothing and refuses every request."""

    topic: str
    index: int
    node_id: NodeId
    waits_max: int  # bound on waiting produce requests; reaching it is Overloaded
    high_watermark: Offset = LOG_START
    leader: LeaderState | None = None
    highest_epoch: Epoch = NO_EPOCH  # the newest leader epoch heard of, as leader or not
    elsewhere: NotLeaderOrFollower | None = None  # after `resign`: who leads, for those who ask
    ends: dict[NodeId, ReplicaEnds] = field(default_factory=dict)
    _all: list[tuple[int, int, Wait]] = field(default_factory=list)  # heap by next_offset
    _leader: list[tuple[int, int, Wait]] = field(default_factory=list)  # acks=1, the same
    _sequence: int = 0  # makes heap entries comparable, first come first released
    _waiting: int = 0  # waits neither released nor forgotten

    # --- leadership ---------------------------------------------------------------------------

    def become_leader(
        self, state: LeaderState, *, log_end_offset: Offset, flushed_end_offset: Offset
    ) -> Progress:
        """Lead with `state`, or go on leading with a changed one; returns what that released.

        A newer leader epoch forgets what other replicas reported in the old one (R11).
        """
        assert state.leader_epoch >= self.highest_epoch, (
            f"{self.name}: epoch {state.leader_epoch} after {self.highest_epoch}"
        )
        assert self.node_id in state.isr, f"{self.name}: leader {self.node_id} not in {state.isr}"
        if state.leader_epoch > self.highest_epoch:
            self.ends = {}
        self.leader, self.highest_epoch, self.elsewhere = state, state.leader_epoch, None
        return self.advance(log_end_offset=log_end_offset, flushed_end_offset=flushed_end_offset)

    def resign(self, error: QuorumlogError, *, epoch: Epoch | None = None) -> tuple[Wait, ...]:
        """Lead no more; returns every wait, released with `error`."""
        self.leader = None
        self.elsewhere = error if isinstance(error, NotLeaderOrFollower) else None
        self.ends = {}
        if epoch is not None:
            self.highest_epoch = max(self.highest_epoch, epoch)
        waits = tuple(self._drain(self._all)) + tuple(self._drain(self._leader))
        for wait in waits:
            wait.error = error
        return waits

    @property
    def name(self) -> str:
        """ "topic-index", as its folder is called."""
        return f"{self.topic}-{self.index}"

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the partition now."""
        return self.leader is not None

    @property
    def leader_epoch(self) -> Epoch:
        """The epoch it leads with, or the newest it has heard of."""
        return self.highest_epoch

    @property
    def waiting(self) -> int:
        """Produce requests that wait now."""
        return self._waiting

    # --- requests -----------------------------------------------------------------------------

    def check_leader(self, leader_epoch: int | None) -> LeaderState:
        """Return the leadership a request may use; raises NotLeaderOrFollower, FencedLeaderEpoch,
        UnknownLeaderEpoch."""
        if leader_epoch is not None:
            if leader_epoch < self.highest_epoch:
                raise FencedLeaderEpoch(
                    f"leader epoch {leader_epoch} is older than {self.highest_epoch}; "
                    "refresh the metadata and ask the leader",
                    topic=self.topic,
                    partition=self.index,
                )
            if leader_epoch > self.highest_epoch:
                raise UnknownLeaderEpoch(
                    f"leader epoch {leader_epoch} is newer than {self.highest_epoch} known here; "
                    "repeat after a moment",
                    topic=self.topic,
                    partition=self.index,
                )
        if self.leader is None:
            if self.elsewhere is not None:
                raise self.elsewhere.with_traceback(None)
            raise NotLeaderOrFollower(
                f"node {self.node_id} does not lead this partition; refresh the metadata",
                topic=self.topic,
                partition=self.index,
            )
        return self.leader

    def admit(self, acks: Acks, leader_epoch: int | None) -> LeaderState:
        """Say that an append may begin; raises what `check_leader` raises, NotEnoughReplicas or
        Overloaded, and then nothing may be stored."""
        state = self.check_leader(leader_epoch)
        if acks is Acks.ALL and len(state.isr) < state.min_isr:
            raise NotEnoughReplicas(
                f"{len(state.isr)} in-sync replicas, min.insync.replicas is {state.min_isr}; "
                "wait for replicas to catch up",
                topic=self.topic,
                partition=self.index,
            )
        if acks is not Acks.NONE and self._waiting >= self.waits_max:
            raise Overloaded(
                f"{self._waiting} produce requests wait for acknowledgement, the bound is "
                f"{self.waits_max}; wait and repeat",
                topic=self.topic,
                partition=self.index,
            )
        return state

    def is_acknowledged(self, acks: Acks, next_offset: Offset) -> bool:
        """Whether everything below `next_offset` is held as `acks` demands."""
        if acks is Acks.NONE:
            return True
        if acks is Acks.ALL:
            return self.high_watermark >= next_offset
        return self._own_end() >= next_offset

    def wait_for(self, acks: Acks, next_offset: Offset, token: Any) -> Wait:
        """Remember a request that is not acknowledged yet; `advance` or `resign` releases it."""
        assert acks is not Acks.NONE, "acks=0 waits for nothing"
        assert self.leader is not None, f"{self.name}: waiting without leadership"
        wait = Wait(next_offset, token)
        self._sequence += 1
        self._waiting += 1
        heap = self._all if acks is Acks.ALL else self._leader
        heapq.heappush(heap, (next_offset, self._sequence, wait))
        return wait

    def forget(self, wait: Wait) -> None:
        """Drop a wait whose caller is gone; a released one is left alone."""
        if wait.released:
            return
        wait.released = True  # its heap entry is skipped when it comes up
        self._waiting -= 1
        for heap in (self._all, self._leader):
            if len(heap) > 2 * self._waiting + 64:  # entries of the forgotten stay bounded too
                heap[:] = [entry for entry in heap if not entry[2].released]
                heapq.heapify(heap)

    # --- progress -----------------------------------------------------------------------------

    def advance(
        self,
        *,
        log_end_offset: Offset,
        flushed_end_offset: Offset,
        replica: NodeId | None = None,
    ) -> Progress:
        """A replica's log (by default the own one) has come this far; move the high watermark and
        release what it satisfies."""
        assert flushed_end_offset <= log_end_offset, (
            f"{self.name}: flushed to {flushed_end_offset}, log ends at {log_end_offset}"
        )
        who = self.node_id if replica is None else replica
        ends = self.ends.get(who)
        if ends is None:
            self.ends[who] = ReplicaEnds(log_end_offset, flushed_end_offset)
        else:
            ends.log_end_offset = log_end_offset
            ends.flushed_end_offset = flushed_end_offset
        state = self.leader
        if state is None:
            return NO_PROGRESS
        before = self.high_watermark
        self._move_high_watermark(state)
        released = [
            *self._pop(self._all, self.high_watermark),
            *self._pop(self._leader, self._own_end()),
        ]
        return Progress(tuple(released), self.high_watermark > before)

    def check_invariants(self) -> None:
        """Rule 1 and the books of the waits; cheap enough for every test step."""
        own = self.ends.get(self.node_id)
        if self.leader is not None and own is not None:
            assert self.high_watermark <= own.log_end_offset, (
                f"{self.name}: high watermark {self.high_watermark} > {own.log_end_offset}"
            )
        live = sum(1 for _, _, wait in [*self._all, *self._leader] if not wait.released)
        assert live == self._waiting, f"{self.name}: {live} waits live, {self._waiting} counted"

    def _move_high_watermark(self, state: LeaderState) -> None:
        if len(state.isr) < state.min_isr:
            return  # frozen: what is acknowledged must survive min ISR - 1 losses
        candidate: int | None = None
        for member in state.isr:
            ends = self.ends.get(member)
            if ends is None:
                return  # a member that has not reported in this epoch holds the mark
            end = ends.flushed_end_offset if state.counts_flushed else ends.log_end_offset
            candidate = end if candidate is None else min(candidate, end)
        if candidate is not None and candidate > self.high_watermark:
            self.high_watermark = Offset(candidate)

    def _own_end(self) -> int:
        ends = self.ends.get(self.node_id)
        if ends is None or self.leader is None:
            return 0
        return ends.flushed_end_offset if self.leader.counts_flushed else ends.log_end_offset

    def _pop(self, heap: list[tuple[int, int, Wait]], end: int) -> Iterator[Wait]:
        while heap and heap[0][0] <= end:
            wait = heapq.heappop(heap)[2]
            if not wait.released:
                wait.released = True
                self._waiting -= 1
                yield wait

    def _drain(self, heap: list[tuple[int, int, Wait]]) -> Iterator[Wait]:
        return self._pop(heap, 1 << 63)
