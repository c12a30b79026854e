"""The heartbeat of KIP-848. All checks come first; after them no step fails."""

from collections.abc import Callable
from dataclasses import replace

from ....errors import (
    FencedInstance,
    FencedMemberEpoch,
    GroupFull,
    InvalidRequest,
    UnknownMember,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from ....metadata.image import MetadataImage
from ..config import GroupConfig
from ..records import ConsumerMember, CurrentAssignment, MemberState
from ..requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerBeat,
    ConsumerHeartbeat,
    JoinGroup,
)
from .core import JOIN, REVOKE, SYNC, GroupCore
from .reconciliation import is_within
from .state import GroupState, stored_bytes
from .subscriptions import check_pattern


def check_heartbeat(request: ConsumerHeartbeat, config: GroupConfig) -> None:
    """Validate a heartbeat without regard to the group. Raises InvalidRequest, UnsupportedAssignor,
    InvalidPattern."""
    if request.instance_id == "" or request.rack == "":
        raise InvalidRequest("an instance id or a rack is empty; leave it out")
    if request.member_epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequest(f"member epoch {request.member_epoch} is invalid; send 0 to join")
    if not request.member_id and request.member_epoch != JOIN_EPOCH:
        raise InvalidRequest("the member id is missing; send the one in the answer to the join")
    if request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise InvalidRequest("only a static member can leave with epoch -2; send -1")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    if request.assignor is not None and request.assignor not in config.assignors:
        raise UnsupportedAssignor(
            f"unknown assignor {request.assignor!r}; use one of {', '.join(config.assignors)}"
        )
    if request.pattern:
        check_pattern(request.pattern)


def _check_join(request: ConsumerHeartbeat) -> None:
    if request.rebalance_timeout_ms < 0:
        raise InvalidRequest("the join has no rebalance timeout; send one")
    if request.topics is None and request.pattern is None:
        raise InvalidRequest("the join has neither topics nor a pattern; send one of them")
    if request.owned:
        raise InvalidRequest("the join claims partitions; revoke all of them first")


def heartbeat(
    core: GroupCore,
    draw: Callable[[], str],
    request: ConsumerHeartbeat,
    image: MetadataImage,
    now_ms: int,
) -> ConsumerBeat:
    """Let a member join or stay; raise an error before anything has changed."""
    check_heartbeat(request, core.config)
    if request.member_epoch == JOIN_EPOCH:
        member_id = request.member_id or draw()
        _check_join_bytes(core, request, member_id)
        member = _admit(core, request, member_id)
        changed = _with_heartbeat(member, request)
    else:
        member = _find(core.state, request)
        _check_epoch(core.state.current_of(member.member_id), request)
        changed = _with_heartbeat(member, request)
        check_bytes(core, member, changed, request)
    return _apply_heartbeat(core, member, changed, request, image, now_ms)


def renew_session(
    core: GroupCore, request: ConsumerHeartbeat, image: MetadataImage, now_ms: int
) -> ConsumerBeat | None:
    """Answer a heartbeat that reports no change, of a member with its target assignment. Return
    None, without an effect, for any other."""
    state, member_id, epoch = core.state, request.member_id, request.member_epoch
    member, current = state.members.get(member_id), state.current.get(member_id)
    if (
        member is None
        or current is None
        or member.classic is not None
        or not JOIN_EPOCH < epoch == current.epoch == state.target_epoch == state.epoch
        or current.state is not MemberState.STABLE
        or not core.is_current(image)
        or request.topics is not None
        or request.owned is not None
        or request.instance_id is not None
        or request.pattern is not None
        or request.assignor is not None
        or _with_heartbeat(member, request) is not member
        or not core.postpone_session(member_id, now_ms)
    ):
        return None
    return ConsumerBeat(
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=core.config.consumer_heartbeat_ms,
        session_timeout_ms=core.config.consumer_session_ms,
    )


def _apply_heartbeat(
    core: GroupCore,
    member: ConsumerMember,
    changed: ConsumerMember,
    request: ConsumerHeartbeat,
    image: MetadataImage,
    now_ms: int,
) -> ConsumerBeat:
    member_id = member.member_id
    before = core.state.current_of(member_id)
    has_changed = core.put_member(changed)
    if member.classic is not None:
        core.timers.drop((JOIN, member_id))
        core.timers.drop((SYNC, member_id))
    core.refresh(
        image,
        now_ms,
        has_changed=has_changed,
        pattern=changed.pattern,
        describes=request.describes,
    )
    core.assign(now_ms)
    owned = {} if request.member_epoch == JOIN_EPOCH else request.owned
    after = core.reconcile_member(member_id, owned, now_ms, is_forced=has_changed)
    core.start_session(member_id, now_ms)
    is_full_request = (
        request.rebalance_timeout_ms >= 0
        and (request.topics is not None or request.pattern is not None)
        and request.owned is not None
    )
    sends_assignment = (
        is_full_request  # a full request: the member may have missed the last answers
        or request.member_epoch != before.epoch
        or after.assigned != before.assigned
    )
    return ConsumerBeat(
        member_id=member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=core.config.consumer_heartbeat_ms,
        session_timeout_ms=core.config.consumer_session_ms,
        assignment=after.assigned
        if sends_assignment or request.member_epoch == JOIN_EPOCH
        else None,
    )


def leave(
    core: GroupCore, request: ConsumerHeartbeat, image: MetadataImage, now_ms: int
) -> ConsumerBeat:
    """Remove a member, or let a static one leave temporarily: its partitions stay reserved."""
    check_heartbeat(request, core.config)
    member = _find(core.state, request)
    if request.member_epoch == LEAVE_EPOCH:
        core.fence((member.member_id,), image, now_ms)
    else:
        before = core.state.current_of(member.member_id)
        after = replace(
            before,
            epoch=LEAVE_STATIC_EPOCH,
            state=MemberState.STABLE,
            pending_revocation={},
        )
        if after != before:
            core.append(after)
            core.start_session(member.member_id, now_ms)
        core.timers.drop((REVOKE, member.member_id))
    return ConsumerBeat(
        member_id=member.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=core.config.consumer_heartbeat_ms,
        session_timeout_ms=core.config.consumer_session_ms,
    )


# --- members --------------------------------------------------------------------------------------


def _admit(core: GroupCore, request: ConsumerHeartbeat, member_id: str) -> ConsumerMember:
    """Return the joining member: a new one, a known one that was fenced (KAFKA-19233), or a new
    instance of a static one."""
    state = core.state
    old = None if request.instance_id is None else state.static_member(request.instance_id)
    known = state.members.get(member_id)
    if old is None or old is known:
        check_size(core, is_known=known is not None)
        if known is None:
            return _new_member(core.group, request, member_id)
        if state.current_of(known.member_id).epoch == LEAVE_STATIC_EPOCH:
            return core.replace_static(known, known.member_id)
        # sometimes: a member joins again without leaving
        return known
    if old.classic is None and state.current_of(old.member_id).epoch != LEAVE_STATIC_EPOCH:
        raise UnreleasedInstance(
            f"member {old.member_id} with instance id {request.instance_id!r} has not left; stop"
            " it first"
        )
    # sometimes: an instance takes over a static member
    check_new_id(state, member_id)
    return core.replace_static(old, member_id)


def check_size(core: GroupCore, *, is_known: bool) -> None:
    """Raise GroupFull if a new member would exceed the limit."""
    if not is_known and len(core.state.members) >= core.config.size_max:
        raise GroupFull(
            f"group {core.group!r}: has group.max.size={core.config.size_max} members; raise the"
            " limit, or use another group"
        )


def _check_join_bytes(core: GroupCore, request: ConsumerHeartbeat, member_id: str) -> None:
    state = core.state
    before = state.members.get(member_id)
    if before is None and request.instance_id is not None:
        before = state.static_member(request.instance_id)
    member = before or _new_member(core.group, request, member_id)
    if member_id != member.member_id:
        member = replace(member, member_id=member_id)
    check_bytes(core, before, _with_heartbeat(member, request), request)


def check_bytes(
    core: GroupCore,
    before: ConsumerMember | None,
    member: ConsumerMember,
    request: ConsumerHeartbeat | JoinGroup,
) -> None:
    """Raise GroupFull if the subscriptions of all members are too large to be stored together, or
    the client adds too much to the groups of the broker."""
    if member is before:
        return
    more = stored_bytes(member) - (0 if before is None else stored_bytes(before))
    if more <= 0:
        return
    size, limit = core.state.stored_bytes + more, core.config.group_bytes_max
    if size > limit:
        raise GroupFull(
            f"group {core.group!r}: the subscriptions of its members have {size} bytes, the limit"
            f" is {limit}; subscribe by a pattern, or use several groups"
        )
    if request.check_growth is not None:
        request.check_growth(more)


def check_new_id(state: GroupState, member_id: str) -> None:
    """Raise InvalidRequest if the new id of a static member is that of another member."""
    if member_id in state.members:
        raise InvalidRequest(f"member id {member_id} belongs to another member; generate a new one")


def _new_member(group: str, request: ConsumerHeartbeat, member_id: str) -> ConsumerMember:
    """Return a member with no subscription yet."""
    return ConsumerMember(
        group=group,
        member_id=member_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
    )


def _find(state: GroupState, request: ConsumerHeartbeat) -> ConsumerMember:
    return find_member(state, request.member_id, request.instance_id)


def find_member(state: GroupState, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return the member that sent a request.

    Raises UnknownMember, or FencedInstance if another member has its instance id.
    """
    if instance_id is None:
        member = state.members.get(member_id)
        if member is None:
            raise UnknownMember(
                f"group {state.group!r}: no member {member_id!r}; join again with epoch 0"
            )
        return member
    member = state.static_member(instance_id)
    if member is None:
        raise UnknownMember(
            f"group {state.group!r}: no member with instance id {instance_id!r}; join again"
        )
    if member.member_id != member_id:
        # sometimes: a replaced static member sends a request
        raise FencedInstance(
            f"member {member.member_id} has taken over instance id {instance_id!r}; stop this"
            " instance"
        )
    return member


def _check_epoch(current: CurrentAssignment, request: ConsumerHeartbeat) -> None:
    """Raise FencedMemberEpoch unless the epoch is current. The previous epoch is accepted too if
    the member holds no partition beyond its assignment: it missed the answer that raised the
    epoch."""
    epoch = request.member_epoch
    if epoch == current.epoch:
        return
    if (
        epoch < current.epoch
        and epoch == current.previous_epoch
        and is_within(request.owned, current.assigned)
    ):
        # sometimes: a member repeats its epoch after a lost response
        return
    # sometimes if epoch > current.epoch: a member has a later epoch than its coordinator
    raise FencedMemberEpoch(
        f"the member's epoch {epoch} is not the current one, {current.epoch}; revoke all"
        " partitions, and join again with epoch 0"
    )


def _with_heartbeat(member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    """Return the member with the changes of the heartbeat; the same object if there are none."""
    topics = member.topics if request.topics is None else request.topics
    pattern = member.pattern if request.pattern is None else request.pattern or None
    rebalance_ms = request.rebalance_timeout_ms
    if rebalance_ms < 0:
        rebalance_ms = member.rebalance_timeout_ms
    instance_id = member.instance_id if request.instance_id is None else request.instance_id
    rack = member.rack if request.rack is None else request.rack
    assignor = member.assignor if request.assignor is None else request.assignor
    if (
        topics == member.topics
        and pattern == member.pattern
        and rebalance_ms == member.rebalance_timeout_ms
        and instance_id == member.instance_id
        and rack == member.rack
        and assignor == member.assignor
        and request.client_id == member.client_id
        and request.client_host == member.client_host
        and member.classic is None
    ):
        return member
    return replace(
        member,
        topics=topics,
        pattern=pattern,
        rebalance_timeout_ms=rebalance_ms,
        instance_id=instance_id,
        rack=rack,
        assignor=assignor,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )
