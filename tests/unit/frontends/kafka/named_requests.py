"""Kafka requests about resources of a name, built from the schemas."""

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from quorumlog.frontends.kafka.apis.describe_quorum import LISTENER
from quorumlog.frontends.kafka.schemas import error_code
from quorumlog.frontends.kafka.shapes import without_none

from .any_request import bytes_of, schema_of

OPEN: Final = frozenset({"ApiVersions", "DescribeCluster", "SaslAuthenticate", "SaslHandshake"})
"""They answer any client, which needs versions, a login and addresses to connect."""

FILTERED: Final = frozenset({"ListGroups", "ListTransactions"})
"""They leave out resources that the client may not describe."""

DENIALS: Final = frozenset({29, 30, 31, 53})
NOT_ATTEMPTED: Final = 55
LOADING: Final = frozenset({14, 15, 16})
"""The codes until the coordinator's topic is created and loaded."""

BY_ID: Final[Mapping[str, int]] = {
    "Produce": 13,
    "Fetch": 13,
    "Metadata": 12,
    "OffsetCommit": 10,
    "OffsetFetch": 10,
    "DeleteTopics": 6,
}
"""The first versions that name topics by ids. An unknown id is reported as such: ids are random, so
a client that has one may know of the topic."""

_VALUES: Final[Mapping[str, Any]] = {
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "uint16": 0,
    "float64": 1.0,
    "bool": False,
    "bytes": b"",
    "records": b"",
    "error_code": error_code(0),
    "timedelta_i32": timedelta(seconds=30),
    "timedelta_i64": timedelta(seconds=30),
    "datetime_i64": datetime.fromtimestamp(1, UTC),
}
_BY_FIELD: Final[Mapping[str, Any]] = {
    "acks": 1,
    "num_partitions": 1,
    "replication_factor": 1,
    "timestamp": -1,
    "replica_id": -1,
    "session_epoch": -1,
    "resource_type": 2,  # a topic
    "producer_id": 1,
    "count": 5,
}


def filled(
    schema: type[Any],
    name: str,
    topic_id: bytes,
    fields: Mapping[str, Any],
    number: int | None = None,
) -> Any:
    """Return a request in which every resource has the name and every list one element.

    `number` is the value of all integers; None: a usual value.
    """
    hints = typing.get_type_hints(schema)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(schema):
        kind, _ = without_none(hints[field.name])
        if "tag" in field.metadata:
            continue
        is_list = typing.get_origin(kind) is tuple
        if is_list:
            kind, _ = without_none(typing.get_args(kind)[0])
        if field.name in fields:
            values[field.name] = fields[field.name]
            continue
        if hasattr(kind, "__dataclass_fields__"):
            value = filled(kind, name, topic_id, fields, number)
        else:
            kafka_type = field.metadata.get("kafka_type", "")
            default = {"string": name, "uuid": UUID(bytes=topic_id)}.get(kafka_type)
            value = _VALUES[kafka_type] if default is None else default
            if number is not None and type(value) is int:
                value = number
        values[field.name] = (value,) if is_list else value
    return schema(**values)


def codes_of(message: Any) -> Iterator[int]:
    """Yield every error code of a response."""
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        for each in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(each):
                yield from codes_of(each)
            elif "error_code" in field.name:
                yield each if isinstance(each, int) else int(each.value)


_ALICE: Final = {"principal": "User:alice"}
_ANY_ACL: Final = {
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
    "principal_filter": "User:alice",
    "host_filter": None,
}
PLAIN_METADATA: Final = {
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
}
_LONG_FETCH: Final = {
    "current_leader_epoch": -1,
    "max_wait": timedelta(seconds=20),
    "min_bytes": 1,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
}
_SPECIAL: Final[Mapping[int, Mapping[str, Any]]] = {
    0: {"transactional_id": None},
    3: {"topic_id": UUID(int=0)},
    8: {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None},
    19: {"assignments": (), "configs": ()},
    20: {"name": None},  # since version 6: the id names the topic
    29: _ANY_ACL,
    30: {"resource_pattern_type": 3, "operation": 3, "permission_type": 3, "host": "*", **_ALICE},
    31: _ANY_ACL,
    48: {"entity_type": "user", "match_type": 2, "match": None},
    51: {"mechanism": 1, "iterations": 4_096, "salt": b"salt", "salted_password": b"x"},
    55: {"topic_name": "__cluster_metadata"},
    57: {"feature": "metadata.version", "upgrade_type": 1, "max_version_level": 1},
    74: {"resource_types": ()},
    80: {"port": 1, "voter_directory_id": UUID(int=1), "name": LISTENER},
}


def request_about(
    key: int, version: int, name: str, topic_id: bytes, *, number: int | None = None
) -> bytes:
    """Return the body of a request in which every resource has the name.

    `number` is the value of every integer but acks, which needs a response.
    """
    fields = {**_BY_FIELD, **_SPECIAL.get(key, {})}
    if number is not None:
        kept = {each: value for each, value in fields.items() if type(value) is not int}
        fields = {**kept, "acks": 1}
    return bytes_of(filled(schema_of(key, version), name, topic_id, fields, number))


def long_fetch(topic: str, *, is_usual: bool = True) -> bytes:
    """Return the body of a Fetch request of version 12 that waits for 20 s.

    `is_usual`: without a rack and forgotten topics.
    """
    fields = {**_BY_FIELD, **_LONG_FETCH}
    if is_usual:
        fields |= {"rack_id": "", "forgotten_topics_data": ()}
    return bytes_of(filled(schema_of(1, 12), topic, bytes(16), fields))
