"""A model of one group of KIP-848; `mixed` adds members of the classic protocol.

The model predicts the reply to each request, each fencing and the description. The target
assignment is the coordinator's, and must obey the rules of `assignment`. The rules of the KIP:

- The group epoch grows by one with each change of the members, their subscriptions, the assignor or
  the subscribed topics, and with nothing else.
- A member revokes first: it keeps its epoch until it has reported that it holds none of the
  partitions to revoke. Then it moves to the epoch of the target, and gets the partitions that no
  other member has; it gets the others as soon as they are free, at a heartbeat of its own.
- An answer has the assignment if that changed, if the request has another epoch than the member, or
  if the request has all fields.
- A member is fenced after its session without a request, or if it has not revoked in time.
"""

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from quorumlog.broker.coordinator.decision import Ticket
from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.requests import (
    CommitOffsets,
    CommitTransactionalOffsets,
    ConsumerBeat,
    ConsumerHeartbeat,
    FetchOffsets,
    GroupDescription,
    ListedGroup,
    MemberDescription,
)
from quorumlog.ids import TopicId
from quorumlog.metadata.image import MetadataImage

from ...checkers.violation import Violation
from .assignment import Assignee, Place, Shares, check_target, places
from .classic import Refused
from .replies import Replies, plain

AWAY: Final = -2  # the epoch of a static member that has left for a while
INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state"})
MATCH_MS: Final = 1_000  # at least, between two matches of a pattern after changes of topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """The fields of a member of the classic protocol."""

    session_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(slots=True, kw_only=True)
class ConsumerModelMember:
    """A member."""

    member_id: str
    instance_id: str | None = None
    rack: str | None = None
    client_id: str
    client_host: str
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    assignor: str | None = None
    rebalance_ms: int
    epoch: int = 0
    previous_epoch: int = 0
    assigned: frozenset[Place] = frozenset()
    revoking: frozenset[Place] = frozenset()
    lacks: bool = False  # it has not got its whole target
    target: frozenset[Place] = frozenset()
    since_ms: int = 0
    session_end_ms: int = 0
    revoke_end_ms: int | None = None
    classic: Face | None = None
    join_end_ms: int | None = None  # of a classic member that was asked to rejoin
    sync_end_ms: int | None = None  # of a classic member that has joined

    @property
    def end_ms(self) -> int:
        """The time at which it is fenced."""
        ends = (self.session_end_ms, self.revoke_end_ms, self.join_end_ms, self.sync_end_ms)
        return min(end_ms for end_ms in ends if end_ms is not None)


@dataclass(slots=True)
class ConsumerModel:
    """A group."""

    group: str
    config: GroupConfig
    members: dict[str, ConsumerModelMember] = field(default_factory=dict)
    epoch: int = 0
    target_epoch: int = 0
    empty_ms: int = -1  # time of the last target
    watched: dict[str, tuple[TopicId, int]] = field(default_factory=dict)  # of the last epoch
    matches: dict[str, frozenset[str]] = field(default_factory=dict)  # topics by pattern
    matched: dict[str, tuple[int, Any, Any]] = field(default_factory=dict)  # time, topics, ACLs
    replies: Replies = field(default_factory=dict)
    has_fenced: bool = False  # in this step

    # --- requests ---------------------------------------------------------------------------------

    def handle(
        self,
        ticket: Ticket,
        request: ConsumerHeartbeat,
        image: MetadataImage,
        now_ms: int,
        new_id: str,
        targets: Callable[[], Mapping[str, Shares]],
    ) -> None:
        """Apply a heartbeat; `targets` returns the coordinator's target by member."""
        try:
            beat = self._heartbeat(request, image, now_ms, new_id, targets)
        except Refused as refused:
            self.replies[ticket] = refused.name
        else:
            self.replies[ticket] = plain(beat)

    def _heartbeat(
        self,
        request: ConsumerHeartbeat,
        image: MetadataImage,
        now_ms: int,
        new_id: str,
        targets: Callable[[], Mapping[str, Shares]],
    ) -> ConsumerBeat:
        self.validate(request)
        if request.member_epoch < 0:
            return self._leave(request, image, now_ms)
        was_assignor = self.assignor
        if request.member_epoch:
            member = self.find(request)
            self._check_epoch(member, request)
            is_new = False
        else:
            member, is_new = self._admit(request, new_id)
        had = member.topics, member.pattern
        self._update(member, request)
        needs = is_new or had != (member.topics, member.pattern) or self.assignor != was_assignor
        self.forget_patterns()
        matched = bool(member.pattern) and self._match(member.pattern or "", request, image, now_ms)
        self.refresh(image, has_changed=needs or matched)
        self.assign(targets, now_ms)
        was = member.epoch, member.assigned
        owned = request.owned if request.member_epoch else {}
        self.reconcile(member, None if owned is None else places(owned), now_ms, is_forced=needs)
        self.start_session(member, now_ms)
        is_full = (
            request.rebalance_timeout_ms >= 0
            and request.owned is not None
            and not (request.topics is None and request.pattern is None)
        )
        is_sent = is_full or not request.member_epoch or request.member_epoch != was[0]
        return self._beat(
            member, member.epoch, member.assigned if is_sent or member.assigned != was[1] else None
        )

    def validate(self, request: ConsumerHeartbeat) -> None:
        """Raise Refused for a request that no group accepts."""
        epoch = request.member_epoch
        is_invalid = (
            request.instance_id == ""
            or request.rack == ""
            or epoch < AWAY
            or (not request.member_id and epoch != 0)
            or (epoch == AWAY and request.instance_id is None)
        )
        if epoch == 0:
            is_invalid = is_invalid or (
                request.rebalance_timeout_ms < 0
                or (request.topics is None and request.pattern is None)
                or bool(request.owned)
            )
        if is_invalid:
            raise Refused("InvalidRequest")
        if request.assignor is not None and request.assignor not in self.config.assignors:
            raise Refused("UnsupportedAssignor")
        if request.pattern:
            try:
                re.compile(request.pattern)
            except re.error:
                raise Refused("InvalidPattern") from None

    def _admit(self, request: ConsumerHeartbeat, new_id: str) -> tuple[ConsumerModelMember, bool]:
        known = self.members.get(request.member_id)
        static = self.static(request.instance_id)
        if static is not None and static is not known:
            if static.epoch != AWAY and static.classic is None:
                raise Refused("UnreleasedInstance")
            if request.member_id in self.members:
                raise Refused("InvalidRequest")
            return self.replace_static(static, request.member_id or new_id), False
        if known is not None:
            return (
                self.replace_static(known, known.member_id) if known.epoch == AWAY else known
            ), False
        if len(self.members) >= self.config.size_max:
            raise Refused("GroupFull")
        member_id = request.member_id or new_id
        self.members[member_id] = member = ConsumerModelMember(
            member_id=member_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_ms=request.rebalance_timeout_ms,
        )
        return member, True

    def replace_static(self, old: ConsumerModelMember, member_id: str) -> ConsumerModelMember:
        """Replace a static member by its next instance, which has the partitions."""
        del self.members[old.member_id]
        old.member_id, old.epoch, old.previous_epoch = member_id, 0, 0
        old.revoking, old.lacks, old.revoke_end_ms = frozenset(), False, None
        old.join_end_ms = old.sync_end_ms = None
        self.members[member_id] = old
        return old

    def _update(self, member: ConsumerModelMember, request: ConsumerHeartbeat) -> None:
        member.client_id, member.client_host = request.client_id, request.client_host
        member.classic = member.join_end_ms = member.sync_end_ms = None
        if request.topics is not None:
            member.topics = request.topics
        if request.pattern is not None:
            member.pattern = request.pattern or None
        if request.rebalance_timeout_ms >= 0:
            member.rebalance_ms = request.rebalance_timeout_ms
        if request.instance_id is not None:
            member.instance_id = request.instance_id
        if request.rack is not None:
            member.rack = request.rack
        if request.assignor is not None:
            member.assignor = request.assignor

    def _check_epoch(self, member: ConsumerModelMember, request: ConsumerHeartbeat) -> None:
        """A lost answer leaves a member one step behind: it may send the epoch before."""
        epoch = request.member_epoch
        is_behind = (
            epoch < member.epoch
            and epoch == member.previous_epoch
            and request.owned is not None
            and places(request.owned) <= member.assigned
        )
        if epoch != member.epoch and not is_behind:
            raise Refused("FencedMemberEpoch")

    def _leave(self, request: ConsumerHeartbeat, image: MetadataImage, now_ms: int) -> ConsumerBeat:
        member = self.find(request)
        if request.member_epoch == AWAY:
            has_left = (member.epoch, member.lacks, member.revoking) == (AWAY, False, frozenset())
            member.epoch, member.lacks, member.revoking = AWAY, False, frozenset()
            member.revoke_end_ms = None
            if not has_left:
                self.start_session(member, now_ms)
        else:
            self.fence([member.member_id], image, now_ms)
        return self._beat(member, request.member_epoch, None)

    def check_commit(self, request: CommitOffsets) -> None:
        """Raise Refused for a commit that the group must not accept."""
        is_transactional = isinstance(request, CommitTransactionalOffsets)
        is_outside = not request.member_id and request.instance_id is None
        if request.generation < 0 and (not self.members or (is_transactional and is_outside)):
            return
        if request.instance_id is not None and request.member_id not in self.members:
            raise Refused(
                "UnknownMember" if self.static(request.instance_id) is None else "FencedInstance"
            )
        stale = "IllegalGeneration" if is_transactional else "StaleMemberEpoch"
        self._check_current(request.member_id, request.generation, stale)

    def check_fetch(self, request: FetchOffsets) -> None:
        """Raise Refused for a member's fetch with another epoch."""
        if request.member_id or request.member_epoch >= 0:
            self._check_current(request.member_id, request.member_epoch, "StaleMemberEpoch")

    def _check_current(self, member_id: str, epoch: int, stale: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            raise Refused("UnknownMember")
        if epoch < 0 or epoch != member.epoch:
            raise Refused(stale if member.classic is None else "IllegalGeneration")

    # --- time -------------------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """Return the next time at which a member may be fenced, or None."""
        return min((each.end_ms for each in self.members.values()), default=None)

    def expire(self, now_ms: int, image: MetadataImage) -> None:
        """Fence the members that are late."""
        late = [name for name, each in self.members.items() if each.end_ms <= now_ms]
        if late:
            self.fence(late, image, now_ms)

    def restart(self, now_ms: int) -> None:
        """Restart every session and timeout: requests were refused for a while."""
        for each in self.members.values():
            self.start_session(each, now_ms)
            longest_ms = now_ms + each.rebalance_ms
            each.revoke_end_ms = None if each.revoke_end_ms is None else longest_ms
            each.join_end_ms = None if each.join_end_ms is None else longest_ms
            each.sync_end_ms = None if each.sync_end_ms is None else longest_ms

    def loaded(self, now_ms: int) -> "ConsumerModel":
        """Return the group as the next coordinator has it."""
        found = deepcopy(self)
        found.replies, found.matched = {}, {}
        for each in found.members.values():
            found.start_session(each, now_ms)
            is_timed = bool(each.revoking) and each.classic is None
            each.revoke_end_ms = now_ms + each.rebalance_ms if is_timed else None
            each.join_end_ms = each.sync_end_ms = None
        return found

    # --- descriptions -----------------------------------------------------------------------------

    def describe(self, image: MetadataImage, now_ms: int) -> Any:
        """Return the expected description."""
        return plain(
            GroupDescription(
                group=self.group,
                is_classic=False,
                state=self.state,
                protocol_type="consumer",
                protocol=self.assignor,
                generation=self.epoch,
                target_epoch=self.target_epoch,
                members=tuple(
                    MemberDescription(
                        member_id=each.member_id,
                        instance_id=each.instance_id,
                        client_id=each.client_id,
                        client_host=each.client_host,
                        rack=each.rack,
                        is_classic=each.classic is not None,
                        silent_ms=now_ms - each.since_ms,
                        member_epoch=each.epoch,
                        topics=each.topics,
                        pattern=each.pattern,
                        owned=_present(each.assigned, image),
                        target=_present(each.target, image),
                    )
                    for each in self.members.values()
                ),
            )
        )

    def listing(self) -> Any:
        """Return the expected entry in the list of groups."""
        return plain(
            ListedGroup(
                group=self.group, is_classic=False, state=self.state, protocol_type="consumer"
            )
        )

    @property
    def state(self) -> str:
        """Kafka's name of the state."""
        if not self.members:
            return "Empty"
        if self.target_epoch < self.epoch:
            return "Assigning"
        is_stable = all(
            each.epoch == self.target_epoch and not each.lacks and not each.revoking
            for each in self.members.values()
        )
        return "Stable" if is_stable else "Reconciling"

    @property
    def assignor(self) -> str:
        """The choice of most members, or the default."""
        known = self.config.assignors
        votes = [each.assignor for each in self.members.values() if each.assignor in known]
        most = max(map(votes.count, votes), default=0)
        return next((name for name in known if votes.count(name) == most > 0), known[0])

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics of all members."""
        return frozenset[str]().union(*map(self._topics_of, self.members.values()))

    # --- steps ------------------------------------------------------------------------------------

    def fence(self, member_ids: list[str], image: MetadataImage, now_ms: int) -> None:
        """Remove members."""
        for member_id in member_ids:
            del self.members[member_id]
        self.has_fenced = True
        self.forget_patterns()
        self.refresh(image, has_changed=True)
        if not self.members:
            self.target_epoch, self.empty_ms = self.epoch, now_ms

    def forget_patterns(self) -> None:
        """Drop the matches of patterns without a member."""
        used = {each.pattern for each in self.members.values()}
        for pattern in [each for each in self.matches if each not in used]:
            del self.matches[pattern]
            self.matched.pop(pattern, None)

    def _match(
        self, pattern: str, request: ConsumerHeartbeat, image: MetadataImage, now_ms: int
    ) -> bool:
        """Match a pattern with the names of the topics, if that is due."""
        before, last = self.matches.get(pattern), self.matched.get(pattern)
        if before is not None and last is not None:
            is_same = last[1] is image.topics_by_name and last[2] is image.acls
            least_ms = self.config.pattern_refresh_ms
            if now_ms - last[0] < (least_ms if is_same else min(MATCH_MS, least_ms)):
                return False
        self.matched[pattern] = now_ms, image.topics_by_name, image.acls
        self.matches[pattern] = frozenset(
            name
            for name in image.topics_by_name
            if re.fullmatch(pattern, name)
            and name not in INTERNAL
            and (request.describes is None or request.describes(name))
        )
        return self.matches[pattern] != before

    def refresh(self, image: MetadataImage, *, has_changed: bool) -> None:
        """Begin the next group epoch if the members or the subscribed topics have changed."""
        found = {
            name: (topic.id, len(topic.partitions))
            for name in sorted(self.subscribed_topics())
            if (topic := image.topic(name)) is not None
        }
        if has_changed or found != self.watched:
            self.epoch += 1
            self.watched = found

    def assign(self, targets: Callable[[], Mapping[str, Shares]], now_ms: int) -> None:
        """Take the coordinator's target of a new epoch, and check it."""
        if self.target_epoch == self.epoch:
            return
        found = targets()
        assignees = []
        for member_id, each in self.members.items():
            topics = frozenset(
                self.watched[name][0] for name in self._topics_of(each) if name in self.watched
            )
            if member_id not in found:
                raise Violation("Assignment", f"{member_id} is not described")
            after = places(found[member_id])
            assignees.append(
                Assignee(
                    member_id=member_id,
                    sort_key=each.instance_id or member_id,
                    topics=topics,
                    before=each.target,
                    after=after,
                )
            )
            each.target = after
        check_target(self.assignor, assignees, dict(self.watched.values()))
        self.target_epoch, self.empty_ms = self.epoch, now_ms

    def reconcile(
        self,
        member: ConsumerModelMember,
        owned: frozenset[Place] | None,
        now_ms: int,
        *,
        is_forced: bool,
    ) -> None:
        """Move a member one step towards its target. A target that is older than the subscription
        counts as far as the member is still subscribed."""
        was = member.epoch, member.assigned, member.revoking, member.lacks
        target = member.target
        if self.target_epoch < self.epoch:
            ids = {
                self.watched[name][0] for name in self._topics_of(member) if name in self.watched
            }
            target = frozenset(place for place in target if place[0] in ids)
        if member.epoch == self.target_epoch and not (member.revoking or member.lacks or is_forced):
            return
        may_hold = _overlaps(owned, member.revoking)
        if member.revoking and may_hold and not is_forced:
            return
        kept = member.assigned & target
        gone = member.assigned - target
        if member.revoking and may_hold:
            gone |= member.revoking
        if gone and (_overlaps(owned, gone) or (member.revoking and may_hold)):
            member.assigned, member.revoking, member.lacks = kept, gone, False
        else:
            taken = frozenset[Place]().union(
                *(
                    each.assigned | each.revoking
                    for each in self.members.values()
                    if each is not member
                )
            )
            if member.epoch != self.target_epoch:
                member.previous_epoch, member.epoch = member.epoch, self.target_epoch
            member.revoking = frozenset()
            member.assigned = kept | (target - taken)
            member.lacks = member.assigned != target
        has_moved = (member.epoch, member.assigned, member.revoking, member.lacks) != was
        if has_moved and member.classic is None:
            member.revoke_end_ms = now_ms + member.rebalance_ms if member.revoking else None

    def start_session(self, member: ConsumerModelMember, now_ms: int) -> None:
        """Restart the session of a member."""
        member.since_ms, session_ms = now_ms, self.config.consumer_session_ms
        if member.classic is not None:
            session_ms = member.classic.session_ms
        member.session_end_ms = now_ms + session_ms

    # --- lookups ----------------------------------------------------------------------------------

    def static(self, instance_id: str | None) -> ConsumerModelMember | None:
        """Return the member with a static name, or None."""
        if instance_id is None:
            return None
        found = (each for each in self.members.values() if each.instance_id == instance_id)
        return next(found, None)

    def find(self, request: Any) -> ConsumerModelMember:
        """Return the sender of a request; raises Refused."""
        if request.instance_id is None:
            member = self.members.get(request.member_id)
        else:
            member = self.static(request.instance_id)
            if member is not None and member.member_id != request.member_id:
                raise Refused("FencedInstance")
        if member is None:
            raise Refused("UnknownMember")
        return member

    def _topics_of(self, member: ConsumerModelMember) -> frozenset[str]:
        return member.topics | self.matches.get(member.pattern or "", frozenset())

    def _beat(
        self, member: ConsumerModelMember, epoch: int, assigned: frozenset[Place] | None
    ) -> ConsumerBeat:
        return ConsumerBeat(
            member_id=member.member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=self.config.consumer_heartbeat_ms,
            session_timeout_ms=self.config.consumer_session_ms,
            assignment=None if assigned is None else _shares(assigned),
        )


def _overlaps(owned: frozenset[Place] | None, partitions: frozenset[Place]) -> bool:
    """Return True if a member may still hold some of the partitions."""
    return owned is None or not owned.isdisjoint(partitions)


def _shares(found: frozenset[Place]) -> dict[TopicId, frozenset[int]]:
    topics = {topic for topic, _ in found}
    return {
        topic: frozenset(index for name, index in found if name == topic)
        for topic in sorted(topics)
    }


def _present(found: frozenset[Place], image: MetadataImage) -> dict[TopicId, frozenset[int]]:
    return _shares(frozenset(each for each in found if image.topic_of_id(each[0]) is not None))
