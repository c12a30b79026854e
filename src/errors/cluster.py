"""What controllers and brokers say: quorum, topics, brokers, configs."""

from ..ids import NO_NODE, NodeId
from .base import QuorumlogError


class NotController(
    QuorumlogError, code=41, name="NOT_CONTROLLER", status="UNAVAILABLE", retriable=True
):
    """This node is not the active controller; `leader_id` is, if known. Ask that one."""

    def __init__(self, message: str, *, leader_id: NodeId = NO_NODE) -> None:
        super().__init__(message)
        self.leader_id = leader_id


class DuplicateVoter(QuorumlogError, code=126, name="DUPLICATE_VOTER", status="ALREADY_EXISTS"):
    """The node votes already, with this disk or another one. Remove that voter first."""


class VoterNotFound(QuorumlogError, code=127, name="VOTER_NOT_FOUND", status="NOT_FOUND"):
    """No voter has this node id and directory id. Look at who votes (`quorum status`)."""


class VoterChangePending(
    QuorumlogError,
    code=7,
    name="VOTER_CHANGE_PENDING",
    status="FAILED_PRECONDITION",
    retriable=True,
):
    """The voter set may change by one at a time, and only once this leader has committed in its own
    epoch. Wait and repeat."""


class VoterLagging(
    QuorumlogError, code=7, name="VOTER_LAGGING", status="FAILED_PRECONDITION", retriable=True
):
    """A node that the changed voters need does not follow the log yet, is too far behind or does
    not answer. Start it, let it catch up, and repeat."""


class VoterMismatch(QuorumlogError, name="VOTER_MISMATCH", status="FAILED_PRECONDITION"):
    """The message was for another node or another disk under this node's id: a wiped disk is a new
    voter. Remove the old one from the quorum and add the new one."""


class TopicAlreadyExists(
    QuorumlogError, code=36, name="TOPIC_ALREADY_EXISTS", status="ALREADY_EXISTS"
):
    """A topic of this name exists. Take it as it is (`if_not_exists`), or another name."""


class InvalidTopic(
    QuorumlogError, code=17, name="INVALID_TOPIC_EXCEPTION", status="INVALID_ARGUMENT"
):
    """The topic name has illegal characters or length; says which."""


class InvalidPartitions(
    QuorumlogError, code=37, name="INVALID_PARTITIONS", status="INVALID_ARGUMENT"
):
    """The number of partitions is out of range; says what is taken."""


class InvalidReplicationFactor(
    QuorumlogError, code=38, name="INVALID_REPLICATION_FACTOR", status="INVALID_ARGUMENT"
):
    """The replication factor is below one or above the number of usable brokers."""


class InvalidReplicaAssignment(
    QuorumlogError, code=39, name="INVALID_REPLICA_ASSIGNMENT", status="INVALID_ARGUMENT"
):
    """The brokers named for a partition are unknown, named twice, or of the wrong number."""


class NoReassignmentInProgress(
    QuorumlogError, code=85, name="NO_REASSIGNMENT_IN_PROGRESS", status="FAILED_PRECONDITION"
):
    """There is nothing to cancel: the partition is not being moved."""


class ReassignmentInProgress(
    QuorumlogError, code=60, name="REASSIGNMENT_IN_PROGRESS", status="FAILED_PRECONDITION"
):
    """The partition is being moved. Wait for its end, or cancel it."""


class PreferredLeaderNotAvailable(
    QuorumlogError,
    code=80,
    name="PREFERRED_LEADER_NOT_AVAILABLE",
    status="FAILED_PRECONDITION",
    retriable=True,
):
    """The first replica of the assignment is not alive or not in sync. Repeat when it is."""


class EligibleLeadersNotAvailable(
    QuorumlogError,
    code=83,
    name="ELIGIBLE_LEADERS_NOT_AVAILABLE",
    status="FAILED_PRECONDITION",
    retriable=True,
):
    """No live replica may lead. Start one of the brokers that hold the partition."""


class ElectionNotNeeded(
    QuorumlogError, code=84, name="ELECTION_NOT_NEEDED", status="FAILED_PRECONDITION"
):
    """The partition has the leader that the election would give it."""


class InvalidUpdateVersion(
    QuorumlogError, code=95, name="INVALID_UPDATE_VERSION", status="ABORTED", retriable=True
):
    """The change is based on an older partition epoch than the present one. Learn it, then ask
    again."""


class IneligibleReplica(
    QuorumlogError, code=107, name="INELIGIBLE_REPLICA", status="FAILED_PRECONDITION"
):
    """A broker that shall join the ISR is fenced, stopping, or registered anew since (KIP-903)."""


class NewLeaderElected(
    QuorumlogError, code=108, name="NEW_LEADER_ELECTED", status="FAILED_PRECONDITION"
):
    """The change of the ISR was taken, and made another replica lead: the asker leads no more."""


class BrokerIdNotRegistered(
    QuorumlogError, code=102, name="BROKER_ID_NOT_REGISTERED", status="NOT_FOUND"
):
    """No broker is registered under this node id. Look at the brokers that are."""


class FeatureUpdateFailed(
    QuorumlogError, code=96, name="FEATURE_UPDATE_FAILED", status="FAILED_PRECONDITION"
):
    """The feature is unknown, or some broker cannot work with the level asked for; says which."""


class InvalidConfig(QuorumlogError, code=40, name="INVALID_CONFIG", status="INVALID_ARGUMENT"):
    """A config key is unknown or its value out of range; names the nearest right key."""


class StaleBrokerEpoch(
    QuorumlogError, code=77, name="STALE_BROKER_EPOCH", status="FAILED_PRECONDITION"
):
    """A newer registration of the broker exists: this is a past life of it, and it must stop."""


class DuplicateBrokerRegistration(
    QuorumlogError,
    code=101,
    name="DUPLICATE_BROKER_REGISTRATION",
    status="ALREADY_EXISTS",
    retriable=True,
):
    """Another live process is registered under this node id. Stop it, or give this one its own."""


class InconsistentClusterId(
    QuorumlogError, code=104, name="INCONSISTENT_CLUSTER_ID", status="FAILED_PRECONDITION"
):
    """The peer belongs to another cluster. Check the address and the directory's cluster id."""
