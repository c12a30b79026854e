"""Error codes of Produce and Fetch, as the clients know them.

Clients repeat what they know to be worth it, and give up on what they do not expect here. So what
has no code of its own in these two answers is told by one that has the same consequence.
"""

from typing import Final

from ....errors import (
    DiskFull,
    Overloaded,
    QuorumlogError,
    Stopping,
    StorageError,
)

NOT_LEADER_OR_FOLLOWER: Final = 6
NOT_ENOUGH_REPLICAS: Final = 19
KAFKA_STORAGE_ERROR: Final = 56

_PRODUCE: Final[dict[type[QuorumlogError], int]] = {
    Overloaded: NOT_ENOUGH_REPLICAS,  # nothing was stored: repeat, after a moment
    Stopping: NOT_LEADER_OR_FOLLOWER,  # look who leads, repeat there
    DiskFull: KAFKA_STORAGE_ERROR,
    StorageError: KAFKA_STORAGE_ERROR,
}
_FETCH: Final[dict[type[QuorumlogError], int]] = {
    Overloaded: KAFKA_STORAGE_ERROR,  # repeat, after a moment
    Stopping: NOT_LEADER_OR_FOLLOWER,
    DiskFull: KAFKA_STORAGE_ERROR,
    StorageError: KAFKA_STORAGE_ERROR,
}


def produce_code(error: QuorumlogError) -> int:
    """Return the code of a partition's error in an answer to Produce."""
    return _PRODUCE.get(type(error), error.code)


def fetch_code(error: QuorumlogError) -> int:
    """Return the code of a partition's error in an answer to Fetch."""
    return _FETCH.get(type(error), error.code)
