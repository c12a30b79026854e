"""Validation of arguments before an operation begins. Plain values, no I/O.

Each function raises InvalidRequest, or a more specific error of the field. The message has the
field, its value and the allowed values. Limits that depend on the node are arguments.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from ..broker import EARLIEST, LATEST, MAX_TIMESTAMP
from ..errors import InvalidReplicaAssignment, InvalidRequest
from ..metadata import FeatureUpdate, check_topic_name

TIMEOUT_MS_DEFAULT: Final = 30_000
TIMEOUT_MS_MAX: Final = 600_000
MAX_WAIT_MS_MAX: Final = 60_000
PARTITION_BYTES_DEFAULT: Final = 1 << 20
PARTITIONS_MAX: Final = 10_000  # in one request
NAMES_MAX: Final = 10_000  # topics named in one request
REPLICAS_MAX: Final = 100  # of one partition
FEATURES_MAX: Final = 100  # in one request
# reserve for the response's way to the caller: long polls end that much earlier
ANSWER_MS: Final = 50
TOPIC_ID_SIZE: Final = 16
RACK_CHARS_MAX: Final = 255
NAME_CHARS: Final = 249  # of a name in a message


# --- topics and partitions -----------------------------------------------------------------------


def check_partition(topic: str, partition: int) -> None:
    """Raise InvalidTopic or InvalidRequest for an invalid topic name or partition index."""
    check_topic_name(topic)
    if partition < 0:
        raise InvalidRequest(
            "the partition is negative; give 0 or more", topic=topic, partition=partition
        )


def check_topic_id(topic_id: bytes) -> None:
    """Raise InvalidRequest unless the id has 16 bytes or is empty."""
    if topic_id and len(topic_id) != TOPIC_ID_SIZE:
        raise InvalidRequest(f"topic_id: {len(topic_id)} bytes; give {TOPIC_ID_SIZE}, or none")


def check_names(names: Sequence[str]) -> None:
    """Raise InvalidRequest or InvalidTopic for too many or invalid names."""
    if len(names) > NAMES_MAX:
        raise InvalidRequest(f"topics: {len(names)} entries; give 0..{NAMES_MAX}")
    for name in names:
        check_topic_name(name)


def check_place_count(field: str, count: int, *, limit: int = PARTITIONS_MAX) -> None:
    """Raise InvalidRequest for no partition or too many. To be called before a list of them is
    built: a message of a few megabytes has millions of entries."""
    if not count:
        raise InvalidRequest(f"{field}: empty; name at least one partition")
    if count > limit:
        raise InvalidRequest(f"{field}: {count} partitions; the limit is {limit}")


def check_places(field: str, places: Sequence[tuple[str, int]]) -> None:
    """Raise InvalidRequest for no partition, too many, or a duplicate."""
    check_place_count(field, len(places))
    seen: set[tuple[str, int]] = set()
    for place in places:
        if place in seen:
            raise InvalidRequest(
                f"{field}: this partition is named twice; name each once",
                topic=place[0],
                partition=place[1],
            )
        seen.add(place)


def check_distinct(field: str, items: Iterable[Hashable]) -> None:
    """Raise InvalidRequest if an item is given twice: an answer would have its content twice."""
    for item, count in Counter(items).items():
        if count > 1:
            name = str(item)[:NAME_CHARS]
            raise InvalidRequest(f"{field}: {name} is given {count} times; give each once")


def check_node_id(field: str, node_id: int) -> None:
    """Raise InvalidRequest for a negative node id."""
    if node_id < 0:
        raise InvalidRequest(f"{field}: {node_id} is not a node id; give 0 or more")


def check_assignments(assignments: Iterable[Sequence[int]]) -> None:
    """Validate replica assignments by themselves; the controller checks that the brokers exist.

    Raises InvalidReplicaAssignment, and InvalidRequest for too many assignments.
    """
    lists = [list(nodes) for nodes in assignments]
    if len(lists) > PARTITIONS_MAX:
        raise InvalidRequest(f"assignments: {len(lists)} entries; the limit is {PARTITIONS_MAX}")
    for nodes in lists:
        if not 1 <= len(nodes) <= REPLICAS_MAX:
            raise InvalidReplicaAssignment(
                f"assignment: {len(nodes)} brokers; give 1..{REPLICAS_MAX}"
            )
        if min(nodes) < 0 or len(set(nodes)) < len(nodes):
            raise InvalidReplicaAssignment(
                f"assignment: {nodes}; give node ids of 0 or more, each once"
            )


def check_feature_updates(updates: Sequence[FeatureUpdate]) -> None:
    """Raise InvalidRequest for no updates, too many, or a duplicate feature."""
    if not 1 <= len(updates) <= FEATURES_MAX:
        raise InvalidRequest(f"updates: {len(updates)} entries; give 1..{FEATURES_MAX}")
    names = [update.name for update in updates]
    for update in updates:
        if names.count(update.name) > 1:
            raise InvalidRequest(f"updates: {update.name!r} is named twice; name each feature once")
        if update.level < 0:
            raise InvalidRequest(f"{update.name!r}: level {update.level}; give 0 or more")


# --- records -------------------------------------------------------------------------------------


def check_offset(field: str, value: int, *, lowest: int = 0) -> None:
    """Raise InvalidRequest for an offset below `lowest`."""
    if value < lowest:
        raise InvalidRequest(f"{field}: {value}; give {lowest} or more")


def check_timestamp(value: int) -> None:
    """Raise InvalidRequest unless it is a timestamp or one of the three special positions."""
    if value < 0 and value not in {LATEST, EARLIEST, MAX_TIMESTAMP}:
        raise InvalidRequest(
            f"timestamp_ms: {value}; give a timestamp of 0 or more, -1 (latest), -2 (earliest) or"
            " -3 (largest timestamp)"
        )


def check_rack(rack: str) -> None:
    """Raise InvalidRequest for a rack name that is too long."""
    if len(rack) > RACK_CHARS_MAX:
        raise InvalidRequest(
            f"rack: {len(rack)} characters; the limit is {RACK_CHARS_MAX}; give the name of a"
            " failure zone, or none"
        )


def read_max_bytes(field: str, value: int, *, default: int, limit: int) -> int:
    """Return a bound in bytes, at most `limit`; 0 means the default."""
    if value < 0:
        raise InvalidRequest(f"{field}: {value}; give 1 or more, or 0 for {default}")
    return min(value or default, limit)


def read_min_bytes(value: int) -> int:
    """Return the bytes that a fetch waits for."""
    if value < 0:
        raise InvalidRequest(f"min_bytes: {value}; give 0 or more")
    return value


# --- times ---------------------------------------------------------------------------------------


def read_timeout_ms(value: int) -> int:
    """Return the timeout of a produce request in ms; 0 means the default."""
    if value == 0:
        return TIMEOUT_MS_DEFAULT
    if not 1 <= value <= TIMEOUT_MS_MAX:
        raise InvalidRequest(f"timeout_ms: {value}; give 1..{TIMEOUT_MS_MAX}, or 0 for 30000")
    return value


def read_max_wait_ms(value: int) -> int:
    """Return the longest wait of a fetch, in ms."""
    if not 0 <= value <= MAX_WAIT_MS_MAX:
        raise InvalidRequest(f"max_wait_ms: {value}; give 0..{MAX_WAIT_MS_MAX}")
    return value


def left_ms(deadline_ms: int, now_ms: int) -> int:
    """Return the time that an operation may wait in ms: until the deadline, at most ten
    minutes."""
    return max(1, min(deadline_ms - now_ms, TIMEOUT_MS_MAX))


def wait_within(max_wait_ms: int, deadline_ms: int, now_ms: int) -> int:
    """Return the time that a long poll may wait so that its response precedes the deadline."""
    return max(0, min(max_wait_ms, deadline_ms - now_ms - ANSWER_MS))
