"""Errors of consumer groups."""

from .base import GroupError, RetriableError


class OffsetNoteTooLarge(
    GroupError, code=12, name="OFFSET_METADATA_TOO_LARGE", status="INVALID_ARGUMENT"
):
    """The metadata of a committed offset is longer than `offset.metadata.max.bytes`."""


class CoordinatorLoading(
    GroupError, RetriableError, code=14, name="COORDINATOR_LOAD_IN_PROGRESS", status="UNAVAILABLE"
):
    """The group's coordinator was just elected and loads its state. Retry later."""


class CoordinatorNotAvailable(
    GroupError, RetriableError, code=15, name="COORDINATOR_NOT_AVAILABLE", status="UNAVAILABLE"
):
    """No broker is the group's coordinator now. Retry later."""


class NotCoordinator(
    GroupError, RetriableError, code=16, name="NOT_COORDINATOR", status="UNAVAILABLE"
):
    """Another broker is the group's coordinator. Find it and use that one."""


class IllegalGeneration(
    GroupError, code=22, name="ILLEGAL_GENERATION", status="FAILED_PRECONDITION"
):
    """The group has a newer generation. Join again."""


class InconsistentGroupProtocol(
    GroupError, code=23, name="INCONSISTENT_GROUP_PROTOCOL", status="FAILED_PRECONDITION"
):
    """The member has no assignment strategy, or no protocol type, in common with the others."""


class InvalidGroupId(GroupError, code=24, name="INVALID_GROUP_ID", status="INVALID_ARGUMENT"):
    """The group's name is empty."""


class UnknownMember(GroupError, code=25, name="UNKNOWN_MEMBER_ID", status="FAILED_PRECONDITION"):
    """The group has no such member, or has removed it. Join again as a new member."""


class InvalidSessionTimeout(
    GroupError, code=26, name="INVALID_SESSION_TIMEOUT", status="INVALID_ARGUMENT"
):
    """The session timeout is outside the broker's limits."""


class RebalanceInProgress(
    GroupError, code=27, name="REBALANCE_IN_PROGRESS", status="FAILED_PRECONDITION"
):
    """The group is rebalancing. Join again with the same member id."""


class NonEmptyGroup(GroupError, code=68, name="NON_EMPTY_GROUP", status="FAILED_PRECONDITION"):
    """The group has members. Stop them first."""


class GroupNotFound(GroupError, code=69, name="GROUP_ID_NOT_FOUND", status="NOT_FOUND"):
    """No group has this name."""


class MemberIdRequired(
    GroupError, code=79, name="MEMBER_ID_REQUIRED", status="FAILED_PRECONDITION"
):
    """Join again with the member id of this response (KIP-394)."""


class GroupFull(GroupError, code=81, name="GROUP_MAX_SIZE_REACHED", status="RESOURCE_EXHAUSTED"):
    """The group has its maximum number of members (`group.max.size`), or the names, subscriptions
    and assignments of its members, of the user's or of all groups of the broker are
    [too large](security.md#limits)."""


class FencedInstance(GroupError, code=82, name="FENCED_INSTANCE_ID", status="FAILED_PRECONDITION"):
    """Another member has taken over this instance id. Stop this one."""


class GroupSubscribedToTopic(
    GroupError, code=86, name="GROUP_SUBSCRIBED_TO_TOPIC", status="FAILED_PRECONDITION"
):
    """Members of the group read this topic, so its offsets cannot be deleted. Stop them first."""


class UnstableOffsetCommit(
    GroupError, RetriableError, code=88, name="UNSTABLE_OFFSET_COMMIT", status="UNAVAILABLE"
):
    """Offsets of an undecided transaction are pending. Retry later."""


class FencedMemberEpoch(
    GroupError, code=110, name="FENCED_MEMBER_EPOCH", status="FAILED_PRECONDITION"
):
    """The member is fenced: release every partition and join again with epoch 0 (KIP-848)."""


class UnreleasedInstance(
    GroupError, code=111, name="UNRELEASED_INSTANCE_ID", status="FAILED_PRECONDITION"
):
    """Another member with this instance id has not left. Stop that one first."""


class UnsupportedAssignor(
    GroupError, code=112, name="UNSUPPORTED_ASSIGNOR", status="INVALID_ARGUMENT"
):
    """The broker has no assignor of this name; the message lists its assignors."""


class StaleMemberEpoch(
    GroupError, code=113, name="STALE_MEMBER_EPOCH", status="FAILED_PRECONDITION"
):
    """The member's epoch is not the current one. Use the epoch of the next heartbeat (KIP-848)."""


class InvalidPattern(
    GroupError, code=128, name="INVALID_REGULAR_EXPRESSION", status="INVALID_ARGUMENT"
):
    """The topic pattern is not a valid RE2 regular expression."""


class PollTooLate(GroupError, name="POLL_TOO_LATE", status="ABORTED"):
    """The consumer was not polled for `max_poll_interval_ms` and has left the group. Poll again to
    rejoin; uncommitted records are read again, possibly by other members."""


class NoCommittedOffset(GroupError, name="NO_COMMITTED_OFFSET", status="FAILED_PRECONDITION"):
    """The group has no committed offset for a partition, and the consumer has no start position.
    Seek, or set `start`."""
