"""What members of consumer groups, and who looks after groups, can meet."""

from .base import QuorumlogError


class OffsetNoteTooLarge(
    QuorumlogError, code=12, name="OFFSET_METADATA_TOO_LARGE", status="INVALID_ARGUMENT"
):
    """The note beside a committed offset is longer than `offset.metadata.max.bytes`."""


class CoordinatorLoading(
    QuorumlogError,
    code=14,
    name="COORDINATOR_LOAD_IN_PROGRESS",
    status="UNAVAILABLE",
    retriable=True,
):
    """The group's coordinator has just come to lead and reads what is stored. Ask again."""


class CoordinatorNotAvailable(
    QuorumlogError,
    code=15,
    name="COORDINATOR_NOT_AVAILABLE",
    status="UNAVAILABLE",
    retriable=True,
):
    """No broker coordinates the group now. Ask again."""


class NotCoordinator(
    QuorumlogError, code=16, name="NOT_COORDINATOR", status="UNAVAILABLE", retriable=True
):
    """Another broker coordinates the group. Ask which, then ask that one."""


class IllegalGeneration(
    QuorumlogError, code=22, name="ILLEGAL_GENERATION", status="FAILED_PRECONDITION"
):
    """The group has gone on to another generation. Join again."""


class InconsistentGroupProtocol(
    QuorumlogError, code=23, name="INCONSISTENT_GROUP_PROTOCOL", status="FAILED_PRECONDITION"
):
    """The member shares no assignment strategy, or no kind of protocol, with the others."""


class InvalidGroupId(QuorumlogError, code=24, name="INVALID_GROUP_ID", status="INVALID_ARGUMENT"):
    """The group's name is empty."""


class UnknownMember(
    QuorumlogError, code=25, name="UNKNOWN_MEMBER_ID", status="FAILED_PRECONDITION"
):
    """The group has no such member, or not any more. Join again as a new one."""


class InvalidSessionTimeout(
    QuorumlogError, code=26, name="INVALID_SESSION_TIMEOUT", status="INVALID_ARGUMENT"
):
    """The session time-out lies outside of what the broker takes."""


class RebalanceInProgress(
    QuorumlogError, code=27, name="REBALANCE_IN_PROGRESS", status="FAILED_PRECONDITION"
):
    """The group shares its partitions out anew. Join again, with the same member id."""


class NonEmptyGroup(QuorumlogError, code=68, name="NON_EMPTY_GROUP", status="FAILED_PRECONDITION"):
    """The group has members. Stop them first."""


class GroupNotFound(QuorumlogError, code=69, name="GROUP_ID_NOT_FOUND", status="NOT_FOUND"):
    """There is no group of this name."""


class MemberIdRequired(
    QuorumlogError, code=79, name="MEMBER_ID_REQUIRED", status="FAILED_PRECONDITION"
):
    """Join again with the member id of this answer (KIP-394)."""


class GroupFull(
    QuorumlogError, code=81, name="GROUP_MAX_SIZE_REACHED", status="RESOURCE_EXHAUSTED"
):
    """The group has as many members as it may have (`group.max.size`)."""


class FencedInstance(
    QuorumlogError, code=82, name="FENCED_INSTANCE_ID", status="FAILED_PRECONDITION"
):
    """Another member has taken over this static name. End this one."""


class GroupSubscribedToTopic(
    QuorumlogError, code=86, name="GROUP_SUBSCRIBED_TO_TOPIC", status="FAILED_PRECONDITION"
):
    """Members of the group read this topic: its offsets cannot be deleted. Stop them first."""


class UnstableOffsetCommit(
    QuorumlogError,
    code=88,
    name="UNSTABLE_OFFSET_COMMIT",
    status="UNAVAILABLE",
    retriable=True,
):
    """Offsets of an undecided transaction are pending. Ask again."""


class FencedMemberEpoch(
    QuorumlogError, code=110, name="FENCED_MEMBER_EPOCH", status="FAILED_PRECONDITION"
):
    """The member has been fenced: give up every partition and join again with epoch 0 (KIP-848)."""


class UnreleasedInstance(
    QuorumlogError, code=111, name="UNRELEASED_INSTANCE_ID", status="FAILED_PRECONDITION"
):
    """Another member has this static name and has not left. Stop that one first."""


class UnsupportedAssignor(
    QuorumlogError, code=112, name="UNSUPPORTED_ASSIGNOR", status="INVALID_ARGUMENT"
):
    """The broker has no assignor of this name. The sentence says which it has."""


class StaleMemberEpoch(
    QuorumlogError, code=113, name="STALE_MEMBER_EPOCH", status="FAILED_PRECONDITION"
):
    """The member's epoch is not the present one. Take the one of the next heartbeat (KIP-848)."""


class InvalidPattern(
    QuorumlogError, code=128, name="INVALID_REGULAR_EXPRESSION", status="INVALID_ARGUMENT"
):
    """The pattern of topics is no regular expression of RE2."""


class PollTooLate(QuorumlogError, name="POLL_TOO_LATE", status="ABORTED"):
    """A consumer of a group was not polled for `max_poll_interval_ms` and has left the group. Poll
    again to join again; what was not committed is read again, maybe by others."""


class NoCommittedOffset(QuorumlogError, name="NO_COMMITTED_OFFSET", status="FAILED_PRECONDITION"):
    """The group has stored nothing for a partition, and the consumer has no rule where to begin.
    Seek, or give `start`."""
