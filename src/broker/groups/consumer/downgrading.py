"""A group becomes classic again when its last member of KIP-848 is gone, and others are left."""

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
    """Whether all members speak the classic protocol, and the group may."""
    state = core.state
    return (
        state.classic_count > 0
        and state.classic_count == len(state.members)
        and core.config.migration in ("bidirectional", "downgrade")
    )


def downgrade(
    core: GroupCore, draw: Callable[[], str], image: MetadataImage, now_ms: int
) -> tuple[ClassicGroupMachine, Decision]:
    """The classic group that it becomes, with the records of the change: its members have what
    they have, and are asked to join again."""
    record = _as_classic(core.state, image, now_ms)
    protocols = {
        member_id: member.classic.protocols
        for member_id, member in core.state.members.items()
        if member.classic is not None
    }
    for tombstone in list(core.state.tombstones()):
        core.put(tombstone)
    machine = ClassicGroupMachine(core.group, core.config, draw)
    machine.load(record, now_ms, protocols)
    decision = Decision((*core.take(), record)) + machine.take_over(now_ms)
    return machine, decision + machine.rebalance(now_ms)


def _as_classic(state: GroupState, image: MetadataImage, now_ms: int) -> ClassicGroup:
    protocol = _shared_protocol(state)
    members = []
    for member_id, member in state.members.items():
        assert member.classic is not None, f"{member_id} does not speak the classic protocol"
        subscription = dict(member.classic.protocols)[protocol]
        held = _held(state.current_of(member_id))
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
    """The version that a member speaks; the oldest one where nobody can read what it says: of all
    its strategies only the first was read when it joined."""
    try:
        return decode_subscription(subscription).version
    except ValueError:
        return 0


def _held(current: CurrentAssignment) -> Partitions:
    """What a member has, and what it was to give back and may have too: nobody asks it for that
    any more, and where the group is upgraded again it is not free."""
    held = dict(current.assigned)
    for topic_id, indices in current.pending_revocation.items():
        held[topic_id] = held.get(topic_id, frozenset()) | indices
    return held


def _shared_protocol(state: GroupState) -> str:
    """The first strategy of the first member that all have; joins have seen to it that one is."""
    faces = [member.classic for member in state.members.values() if member.classic is not None]
    for name, _ in faces[0].protocols:
        if all(name in dict(face.protocols) for face in faces):
            return name
    raise AssertionError(f"the members of {state.group} share no strategy")
