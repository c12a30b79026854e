"""What a request must look like before anything is done for it.

Each function raises InvalidRequest (or the finer error of the field) whose message names the field,
what it was and what it may be. Limits that depend on the node come in as arguments.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from ...broker import EARLIEST, LATEST, MAX_TIMESTAMP, Acks
from ...errors import InvalidReplicaAssignment, InvalidRequest
from ...metadata import check_topic_name
from ...proto import admin_pb2, log_pb2
from ...runtime import CallContext

TIMEOUT_MS_DEFAULT: Final = 30_000
TIMEOUT_MS_MAX: Final = 600_000
MAX_WAIT_MS_MAX: Final = 60_000
PARTITION_BYTES_DEFAULT: Final = 1 << 20
PARTITIONS_MAX: Final = 10_000  # in one request
NAMES_MAX: Final = 10_000  # topics named in one request
REPLICAS_MAX: Final = 100  # of one partition
FEATURES_MAX: Final = 100  # in one request
ANSWER_MS: Final = 50  # what an answer may take on its way: long polls end that much earlier
TOPIC_ID_SIZE: Final = 16
RACK_CHARS_MAX: Final = 255
RECORDS_MAX: Final = 10_000  # in one Publish: building the batch must not stall the loop

_ACKS: Final[dict[int, Acks]] = {
    log_pb2.ACKS_ALL: Acks.ALL,
    log_pb2.ACKS_NONE: Acks.NONE,
    log_pb2.ACKS_LEADER: Acks.LEADER,
}


class HasPlace(Protocol):
    """Any message part that names one partition."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


def check_partition(topic: str, partition: int) -> None:
    """Raise InvalidTopic or InvalidRequest when no partition can be called so."""
    check_topic_name(topic)
    if partition < 0:
        raise InvalidRequest(
            f"partition is {partition}; give 0 or more", topic=topic, partition=partition
        )


def check_before_offset(part: admin_pb2.DeleteRecordsPartition) -> None:
    """Raise InvalidRequest unless records can be deleted up to there: an offset, or -1."""
    if part.before_offset < -1:
        raise InvalidRequest(
            f"before_offset is {part.before_offset}; give 0 or more, or -1 for the high watermark",
            topic=part.topic,
            partition=part.partition,
        )


def check_topic_id(topic_id: bytes) -> None:
    """Raise InvalidRequest unless it is an id, or empty."""
    if topic_id and len(topic_id) != TOPIC_ID_SIZE:
        raise InvalidRequest(f"topic_id has {len(topic_id)} bytes; give {TOPIC_ID_SIZE}, or none")


def check_rack(rack: str) -> None:
    """Raise InvalidRequest for a name that no broker's rack could have."""
    if len(rack) > RACK_CHARS_MAX:
        raise InvalidRequest(
            f"rack has {len(rack)} characters, the limit is {RACK_CHARS_MAX}; give the name of a "
            "failure zone, or none"
        )


def check_places(field: str, parts: Iterable[HasPlace]) -> None:
    """Refuse a request that names no partition, too many, or one twice."""
    seen: set[tuple[str, int]] = set()
    count = 0
    for part in parts:
        count += 1
        place = (part.topic, part.partition)
        if place in seen:
            raise InvalidRequest(
                f"{field} names this partition twice; name each once",
                topic=part.topic,
                partition=part.partition,
            )
        seen.add(place)
    if count == 0:
        raise InvalidRequest(f"{field} is empty; name at least one partition")
    if count > PARTITIONS_MAX:
        raise InvalidRequest(f"{field} names {count} partitions; at most {PARTITIONS_MAX}")


def check_assignments(assignments: Iterable[admin_pb2.ReplicaAssignment]) -> None:
    """Refuse lists of brokers that cannot be one; the controller knows which brokers there are.

    Raises InvalidReplicaAssignment, and InvalidRequest for too many lists.
    """
    lists = [list(each.replicas) for each in assignments]
    if len(lists) > PARTITIONS_MAX:
        raise InvalidRequest(f"there are {len(lists)} assignments; give at most {PARTITIONS_MAX}")
    for nodes in lists:
        if not 1 <= len(nodes) <= REPLICAS_MAX:
            raise InvalidReplicaAssignment(
                f"an assignment names {len(nodes)} brokers; give 1..{REPLICAS_MAX}"
            )
        if min(nodes) < 0 or len(set(nodes)) < len(nodes):
            raise InvalidReplicaAssignment(
                f"an assignment is {nodes}; give node ids of 0 or more, each once"
            )


def check_feature_updates(updates: Sequence[admin_pb2.FeatureUpdate]) -> None:
    """Refuse a change of nothing, of too much, or of one feature twice."""
    if not 1 <= len(updates) <= FEATURES_MAX:
        raise InvalidRequest(f"updates has {len(updates)} entries; give 1..{FEATURES_MAX}")
    names = [update.name for update in updates]
    for update in updates:
        if names.count(update.name) > 1:
            raise InvalidRequest(f"updates names {update.name!r} twice; give each feature once")
        if update.level < 0:
            raise InvalidRequest(f"level of {update.name!r} is {update.level}; give 0 or more")


def read_acks(value: int) -> Acks:
    """Translate the enum; raises InvalidRequest for a number that is none."""
    acks = _ACKS.get(value)
    if acks is None:
        raise InvalidRequest(f"acks is {value}; give ACKS_ALL, ACKS_LEADER or ACKS_NONE")
    return acks


def read_timeout_ms(value: int) -> int:
    """Return the wait a produce request allows, in milliseconds; 0 means the default."""
    if value == 0:
        return TIMEOUT_MS_DEFAULT
    if not 1 <= value <= TIMEOUT_MS_MAX:
        raise InvalidRequest(f"timeout_ms is {value}; give 1..{TIMEOUT_MS_MAX}, or 0 for 30000")
    return value


def read_max_wait_ms(value: int) -> int:
    """Return how long a fetch may wait, in milliseconds."""
    if not 0 <= value <= MAX_WAIT_MS_MAX:
        raise InvalidRequest(f"max_wait_ms is {value}; give 0..{MAX_WAIT_MS_MAX}")
    return value


def read_max_bytes(field: str, value: int, *, default: int, limit: int) -> int:
    """Return a bound in bytes, never above `limit`; 0 means the default."""
    if value < 0:
        raise InvalidRequest(f"{field} is {value}; give 1 or more, or 0 for {default}")
    return min(value or default, limit)


def read_min_bytes(value: int) -> int:
    """Return how many bytes a fetch waits for."""
    if value < 0:
        raise InvalidRequest(f"min_bytes is {value}; give 0 or more")
    return value


def check_timestamp(value: int) -> None:
    """Raise InvalidRequest unless it is a time or one of the three special positions."""
    if value < 0 and value not in {LATEST, EARLIEST, MAX_TIMESTAMP}:
        raise InvalidRequest(
            f"timestamp_ms is {value}; give a time of 0 or more, -1 latest, -2 earliest or "
            "-3 largest timestamp"
        )


def check_offset(field: str, value: int, *, lowest: int = 0) -> None:
    """Raise InvalidRequest for an offset below what the field can mean."""
    if value < lowest:
        raise InvalidRequest(f"{field} is {value}; give {lowest} or more")


def check_isolation(value: int) -> None:
    """Raise InvalidRequest for a number that is no isolation level."""
    if value not in (log_pb2.ISOLATION_READ_UNCOMMITTED, log_pb2.ISOLATION_READ_COMMITTED):
        raise InvalidRequest(
            f"isolation is {value}; give ISOLATION_READ_UNCOMMITTED or ISOLATION_READ_COMMITTED"
        )


def left_ms(context: CallContext, now_ms: int) -> int:
    """Return how long a handler may still wait: to the caller's deadline, at most ten minutes."""
    return max(1, min(context.deadline_ms - now_ms, TIMEOUT_MS_MAX))


def wait_within(max_wait_ms: int, context: CallContext, now_ms: int) -> int:
    """Return how long a long poll may wait so that its answer is there before the deadline."""
    return max(0, min(max_wait_ms, context.deadline_ms - now_ms - ANSWER_MS))


def check_publish(request: log_pb2.PublishRequest) -> None:
    """Refuse what no batch can be built of."""
    count = len(request.records)
    if not 1 <= count <= RECORDS_MAX:
        raise InvalidRequest(
            f"records has {count} entries; give 1..{RECORDS_MAX}, more in several requests",
            topic=request.topic,
        )
    if request.compression not in log_pb2.Compression.values():
        raise InvalidRequest(
            f"compression is {request.compression}; give 0 none, 1 gzip, 2 snappy, 3 lz4 or 4 zstd",
            topic=request.topic,
        )
    for index, record in enumerate(request.records):
        if record.HasField("timestamp_ms") and record.timestamp_ms < 0:
            raise InvalidRequest(
                f"records[{index}].timestamp_ms is {record.timestamp_ms}; give 0 or more",
                topic=request.topic,
            )
