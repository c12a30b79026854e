"""What members of groups asked and were told, in the order of virtual time. Judges nothing.

A *claim* is a partition that a member may work on: from when it was told so until it has given it
back, knows that it lost it, or dies. A member that falls silent is shut out, and others get what it
had while it may not know; so a claim counts only as long as the coordinator cannot have shut the
member out: its session, and the time that a rebalance may take, since what it asked last and had an
answer to. An answer proves all the time before it.
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
"""Clocks run fast by up to two in a hundred: so much of a span is certain."""


@dataclass(slots=True, eq=False)
class Claim:
    """A partition that a member may work on."""

    group: str
    who: str  # a life of a member
    place: Place
    epoch: int  # the member's, or its generation, when it was told
    began_ns: int
    ended_ns: int = FOREVER_NS  # given back, known to be lost, or its owner is dead
    proven_ns: int = -1  # the coordinator cannot have given it to others before

    @property
    def is_open(self) -> bool:
        """Whether its owner may work on it still, as far as that one knows."""
        return self.ended_ns == FOREVER_NS

    @property
    def until_ns(self) -> int:
        """Nobody else may have it before."""
        return min(self.ended_ns, self.proven_ns)

    def __str__(self) -> str:
        topic, index = self.place
        end = "..." if self.is_open else f"{self.ended_ns / 1e6:.3f}"
        return (
            f"{self.who} has {topic}-{index} in epoch {self.epoch}, {self.began_ns / 1e6:.3f} to "
            f"{end} ms, proven to {self.proven_ns / 1e6:.3f}"
        )


@dataclass(slots=True, eq=False)
class Life:
    """One life of a member: what it holds, and for how long that is sure."""

    chronicle: "Chronicle"
    group: str
    name: str
    session_ms: int
    rebalance_ms: int
    instance_id: str = ""
    member_id: str = ""
    epoch: int = -1  # the newest that it was told, -1: none
    is_over: bool = False
    claims: dict[Place, Claim] = field(default_factory=dict)  # open ones
    replaces: list["Life"] = field(default_factory=list)  # whose static name it is about to have
    is_coming: bool = False  # it asked for its static name, and was not told an id yet
    is_doubtful: bool = False  # another one asked for its static name since: it may be shut out
    _replaced_ns: int = -1  # from then on another one has its static name for sure
    _replaced_by: "Life | None" = None
    _alive_ns: int = -1  # it asked then, and was told that it is a member
    _settled_ns: int = -1  # the same, and nothing was asked of it
    _kept_ns: int = -1  # no coordinator may say before that it is no member

    def answered(self, asked_ns: int, *, is_settled: bool, is_stored: bool = True) -> None:
        """It asked at some time, and was taken for a member; `is_settled`: it was not asked to join
        again or to give anything back; `is_stored`: the next coordinator knows of that, too."""
        self.served(asked_ns)
        if is_stored and self.replaces:
            for life in self.replaces:
                life._replaced_ns, life._replaced_by = self.chronicle.now_ns(), self
            self.replaces = []
        self._alive_ns = max(self._alive_ns, asked_ns)
        if is_settled:
            self._settled_ns = max(self._settled_ns, asked_ns)
        if is_stored:
            self._kept_ns = max(self._kept_ns, self._until_ns())
        for claim in self.claims.values():
            self._prove(claim)

    def served(self, asked_ns: int) -> None:
        """It asked at some time, and that was taken from it: not so once another one has its static
        name."""
        if 0 <= self._replaced_ns < asked_ns:
            self.chronicle.found.append(
                f"TwinServed: {self.name} of {self.group} asks at {asked_ns / 1e6:.3f} ms and is "
                f"taken for {self.instance_id!r}, which another one is since "
                f"{self._replaced_ns / 1e6:.3f}"
            )

    def shut_out(self, asked_ns: int = -1) -> None:
        """It is told that it is no member: that may be only once it was silent for its session, or
        did not do in time what it was asked. `asked_ns`: when it asked what is answered so; whose
        static name another one has by then, who is a member still, is told that instead."""
        now_ns = self.chronicle.now_ns()
        younger = self._replaced_by
        if younger is not None and self._replaced_ns < asked_ns and now_ns < younger._kept_ns:
            self.chronicle.found.append(
                f"Unfenced: {self.name} of {self.group} asks at {asked_ns / 1e6:.3f} ms and is "
                f"told that it is no member; {younger.name} has its name {self.instance_id!r} "
                f"since {self._replaced_ns / 1e6:.3f}, and it is to end"
            )
        if now_ns < self._kept_ns:
            self.chronicle.found.append(
                f"ShutOut: {self.name} of {self.group} is told at {now_ns / 1e6:.3f} ms that it is "
                f"no member, and must be one until {self._kept_ns / 1e6:.3f}"
            )
        self.forget()

    def forget(self) -> None:
        """What it was told before counts no longer."""
        self._alive_ns = self._settled_ns = self._kept_ns = -1

    def _until_ns(self) -> int:
        session_ns = int(self.session_ms * NS_PER_MS * CLOCK_ERROR)
        rebalance_ns = int(self.rebalance_ms * NS_PER_MS * CLOCK_ERROR)
        return min(self._alive_ns + session_ns, self._settled_ns + rebalance_ns)

    def _prove(self, claim: Claim) -> None:
        claim.proven_ns = max(claim.proven_ns, self._until_ns(), self._alive_ns)

    def told(self, epoch: int, member_id: str = "") -> None:
        """It knows who it is."""
        self.epoch = epoch
        self.member_id = member_id or self.member_id
        self.is_coming = False

    def takes(self, places: Iterable[Place]) -> None:
        """It works on these from now on."""
        now_ns = self.chronicle.now_ns()
        for place in places:
            assert place not in self.claims, f"{self.name} has {place} already"
            claim = Claim(self.group, self.name, place, self.epoch, now_ns)
            if self.is_doubtful:
                claim.ended_ns = now_ns  # an answer of before that came late
            self.claims[place] = claim
            self.chronicle.claims.append(claim)
            self._prove(claim)

    def gives(self, places: Iterable[Place]) -> None:
        """It works on these no longer; nobody has heard of that yet."""
        now_ns = self.chronicle.now_ns()
        for place in places:
            claim = self.claims.pop(place, None)
            if claim is not None:
                claim.ended_ns = min(claim.ended_ns, now_ns)

    def gives_all(self) -> None:
        """It works on nothing any longer."""
        self.gives(list(self.claims))

    def ends(self) -> None:
        """It has left, or is dead."""
        self.gives_all()
        self.is_over = True


@dataclass(frozen=True, slots=True)
class Worked:
    """A member has done its work on some records of a partition."""

    group: str
    who: str
    place: Place
    start: int
    end: int  # the offset behind them
    at_ns: int


@dataclass(frozen=True, slots=True)
class Commitment:
    """A commit that was given to a coordinator."""

    number: int
    group: str
    who: str
    place: Place
    offset: int
    is_honest: bool  # False: it must be refused
    at_ns: int


@dataclass(slots=True)
class Chronicle:
    """Everything of a run; see the module."""

    now_ns: Callable[[], int]
    lives: list[Life] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    worked: list[Worked] = field(default_factory=list)
    commitments: dict[int, Commitment] = field(default_factory=dict)  # by number
    registers: Registers = field(default_factory=Registers)  # committed offsets, by group and place
    errors: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    unnoted: set[str] = field(default_factory=set)  # groups of which not every commit is told here
    found: list[str] = field(default_factory=list)  # what must not be, seen while it happened
    # Differs once a coordinator has read what is stored; None: one reads. Members of the classic
    # protocol are believed meanwhile, which proves nothing.
    loads: Callable[[], object] = lambda: ()
    stored: Counter[tuple[str, Place]] = field(default_factory=Counter)  # told of, the highest
    _done: dict[tuple[str, Place], list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def life(
        self, group: str, name: str, *, session_ms: int, rebalance_ms: int, instance_id: str = ""
    ) -> Life:
        """A member begins a life: what its name had before in another process is over."""
        number = sum(life.name.partition("/")[0] == name for life in self.lives) + 1
        life = Life(
            self,
            group,
            f"{name}/{number}",
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
            instance_id=instance_id,
        )
        self.lives.append(life)
        return life

    def dies(self, name: str) -> None:
        """The process of a member is dead: it works on nothing."""
        for life in self.lives:
            if life.name.partition("/")[0] == name and not life.is_over:
                life.ends()

    def comes_again(self, group: str, instance_id: str, newcomer: Life) -> None:
        """A static member asks to take its name's place: whoever had it may be shut out from now
        on, without hearing of it."""
        now_ns = self.now_ns()
        newcomer.replaces = []
        newcomer.is_coming, newcomer.is_doubtful = True, False
        newcomer._replaced_ns, newcomer._replaced_by = -1, None
        for life in self.lives:
            if life is newcomer or (life.group, life.instance_id) != (group, instance_id):
                continue
            for claim in life.claims.values():
                claim.ended_ns = min(claim.ended_ns, now_ns)  # it works on: it may be one still
            life.is_doubtful = True
            life.forget()
            if newcomer in life.replaces:
                life.replaces.remove(newcomer)  # nobody knows who of the two comes last
            if life.member_id and not life.is_coming and not life.is_over:
                newcomer.replaces.append(life)

    # --- work ----------------------------------------------------------------------------------

    def works(self, life: Life, place: Place, start: int, end: int) -> None:
        """A member has done its work on [start, end) of a partition."""
        if start > (done_to := self.done_to(life.group, place)):
            self.found.append(
                f"PassedOver: {life.name} works on {place} from {start} on, and its group has "
                f"worked up to {done_to}"
            )
        self.worked.append(Worked(life.group, life.name, place, start, end, self.now_ns()))
        _add(self._done[life.group, place], start, end)

    def done_to(self, group: str, place: Place) -> int:
        """The first offset that no member of the group has worked on yet."""
        spans = self._done[group, place]
        return spans[0][1] if spans and spans[0][0] == 0 else 0

    # --- offsets -------------------------------------------------------------------------------

    def commits(
        self, group: str, who: str, place: Place, offset: int, *, is_honest: bool = True
    ) -> tuple[int, str]:
        """A commit is sent: returns its number, and the note that it carries."""
        note = f"c{len(self.commitments) + 1}"
        number = self.registers.invoke(who, key_of(group, place), Write(_seen(offset, note)))
        self.commitments[number] = Commitment(
            number, group, who, place, offset, is_honest, self.now_ns()
        )
        if not is_honest:
            self.registers.fail(number)
        elif offset > self.done_to(group, place):
            self.found.append(
                f"CommittedAhead: {who} commits {offset} of {place}, the group has worked up to "
                f"{self.done_to(group, place)}"
            )
        return number, note

    def committed(self, number: int) -> None:
        """The coordinator has said that a commit is stored."""
        commit = self.commitments[number]
        self.counts["commits"] += 1
        if commit.is_honest:
            self.registers.complete(number, DONE)
            key = (commit.group, commit.place)
            self.stored[key] = max(self.stored[key], commit.offset)
        else:
            self.found.append(
                f"FencedCommitTaken: {commit.who} was no member any more, or lied, and its commit "
                f"of {commit.place} was taken"
            )

    def refused(self, number: int) -> None:
        """The coordinator has refused a commit for good."""
        if self.commitments[number].is_honest:
            self.registers.fail(number)

    def asks(self, group: str, who: str, place: Place) -> int:
        """Somebody asks what is committed."""
        if group in self.unnoted:
            return -1
        return self.registers.invoke(who, key_of(group, place), Read())

    def hears(self, number: int, group: str, place: Place, offset: int, note: str) -> None:
        """The coordinator has said what is committed; -1: nothing."""
        self.counts["fetches"] += 1
        key = (group, place)
        self.stored[key] = max(self.stored[key], offset)
        if number >= 0:
            self.registers.complete(number, None if offset < 0 else _seen(offset, note))
        if offset > self.done_to(group, place):
            self.found.append(
                f"CommittedAhead: {offset} of {place} is committed in {group}, which has worked up "
                f"to {self.done_to(group, place)}"
            )


def key_of(group: str, place: Place) -> str:
    """How registers name the offset of a group in a partition."""
    return f"{group}:{place[0]}-{place[1]}"


def _seen(offset: int, note: str) -> bytes:
    return f"{offset}:{note}".encode()


def _add(spans: list[tuple[int, int]], start: int, end: int) -> None:
    """Put [start, end) into disjoint spans, ascending."""
    kept = []
    for low, high in spans:
        if high < start or low > end:
            kept.append((low, high))
        else:
            start, end = min(start, low), max(end, high)
    kept.append((start, end))
    spans[:] = sorted(kept)
