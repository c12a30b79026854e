"""Kafka error codes of responses to Produce and Fetch.

Clients retry on the codes that they expect here, and fail on others. An error without an expected
code is mapped to a code with the same consequence.
"""

from typing import Final

from ....errors import DiskFull, Overloaded, QuorumlogError, Stopping, StorageError

NOT_LEADER_OR_FOLLOWER: Final = 6
NOT_ENOUGH_REPLICAS: Final = 19
KAFKA_STORAGE_ERROR: Final = 56

_PRODUCE: Final[dict[type[QuorumlogError], int]] = {
    Overloaded: NOT_ENOUGH_REPLICAS,  # nothing was stored: retriable with back-off
    Stopping: NOT_LEADER_OR_FOLLOWER,  # the client looks up the leader and retries there
    DiskFull: KAFKA_STORAGE_ERROR,
    StorageError: KAFKA_STORAGE_ERROR,
}
_FETCH: Final[dict[type[QuorumlogError], int]] = {
    Overloaded: KAFKA_STORAGE_ERROR,  # retriable with back-off
    Stopping: NOT_LEADER_OR_FOLLOWER,
    DiskFull: KAFKA_STORAGE_ERROR,
    StorageError: KAFKA_STORAGE_ERROR,
}


def produce_code(error: QuorumlogError) -> int:
    """Return the code of a partition's error in a response to Produce."""
    return _PRODUCE.get(type(error), error.code)


def fetch_code(error: QuorumlogError) -> int:
    """Return the code of a partition's error in a response to Fetch."""
    return _FETCH.get(type(error), error.code)
