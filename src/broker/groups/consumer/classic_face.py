"""Members of the classic protocol in a group of KIP-848: while a group is upgraded.

They join, sync and beat as ever, and find a group that is always ready: a join is answered at
once, the generation is the member's epoch, the assignment is what it owns, and where it is to give
back or is given more, a heartbeat tells it to join again. What it says to own in its subscription
is what it has not given back; a subscription without that (eager) has given back everything.
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
from ..consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_subscription,
    encode_assignment,
)
from ..records import ClassicFace, ConsumerMember, CurrentAssignment, MemberState, Partitions
from ..requests import (
    ClassicHeartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Left,
    Synced,
    SyncGroup,
)
from .core import JOIN, SYNC, GroupCore
from .heartbeating import check_bytes, check_size, find_member
from .state import GroupState


def join(
    core: GroupCore,
    draw: Callable[[], str],
    request: JoinGroup,
    image: MetadataImage,
    now_ms: int,
) -> Joined:
    """A member comes, or comes again; raises what is refused, and then nothing has been done."""
    subscription = check_join(core, request)
    if not request.member_id and request.instance_id is None and request.takes_member_id_first:
        check_size(core, is_known=False)
        return Joined(member_id=_draw_id(draw, request), is_member_id_required=True)
    _check_owning(core, request, subscription)
    _check_said(core, request, subscription)
    member = _as_joined(_admit(core, draw, request), request, subscription)
    member_id = member.member_id
    has_changed = core.put_member(member)
    core.refresh(image, now_ms, has_changed=has_changed)
    core.assign(now_ms, is_urgent=True)
    owned = _owned(core.state.current_of(member_id), subscription, image)
    current = core.settle(member_id, owned, now_ms, is_forced=has_changed)
    core.timers.stop(JOIN, member_id=member_id)
    core.timers.start(SYNC, member_id, now_ms + member.rebalance_timeout_ms)
    core.start_session(member_id, now_ms)
    return Joined(
        member_id=member_id,
        generation=current.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol=request.protocols[0][0],
    )


def sync(core: GroupCore, request: SyncGroup, image: MetadataImage, now_ms: int) -> Synced:
    """Give a member what it owns."""
    member, face = _find(core, request.member_id, request.instance_id)
    current = core.state.current_of(member.member_id)
    _check_generation(request.generation, current.epoch)
    protocol, subscription = face.protocols[0]
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol not in (
        None,
        protocol,
    ):
        raise InconsistentGroupProtocol(
            f"the member joined with {PROTOCOL_TYPE}, {protocol}, and syncs with "
            f"{request.protocol_type}, {request.protocol}"
        )
    core.refresh(image, now_ms, has_changed=False)
    core.start_session(member.member_id, now_ms)
    if core.state.epoch > current.epoch and (current.state is not MemberState.UNREVOKED_PARTITIONS):
        raise _rebalance(core, member, now_ms)
    core.timers.stop(SYNC, member_id=member.member_id)
    version = decode_subscription(subscription).version
    return Synced(
        protocol_type=PROTOCOL_TYPE,
        protocol=protocol,
        assignment=assignment_bytes(current.assigned, version, image),
    )


def heartbeat(
    core: GroupCore, request: ClassicHeartbeat, image: MetadataImage, now_ms: int
) -> None:
    """A member lives. Raises RebalanceInProgress where joining again changes what it owns."""
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
            and not _waits_for_others(core.state, member.member_id, current.assigned)
        )
    ):
        raise _rebalance(core, member, now_ms)


def leave(core: GroupCore, request: LeaveGroup, image: MetadataImage, now_ms: int) -> Left:
    """Let members go, of either protocol: an administrator sends all away by this. Each has an
    error of its own."""
    errors: list[QuorumlogError | None] = []
    going: dict[str, None] = {}
    for leaver in request.leavers:
        try:
            member_id = leaver.member_id
            if leaver.instance_id is not None and not member_id:
                static = core.state.static_member(leaver.instance_id)
                member_id = "" if static is None else static.member_id
            member = find_member(core.state, member_id, leaver.instance_id)
            if member.member_id in going:
                raise UnknownMember(f"member {member.member_id!r} has left already")
            going[member.member_id] = None
            errors.append(None)
        except (UnknownMember, FencedInstance) as error:
            errors.append(error)
    if going:
        core.fence(going, image, now_ms)
    return Left(errors=tuple(errors))


# --- members and subscriptions --------------------------------------------------------------------


def check_join(core: GroupCore, request: JoinGroup) -> Subscription:
    """What a member wants; raises what is wrong with its join, whoever it is."""
    _check_protocols(core.state, request)
    low, high = core.config.session_timeout_min_ms, core.config.session_timeout_max_ms
    if not low <= request.session_timeout_ms <= high:
        raise InvalidSessionTimeout(
            f"a session time-out of {request.session_timeout_ms} ms is not within {low} and {high} "
            "ms: choose one that is"
        )
    return _subscription(request)


def _check_protocols(state: GroupState, request: JoinGroup) -> None:
    """Raises InconsistentGroupProtocol where not all classic members share a strategy."""
    offered = {name for name, _ in request.protocols}
    if request.protocol_type != PROTOCOL_TYPE:
        offered.clear()
    for member in state.members.values():
        if member.classic is not None and member.member_id != request.member_id:
            offered.intersection_update(name for name, _ in member.classic.protocols)
    if not offered:
        raise InconsistentGroupProtocol(
            f"group {state.group!r} has members of {PROTOCOL_TYPE!r}: the one that joins must be "
            "one, and share a strategy with all that speak the classic protocol"
        )


def _subscription(request: JoinGroup) -> Subscription:
    """What it wants; all its strategies say the same."""
    try:
        return decode_subscription(request.protocols[0][1])
    except ValueError as error:
        raise InconsistentGroupProtocol(
            f"the subscription of {request.protocols[0][0]!r} cannot be read: {error}"
        ) from error


def _draw_id(draw: Callable[[], str], request: JoinGroup) -> str:
    return f"{request.client_id}-{draw()}"


def _admit(core: GroupCore, draw: Callable[[], str], request: JoinGroup) -> ConsumerMember:
    """The member that joins. A static one takes the place of its last life, whichever protocol
    that spoke: this protocol knows no leaving for a while."""
    state, member_id = core.state, request.member_id
    if request.instance_id is not None:
        old = state.static_member(request.instance_id)
        if old is not None and not member_id:
            return core.replace_static(old, _draw_id(draw, request))
        if member_id:
            return find_member(state, member_id, request.instance_id)
    check_size(core, is_known=member_id in state.members)
    known = state.members.get(member_id)
    if known is not None:
        return known
    return _new_member(core, request, member_id or _draw_id(draw, request))


def _check_owning(core: GroupCore, request: JoinGroup, subscription: Subscription) -> None:
    """Raises UnknownMember for one that was removed and has not heard of it: let in as a new one
    it would go on with what it had until it syncs, and another one may have that by now."""
    member_id = request.member_id
    if not member_id or request.instance_id is not None or member_id in core.state.members:
        return
    if any(subscription.owned.values()):
        raise UnknownMember(
            f"{member_id!r} is no member of group {core.group!r} any more, and says that it still "
            "has partitions: let go of them, and join anew"
        )


def _check_said(core: GroupCore, request: JoinGroup, subscription: Subscription) -> None:
    """Raises GroupFull where too much would be stored."""
    state = core.state
    before = state.members.get(request.member_id)
    if before is None and request.instance_id is not None:
        before = state.static_member(request.instance_id)
    member = before or _new_member(core, request, request.member_id)
    check_bytes(core, before, _as_joined(member, request, subscription))


def _new_member(core: GroupCore, request: JoinGroup, member_id: str) -> ConsumerMember:
    return ConsumerMember(
        group=core.group,
        member_id=member_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
    )


def _as_joined(
    member: ConsumerMember, request: JoinGroup, subscription: Subscription
) -> ConsumerMember:
    rebalance_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack=member.rack if subscription.rack is None else subscription.rack,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=frozenset(subscription.topics),
        pattern=None,
        assignor=None,
        rebalance_timeout_ms=member.rebalance_timeout_ms if rebalance_ms < 0 else rebalance_ms,
        classic=ClassicFace(
            session_timeout_ms=request.session_timeout_ms, protocols=request.protocols
        ),
    )


def _find(
    core: GroupCore, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicFace]:
    member = find_member(core.state, member_id, instance_id)
    if member.classic is None:
        raise UnknownMember(f"member {member_id!r} does not speak the classic protocol")
    return member, member.classic


def _check_generation(generation: int, epoch: int) -> None:
    if generation != epoch:
        raise IllegalGeneration(
            f"the member comes with generation {generation} and is at {epoch}: join again"
        )


def _rebalance(core: GroupCore, member: ConsumerMember, now_ms: int) -> RebalanceInProgress:
    """The member is to join again, and soon."""
    if not core.timers.runs(JOIN, member.member_id):
        core.timers.start(JOIN, member.member_id, now_ms + member.rebalance_timeout_ms)
    return RebalanceInProgress(f"group {core.group!r} shares its partitions out: join again")


def _waits_for_others(state: GroupState, member_id: str, assigned: Partitions) -> bool:
    """Whether nothing of what it has not got is free."""
    return not any(
        state.owner(topic_id, index) is None
        for topic_id, indices in state.targets.get(member_id, {}).items()
        for index in indices - assigned.get(topic_id, frozenset())
    )


# --- names and ids of topics ----------------------------------------------------------------------


def _owned(
    current: CurrentAssignment, subscription: Subscription, image: MetadataImage
) -> Partitions:
    """What a member may hold, going by what it says. Where it names something that it was not given
    as far as is known here, the metadata may be behind the ones it goes by: it may then hold all
    that it was given of topics that are not known."""
    found = dict(partitions_by_id(subscription.owned, image))
    given = (current.assigned, current.pending_revocation)
    is_known = sum(map(len, found.values())) == sum(map(len, subscription.owned.values())) and all(
        any(indices <= part.get(topic_id, frozenset()) for part in given)
        for topic_id, indices in found.items()
    )
    if not is_known:
        for topic_id, indices in chain.from_iterable(part.items() for part in given):
            if image.topic_of_id(topic_id) is None:
                found[topic_id] = found.get(topic_id, frozenset()) | indices
    return found


def partitions_by_id(owned: Mapping[str, tuple[int, ...]], image: MetadataImage) -> Partitions:
    """The same by the ids of the topics that exist."""
    found = {}
    for name, indices in owned.items():
        topic = image.topic(name)
        if topic is not None and indices:
            found[topic.id] = frozenset(indices)
    return found


def assignment_bytes(assigned: Partitions, version: int, image: MetadataImage) -> bytes:
    """What a member is given, as a classic one reads it; topics that are gone are left out."""
    by_name = {}
    for topic_id, indices in assigned.items():
        topic = image.topic_of_id(topic_id)
        if topic is not None:
            by_name[topic.name] = tuple(sorted(indices))
    partitions = dict(sorted(by_name.items()))
    return encode_assignment(Assignment(version=version, partitions=partitions))
