"""Validation of requests before anything is done for them.

Each function raises InvalidRequest, or a more specific error of the field. The message has the
field, its value and the allowed values. Limits that depend on the node are arguments.
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
# reserve for the response's way to the caller: long polls end that much earlier
ANSWER_MS: Final = 50
TOPIC_ID_SIZE: Final = 16
RACK_CHARS_MAX: Final = 255
RECORDS_MAX: Final = 10_000  # in one Publish: encoding the batch must not block the event loop

_ACKS: Final[dict[int, Acks]] = {
    log_pb2.ACKS_ALL: Acks.ALL,
    log_pb2.ACKS_NONE: Acks.NONE,
    log_pb2.ACKS_LEADER: Acks.LEADER,
}


class PartitionPart(Protocol):
    """A message part that names one partition."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


def check_partition(topic: str, partition: int) -> None:
    """Raise InvalidTopic or InvalidRequest for an invalid topic name or partition index."""
    check_topic_name(topic)
    if partition < 0:
        raise InvalidRequest(
            "the partition is negative; give 0 or more", topic=topic, partition=partition
        )


def check_before_offset(part: admin_pb2.DeleteRecordsPartition) -> None:
    """Raise InvalidRequest unless `before_offset` is an offset or -1."""
    if part.before_offset < -1:
        raise InvalidRequest(
            f"before_offset: {part.before_offset}; give 0 or more, or -1 for the high watermark",
            topic=part.topic,
            partition=part.partition,
        )


def check_topic_id(topic_id: bytes) -> None:
    """Raise InvalidRequest unless the id has 16 bytes or is empty."""
    if topic_id and len(topic_id) != TOPIC_ID_SIZE:
        raise InvalidRequest(f"topic_id: {len(topic_id)} bytes; give {TOPIC_ID_SIZE}, or none")


def check_rack(rack: str) -> None:
    """Raise InvalidRequest for a rack name that is too long."""
    if len(rack) > RACK_CHARS_MAX:
        raise InvalidRequest(
            f"rack: {len(rack)} characters; the limit is {RACK_CHARS_MAX}; give the name of a"
            " failure zone, or none"
        )


def check_places(field: str, parts: Iterable[PartitionPart]) -> None:
    """Raise InvalidRequest for no partition, too many, or a duplicate."""
    seen: set[tuple[str, int]] = set()
    count = 0
    for part in parts:
        count += 1
        place = (part.topic, part.partition)
        if place in seen:
            raise InvalidRequest(
                f"{field}: this partition is named twice; name each once",
                topic=part.topic,
                partition=part.partition,
            )
        seen.add(place)
    if count == 0:
        raise InvalidRequest(f"{field}: empty; name at least one partition")
    if count > PARTITIONS_MAX:
        raise InvalidRequest(f"{field}: {count} partitions; the limit is {PARTITIONS_MAX}")


def check_assignments(assignments: Iterable[admin_pb2.ReplicaAssignment]) -> None:
    """Validate replica assignments by themselves; the controller checks that the brokers exist.

    Raises InvalidReplicaAssignment, and InvalidRequest for too many assignments.
    """
    lists = [list(each.replicas) for each in assignments]
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


def check_feature_updates(updates: Sequence[admin_pb2.FeatureUpdate]) -> None:
    """Raise InvalidRequest for no updates, too many, or a duplicate feature."""
    if not 1 <= len(updates) <= FEATURES_MAX:
        raise InvalidRequest(f"updates: {len(updates)} entries; give 1..{FEATURES_MAX}")
    names = [update.name for update in updates]
    for update in updates:
        if names.count(update.name) > 1:
            raise InvalidRequest(f"updates: {update.name!r} is named twice; name each feature once")
        if update.level < 0:
            raise InvalidRequest(f"{update.name!r}: level {update.level}; give 0 or more")


def read_acks(value: int) -> Acks:
    """Translate the enum; raises InvalidRequest for an unknown number."""
    acks = _ACKS.get(value)
    if acks is None:
        raise InvalidRequest(f"acks: {value}; give ACKS_ALL, ACKS_LEADER or ACKS_NONE")
    return acks


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


def check_timestamp(value: int) -> None:
    """Raise InvalidRequest unless it is a timestamp or one of the three special positions."""
    if value < 0 and value not in {LATEST, EARLIEST, MAX_TIMESTAMP}:
        raise InvalidRequest(
            f"timestamp_ms: {value}; give a timestamp of 0 or more, -1 (latest), -2 (earliest) or"
            " -3 (largest timestamp)"
        )


def check_offset(field: str, value: int, *, lowest: int = 0) -> None:
    """Raise InvalidRequest for an offset below `lowest`."""
    if value < lowest:
        raise InvalidRequest(f"{field}: {value}; give {lowest} or more")


def check_isolation(value: int) -> None:
    """Raise InvalidRequest for an unknown isolation level."""
    if value not in (log_pb2.ISOLATION_READ_UNCOMMITTED, log_pb2.ISOLATION_READ_COMMITTED):
        raise InvalidRequest(
            f"isolation: {value}; give ISOLATION_READ_UNCOMMITTED or ISOLATION_READ_COMMITTED"
        )


def left_ms(context: CallContext, now_ms: int) -> int:
    """Return the time that a handler may wait in ms: until the caller's deadline, at most ten
    minutes."""
    return max(1, min(context.deadline_ms - now_ms, TIMEOUT_MS_MAX))


def wait_within(max_wait_ms: int, context: CallContext, now_ms: int) -> int:
    """Return the time that a long poll may wait so that its response precedes the deadline."""
    return max(0, min(max_wait_ms, context.deadline_ms - now_ms - ANSWER_MS))


def check_publish(request: log_pb2.PublishRequest) -> None:
    """Raise InvalidRequest unless batches can be built of the records."""
    count = len(request.records)
    if not 1 <= count <= RECORDS_MAX:
        raise InvalidRequest(
            f"records: {count} entries; give 1..{RECORDS_MAX}, and the rest in further requests",
            topic=request.topic,
        )
    if request.compression not in log_pb2.Compression.values():
        raise InvalidRequest(
            f"compression: {request.compression}; give 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or"
            " 4 (zstd)",
            topic=request.topic,
        )
    for index, record in enumerate(request.records):
        if record.HasField("timestamp_ms") and record.timestamp_ms < 0:
            raise InvalidRequest(
                f"records[{index}].timestamp_ms: {record.timestamp_ms}; give 0 or more",
                topic=request.topic,
            )
