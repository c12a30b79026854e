"""The history of group members' requests and responses, in virtual time.

A *claim* is a partition that a member may process: from its assignment until its revocation, its
known loss, or the member's end. A silent member is evicted, and others get its partitions before it
notices. So a claim counts only while the coordinator cannot have evicted the member: for its
session, and the time of a rebalance, since its last answered request was sent. A response proves
all time before it. A member that does not poll leaves by itself; from then on it is not certain of
a claim, although it may be in a callback and not yet notified.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from quorumlog.testing.checkers import Place

from ...checkers.linearizability import OperationHistory as Registers
from ...checkers.models import DONE, Read, Write

FOREVER_NS: Final = 1 << 62
NS_PER_MS: Final = 1_000_000
CLOCK_ERROR: Final = 0.97
"""The certain fraction of a span: clocks run fast by up to two per cent."""


@dataclass(slots=True, eq=False)
class Claim:
    """A partition that a member may process."""

    group: str
    process: str  # a process of a member
    place: Place
    epoch: int  # the member's epoch or generation at the assignment
    began_ns: int
    ended_ns: int = FOREVER_NS  # revoked, known to be lost, or the owner has ended
    proven_ns: int = -1  # the coordinator cannot have reassigned it before

    @property
    def is_open(self) -> bool:
        """True if the owner may still process it, as far as the owner has been notified."""
        return self.ended_ns == FOREVER_NS

    @property
    def until_ns(self) -> int:
        """The time before which no other member may own it."""
        return min(self.ended_ns, self.proven_ns)

    def __str__(self) -> str:
        topic, index = self.place
        end = "..." if self.is_open else f"{self.ended_ns / 1e6:.3f}"
        return (
            f"{self.process} has {topic}-{index} in epoch {self.epoch}, {self.began_ns / 1e6:.3f} "
            f"to {end} ms, proven to {self.proven_ns / 1e6:.3f}"
        )


@dataclass(slots=True, eq=False)
class MemberIncarnation:
    """One process of a member: its partitions, and for how long they are certain."""

    group_history: "GroupHistory"
    group: str
    name: str
    session_ms: int
    rebalance_ms: int
    instance_id: str = ""
    member_id: str = ""
    epoch: int = -1  # the newest it received, -1: none
    is_over: bool = False
    claims: dict[Place, Claim] = field(default_factory=dict)  # open ones
    # members with the static name that it requests
    replaces: list["MemberIncarnation"] = field(default_factory=list)
    is_coming: bool = False  # it requested its static name, and has no member id yet
    is_doubtful: bool = False  # another member requested its static name since: it may be fenced
    _replaced_ns: int = -1  # the time from which another member certainly has its static name
    _replaced_by: "MemberIncarnation | None" = None
    _alive_ns: int = -1  # time of its last request that was answered as a member's
    _settled_ns: int = -1  # the same, without a rebalance in the response
    _kept_ns: int = -1  # the coordinator may not evict it before

    def answered(self, asked_ns: int, *, is_settled: bool, is_stored: bool = True) -> None:
        """Record that a request sent at `asked_ns` was answered as a member's.

        `is_settled`: without a request to rejoin or revoke; `is_stored`: the next coordinator has
        that state too.
        """
        self.served(asked_ns)
        if is_stored and self.replaces:
            for life in self.replaces:
                life._replaced_ns, life._replaced_by = self.group_history.now_ns(), self
            self.replaces = []
        self._alive_ns = max(self._alive_ns, asked_ns)
        if is_settled:
            self._settled_ns = max(self._settled_ns, asked_ns)
        if is_stored:
            self._kept_ns = max(self._kept_ns, self._until_ns())
        for claim in self.claims.values():
            self._prove(claim)

    def served(self, asked_ns: int) -> None:
        """Check that a request was not accepted after another member took its static name."""
        if 0 <= self._replaced_ns < asked_ns:
            self.group_history.found.append(
                f"TwinServed: {self.name} of {self.group} asks at {asked_ns / 1e6:.3f} ms and is "
                f"accepted as {self.instance_id!r}, which another member has since "
                f"{self._replaced_ns / 1e6:.3f}"
            )

    def evicted(self, asked_ns: int = -1) -> None:
        """Check a response that it is no member: allowed only after a silent session or a missed
        rebalance.

        `asked_ns`: time of the request. If another current member has its static name by then, it
        must be fenced instead.
        """
        now_ns = self.group_history.now_ns()
        younger = self._replaced_by
        if younger is not None and self._replaced_ns < asked_ns and now_ns < younger._kept_ns:
            self.group_history.found.append(
                f"Unfenced: {self.name} of {self.group} asks at {asked_ns / 1e6:.3f} ms and is "
                f"rejected as no member; {younger.name} has its name {self.instance_id!r} "
                f"since {self._replaced_ns / 1e6:.3f}, and it is to end"
            )
        if now_ns < self._kept_ns:
            self.group_history.found.append(
                f"ShutOut: {self.name} of {self.group} is rejected at {now_ns / 1e6:.3f} ms as "
                f"no member, and must be one until {self._kept_ns / 1e6:.3f}"
            )
        self.forget()

    def forget(self) -> None:
        """Drop the proofs of its membership."""
        self._alive_ns = self._settled_ns = self._kept_ns = -1

    def leaves(self) -> None:
        """Record that it sends a leave: from now on another member may own its partitions."""
        self.forget()
        for claim in self.claims.values():
            claim.proven_ns = min(claim.proven_ns, self.group_history.now_ns())

    def _until_ns(self) -> int:
        session_ns = int(self.session_ms * NS_PER_MS * CLOCK_ERROR)
        rebalance_ns = int(self.rebalance_ms * NS_PER_MS * CLOCK_ERROR)
        return min(self._alive_ns + session_ns, self._settled_ns + rebalance_ns)

    def _prove(self, claim: Claim) -> None:
        claim.proven_ns = max(claim.proven_ns, self._until_ns(), self._alive_ns)

    def set_epoch(self, epoch: int, member_id: str = "") -> None:
        """Record its epoch and member id."""
        self.epoch = epoch
        self.member_id = member_id or self.member_id
        self.is_coming = False

    def assign(self, places: Iterable[Place]) -> None:
        """Record that it owns these partitions from now on."""
        now_ns = self.group_history.now_ns()
        for place in places:
            assert place not in self.claims, f"{self.name} has {place} already"
            claim = Claim(self.group, self.name, place, self.epoch, now_ns)
            if self.is_doubtful:
                claim.ended_ns = now_ns  # a late response
            self.claims[place] = claim
            self.group_history.claims.append(claim)
            self._prove(claim)

    def revoke(self, places: Iterable[Place]) -> None:
        """Record that it no longer processes these partitions, before the coordinator is
        notified."""
        now_ns = self.group_history.now_ns()
        for place in places:
            claim = self.claims.pop(place, None)
            if claim is not None:
                claim.ended_ns = min(claim.ended_ns, now_ns)

    def revoke_all(self) -> None:
        """Record that it processes no partition any more."""
        self.revoke(list(self.claims))

    def ends(self) -> None:
        """Record that it has left, or ended."""
        self.revoke_all()
        self.is_over = True


@dataclass(frozen=True, slots=True)
class Worked:
    """Records of a partition that a member has processed."""

    group: str
    process: str
    place: Place
    start: int
    end: int  # exclusive
    at_ns: int


@dataclass(frozen=True, slots=True)
class CommitAttempt:
    """A commit that was sent to a coordinator."""

    number: int
    group: str
    process: str
    place: Place
    offset: int
    is_honest: bool  # False: it must be rejected
    at_ns: int


@dataclass(slots=True)
class GroupHistory:
    """The history of a run."""

    now_ns: Callable[[], int]
    incarnations: list[MemberIncarnation] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    worked: list[Worked] = field(default_factory=list)
    commitments: dict[int, CommitAttempt] = field(default_factory=dict)  # by number
    # committed offsets, by group and partition
    registers: Registers = field(default_factory=Registers)
    errors: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    unnoted: set[str] = field(default_factory=set)  # groups with commits that are not recorded here
    found: list[str] = field(default_factory=list)  # violations found during the run
    # Changes once a coordinator has loaded its state; None: one is loading. Heartbeats of classic
    # members are accepted during that, and prove nothing.
    loads: Callable[[], object] = lambda: ()
    stored: Counter[tuple[str, Place]] = field(default_factory=Counter)  # the highest reported
    _done: dict[tuple[str, Place], list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def life(
        self, group: str, name: str, *, session_ms: int, rebalance_ms: int, instance_id: str = ""
    ) -> MemberIncarnation:
        """Start a process of a member; its predecessors have ended."""
        number = sum(life.name.partition("/")[0] == name for life in self.incarnations) + 1
        life = MemberIncarnation(
            self,
            group,
            f"{name}/{number}",
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
            instance_id=instance_id,
        )
        self.incarnations.append(life)
        return life

    def process_ended(self, name: str) -> None:
        """Record the end of a member's process."""
        for life in self.incarnations:
            if life.name.partition("/")[0] == name and not life.is_over:
                life.ends()

    def replaces_static_member(
        self, group: str, instance_id: str, newcomer: MemberIncarnation
    ) -> None:
        """Record that a static member requests its name: its predecessor may be fenced from now
        on, without notice."""
        now_ns = self.now_ns()
        newcomer.replaces = []
        newcomer.is_coming, newcomer.is_doubtful = True, False
        newcomer._replaced_ns, newcomer._replaced_by = -1, None
        for life in self.incarnations:
            if life is newcomer or (life.group, life.instance_id) != (group, instance_id):
                continue
            for claim in life.claims.values():
                # it continues, and may still be a member
                claim.ended_ns = min(claim.ended_ns, now_ns)
            life.is_doubtful = True
            life.forget()
            if newcomer in life.replaces:
                life.replaces.remove(newcomer)  # the order of the two is unknown
            if life.member_id and not life.is_coming and not life.is_over:
                newcomer.replaces.append(life)

    # --- processing
    # --------------------------------------------------------------------------------

    def processed(self, life: MemberIncarnation, place: Place, start: int, end: int) -> None:
        """Record that a member has processed [start, end) of a partition."""
        if start > (done_to := self.done_to(life.group, place)):
            self.found.append(
                f"PassedOver: {life.name} processes {place} from {start} on, and its group has "
                f"processed up to {done_to}"
            )
        self.worked.append(Worked(life.group, life.name, place, start, end, self.now_ns()))
        _add(self._done[life.group, place], start, end)

    def done_to(self, group: str, place: Place) -> int:
        """Return the first offset that no member of the group has processed."""
        spans = self._done[group, place]
        return spans[0][1] if spans and spans[0][0] == 0 else 0

    # --- offsets -------------------------------------------------------------------------------

    def send_commit(
        self, group: str, process: str, place: Place, offset: int, *, is_honest: bool = True
    ) -> tuple[int, str]:
        """Record a commit that is sent; return its number and its metadata."""
        note = f"c{len(self.commitments) + 1}"
        number = self.registers.invoke(process, key_of(group, place), Write(_seen(offset, note)))
        self.commitments[number] = CommitAttempt(
            number, group, process, place, offset, is_honest, self.now_ns()
        )
        if not is_honest:
            self.registers.fail(number)
        elif offset > self.done_to(group, place):
            self.found.append(
                f"CommittedAhead: {process} commits {offset} of {place}, the group has processed "
                f"up to {self.done_to(group, place)}"
            )
        return number, note

    def committed(self, number: int) -> None:
        """Record an acknowledged commit."""
        commit = self.commitments[number]
        self.counts["commits"] += 1
        if commit.is_honest:
            self.registers.complete(number, DONE)
            key = (commit.group, commit.place)
            self.stored[key] = max(self.stored[key], commit.offset)
        else:
            self.found.append(
                f"FencedCommitTaken: {commit.process} was no member, or used a wrong epoch, and its"
                f" commit of {commit.place} was accepted"
            )

    def refused(self, number: int) -> None:
        """Record a rejected commit."""
        if self.commitments[number].is_honest:
            self.registers.fail(number)

    def fetch_offset(self, group: str, process: str, place: Place) -> int:
        """Record a fetch of a committed offset."""
        if group in self.unnoted:
            return -1
        return self.registers.invoke(process, key_of(group, place), Read())

    def offset_fetched(self, number: int, group: str, place: Place, offset: int, note: str) -> None:
        """Record a fetched offset; -1: none."""
        self.counts["fetches"] += 1
        key = (group, place)
        self.stored[key] = max(self.stored[key], offset)
        if number >= 0:
            self.registers.complete(number, None if offset < 0 else _seen(offset, note))
        if offset > self.done_to(group, place):
            self.found.append(
                f"CommittedAhead: {offset} of {place} is committed in {group}, which has processed "
                f"up to {self.done_to(group, place)}"
            )


def key_of(group: str, place: Place) -> str:
    """Return the register's key for an offset of a group."""
    return f"{group}:{place[0]}-{place[1]}"


def _seen(offset: int, note: str) -> bytes:
    return f"{offset}:{note}".encode()


def _add(spans: list[tuple[int, int]], start: int, end: int) -> None:
    """Add [start, end) to disjoint spans, ascending."""
    kept = []
    for low, high in spans:
        if high < start or low > end:
            kept.append((low, high))
        else:
            start, end = min(start, low), max(end, high)
    kept.append((start, end))
    spans[:] = sorted(kept)
