"""A model of members of the classic protocol in a group of KIP-848, and of the change of a group
from one protocol to the other.

- Such a member joins without waiting; its generation is its epoch, and its claims are what it has
  not revoked. It is asked to rejoin while it is to revoke partitions, while it can get some, and in
  a new group epoch; it must rejoin, and sync after that, within its rebalance timeout.
- A classic group becomes one of KIP-848 with the first join of that protocol, and a classic group
  again when its last member of KIP-848 has gone. No member loses a partition by either.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from quorumlog.broker.coordinator.decision import Ticket
from quorumlog.broker.groups.consumer_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    version_of,
)
from quorumlog.broker.groups.requests import (
    ClassicHeartbeat,
    ConsumerHeartbeat,
    DescribesTopic,
    Joined,
    JoinGroup,
    LeaveGroup,
    Synced,
    SyncGroup,
)
from quorumlog.metadata.image import MetadataImage

from .assignment import Place, Shares
from .classic import STABLE, ClassicModel, ModelMember, Refused
from .consumer import ConsumerModel, ConsumerModelMember, Face
from .replies import plain

LAG_MS: Final = 10_000  # in which a coordinator may have older metadata than a leader of a group
SKEW_MS: Final = 60_000


def handle(
    model: ConsumerModel,
    ticket: Ticket,
    request: Any,
    image: MetadataImage,
    now_ms: int,
    new_id: str,
    targets: Callable[[], Mapping[str, Shares]],
) -> None:
    """Apply a request of the classic protocol to a group of KIP-848."""
    try:
        match request:
            case JoinGroup():
                found = plain(_join(model, request, image, now_ms, new_id, targets))
            case SyncGroup():
                found = plain(_sync(model, request, image, now_ms))
            case ClassicHeartbeat():
                _heartbeat(model, request, image, now_ms)
                found = None
            case _:
                assert isinstance(request, LeaveGroup), f"{request}"
                found = _leave(model, request, image, now_ms)
    except Refused as refused:
        found = refused.name
    model.replies[ticket] = found


def check_join(model: ConsumerModel, request: JoinGroup) -> ConsumerSubscription:
    """Return the subscription of a join; raises Refused."""
    offered = {name for name, _ in request.protocols}
    for each in model.members.values():
        if each.classic is not None and each.member_id != request.member_id:
            offered &= {name for name, _ in each.classic.protocols}
    if request.protocol_type != "consumer" or not offered:
        raise Refused("InconsistentGroupProtocol")
    config = model.config
    lengths_ms = config.session_timeout_min_ms, config.session_timeout_max_ms
    if not lengths_ms[0] <= request.session_timeout_ms <= lengths_ms[1]:
        raise Refused("InvalidSessionTimeout")
    try:
        return decode_subscription(request.protocols[0][1])
    except ValueError:
        raise Refused("InconsistentGroupProtocol") from None


def _join(
    model: ConsumerModel,
    request: JoinGroup,
    image: MetadataImage,
    now_ms: int,
    new_id: str,
    targets: Callable[[], Mapping[str, Shares]],
) -> Joined:
    subscription = check_join(model, request)
    new_id = f"{request.client_id}-{new_id}"
    is_full = len(model.members) >= model.config.size_max
    if not request.member_id and request.instance_id is None and request.takes_member_id_first:
        if is_full:
            raise Refused("GroupFull")
        return Joined(member_id=new_id, is_member_id_required=True)
    known = model.members.get(request.member_id)
    is_removed = request.member_id and request.instance_id is None and known is None
    if is_removed and any(subscription.owned.values()):
        raise Refused("UnknownMember")  # others may have its partitions by now
    static = model.static(request.instance_id)
    was_assignor, is_new = model.assignor, False
    if request.instance_id is not None and request.member_id:
        member = model.find(request)
    elif static is not None:
        member = model.replace_static(static, new_id)
    elif known is not None:
        member = known
    elif is_full:
        raise Refused("GroupFull")
    else:
        is_new, member_id = True, request.member_id or new_id
        member = model.members[member_id] = ConsumerModelMember(
            member_id=member_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_ms=request.rebalance_timeout_ms,
        )
    had = member.topics, member.pattern
    _update(member, request, subscription)
    needs = is_new or had != (member.topics, None) or model.assignor != was_assignor
    model.forget_patterns()
    model.refresh(image, has_changed=needs)
    model.assign(targets, now_ms)
    held = _held(member, subscription.owned, image, request.describes)
    model.reconcile(member, held, now_ms, is_forced=needs)
    member.join_end_ms, member.sync_end_ms = None, now_ms + member.rebalance_ms
    model.start_session(member, now_ms)
    return Joined(
        member_id=member.member_id,
        generation=member.epoch,
        protocol_type="consumer",
        protocol=request.protocols[0][0],
    )


def _update(
    member: ConsumerModelMember, request: JoinGroup, subscription: ConsumerSubscription
) -> None:
    describes = request.describes
    member.topics = frozenset(
        name for name in subscription.topics if describes is None or describes(name)
    )
    member.pattern = member.assignor = None
    member.client_id, member.client_host = request.client_id, request.client_host
    if request.instance_id is not None:
        member.instance_id = request.instance_id
    if subscription.rack is not None:
        member.rack = subscription.rack
    if request.rebalance_timeout_ms >= 0:
        member.rebalance_ms = request.rebalance_timeout_ms
    protocols = tuple(_first_of_each(request.protocols).items())
    member.classic = Face(session_ms=request.session_timeout_ms, protocols=protocols)


def _held(
    member: ConsumerModelMember,
    owned: Mapping[str, tuple[int, ...]],
    image: MetadataImage,
    describes: DescribesTopic | None,
) -> frozenset[Place]:
    """Return the partitions that a member may hold by its claims. If it claims others, it may hold
    its partitions of topics that the coordinator does not have as well."""
    claims = [
        (name, index)
        for name, indices in owned.items()
        if describes is None or describes(name)
        for index in indices
    ]
    found = _by_id(claims, image)
    topics = {topic for topic, _ in found}
    is_given = all(
        any({place for place in found if place[0] == topic} <= part for part in _parts(member))
        for topic in topics
    )
    if len(found) == len(claims) and is_given:
        return found
    unknown = {
        place for part in _parts(member) for place in part if image.topic_of_id(place[0]) is None
    }
    return found | unknown


def _parts(member: ConsumerModelMember) -> tuple[frozenset[Place], frozenset[Place]]:
    return member.assigned, member.revoking


def _find(model: ConsumerModel, request: Any) -> tuple[ConsumerModelMember, Face]:
    member = model.find(request)
    if member.classic is None:
        raise Refused("UnknownMember")
    if request.generation != member.epoch:
        raise Refused("IllegalGeneration")
    return member, member.classic


def _sync(model: ConsumerModel, request: SyncGroup, image: MetadataImage, now_ms: int) -> Synced:
    member, face = _find(model, request)
    protocol, subscription = face.protocols[0]
    if request.protocol_type not in (None, "consumer") or request.protocol not in (None, protocol):
        raise Refused("InconsistentGroupProtocol")
    model.forget_patterns()
    model.refresh(image, has_changed=False)
    model.start_session(member, now_ms)
    if model.epoch > member.epoch and not _shown(member.revoking, image, request.describes):
        raise _rejoin(member, now_ms)
    member.sync_end_ms = None
    shown = _shown(member.assigned, image, request.describes)
    return Synced(
        protocol_type="consumer",
        protocol=protocol,
        assignment=_encoded(shown, version_of(subscription), image),
    )


def _heartbeat(
    model: ConsumerModel, request: ClassicHeartbeat, image: MetadataImage, now_ms: int
) -> None:
    member, _ = _find(model, request)
    model.forget_patterns()
    model.refresh(image, has_changed=False)
    model.start_session(member, now_ms)
    taken = {place for each in model.members.values() for place in (*each.assigned, *each.revoking)}
    is_behind = member.epoch < model.epoch
    may_get = member.lacks and bool(member.target - member.assigned - taken)
    if is_behind or member.revoking or may_get:
        raise _rejoin(member, now_ms)


def _rejoin(member: ConsumerModelMember, now_ms: int) -> Refused:
    if member.join_end_ms is None:
        member.join_end_ms = now_ms + member.rebalance_ms
    return Refused("RebalanceInProgress")


def _leave(model: ConsumerModel, request: LeaveGroup, image: MetadataImage, now_ms: int) -> Any:
    errors: list[str | None] = []
    leaving: list[str] = []
    for leaver in request.leavers:
        static = None if leaver.member_id else model.static(leaver.instance_id)
        try:
            member = static or model.find(leaver)
            if member.member_id in leaving:
                raise Refused("UnknownMember")
            leaving.append(member.member_id)
            errors.append(None)
        except Refused as refused:
            errors.append(refused.name)
    if leaving:
        model.fence(leaving, image, now_ms)
    return "Left", {"errors": tuple(errors)}


# --- changes of the protocol ----------------------------------------------------------------------


def may_downgrade(model: ConsumerModel) -> bool:
    """Return True if all members are of the classic protocol, and the policy allows a change."""
    return (
        bool(model.members)
        and all(each.classic is not None for each in model.members.values())
        and model.config.migration in ("bidirectional", "downgrade")
    )


def downgraded(
    model: ConsumerModel, image: MetadataImage, now_ms: int, order: list[str]
) -> ClassicModel:
    """Return the classic group with the members in this order: they keep what they have, and are to
    rejoin."""
    members = [model.members[name] for name in order]
    faces = [each.classic for each in members if each.classic is not None]
    assert len(faces) == len(members), "a member of KIP-848"
    protocol = next(
        name
        for name, _ in faces[0].protocols
        if all(name in dict(face.protocols) for face in faces)
    )
    found = ClassicModel(model.group, model.config)
    found.generation, found.state_ms = model.epoch, now_ms
    found.protocol_type, found.protocol, found.leader = "consumer", protocol, order[0]
    for each, face in zip(members, faces, strict=True):
        version = version_of(dict(face.protocols)[protocol])
        found.members[each.member_id] = ModelMember(
            member_id=each.member_id,
            instance_id=each.instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            session_ms=face.session_ms,
            rebalance_ms=each.rebalance_ms if each.rebalance_ms > 0 else face.session_ms,
            protocols=dict(face.protocols),
            since_ms=now_ms,
            assignment=_encoded(each.assigned | each.revoking, version, image),
        )
    found.state = STABLE
    found.store()
    found.hides_assignments = True
    found.begin_rebalance(now_ms)
    return found


def _first_of_each(protocols: tuple[tuple[str, bytes], ...]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, content in protocols:
        found.setdefault(name, content)
    return found


def upgraded(
    classic: ClassicModel, request: ConsumerHeartbeat, image: MetadataImage, now_ms: int
) -> ConsumerModel:
    """Return the group of KIP-848 with the classic members; raises Refused."""
    model = ConsumerModel(classic.group, classic.config)
    if not classic.members:
        return model
    if classic.config.migration not in ("bidirectional", "upgrade"):
        raise Refused("GroupNotFound")
    if classic.protocol_type != "consumer":
        raise Refused("GroupNotFound")
    model.epoch = model.target_epoch = max(classic.generation, 1)
    taken = set[Place]()
    claims: list[tuple[int, ConsumerModelMember, frozenset[Place]]] = []
    for each in classic.members.values():
        member = _upgraded(each, request.describes)
        _check_described(member.topics, request.describes)
        given = _decoded(each.assignment)
        _check_described(frozenset(given), request.describes)
        is_recent = -SKEW_MS <= now_ms - classic.state_ms < LAG_MS
        if is_recent and any(image.topic(name) is None for name in given):
            raise Refused("CoordinatorNotAvailable")
        member.assigned = _by_id(_each(given), image) - taken
        member.epoch = member.previous_epoch = model.epoch
        member.target = member.assigned
        taken |= member.assigned
        model.members[each.member_id] = member
    for each in classic.members.values():
        chosen = each.protocols.get(classic.protocol or "")
        said = _subscription(next(iter(each.protocols.values())) if chosen is None else chosen)
        _check_described(frozenset(said.owned), request.describes)
        claimed = _by_id(_each(said.owned), image)
        claims.append((said.generation, model.members[each.member_id], claimed))
    for _, member, claimed in sorted(claims, key=lambda claim: -claim[0]):
        member.revoking = claimed - taken
        taken |= claimed
    for member in model.members.values():
        model.start_session(member, now_ms)
    return model


def _upgraded(member: ModelMember, describes: DescribesTopic | None) -> ConsumerModelMember:
    protocols = tuple(member.protocols.items())
    subscription = _subscription(protocols[0][1])
    return ConsumerModelMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack=subscription.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        rebalance_ms=member.rebalance_ms,
        classic=Face(session_ms=member.session_ms, protocols=protocols),
    )


def _subscription(content: bytes) -> ConsumerSubscription:
    try:
        return decode_subscription(content)
    except ValueError:
        raise Refused("GroupNotFound") from None


def _decoded(content: bytes) -> Mapping[str, tuple[int, ...]]:
    try:
        return decode_assignment(content).partitions
    except ValueError:
        raise Refused("GroupNotFound") from None


def _check_described(names: frozenset[str], describes: DescribesTopic | None) -> None:
    if describes is not None and not all(map(describes, names)):
        raise Refused("TopicAuthorizationFailed")


# --- partitions -----------------------------------------------------------------------------------


def _each(partitions: Mapping[str, tuple[int, ...]]) -> list[tuple[str, int]]:
    return [(name, index) for name, indices in partitions.items() for index in indices]


def _by_id(partitions: list[tuple[str, int]], image: MetadataImage) -> frozenset[Place]:
    found = ((image.topic(name), index) for name, index in partitions)
    return frozenset((topic.id, index) for topic, index in found if topic is not None)


def _shown(
    partitions: frozenset[Place], image: MetadataImage, describes: DescribesTopic | None
) -> frozenset[Place]:
    """Return the partitions of topics that a client may describe, and of deleted topics."""
    return frozenset(
        place
        for place in partitions
        if describes is None
        or (topic := image.topic_of_id(place[0])) is None
        or describes(topic.name)
    )


def _encoded(partitions: frozenset[Place], version: int, image: MetadataImage) -> bytes:
    by_name: dict[str, tuple[int, ...]] = {}
    for topic_id, index in sorted(partitions):
        topic = image.topic_of_id(topic_id)
        if topic is not None:
            by_name[topic.name] = (*by_name.get(topic.name, ()), index)
    found = ConsumerAssignment(version=version, partitions=dict(sorted(by_name.items())))
    return encode_assignment(found)
