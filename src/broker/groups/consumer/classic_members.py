"""Members of the classic protocol in a KIP-848 group, which exist while a group is upgraded.

They join, sync and send heartbeats as in a classic group that never has to wait for other members.
A join is answered at once, the generation is the member epoch, and the assignment is what the
member owns. If the member has to revoke partitions or can get more, a heartbeat returns
RebalanceInProgress. The owned partitions of its subscription are those that it has not revoked; a
subscription without them (eager protocol) has revoked all.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain

from ....errors import (
    FencedInstance,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    QuorumlogError,
    RebalanceInProgress,
    UnknownMember,
)
from ....metadata.image import MetadataImage
from ..classic_members import unique_protocols
from ..consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerAssignment,
    ConsumerSubscription,
    decode_subscription,
    encode_assignment,
    version_of,
)
from ..records import (
    ClassicMemberMetadata,
    ConsumerMember,
    CurrentAssignment,
    MemberState,
    Partitions,
)
from ..requests import (
    ClassicHeartbeat,
    DescribesTopic,
    Joined,
    JoinGroup,
    LeaveGroup,
    Left,
    Synced,
    SyncGroup,
)
from .core import JOIN, SYNC, GroupCore
from .heartbeat import check_bytes, check_size, find_member
from .state import GroupState


def join(
    core: GroupCore,
    draw: Callable[[], str],
    request: JoinGroup,
    image: MetadataImage,
    now_ms: int,
) -> Joined:
    """Let a member join or rejoin; raise an error before anything has changed. Topics that its
    client may not describe are left out of its subscription and its claims."""
    subscription = check_join(core, request)
    if not request.member_id and request.instance_id is None and request.takes_member_id_first:
        check_size(core, is_known=False)
        return Joined(member_id=_draw_id(draw, request), is_member_id_required=True)
    _check_removed_owner(core, request, subscription)
    member_id = request.member_id or _draw_id(draw, request)
    check_subscription_size(core, member_id, request, subscription)
    member = _with_join(_admit(core, member_id, request), request, subscription)
    claimed = _claims(subscription, request.describes)
    has_changed = core.put_member(member)
    core.refresh(image, now_ms, has_changed=has_changed)
    core.assign(now_ms, is_urgent=True)
    owned = _held_partitions(core.state.current_of(member_id), claimed, image)
    current = core.reconcile_member(member_id, owned, now_ms, is_forced=has_changed)
    core.timers.drop((JOIN, member_id))
    core.timers.set((SYNC, member_id), now_ms + member.rebalance_timeout_ms)
    core.start_session(member_id, now_ms)
    return Joined(
        member_id=member_id,
        generation=current.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol=request.protocols[0][0],
    )


def sync(core: GroupCore, request: SyncGroup, image: MetadataImage, now_ms: int) -> Synced:
    """Return the assignment of a member, without topics that its client may not describe. After an
    upgrade they are the existing ones of the topics that members named, so a sync does not show
    that the member has to revoke them either."""
    member, face = _find(core, request.member_id, request.instance_id)
    current = core.state.current_of(member.member_id)
    _check_generation(request.generation, current.epoch)
    protocol, subscription = face.protocols[0]
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol not in (
        None,
        protocol,
    ):
        raise InconsistentGroupProtocol(
            f"the member joined with protocol {PROTOCOL_TYPE}, {protocol}, and syncs with"
            f" {request.protocol_type}, {request.protocol}; join again"
        )
    core.refresh(image, now_ms, has_changed=False)
    core.start_session(member.member_id, now_ms)
    is_revoking = current.state is MemberState.UNREVOKED_PARTITIONS and bool(
        _described(current.pending_revocation, image, request.describes)
    )
    if core.state.epoch > current.epoch and not is_revoking:
        raise _rebalance(core, member, now_ms)
    core.timers.drop((SYNC, member.member_id))
    return Synced(
        protocol_type=PROTOCOL_TYPE,
        protocol=protocol,
        assignment=assignment_bytes(
            _described(current.assigned, image, request.describes),
            version_of(subscription),
            image,
        ),
    )


def heartbeat(
    core: GroupCore, request: ClassicHeartbeat, image: MetadataImage, now_ms: int
) -> None:
    """Restart a member's session. Raise RebalanceInProgress if a rejoin would change what it
    owns."""
    member, _ = _find(core, request.member_id, request.instance_id)
    current = core.state.current_of(member.member_id)
    _check_generation(request.generation, current.epoch)
    core.refresh(image, now_ms, has_changed=False)
    core.start_session(member.member_id, now_ms)
    if (
        current.epoch < core.state.epoch
        or current.state is MemberState.UNREVOKED_PARTITIONS
        or (
            current.state is MemberState.UNRELEASED_PARTITIONS
            and not _lacks_only_owned(core.state, member.member_id, current.assigned)
        )
    ):
        raise _rebalance(core, member, now_ms)


def leave(core: GroupCore, request: LeaveGroup, image: MetadataImage, now_ms: int) -> Left:
    """Remove members of either protocol; each has an error of its own or None."""
    errors: list[QuorumlogError | None] = []
    leaving: dict[str, None] = {}
    for leaver in request.leavers:
        try:
            member_id = leaver.member_id
            if leaver.instance_id is not None and not member_id:
                static = core.state.static_member(leaver.instance_id)
                member_id = "" if static is None else static.member_id
            member = find_member(core.state, member_id, leaver.instance_id)
            if member.member_id in leaving:
                raise UnknownMember(f"member {member.member_id!r} has left already")
            leaving[member.member_id] = None
            errors.append(None)
        except (UnknownMember, FencedInstance) as error:
            errors.append(error)
    if leaving:
        core.fence(leaving, image, now_ms)
    return Left(errors=tuple(errors))


# --- members and subscriptions --------------------------------------------------------------------


def check_join(core: GroupCore, request: JoinGroup) -> ConsumerSubscription:
    """Validate a join without regard to the member; return the subscription.

    Raises InconsistentGroupProtocol and InvalidSessionTimeout.
    """
    _check_protocols(core.state, request)
    low, high = core.config.session_timeout_min_ms, core.config.session_timeout_max_ms
    if not low <= request.session_timeout_ms <= high:
        raise InvalidSessionTimeout(
            f"session.timeout.ms={request.session_timeout_ms} is out of range; the broker accepts"
            f" {low} to {high} ms"
        )
    return _subscription(request)


def _check_protocols(state: GroupState, request: JoinGroup) -> None:
    """Raise InconsistentGroupProtocol unless all classic members share a protocol."""
    offered = {name for name, _ in request.protocols}
    if request.protocol_type != PROTOCOL_TYPE:
        offered.clear()
    for member in state.members.values():
        if member.classic is not None and member.member_id != request.member_id:
            offered.intersection_update(name for name, _ in member.classic.protocols)
    if not offered:
        raise InconsistentGroupProtocol(
            f"group {state.group!r}: the member has no protocol of type {PROTOCOL_TYPE!r} in"
            " common with all classic members; add one of theirs"
        )


def _subscription(request: JoinGroup) -> ConsumerSubscription:
    """Decode the subscription; that of the first protocol stands for all."""
    try:
        return decode_subscription(request.protocols[0][1])
    except ValueError as error:
        raise InconsistentGroupProtocol(
            f"the subscription of protocol {request.protocols[0][0]!r} is malformed: {error}"
        ) from error


def _draw_id(draw: Callable[[], str], request: JoinGroup) -> str:
    return f"{request.client_id}-{draw()}"


def _admit(core: GroupCore, member_id: str, request: JoinGroup) -> ConsumerMember:
    """Return the member that joins, with the id of the request or a new one. A static one replaces
    its previous instance at once, of either protocol: the classic protocol has no temporary
    leave."""
    state = core.state
    if request.instance_id is not None:
        old = state.static_member(request.instance_id)
        if old is not None and not request.member_id:
            return core.replace_static(old, member_id)
        if request.member_id:
            return find_member(state, member_id, request.instance_id)
    check_size(core, is_known=member_id in state.members)
    known = state.members.get(member_id)
    if known is not None:
        return known
    return _new_member(core, request, member_id)


def _check_removed_owner(
    core: GroupCore, request: JoinGroup, subscription: ConsumerSubscription
) -> None:
    """Raise UnknownMember for a removed member that still claims partitions. Accepted as a new
    member, it would use them until its sync, and another member may own them by then."""
    member_id = request.member_id
    if not member_id or request.instance_id is not None or member_id in core.state.members:
        return
    if any(subscription.owned.values()):
        raise UnknownMember(
            f"group {core.group!r}: {member_id!r} was removed and still claims partitions; revoke"
            " them, and join as a new member"
        )


def check_subscription_size(
    core: GroupCore, member_id: str, request: JoinGroup, subscription: ConsumerSubscription
) -> None:
    """Raise GroupFull if the subscriptions of all members are too large to be stored."""
    state = core.state
    before = state.members.get(request.member_id)
    if before is None and request.instance_id is not None:
        before = state.static_member(request.instance_id)
    member = before or _new_member(core, request, member_id)
    if member.member_id != member_id:
        member = replace(member, member_id=member_id)
    check_bytes(core, before, _with_join(member, request, subscription), request)


def _new_member(core: GroupCore, request: JoinGroup, member_id: str) -> ConsumerMember:
    return ConsumerMember(
        group=core.group,
        member_id=member_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
    )


def _with_join(
    member: ConsumerMember, request: JoinGroup, subscription: ConsumerSubscription
) -> ConsumerMember:
    rebalance_ms = request.rebalance_timeout_ms
    topics, describes = frozenset(subscription.topics), request.describes
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack=member.rack if subscription.rack is None else subscription.rack,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=topics if describes is None else frozenset(filter(describes, topics)),
        pattern=None,
        assignor=None,
        rebalance_timeout_ms=member.rebalance_timeout_ms if rebalance_ms < 0 else rebalance_ms,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            protocols=unique_protocols(request.protocols),
        ),
    )


def _find(
    core: GroupCore, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMemberMetadata]:
    member = find_member(core.state, member_id, instance_id)
    if member.classic is None:
        raise UnknownMember(f"member {member_id!r} uses the consumer protocol, not the classic one")
    return member, member.classic


def _check_generation(generation: int, epoch: int) -> None:
    if generation != epoch:
        raise IllegalGeneration(
            f"the member's generation {generation} is not the current one, {epoch}; join again"
        )


def _rebalance(core: GroupCore, member: ConsumerMember, now_ms: int) -> RebalanceInProgress:
    """Start the member's rejoin timeout; return the error that requests a rejoin."""
    if (JOIN, member.member_id) not in core.timers:
        core.timers.set((JOIN, member.member_id), now_ms + member.rebalance_timeout_ms)
    return RebalanceInProgress(f"group {core.group!r}: a rebalance is in progress; join again")


def _lacks_only_owned(state: GroupState, member_id: str, assigned: Partitions) -> bool:
    """Return True if every partition that the member still lacks has another owner."""
    return not any(
        state.owner(topic_id, index) is None
        for topic_id, indices in state.targets.get(member_id, {}).items()
        for index in indices - assigned.get(topic_id, frozenset())
    )


# --- names and ids of topics ----------------------------------------------------------------------


def _claims(
    subscription: ConsumerSubscription, describes: DescribesTopic | None
) -> Mapping[str, tuple[int, ...]]:
    """Return the claimed partitions of topics that a client may describe."""
    owned = subscription.owned
    return owned if describes is None else {name: owned[name] for name in filter(describes, owned)}


def _held_partitions(
    current: CurrentAssignment, claimed: Mapping[str, tuple[int, ...]], image: MetadataImage
) -> Partitions:
    """Return the partitions that a member may hold according to its claims. If it claims any that
    were not assigned to it, the member may have newer metadata than this broker: then its assigned
    partitions of unknown topics count as held too."""
    found = dict(partitions_by_id(claimed, image))
    given = (current.assigned, current.pending_revocation)
    is_known = sum(map(len, found.values())) == sum(map(len, claimed.values())) and all(
        any(indices <= part.get(topic_id, frozenset()) for part in given)
        for topic_id, indices in found.items()
    )
    if not is_known:
        for topic_id, indices in chain.from_iterable(part.items() for part in given):
            if image.topic_of_id(topic_id) is None:
                found[topic_id] = found.get(topic_id, frozenset()) | indices
    return found


def partitions_by_id(owned: Mapping[str, tuple[int, ...]], image: MetadataImage) -> Partitions:
    """Return the partitions by topic id; topics that do not exist are left out."""
    found = {}
    for name, indices in owned.items():
        topic = image.topic(name)
        if topic is not None and indices:
            found[topic.id] = frozenset(indices)
    return found


def _described(
    partitions: Partitions, image: MetadataImage, describes: DescribesTopic | None
) -> Partitions:
    """Return the partitions of topics that a client may describe, and of deleted topics."""
    if describes is None:
        return partitions
    return {
        topic_id: indices
        for topic_id, indices in partitions.items()
        if (topic := image.topic_of_id(topic_id)) is None or describes(topic.name)
    }


def assignment_bytes(assigned: Partitions, version: int, image: MetadataImage) -> bytes:
    """Encode an assignment for a classic member; deleted topics are left out."""
    by_name = {}
    for topic_id, indices in assigned.items():
        topic = image.topic_of_id(topic_id)
        if topic is not None:
            by_name[topic.name] = tuple(sorted(indices))
    partitions = dict(sorted(by_name.items()))
    return encode_assignment(ConsumerAssignment(version=version, partitions=partitions))
