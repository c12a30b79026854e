"""Errors of controllers and brokers: quorum, topics, brokers, configs."""

from ..ids import NO_NODE, NodeId
from .base import AdminError, RetriableError


class NotController(
    AdminError, RetriableError, code=41, name="NOT_CONTROLLER", status="UNAVAILABLE"
):
    """This node is not the active controller. Use the node `leader_id`, if it is set."""

    def __init__(self, message: str, *, leader_id: NodeId = NO_NODE) -> None:
        super().__init__(message)
        self.leader_id = leader_id


class DuplicateVoter(AdminError, code=126, name="DUPLICATE_VOTER", status="ALREADY_EXISTS"):
    """The node is already a voter, with this or another directory id. Remove that voter first."""


class VoterNotFound(AdminError, code=127, name="VOTER_NOT_FOUND", status="NOT_FOUND"):
    """No voter has this node id and directory id. List the voters with `quorum status`."""


class VoterChangePending(
    AdminError, RetriableError, code=7, name="VOTER_CHANGE_PENDING", status="FAILED_PRECONDITION"
):
    """The voter set changes by one voter at a time, and only after this leader's first commit in
    its epoch. Retry later."""


class VoterLagging(
    AdminError, RetriableError, code=7, name="VOTER_LAGGING", status="FAILED_PRECONDITION"
):
    """A node that the changed voter set needs does not follow the log, is too far behind or does
    not respond. Start it, let it catch up, and retry."""


class VoterMismatch(AdminError, name="VOTER_MISMATCH", status="FAILED_PRECONDITION"):
    """The message was for another node or another data directory of this node: a wiped disk is a
    new voter. Remove the old voter from the quorum and add the new one."""


class TopicAlreadyExists(AdminError, code=36, name="TOPIC_ALREADY_EXISTS", status="ALREADY_EXISTS"):
    """A topic of this name exists. Use it (`if_not_exists`), or choose another name."""


class InvalidTopic(AdminError, code=17, name="INVALID_TOPIC_EXCEPTION", status="INVALID_ARGUMENT"):
    """The topic name has invalid characters or an invalid length; the message names them."""


class InvalidPartitions(AdminError, code=37, name="INVALID_PARTITIONS", status="INVALID_ARGUMENT"):
    """The number of partitions is out of range; the message has the limits."""


class InvalidReplicationFactor(
    AdminError, code=38, name="INVALID_REPLICATION_FACTOR", status="INVALID_ARGUMENT"
):
    """The replication factor is below one or above the number of usable brokers."""


class InvalidReplicaAssignment(
    AdminError, code=39, name="INVALID_REPLICA_ASSIGNMENT", status="INVALID_ARGUMENT"
):
    """The assigned brokers of a partition are unknown, duplicate, or of the wrong number."""


class NoReassignmentInProgress(
    AdminError, code=85, name="NO_REASSIGNMENT_IN_PROGRESS", status="FAILED_PRECONDITION"
):
    """The partition is not being reassigned, so there is nothing to cancel."""


class ReassignmentInProgress(
    AdminError, code=60, name="REASSIGNMENT_IN_PROGRESS", status="FAILED_PRECONDITION"
):
    """The partition is being reassigned. Wait for its end, or cancel it."""


class PreferredLeaderNotAvailable(
    AdminError,
    RetriableError,
    code=80,
    name="PREFERRED_LEADER_NOT_AVAILABLE",
    status="FAILED_PRECONDITION",
):
    """The partition's first replica is not alive or not in sync. Retry when it is."""


class EligibleLeadersNotAvailable(
    AdminError,
    RetriableError,
    code=83,
    name="ELIGIBLE_LEADERS_NOT_AVAILABLE",
    status="FAILED_PRECONDITION",
):
    """No live replica is eligible as leader. Start one of the brokers with the partition."""


class ElectionNotNeeded(
    AdminError, code=84, name="ELECTION_NOT_NEEDED", status="FAILED_PRECONDITION"
):
    """The partition already has the leader that the election would choose."""


class InvalidUpdateVersion(
    AdminError, RetriableError, code=95, name="INVALID_UPDATE_VERSION", status="ABORTED"
):
    """The change is based on an older partition epoch than the current one. Get the current one and
    retry."""


class IneligibleReplica(
    AdminError, code=107, name="INELIGIBLE_REPLICA", status="FAILED_PRECONDITION"
):
    """A broker that would join the ISR is fenced, stopping, or registered again (KIP-903)."""


class NewLeaderElected(
    AdminError, code=108, name="NEW_LEADER_ELECTED", status="FAILED_PRECONDITION"
):
    """The ISR change was accepted and elected another leader: the requesting broker is no longer
    leader."""


class BrokerIdNotRegistered(
    AdminError, code=102, name="BROKER_ID_NOT_REGISTERED", status="NOT_FOUND"
):
    """No broker is registered with this node id. List the registered brokers."""


class FeatureUpdateFailed(
    AdminError, code=96, name="FEATURE_UPDATE_FAILED", status="FAILED_PRECONDITION"
):
    """The feature is unknown, or some broker does not support the requested level; the message
    names it."""


class InvalidConfig(AdminError, code=40, name="INVALID_CONFIG", status="INVALID_ARGUMENT"):
    """A setting is unknown, and the message names the closest valid name; or its value is
    invalid."""


class StaleBrokerEpoch(
    AdminError, code=77, name="STALE_BROKER_EPOCH", status="FAILED_PRECONDITION"
):
    """A newer registration of the broker exists, so this process is outdated and must stop."""


class DuplicateBrokerRegistration(
    AdminError,
    RetriableError,
    code=101,
    name="DUPLICATE_BROKER_REGISTRATION",
    status="ALREADY_EXISTS",
):
    """Another live process is registered with this node id. Stop it, or use another id for this
    one."""


class InconsistentClusterId(
    AdminError, code=104, name="INCONSISTENT_CLUSTER_ID", status="FAILED_PRECONDITION"
):
    """The peer belongs to another cluster. Check the address and the directory's cluster id."""
