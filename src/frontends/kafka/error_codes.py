"""Kafka error codes: those without an error class of ours, and the mapping of errors to codes.

Clients look up leaders and coordinators again, or retry, on the codes that they expect of a
request. An error without such a code is mapped to a code with the same consequence.
"""

from typing import Final

from ...errors import (
    CoordinatorNotAvailable,
    DiskFailed,
    DiskFull,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    Overloaded,
    QuorumlogError,
    Stopping,
    TimedOut,
)
from .api import Fields

LEADER_NOT_AVAILABLE: Final = 5
"""The partition has no leader now; retriable."""
REPLICA_NOT_AVAILABLE: Final = 9
"""For version 0 of Metadata, which has no field for offline replicas."""
COORDINATOR_LOAD_IN_PROGRESS: Final = 14
"""The coordinator is loading; retriable."""
COORDINATOR_NOT_AVAILABLE: Final = 15
"""No coordinator for the group or transactional id; retriable."""
LISTENER_NOT_FOUND: Final = 72
"""The leader has no listener of the client's listener name."""
MISMATCHED_ENDPOINT_TYPE: Final = 114
"""The request asks for brokers at a controller, or for controllers at a broker."""
UNSUPPORTED_ENDPOINT_TYPE: Final = 115
"""The endpoint type is unknown."""
UNSUPPORTED_VERSION: Final = 35
"""The version of the request, or a kind of item, is not supported."""
INVALID_REQUEST: Final = 42
"""The request is malformed."""
SESSION_ID_NOT_FOUND: Final = 70
"""There is no such fetch session."""
UNKNOWN_TOPIC_ID: Final = 100
"""No topic has this id."""
NOT_LEADER_OR_FOLLOWER: Final = 6
NOT_ENOUGH_REPLICAS: Final = 19
KAFKA_STORAGE_ERROR: Final = 56

_GROUP: Final[dict[type[QuorumlogError], int]] = {
    Stopping: NotCoordinator.code,
    NotLeaderOrFollower: NotCoordinator.code,
    DiskFailed: NotCoordinator.code,
    DiskFull: NotCoordinator.code,
    NotEnoughReplicas: CoordinatorNotAvailable.code,
    NotEnoughReplicasAfterAppend: CoordinatorNotAvailable.code,
    TimedOut: CoordinatorNotAvailable.code,
    Overloaded: COORDINATOR_LOAD_IN_PROGRESS,  # nothing was done; retriable with back-off
}
_PRODUCE: Final[dict[type[QuorumlogError], int]] = {
    Overloaded: NOT_ENOUGH_REPLICAS,  # nothing was stored: retriable with back-off
    Stopping: NOT_LEADER_OR_FOLLOWER,  # the client looks up the leader and retries there
    DiskFull: KAFKA_STORAGE_ERROR,
    DiskFailed: KAFKA_STORAGE_ERROR,
}
_FETCH: Final[dict[type[QuorumlogError], int]] = {
    Overloaded: KAFKA_STORAGE_ERROR,  # retriable with back-off
    Stopping: NOT_LEADER_OR_FOLLOWER,
    DiskFull: KAFKA_STORAGE_ERROR,
    DiskFailed: KAFKA_STORAGE_ERROR,
}


def code_of(error: QuorumlogError | None) -> int:
    """Return the Kafka error code of an error, 0 for None."""
    return 0 if error is None else error.code


def error_fields(error: QuorumlogError | None) -> Fields:
    """Return the error fields that most results have."""
    return {
        "error_code": code_of(error),
        "error_message": None if error is None else str(error),
    }


def produce_code(error: QuorumlogError) -> int:
    """Return the code of a partition's error in a response to Produce."""
    return _PRODUCE.get(type(error), error.code)


def fetch_code(error: QuorumlogError) -> int:
    """Return the code of a partition's error in a response to Fetch."""
    return _FETCH.get(type(error), error.code)


def group_code(error: QuorumlogError) -> int:
    """Return the code of an error that concerns a whole request to a coordinator."""
    return _GROUP.get(type(error), error.code)
