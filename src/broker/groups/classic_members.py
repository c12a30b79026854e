"""The members of a classic group: instance ids, pending ids, and the protocols that all support.

Each step is O(1) in the number of members, unless its docstring gives a cost.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ...errors import FencedInstance, InconsistentGroupProtocol, UnknownMember
from ..coordinator.decision import Ticket
from .consumer_protocol import PROTOCOL_TYPE, EntryBudget, topics_of
from .member_bytes import text_bytes
from .records import StoredMember
from .requests import JoinGroup, MemberDescription


class ClassicGroupState(Enum):
    """The state of a classic group; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"  # members join
    COMPLETING = "CompletingRebalance"  # members have joined; the leader assigns
    STABLE = "Stable"
    DEAD = "Dead"


PREVIOUS_STATES: Final[Mapping[ClassicGroupState, frozenset[ClassicGroupState]]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING}),
    ClassicGroupState.PREPARING: frozenset(
        {ClassicGroupState.EMPTY, ClassicGroupState.COMPLETING, ClassicGroupState.STABLE}
    ),
    ClassicGroupState.COMPLETING: frozenset({ClassicGroupState.PREPARING}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.COMPLETING}),
    ClassicGroupState.DEAD: frozenset(
        {
            ClassicGroupState.EMPTY,
            ClassicGroupState.PREPARING,
            ClassicGroupState.COMPLETING,
            ClassicGroupState.STABLE,
        }
    ),
}


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    """A member of a classic group; only `Roster` changes `protocols`."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # each name once, most preferred first
    assignment: bytes = b""  # of the last generation that was synced
    joining: Ticket | None = None  # its waiting join
    syncing: Ticket | None = None  # its waiting sync
    is_new: bool = False  # it has not been in a generation yet

    @property
    def stored_bytes(self) -> int:
        """The approximate stored size of its names and subscriptions."""
        names = [self.member_id, self.instance_id or "", self.client_id, self.client_host]
        names += [name for name, _ in self.protocols]
        return text_bytes(names) + sum(len(content) for _, content in self.protocols)

    def subscription(self, protocol: str | None) -> bytes:
        """Return the subscription sent for a protocol, or no bytes."""
        return next((content for name, content in self.protocols if name == protocol), b"")

    def vote(self, candidates: Container[str]) -> str:
        """Return the most preferred of the candidates; at least one is supported."""
        return next(name for name, _ in self.protocols if name in candidates)

    def stored(self, protocol: str | None) -> StoredMember:
        """Return the member's part of a generation's record."""
        return StoredMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.subscription(protocol),
            assignment=self.assignment,
        )

    def description(
        self, protocol: str | None, silent_ms: int, *, with_assignment: bool
    ) -> MemberDescription:
        """Return the member's description."""
        return MemberDescription(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            silent_ms=silent_ms,
            subscription=self.subscription(protocol),
            assignment=self.assignment if with_assignment else b"",
        )


def new_member(member_id: str, request: JoinGroup) -> ClassicMember:
    """Return the new member of a join request."""
    return ClassicMember(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=unique_protocols(request.protocols),
        is_new=True,
    )


def rebalance_timeout_ms(request: JoinGroup) -> int:
    """Return the rebalance timeout; version 0 of the request has none, so the session timeout."""
    given = request.rebalance_timeout_ms
    return given if given > 0 else request.session_timeout_ms


def unique_protocols(protocols: tuple[tuple[str, bytes], ...]) -> tuple[tuple[str, bytes], ...]:
    """Return the protocols without duplicate names; the first one counts."""
    first: dict[str, bytes] = {}
    for name, content in protocols:
        first.setdefault(name, content)
    return tuple(first.items())


def stored_member(
    stored: StoredMember, protocol: str | None, protocols: tuple[tuple[str, bytes], ...] | None
) -> ClassicMember:
    """Return the member of a stored record; `protocols`: all that it supports, if known."""
    if protocols is None:
        protocols = ((protocol or "", stored.subscription),)
    waits_ms = stored.rebalance_timeout_ms
    return ClassicMember(
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=waits_ms if waits_ms > 0 else stored.session_timeout_ms,
        session_timeout_ms=stored.session_timeout_ms,
        protocols=unique_protocols(protocols),
        assignment=stored.assignment,
    )


NOTHING_SUBSCRIBED: Final[frozenset[str]] = frozenset()


class PendingMemberIds:
    """Issued member ids that have not joined yet (KIP-394), with their size."""

    __slots__ = ("_ids", "size")

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}
        self.size = 0

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, member_id: str) -> None:
        """Add an issued id."""
        self.discard(member_id)
        self._ids[member_id] = None
        self.size += text_bytes((member_id,))

    def discard(self, member_id: str) -> None:
        """Remove an id, if it is pending."""
        if member_id in self._ids:
            del self._ids[member_id]
            self.size -= text_bytes((member_id,))


class Roster:
    """The members in order of arrival, with aggregates that are updated with each change."""

    __slots__ = (
        "_instances", "_supporters", "_topics", "assigned_bytes", "is_downgraded", "members",
        "pending", "protocol_type", "stored_bytes", "waiting_count",
    )  # fmt: skip

    def __init__(self) -> None:
        self.members: dict[str, ClassicMember] = {}
        self.pending = PendingMemberIds()
        self.protocol_type = ""  # kept when the last member has left
        self.waiting_count = 0  # members with a waiting join
        self.stored_bytes = 0  # approximate stored size of all members
        self.assigned_bytes = 0  # of all assignments
        self.is_downgraded = False  # the assignments are those of a KIP-848 group
        self._instances: dict[str, str] = {}  # member id by instance id
        self._supporters: dict[str, int] = {}  # number of members by protocol
        self._topics: tuple[str | None, frozenset[str] | None] | None = None  # cache of `topics`

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(self.members.values())

    # --- lookup -----------------------------------------------------------------------------------

    def by_instance(self, instance_id: str | None) -> ClassicMember | None:
        """Return the member with an instance id, or None."""
        if instance_id is None:
            return None
        member_id = self._instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def find(self, group: str, member_id: str, instance_id: str | None) -> ClassicMember:
        """Return the member that sent a request.

        Raises: UnknownMember, FencedInstance (another member id has taken over the instance id).
        """
        if instance_id is not None:
            owner = self._instances.get(instance_id)
            if owner is not None and owner != member_id:
                raise FencedInstance(
                    f"group {group!r}: static member {instance_id!r} is {owner!r} now, not"
                    f" {member_id!r}; stop this instance"
                )
            if owner is None:
                raise UnknownMember(
                    f"group {group!r}: no static member {instance_id!r}; join without a member id"
                )
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(
                f"group {group!r}: no member {member_id!r}; join again without a member id"
            )
        return member

    @property
    def all_joined(self) -> bool:
        """True if every member has a waiting join and no member id is pending."""
        return self.waiting_count == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members; O(members)."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    # --- changes ----------------------------------------------------------------------------------

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Add a member."""
        assert member.member_id not in self.members, f"{member.member_id!r} is a member already"
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type, (
            f"{protocol_type!r} in a group of {self.protocol_type!r}"
        )
        if member.instance_id is not None:
            assert member.instance_id not in self._instances, (
                f"instance id {member.instance_id!r} is taken"
            )
            self._instances[member.instance_id] = member.member_id
        self.pending.discard(member.member_id)
        self.members[member.member_id] = member
        self._count(member, 1)

    def remove(self, member: ClassicMember) -> None:
        """Remove a member; its join and sync must have been answered."""
        assert member.joining is None, f"the join of {member.member_id!r} is not answered"
        assert member.syncing is None, f"the sync of {member.member_id!r} is not answered"
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._count(member, -1)

    def set_protocols(
        self, member: ClassicMember, protocols: tuple[tuple[str, bytes], ...]
    ) -> None:
        """Replace a member's protocols."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Set the assignments of all members, by member id."""
        self.is_downgraded = False
        for member in self:
            member.assignment = assignments.get(member.member_id, b"")
        self.assigned_bytes = sum(len(member.assignment) for member in self)

    def wait(self, member: ClassicMember, ticket: Ticket) -> None:
        """Record the waiting join of a member."""
        assert member.joining is None, f"{member.member_id!r} joins twice"
        member.joining = ticket
        self.waiting_count += 1

    def pop_join(self, member: ClassicMember) -> Ticket:
        """End the wait of a member's join; return its ticket."""
        ticket = member.joining
        assert ticket is not None, f"{member.member_id!r} does not join"
        member.joining = None
        self.waiting_count -= 1
        return ticket

    def _count(self, member: ClassicMember, step: int) -> None:
        self._topics = None
        self.stored_bytes += step * member.stored_bytes
        self.assigned_bytes += step * len(member.assignment)
        for name, _ in member.protocols:
            count = self._supporters.get(name, 0) + step
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]

    # --- common protocols and topics --------------------------------------------------------------

    def check_protocols(self, group: str, protocol_type: str, names: Iterable[str]) -> None:
        """Raise InconsistentGroupProtocol if a member with these protocols cannot join."""
        offered = list(names)
        if not protocol_type or not offered:
            raise InconsistentGroupProtocol(
                f"group {group!r}: the join has no protocol type or no protocol; send a protocol"
                " type and at least one protocol"
            )
        if not self.members:
            return
        if protocol_type != self.protocol_type:
            raise InconsistentGroupProtocol(
                f"group {group!r}: its protocol type is {self.protocol_type!r}, the member's is"
                f" {protocol_type!r}; use another group"
            )
        count = len(self.members)
        if not any(self._supporters.get(name) == count for name in offered):
            shared = sorted(name for name, having in self._supporters.items() if having == count)
            raise InconsistentGroupProtocol(
                f"group {group!r}: no common protocol; all members support {', '.join(shared)},"
                f" this one {', '.join(offered)}; add one of the group's"
            )

    def choose_protocol(self) -> str:
        """Return the protocol with the most votes of those that all support; a tie goes to the
        earlier member's vote. O(members)."""
        count = len(self.members)
        candidates = {name for name, having in self._supporters.items() if having == count}
        assert candidates, "members without a common protocol"
        votes: dict[str, int] = {}
        for member in self:
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def topics(self, protocol: str | None) -> frozenset[str] | None:
        """Return the subscribed topics, or None if unknown. O(members) after a change."""
        if self._topics is None or self._topics[0] != protocol:
            self._topics = protocol, self._read_topics(protocol)
        return self._topics[1]

    def _read_topics(self, protocol: str | None) -> frozenset[str] | None:
        if not self.members:
            return NOTHING_SUBSCRIBED
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        found: set[str] = set()
        contents = {
            member.subscription(protocol) or member.protocols[0][1] for member in self
        }  # few distinct ones; their order does not matter, since they are only united
        budget = EntryBudget()
        for content in contents:
            topics = topics_of(content, budget)
            if topics is None:
                return None
            found |= topics
        return frozenset(found)

    def check_invariants(self) -> None:
        """Assert that the aggregates match the members; O(members x protocols)."""
        offers: dict[str, int] = {}
        for member in self:
            assert member.protocols, f"{member.member_id!r} has no protocol"
            for name, _ in member.protocols:
                offers[name] = offers.get(name, 0) + 1
        assert offers == self._supporters, f"{offers} counted, {self._supporters} kept"
        instances = {m.instance_id: m.member_id for m in self if m.instance_id is not None}
        assert instances == self._instances, f"{instances} found, {self._instances} kept"
        brought = sum(member.stored_bytes for member in self)
        assert brought == self.stored_bytes, f"{brought} bytes, {self.stored_bytes} counted"
        assigned = sum(len(member.assignment) for member in self)
        assert assigned == self.assigned_bytes, f"{assigned}, {self.assigned_bytes} counted"
        issued = sum(text_bytes((member_id,)) for member_id in self.pending)
        assert issued == self.pending.size, f"{issued} pending, {self.pending.size} counted"
        waiting = sum(1 for member in self if member.joining is not None)
        assert waiting == self.waiting_count, f"{waiting} wait, {self.waiting_count} counted"
        assert not self.members.keys() & set(self.pending), "pending and a member"
        assert all(name == m.member_id for name, m in self.members.items()), "filed wrongly"
