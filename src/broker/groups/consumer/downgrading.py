"""Downgrade of a KIP-848 group: it becomes classic when only classic members are left."""

from collections.abc import Callable

from ....metadata.image import MetadataImage
from ..classic import ClassicGroupMachine
from ..consumer_protocol import PROTOCOL_TYPE, decode_subscription
from ..decision import Decision
from ..records import ClassicGroup, CurrentAssignment, Partitions, StoredMember
from .classic_face import assignment_bytes
from .core import GroupCore
from .state import GroupState


def is_to_downgrade(core: GroupCore) -> bool:
    """Return True if all members use the classic protocol and the policy allows a downgrade."""
    state = core.state
    return (
        state.classic_count > 0
        and state.classic_count == len(state.members)
        and core.config.migration in ("bidirectional", "downgrade")
    )


def downgrade(
    core: GroupCore, draw: Callable[[], str], image: MetadataImage, now_ms: int
) -> tuple[ClassicGroupMachine, Decision]:
    """Return the classic group and the records of the change. Its members keep their assignments
    and are asked to rejoin."""
    record = _as_classic(core.state, image, now_ms)
    protocols = {
        member_id: member.classic.protocols
        for member_id, member in core.state.members.items()
        if member.classic is not None
    }
    for tombstone in list(core.state.tombstones()):
        core.append(tombstone)
    machine = ClassicGroupMachine(core.group, core.config, draw)
    machine.load(record, now_ms, protocols)
    decision = Decision((*core.take_records(), record)) + machine.take_over(now_ms)
    return machine, decision + machine.rebalance(now_ms)


def _as_classic(state: GroupState, image: MetadataImage, now_ms: int) -> ClassicGroup:
    protocol = _shared_protocol(state)
    members = []
    for member_id, member in state.members.items():
        assert member.classic is not None, f"{member_id} does not use the classic protocol"
        subscription = dict(member.classic.protocols)[protocol]
        held = _held_by(state.current_of(member_id))
        members.append(
            StoredMember(
                member_id=member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                subscription=subscription,
                assignment=assignment_bytes(held, _version(subscription), image),
            )
        )
    return ClassicGroup(
        group=state.group,
        protocol_type=PROTOCOL_TYPE,
        generation=state.epoch,
        protocol=protocol,
        leader=members[0].member_id,
        state_ms=now_ms,
        members=tuple(members),
    )


def _version(subscription: bytes) -> int:
    """Return the version of a subscription, or 0 if it is malformed: at the join, only the
    subscription of the first protocol was decoded."""
    try:
        return decode_subscription(subscription).version
    except ValueError:
        return 0


def _held_by(current: CurrentAssignment) -> Partitions:
    """Return the assigned partitions and those not revoked yet. The member may still use the
    latter, so they must not count as free if the group is upgraded again."""
    held = dict(current.assigned)
    for topic_id, indices in current.pending_revocation.items():
        held[topic_id] = held.get(topic_id, frozenset()) | indices
    return held


def _shared_protocol(state: GroupState) -> str:
    """Return the first protocol of the first member that all support; joins ensure that there is
    one."""
    faces = [member.classic for member in state.members.values() if member.classic is not None]
    for name, _ in faces[0].protocols:
        if all(name in dict(face.protocols) for face in faces):
            return name
    raise AssertionError(f"the members of {state.group} share no protocol")
