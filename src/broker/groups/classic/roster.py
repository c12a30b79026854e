"""Who is in a classic group: members, static names, ids given out, and what all of them share.

Every step is O(1) in the number of members, but those that say so.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from ....errors import FencedInstance, InconsistentGroupProtocol, UnknownMember
from ..consumer_protocol import PROTOCOL_TYPE
from ..decision import Ticket
from .member import Member
from .subscription import topics_of

NOTHING_SUBSCRIBED: Final[frozenset[str]] = frozenset()


class Roster:
    """The members in the order of their coming, and counts over them that are kept as they change.

    `pending`: ids that were given out and have not joined with yet (KIP-394).
    """

    __slots__ = (
        "_instances", "_offers", "_topics", "brought_bytes", "members", "pending", "protocol_type",
        "waiting_count",
    )  # fmt: skip

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.pending: dict[str, None] = {}
        self.protocol_type = ""  # stays when the last member has gone
        self.waiting_count = 0  # members whose join is not answered
        self.brought_bytes = 0  # what all of them want and are called, about as it is stored
        self._instances: dict[str, str] = {}  # static name: member id
        self._offers: dict[str, int] = {}  # protocol: how many members have it
        self._topics: tuple[str | None, frozenset[str] | None] | None = None  # as last found

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    # --- finding ----------------------------------------------------------------------------------

    def by_instance(self, instance_id: str | None) -> Member | None:
        """Whoever has a static name now."""
        if instance_id is None:
            return None
        member_id = self._instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def find(self, group: str, member_id: str, instance_id: str | None) -> Member:
        """The member that a request speaks for.

        Raises: UnknownMember, FencedInstance (another id has taken its static name over).
        """
        if instance_id is not None:
            owner = self._instances.get(instance_id)
            if owner is not None and owner != member_id:
                raise FencedInstance(
                    f"group {group!r}: static member {instance_id!r} is {owner!r} now, not"
                    f" {member_id!r}; end this one"
                )
            if owner is None:
                raise UnknownMember(
                    f"group {group!r} has no static member {instance_id!r}; join without member id"
                )
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(
                f"group {group!r} has no member {member_id!r}; join again without member id"
            )
        return member

    @property
    def are_all_waiting(self) -> bool:
        """Every member has joined, and nobody is about to."""
        return self.waiting_count == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members' times to join again; O(members)."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    # --- changing ---------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        """A member comes."""
        assert member.member_id not in self.members, f"{member.member_id!r} is a member"
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type, f"{protocol_type!r} in {self.protocol_type!r}"
        if member.instance_id is not None:
            assert member.instance_id not in self._instances, f"two {member.instance_id!r}"
            self._instances[member.instance_id] = member.member_id
        self.pending.pop(member.member_id, None)
        self.members[member.member_id] = member
        self._count(member, 1)

    def remove(self, member: Member) -> None:
        """A member goes; nobody waits for it any more."""
        assert member.joining is None, f"the join of {member.member_id!r} is not answered"
        assert member.syncing is None, f"the sync of {member.member_id!r} is not answered"
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._count(member, -1)

    def offer(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """A member has other protocols than before."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def wait(self, member: Member, ticket: Ticket) -> None:
        """A member's join waits for the others."""
        assert member.joining is None, f"{member.member_id!r} joins twice"
        member.joining = ticket
        self.waiting_count += 1

    def answered(self, member: Member) -> Ticket:
        """Its join waits no longer."""
        ticket = member.joining
        assert ticket is not None, f"{member.member_id!r} does not join"
        member.joining = None
        self.waiting_count -= 1
        return ticket

    def _count(self, member: Member, step: int) -> None:
        self._topics = None
        self.brought_bytes += step * member.brought_bytes
        for name, _ in member.protocols:
            count = self._offers.get(name, 0) + step
            if count:
                self._offers[name] = count
            else:
                del self._offers[name]

    # --- what they share --------------------------------------------------------------------------

    def check_protocols(self, group: str, protocol_type: str, names: Iterable[str]) -> None:
        """Raises InconsistentGroupProtocol where someone with these could not be of the group."""
        offered = list(names)
        if not protocol_type or not offered:
            raise InconsistentGroupProtocol(
                f"group {group!r}: a member names a kind of protocol and at least one strategy"
            )
        if not self.members:
            return
        if protocol_type != self.protocol_type:
            raise InconsistentGroupProtocol(
                f"group {group!r} is of kind {self.protocol_type!r}, the member of"
                f" {protocol_type!r}; take another group"
            )
        count = len(self.members)
        if not any(self._offers.get(name) == count for name in offered):
            shared = sorted(name for name, having in self._offers.items() if having == count)
            raise InconsistentGroupProtocol(
                f"group {group!r}: all members have {', '.join(shared)}, this one has"
                f" {', '.join(offered)}; give it one of theirs too"
            )

    def choose_protocol(self) -> str:
        """The one most wanted of those that all have; equal votes: the earlier member's. O(n)."""
        count = len(self.members)
        candidates = {name for name, having in self._offers.items() if having == count}
        assert candidates, "members without a common protocol"
        votes: dict[str, int] = {}
        for member in self:
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def topics(self, protocol: str | None) -> frozenset[str] | None:
        """What the members subscribe to; None: not to be known. O(members) after a change."""
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
        }  # mostly few different ones; only united, so that their order does not count
        for content in contents:
            topics = topics_of(content)
            if topics is None:
                return None
            found |= topics
        return frozenset(found)

    def check_invariants(self) -> None:
        """The counts are those of the members; O(members x protocols)."""
        offers: dict[str, int] = {}
        for member in self:
            assert member.protocols, f"{member.member_id!r} has no protocol"
            for name, _ in member.protocols:
                offers[name] = offers.get(name, 0) + 1
        assert offers == self._offers, f"{offers} counted, {self._offers} kept"
        instances = {m.instance_id: m.member_id for m in self if m.instance_id is not None}
        assert instances == self._instances, f"{instances} found, {self._instances} kept"
        brought = sum(member.brought_bytes for member in self)
        assert brought == self.brought_bytes, f"{brought} bytes, {self.brought_bytes} counted"
        waiting = sum(1 for member in self if member.joining is not None)
        assert waiting == self.waiting_count, f"{waiting} wait, {self.waiting_count} counted"
        assert not self.pending.keys() & self.members.keys(), "pending and a member"
        assert all(name == m.member_id for name, m in self.members.items()), "filed wrongly"
