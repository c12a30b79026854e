"""A model of one classic group, by the rules of Kafka's protocol (KIP-62, 134, 345, 394, 559, 814).

The model has no timers: it keeps what happened, and a deadline is a time after that. It predicts
the reply of each request and of each deadline, and the description of the group. Members that are
removed, fenced or not awaited any more follow from these rules:

- A member is removed when its session has passed since its last answered request, and not before.
  Its session is suspended while its join or sync waits.
- A join waits until every member has joined and every issued id has been used, or for the longest
  rebalance timeout. The first join of an empty group waits for the initial delay, and again while
  members arrive.
- A sync waits for the leader's. A member that has not synced within the longest rebalance timeout
  is removed.
- A generation is stored when its leader syncs; an earlier one is lost with the coordinator.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from quorumlog.broker.coordinator.decision import Ticket
from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.consumer_protocol import decode_subscription
from quorumlog.broker.groups.requests import (
    ClassicHeartbeat,
    CommitOffsets,
    CommitTransactionalOffsets,
    GroupDescription,
    Joined,
    JoinedMember,
    JoinGroup,
    LeaveGroup,
    Left,
    ListedGroup,
    MemberDescription,
    Synced,
    SyncGroup,
)

from .replies import Replies, plain

UNJOINED_MS: Final = 300_000  # of a member that has been in no generation; as in Kafka
JOIN_AGAIN_MS: Final = 1_000  # at least, of a join phase that no member has joined

EMPTY, PREPARING, COMPLETING, STABLE = (
    *("Empty", "PreparingRebalance", "CompletingRebalance", "Stable"),
)


class Refused(Exception):
    """A request is refused; the name of the error's class."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(slots=True, kw_only=True)
class ModelMember:
    """A member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocols: dict[str, bytes]
    since_ms: int = 0  # of its session
    assignment: bytes = b""
    joining: Ticket | None = None
    syncing: Ticket | None = None
    is_new: bool = False  # it has been in no generation
    is_unsynced: bool = False  # it is in the generation, and is to sync

    @property
    def is_waiting(self) -> bool:
        """True while its join or sync waits."""
        return self.joining is not None or self.syncing is not None

    @property
    def end_ms(self) -> int | None:
        """The end of its session; None while that is suspended."""
        if self.joining is not None and self.is_new:
            return self.since_ms + UNJOINED_MS
        return None if self.is_waiting else self.since_ms + self.session_ms


@dataclass(slots=True)
class ClassicModel:
    """A group; `is_present` is False before the first request and after the deletion."""

    group: str
    config: GroupConfig
    members: dict[str, ModelMember] = field(default_factory=dict)  # in the order of arrival
    issued: dict[str, int] = field(default_factory=dict)  # ids without a member: their end
    state: str = EMPTY
    state_ms: int = -1
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    join_end_ms: int | None = None
    first_ms: int | None = None  # the start of the first join phase of an empty group
    has_grown: bool = False
    sync_end_ms: int | None = None
    stored: "ClassicModel | None" = None  # the last stored generation
    hides_assignments: bool = False  # they are those of a group of KIP-848
    replies: Replies = field(default_factory=dict)

    # --- requests ---------------------------------------------------------------------------------

    def handle(self, ticket: Ticket, request: Any, now_ms: int, new_id: str) -> None:
        """Apply a request of a member; `new_id` is the end of the next new member id."""
        try:
            match request:
                case JoinGroup():
                    self._join(ticket, request, now_ms, new_id)
                case SyncGroup():
                    self._sync(ticket, request, now_ms)
                case ClassicHeartbeat():
                    self._heartbeat(ticket, request, now_ms)
                case LeaveGroup():
                    self._leave(ticket, request, now_ms)
                case _:
                    raise AssertionError(f"{request} is not of a member")
        except Refused as refused:
            self.replies[ticket] = refused.name

    def _join(self, ticket: Ticket, request: JoinGroup, now_ms: int, new_id: str) -> None:
        config = self.config
        lengths_ms = config.session_timeout_min_ms, config.session_timeout_max_ms
        if not lengths_ms[0] <= request.session_timeout_ms <= lengths_ms[1]:
            raise Refused("InvalidSessionTimeout")
        self._check_size(request, now_ms)
        self._check_protocols(request)
        static = self._static(request.instance_id)
        if request.member_id:
            if request.member_id in self.issued and request.instance_id is None:
                self._add(request.member_id, ticket, request, now_ms)
            else:
                self._rejoin(self._find(request), ticket, request, now_ms)
            return
        member_id = f"{request.instance_id or request.client_id}-{new_id}"
        if static is not None:
            self._return(static, member_id, ticket, request, now_ms)
        elif request.instance_id is None and request.takes_member_id_first:
            if len(self.issued) >= config.size_max:
                raise Refused("GroupFull")
            self.issued[member_id] = now_ms + request.session_timeout_ms
            self._reply(ticket, Joined(member_id=member_id, is_member_id_required=True))
        else:
            self._add(member_id, ticket, request, now_ms)

    def _check_size(self, request: JoinGroup, now_ms: int) -> None:
        """A member of the group has a place; during a join phase only one that has joined."""
        known = self.members.get(request.member_id)
        if known is None and not request.member_id:
            known = self._static(request.instance_id)
        size_max = self.config.size_max
        if self.state == PREPARING:
            joined = sum(each.joining is not None for each in self.members.values())
            has_place = joined < size_max or (known is not None and known.joining is not None)
        else:
            has_place = known is not None or len(self.members) < size_max
        if has_place:
            return
        if known is not None:
            self._remove(known)
            self._continue(now_ms, lost=True)
        elif request.member_id in self.issued:
            del self.issued[request.member_id]
            self._continue(now_ms, lost=False)
        raise Refused("GroupFull")

    def _check_protocols(self, request: JoinGroup) -> None:
        names = {name for name, _ in request.protocols}
        if not request.protocol_type or not names:
            raise Refused("InconsistentGroupProtocol")
        if not self.members:
            return
        common = set.intersection(names, *(set(each.protocols) for each in self.members.values()))
        if request.protocol_type != self.protocol_type or not common:
            raise Refused("InconsistentGroupProtocol")

    def _add(self, member_id: str, ticket: Ticket, request: JoinGroup, now_ms: int) -> None:
        self.issued.pop(member_id, None)
        if not self.members:
            self.protocol_type = request.protocol_type
        member = self.members[member_id] = _member(member_id, request, is_new=True)
        self.has_grown = True
        self._wait(member, ticket, now_ms)

    def _rejoin(self, member: ModelMember, ticket: Ticket, request: JoinGroup, now_ms: int) -> None:
        protocols = _protocols(request)
        if (
            self.state == PREPARING
            or list(protocols.items()) != list(member.protocols.items())
            or (self.state == STABLE and member.member_id == self.leader)
        ):
            member.protocols = protocols
            member.session_ms = request.session_timeout_ms
            member.rebalance_ms = _rebalance_ms(request)
            self._wait(member, ticket, now_ms)
            return
        self._reply(ticket, self._joined(member))
        member.since_ms = now_ms

    def _return(
        self, old: ModelMember, member_id: str, ticket: Ticket, request: JoinGroup, now_ms: int
    ) -> None:
        """A static member joins without its id: it replaces the earlier instance, with its
        assignment, and without a rebalance if the subscription is the same."""
        for waiting in (old.joining, old.syncing):
            if waiting is not None:
                self.replies[waiting] = "FencedInstance"
        was_leader = self.leader == old.member_id
        del self.members[old.member_id]
        member = self.members[member_id] = _member(member_id, request, is_new=False)
        member.assignment, member.since_ms = old.assignment, now_ms
        member.is_unsynced = old.is_unsynced
        if was_leader:
            self.leader = member_id
        is_same = self.state == STABLE and self._chosen() == self.protocol
        if is_same and self.protocol_type == "consumer":
            assert self.protocol is not None, "a stable group without a protocol"
            had = old.protocols.get(self.protocol, b"")
            is_same = _topics(member.protocols[self.protocol]) == _topics(had)
        if not is_same:
            self._wait(member, ticket, now_ms)
            return
        self.store()
        joined = self._joined(member)
        if not was_leader:
            self._reply(ticket, joined)
        elif request.can_skip_assignment:
            name, parts = plain(joined)
            self.replies[ticket] = (name, parts | {"skip_assignment": True})
        else:  # another leader is named, so that this member does not assign
            name, parts = plain(joined)
            self.replies[ticket] = (name, parts | {"leader": old.member_id, "members": ()})

    def _sync(self, ticket: Ticket, request: SyncGroup, now_ms: int) -> None:
        member = self._find(request)
        self._check_generation(request.generation)
        if request.protocol_type not in (None, self.protocol_type):
            raise Refused("InconsistentGroupProtocol")
        if request.protocol not in (None, self.protocol):
            raise Refused("InconsistentGroupProtocol")
        if self.state == PREPARING:
            raise Refused("RebalanceInProgress")
        member.is_unsynced = False
        if self.state == STABLE:
            self._reply(ticket, self._synced(member))
            member.since_ms = now_ms
            return
        if member.syncing is not None:
            self.replies[member.syncing] = "RebalanceInProgress"
        member.syncing = ticket
        if member.member_id != self.leader:
            return
        self._become(STABLE, now_ms)
        self.hides_assignments = False
        for each in self.members.values():
            each.assignment = request.assignments.get(each.member_id, b"")
            if each.syncing is not None:
                self._reply(each.syncing, self._synced(each))
                each.syncing, each.since_ms = None, now_ms
        self.store()

    def _heartbeat(self, ticket: Ticket, request: ClassicHeartbeat, now_ms: int) -> None:
        member = self._find(request)
        self._check_generation(request.generation)
        self._touch(member, now_ms)
        if self.state == PREPARING:
            raise Refused("RebalanceInProgress")
        self.replies[ticket] = None

    def _leave(self, ticket: Ticket, request: LeaveGroup, now_ms: int) -> None:
        errors: list[str | None] = []
        lost = False
        for leaver in request.leavers:
            try:
                if leaver.member_id in self.issued:
                    del self.issued[leaver.member_id]
                else:
                    static = None if leaver.member_id else self._static(leaver.instance_id)
                    self._remove(static or self._find(leaver))
                    lost = True
                errors.append(None)
            except Refused as refused:
                errors.append(refused.name)
        if None in errors:
            self._continue(now_ms, lost=lost)
        name, _ = plain(Left(errors=()))
        self.replies[ticket] = (name, {"errors": tuple(errors)})

    def check_commit(self, request: CommitOffsets, now_ms: int) -> None:
        """Raise Refused for a commit that the group must not accept; a commit of a member restarts
        its session."""
        is_transactional = isinstance(request, CommitTransactionalOffsets)
        is_outside = not request.member_id and request.instance_id is None
        if request.generation < 0 and (self.state == EMPTY or (is_outside and is_transactional)):
            return
        if request.generation < 0 and is_outside:
            raise Refused("UnknownMember")
        member = self._find(request)
        self._check_generation(request.generation)
        if self.state == COMPLETING and not is_transactional:
            raise Refused("RebalanceInProgress")
        if not is_transactional:
            self._touch(member, now_ms)

    # --- time -------------------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """Return the next time at which something ends, or None."""
        ends = [each.end_ms for each in self.members.values()]
        found = [*ends, *self.issued.values(), self.join_end_ms, self.sync_end_ms]
        return min((each for each in found if each is not None), default=None)

    def expire(self, now_ms: int) -> None:
        """Apply what has ended by now."""
        late = [
            each
            for each in self.members.values()
            if each.end_ms is not None and each.end_ms <= now_ms
        ]
        unused = [name for name, end_ms in self.issued.items() if end_ms <= now_ms]
        for name in unused:
            del self.issued[name]
        for each in late:
            self._remove(each)
        if self.sync_end_ms is not None and self.sync_end_ms <= now_ms:
            self.sync_end_ms = None
            for each in [one for one in self.members.values() if one.is_unsynced]:
                self._remove(each)
                late.append(each)
        if late or unused:
            self._continue(now_ms, lost=bool(late))
        if self.join_end_ms is not None and self.join_end_ms <= now_ms:
            self._end_join(now_ms)

    def restart(self, now_ms: int) -> None:
        """Restart every session and timeout: requests were refused for a while."""
        for each in self.members.values():
            self._touch(each, now_ms)
        longest_ms = now_ms + self._longest_ms()
        if self.sync_end_ms is not None:
            self.sync_end_ms = longest_ms
        if self.join_end_ms is not None and self.first_ms is None:
            self.join_end_ms = max(self.join_end_ms, longest_ms)

    def loaded(self, now_ms: int) -> "ClassicModel":
        """Return the group as the next coordinator has it."""
        found = ClassicModel(self.group, self.config)
        if self.stored is None:
            return found
        found = deepcopy(self.stored)
        found.stored, found.replies = self.stored, {}
        found.issued, found.join_end_ms, found.first_ms = {}, None, None
        found.sync_end_ms = None
        found.state = STABLE if found.members else EMPTY
        for each in found.members.values():
            each.joining = each.syncing = None
            each.is_new = each.is_unsynced = False
            each.since_ms = now_ms
            assert found.protocol is not None, "a stored generation without a protocol"
            each.protocols = {found.protocol: each.protocols.get(found.protocol, b"")}
        if len(found.members) > found.config.size_max:
            found._start(now_ms)
        return found

    # --- descriptions -----------------------------------------------------------------------------

    def describe(self, now_ms: int) -> Any:
        """Return the expected description."""
        is_stable = self.state == STABLE
        protocol = self.protocol if is_stable else None
        return plain(
            GroupDescription(
                group=self.group,
                is_classic=True,
                state=self.state,
                protocol_type=self.protocol_type,
                protocol=protocol or "",
                generation=self.generation,
                members=tuple(
                    MemberDescription(
                        member_id=each.member_id,
                        instance_id=each.instance_id,
                        client_id=each.client_id,
                        client_host=each.client_host,
                        silent_ms=0 if each.is_waiting else now_ms - each.since_ms,
                        subscription=each.protocols.get(protocol, b"") if protocol else b"",
                        assignment=b"" if self.hides_assignments else each.assignment,
                    )
                    for each in self.members.values()
                ),
            )
        )

    def listing(self) -> Any:
        """Return the expected entry in the list of groups."""
        return plain(
            ListedGroup(
                group=self.group,
                is_classic=True,
                state=self.state,
                protocol_type=self.protocol_type,
            )
        )

    @property
    def is_blank(self) -> bool:
        """True if nothing is left of the group but its offsets."""
        return not (self.members or self.issued or self.generation)

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics of all members; None: unknown."""
        found: frozenset[str] = frozenset()
        for each in self.members.values():
            chosen = each.protocols.get(self.protocol or "") or next(iter(each.protocols.values()))
            topics = _topics(chosen)
            if topics is None or self.protocol_type != "consumer":
                return None
            found |= topics
        return found

    # --- steps ------------------------------------------------------------------------------------

    def _wait(self, member: ModelMember, ticket: Ticket, now_ms: int) -> None:
        """A join waits for the next generation."""
        if member.joining is not None:
            self.replies[member.joining] = "RebalanceInProgress"
        member.joining = ticket
        member.since_ms = now_ms
        self._continue(now_ms, lost=True)

    def _continue(self, now_ms: int, *, lost: bool) -> None:
        """The members have changed (`lost`), or only the issued ids."""
        if self.join_end_ms is not None:
            self._maybe_complete(now_ms)
        elif lost:
            self._start(now_ms)

    def begin_rebalance(self, now_ms: int) -> None:
        """All members must join again."""
        self._start(now_ms)

    def end(self) -> None:
        """End the group: its members are to join again."""
        for each in self.members.values():
            for waiting in (each.joining, each.syncing):
                if waiting is not None:
                    self.replies[waiting] = "RebalanceInProgress"

    def _start(self, now_ms: int) -> None:
        for each in self.members.values():
            if each.syncing is not None:
                self.replies[each.syncing] = "RebalanceInProgress"
                each.syncing = None
                self._touch(each, now_ms)
            each.is_unsynced = False
        self.sync_end_ms = None
        was_empty = self.state == EMPTY
        self.first_ms, self.has_grown = (now_ms, False) if was_empty else (None, False)
        wait_ms = self.config.initial_delay_ms if was_empty else self._longest_ms()
        self.join_end_ms = now_ms + wait_ms
        self._become(PREPARING, now_ms)
        self._maybe_complete(now_ms)

    def _maybe_complete(self, now_ms: int) -> None:
        waits = any(each.joining is None for each in self.members.values()) or self.issued
        if self.first_ms is None and not (self.members and waits):
            self._complete(now_ms)

    def _end_join(self, now_ms: int) -> None:
        if self.first_ms is not None and self.has_grown:
            limit_ms = self.first_ms + self._longest_ms()
            if now_ms < limit_ms:
                self.has_grown = False
                self.join_end_ms = min(now_ms + self.config.initial_delay_ms, limit_ms)
                return
        self._complete(now_ms)

    def _complete(self, now_ms: int) -> None:
        for each in list(self.members.values()):
            if each.joining is None and each.instance_id is None:
                self._remove(each)
        joined = [each for each in self.members.values() if each.joining is not None]
        self.first_ms = None
        if self.members and not joined:
            self.join_end_ms = now_ms + max(self._longest_ms(), JOIN_AGAIN_MS)
            self.has_grown = False
            return
        self.join_end_ms = None
        self.generation += 1
        if not joined:
            self.protocol = self.leader = None
            self._become(EMPTY, now_ms)
            self.store()
            return
        self.protocol = self._chosen()
        if self.leader not in [each.member_id for each in joined]:
            self.leader = joined[0].member_id
        self._become(COMPLETING, now_ms)
        for each in joined:
            assert each.joining is not None, "a joined member"
            self._reply(each.joining, self._joined(each))
            each.joining, each.is_new, each.is_unsynced = None, False, True
            each.since_ms = now_ms
        self.sync_end_ms = now_ms + self._longest_ms()

    def _remove(self, member: ModelMember) -> None:
        for waiting in (member.joining, member.syncing):
            if waiting is not None:
                self.replies[waiting] = "UnknownMember"
        del self.members[member.member_id]
        if self.leader == member.member_id:
            self.leader = None

    def _become(self, state: str, now_ms: int) -> None:
        self.state, self.state_ms = state, now_ms
        if state != COMPLETING:
            self._stop_sync_timeout()

    def _stop_sync_timeout(self) -> None:
        if not any(each.is_unsynced for each in self.members.values()):
            self.sync_end_ms = None

    def store(self) -> None:
        """Store the generation: the next coordinator has it."""
        self.stored = None
        kept = deepcopy(self)
        kept.replies = {}
        self.stored = kept

    def _touch(self, member: ModelMember, now_ms: int) -> None:
        if not member.is_waiting:
            member.since_ms = now_ms

    # --- lookups ----------------------------------------------------------------------------------

    def _reply(self, ticket: Ticket, outcome: Any) -> None:
        self.replies[ticket] = plain(outcome)

    def _static(self, instance_id: str | None) -> ModelMember | None:
        if instance_id is None:
            return None
        found = (each for each in self.members.values() if each.instance_id == instance_id)
        return next(found, None)

    def _find(self, request: Any) -> ModelMember:
        """Return the sender of a request; raises Refused."""
        if request.instance_id is not None:
            static = self._static(request.instance_id)
            if static is None:
                raise Refused("UnknownMember")
            if static.member_id != request.member_id:
                raise Refused("FencedInstance")
        member = self.members.get(request.member_id)
        if member is None:
            raise Refused("UnknownMember")
        return member

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise Refused("IllegalGeneration")

    def _longest_ms(self) -> int:
        return max((each.rebalance_ms for each in self.members.values()), default=0)

    def _chosen(self) -> str:
        """Return the protocol with the most votes among those that all members support."""
        common = set.intersection(*(set(each.protocols) for each in self.members.values()))
        votes: dict[str, int] = {}
        for each in self.members.values():
            choice = next(name for name in each.protocols if name in common)
            votes[choice] = votes.get(choice, 0) + 1
        most = max(votes.values())
        return next(name for name, count in votes.items() if count == most)

    def _joined(self, member: ModelMember) -> Joined:
        assert self.protocol is not None, "a generation without a protocol"
        assert self.leader is not None, "a generation without a leader"
        everyone = tuple(
            JoinedMember(each.member_id, each.instance_id, each.protocols.get(self.protocol, b""))
            for each in self.members.values()
        )
        return Joined(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            members=everyone if member.member_id == self.leader else (),
        )

    def _synced(self, member: ModelMember) -> Synced:
        self._stop_sync_timeout()
        return Synced(
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            assignment=member.assignment,
        )


def _member(member_id: str, request: JoinGroup, *, is_new: bool) -> ModelMember:
    return ModelMember(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_ms=request.session_timeout_ms,
        rebalance_ms=_rebalance_ms(request),
        protocols=_protocols(request),
        is_new=is_new,
    )


def _rebalance_ms(request: JoinGroup) -> int:
    """Return the rebalance timeout; version 0 of the request has none."""
    given_ms = request.rebalance_timeout_ms
    return given_ms if given_ms > 0 else request.session_timeout_ms


def _protocols(request: JoinGroup) -> dict[str, bytes]:
    """Return the protocols; of two with one name, the first counts."""
    found: dict[str, bytes] = {}
    for name, content in request.protocols:
        if name not in found:
            found[name] = content
    return found


def _topics(subscription: bytes) -> frozenset[str] | None:
    """Return the topics of a subscription; None: it is malformed."""
    try:
        return frozenset(decode_subscription(subscription).topics)
    except ValueError:
        return None
