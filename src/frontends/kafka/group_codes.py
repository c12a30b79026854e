"""Kafka error codes of responses of the group coordinator.

Clients look the coordinator up again, or retry, on the codes that they expect of a coordinator. An
error without such a code is mapped to a code with the same consequence.
"""

from typing import Final

from ...errors import (
    CoordinatorNotAvailable,
    DiskFull,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    Overloaded,
    QuorumlogError,
    Stopping,
    StorageError,
    TimedOut,
)
from .codes import COORDINATOR_LOAD_IN_PROGRESS

_CODES: Final[dict[type[QuorumlogError], int]] = {
    Stopping: NotCoordinator.code,
    NotLeaderOrFollower: NotCoordinator.code,
    StorageError: NotCoordinator.code,
    DiskFull: NotCoordinator.code,
    NotEnoughReplicas: CoordinatorNotAvailable.code,
    NotEnoughReplicasAfterAppend: CoordinatorNotAvailable.code,
    TimedOut: CoordinatorNotAvailable.code,
    Overloaded: COORDINATOR_LOAD_IN_PROGRESS,  # nothing was done; retriable with back-off
}


def group_code(error: QuorumlogError) -> int:
    """Return the code of an error that concerns a whole request to a coordinator."""
    return _CODES.get(type(error), error.code)
