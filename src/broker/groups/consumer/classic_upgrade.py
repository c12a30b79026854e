"""Upgrade of a classic group to KIP-848, when its first KIP-848 member joins, without stopping
members."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ....errors import (
    CoordinatorNotAvailable,
    GroupNotFound,
    QuorumlogError,
    RebalanceInProgress,
    TopicAuthorizationFailed,
)
from ....ids import TopicId
from ....metadata.image import MetadataImage
from ...coordinator.decision import Failed, ShardDecision, Ticket
from ..classic_group import ClassicGroupMachine
from ..config import GroupConfig
from ..consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerSubscription,
    EntryBudget,
    decode_assignment,
    decode_subscription,
)
from ..records import (
    ClassicGroup,
    ClassicGroupForgotten,
    ClassicMemberMetadata,
    ConsumerGroup,
    ConsumerMember,
    CurrentAssignment,
    GroupDecision,
    GroupRecord,
    MemberState,
    Partitions,
    StoredMember,
    TargetAssignment,
    TargetEpoch,
)
from ..requests import ConsumerHeartbeat, DescribesTopic
from .classic_members import partitions_by_id
from .group import ConsumerGroupMachine
from .heartbeat import check_heartbeat

METADATA_LAG_MS: Final = 10_000
"""The maximum age of metadata of a serving coordinator: members may have assigned a new topic that
the coordinator does not have yet. A coordinator further behind serves no group, unless all in-sync
replicas follow it."""

ENTRIES_MAX: Final = 200_000
"""Topics and partitions of all members, equal subscriptions once: about 0.2 s of the event loop."""

CLOCK_SKEW_MS: Final = 60_000
"""The maximum difference between the clocks of two coordinators of a group."""


def upgrade(
    classic: ClassicGroupMachine,
    ticket: Ticket,
    request: ConsumerHeartbeat,
    image: MetadataImage,
    *,
    config: GroupConfig,
    draw: Callable[[], str],
    now_ms: int,
) -> tuple[ConsumerGroupMachine | None, GroupDecision]:
    """Answer a KIP-848 heartbeat to a classic group, empty or not.

    Return a machine that replaces the group, and the decision: the records of the change, the
    replies to waiting joins and syncs, and that to the heartbeat. None in place of the machine
    means that the request was refused and nothing changed. The decision then has the error:
    GroupNotFound if the group cannot or must not change, CoordinatorNotAvailable if it cannot yet,
    TopicAuthorizationFailed if the client may not describe the topics of the classic members: the
    results of the change would disclose which ones exist.
    """
    try:
        check_heartbeat(request, config)
        if not classic.is_empty:
            _check_may_upgrade(classic, config)
        records = _as_consumer(classic, image, now_ms, request.describes)
    except QuorumlogError as error:
        return None, ShardDecision(replies=(Failed(ticket, error),))
    machine = ConsumerGroupMachine(classic.group, config, draw)
    for record in records:
        machine.replay(record)
    machine.loaded(now_ms)
    answer = machine.heartbeat(ticket, request, image, now_ms)
    if not answer.records:
        return None, answer
    ended = classic.drop(
        RebalanceInProgress(
            f"group {classic.group!r}: the group changes to the consumer protocol; join again"
        )
    )
    forgotten: GroupDecision = ShardDecision((ClassicGroupForgotten(group=classic.group),))
    return machine, forgotten + ended + ShardDecision(tuple(records)) + answer


def _check_may_upgrade(classic: ClassicGroupMachine, config: GroupConfig) -> None:
    group = classic.group
    if config.migration not in ("bidirectional", "upgrade"):
        raise GroupNotFound(
            f"group {group!r}: a classic group, which group.consumer.migration.policy keeps"
            " classic; stop its members first"
        )
    if classic.protocol_type != PROTOCOL_TYPE:
        raise GroupNotFound(
            f"group {group!r}: its protocol type is {classic.protocol_type!r}, not consumer; use"
            " another group"
        )


def _as_consumer(
    classic: ClassicGroupMachine,
    image: MetadataImage,
    now_ms: int,
    describes: DescribesTopic | None,
) -> list[GroupRecord]:
    """Return the group as KIP-848 records, in which current and target assignment of each member
    are equal.

    Of a partition that the group's leader assigned to two members, the first one has it. A
    partition that no member was assigned because a cooperative member has yet to revoke it belongs
    to that member until it rejoins.
    """
    stored = classic.snapshot()
    if not stored.members:
        return []
    offers = classic.protocols()
    group, epoch = stored.group, max(stored.generation, 1)
    contents = _MemberContents(group)
    taken: dict[TopicId, set[int]] = {}
    members: list[ConsumerMember] = []
    targets: list[TargetAssignment] = []
    for each in stored.members:
        offered = offers.get(each.member_id) or ((stored.protocol or "", each.subscription),)
        members.append(_member(group, each, offered, contents))
        _check_described(group, members[-1].topics, describes)
        partitions = contents.assignment(each)
        _check_described(group, partitions, describes)
        assigned = _not_taken(_assigned(stored, partitions, image, now_ms), taken)
        targets.append(TargetAssignment(group=group, member_id=each.member_id, partitions=assigned))
    held = _not_revoked(members, stored.protocol, contents, image, taken, describes)
    currents = [
        CurrentAssignment(
            group=group,
            member_id=target.member_id,
            epoch=epoch,
            previous_epoch=epoch,
            state=(
                MemberState.UNREVOKED_PARTITIONS if held[target.member_id] else MemberState.STABLE
            ),
            assigned=target.partitions,
            pending_revocation=held[target.member_id],
        )
        for target in targets
    ]
    return [
        *members,
        ConsumerGroup(group=group, epoch=epoch),
        *targets,
        TargetEpoch(group=group, epoch=epoch),
        *currents,
    ]


def _not_revoked(
    members: list[ConsumerMember],
    protocol: str | None,
    contents: "_MemberContents",
    image: MetadataImage,
    taken: dict[TopicId, set[int]],
    describes: DescribesTopic | None,
) -> dict[str, Partitions]:
    """Return the partitions that each member claimed in its last join and that are not assigned.
    Each stays with its claimant until that member rejoins; of two claimants, the one of the later
    generation has it."""
    said: dict[str, ConsumerSubscription] = {}
    for member in members:
        assert member.classic is not None
        offered = dict(member.classic.protocols)
        said[member.member_id] = contents.subscription(
            member.member_id,
            offered.get(protocol or "", member.classic.protocols[0][1]),
        )
        _check_described(member.group, said[member.member_id].owned, describes)
    return {
        member_id: _not_taken(partitions_by_id(subscription.owned, image), taken)
        for member_id, subscription in sorted(
            said.items(), key=lambda item: item[1].generation, reverse=True
        )
    }


def _member(
    group: str,
    stored: StoredMember,
    protocols: tuple[tuple[str, bytes], ...],
    contents: "_MemberContents",
) -> ConsumerMember:
    subscription = contents.subscription(stored.member_id, protocols[0][1])
    return ConsumerMember(
        group=group,
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        rack=subscription.rack,
        client_id=stored.client_id,
        client_host=stored.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        classic=ClassicMemberMetadata(
            session_timeout_ms=stored.session_timeout_ms, protocols=protocols
        ),
    )


class _MemberContents:
    """Decodes the subscriptions and assignments of a group's members, up to ENTRIES_MAX entries.
    Each of its methods raises GroupNotFound."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._budget = EntryBudget(ENTRIES_MAX)
        self._subscriptions: dict[bytes, ConsumerSubscription] = {}  # by their encoding

    def subscription(self, member_id: str, encoded: bytes) -> ConsumerSubscription:
        """Decode a subscription of a member."""
        known = self._subscriptions.get(encoded)
        if known is None:
            try:
                known = decode_subscription(encoded, self._budget)
            except ValueError as error:
                raise self._unchangeable("subscription", member_id, error) from error
            self._subscriptions[encoded] = known
        return known

    def assignment(self, member: StoredMember) -> Mapping[str, tuple[int, ...]]:
        """Decode the assignment of a member."""
        try:
            return decode_assignment(member.assignment, self._budget).partitions
        except ValueError as error:
            raise self._unchangeable("assignment", member.member_id, error) from error

    def _unchangeable(self, content: str, member_id: str, error: ValueError) -> GroupNotFound:
        return GroupNotFound(
            f"group {self._group!r}: a classic group that cannot change: the {content} of"
            f" {member_id!r} is malformed or too large: {error}"
        )


def _assigned(
    stored: ClassicGroup,
    partitions: Mapping[str, tuple[int, ...]],
    image: MetadataImage,
    now_ms: int,
) -> Partitions:
    unknown = [name for name in partitions if image.topic(name) is None]
    if unknown and -CLOCK_SKEW_MS <= now_ms - stored.state_ms < METADATA_LAG_MS:
        # Without them, the partitions would be assigned to other members too.
        raise CoordinatorNotAvailable(
            f"group {stored.group!r}: this coordinator has no metadata yet of the assigned topics"
            f" {', '.join(sorted(unknown))}; retry shortly"
        )
    return partitions_by_id(partitions, image)


def _check_described(group: str, names: Iterable[str], describes: DescribesTopic | None) -> None:
    if describes is not None and not all(map(describes, names)):
        raise TopicAuthorizationFailed(
            f"group {group!r}: its classic members have topics that the client may not describe;"
            " ask an administrator for an ACL, or stop these members first"
        )


def _not_taken(partitions: Partitions, taken: dict[TopicId, set[int]]) -> Partitions:
    """Return the partitions that are not taken yet, and record them as taken."""
    found = {}
    for topic_id, indices in partitions.items():
        of_topic = taken.setdefault(topic_id, set())
        left = indices - of_topic
        of_topic |= left
        if left:
            found[topic_id] = left
    return found
