"""Error codes of answers about groups, as the clients know them.

Clients look for the coordinator again, or only ask again, by the codes that they expect of one. So
what has no code of its own here is told by one that has the same consequence.
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
    Overloaded: COORDINATOR_LOAD_IN_PROGRESS,  # nothing was done: repeat, after a moment
}


def group_code(error: QuorumlogError) -> int:
    """Return the code of an error that concerns a whole request to a coordinator."""
    return _CODES.get(type(error), error.code)
