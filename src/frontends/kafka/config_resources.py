"""Config resources: Kafka's types and names, translated to those of `Admin`.

A broker without a name stands for the whole cluster: settings of every broker that change at run
time.
"""

from typing import Any, Final

from ...errors import InvalidRequest, QuorumlogError
from ...proto import admin_pb2 as pb
from .messages import error_fields

TOPIC: Final = 2
BROKER: Final = 4

_THROTTLES: Final = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
)
"""The configs that partition-moving tools set to throttle a move; here replication.throttled.rate
of the cluster does that."""

OTHERS: Final = {8: "loggers", 16: "client metrics", 32: "groups"}
"""Resource types that have configs in the protocol but none here."""


def resource_of(resource: Any) -> pb.ConfigResource:
    """Return the named resource; raises InvalidRequest for a type without configs here."""
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC:
        return pb.ConfigResource(topic=name)
    if kind != BROKER:
        what = f"{OTHERS[kind]} have no configs here" if kind in OTHERS else "there is no such type"
        raise InvalidRequest(f"resource type {kind}: {what}; give 2 (topic) or 4 (broker)")
    if not name:
        return pb.ConfigResource(cluster=True)
    if not (name.isascii() and name.isdigit()) or int(name) > 2**31 - 1:
        raise InvalidRequest(
            f"broker {name!r}: not a node id; give a node id, or an empty name for the cluster"
        )
    return pb.ConfigResource(broker=int(name))


def is_never_set(resource: Any, name: str) -> bool:
    """Return True if the config can never be set on this resource, so that deleting it changes
    nothing. True for every config of a single broker, and for the throttles that tools always
    clear."""
    is_one_broker = resource.resource_type == BROKER and resource.resource_name
    return bool(is_one_broker) or name in _THROTTLES


def key_of(resource: Any) -> tuple[int, str]:
    """Return the identity of a resource within a request."""
    return resource.resource_type, resource.resource_name


def result_of(resource: Any, error: QuorumlogError | None) -> dict[str, Any]:
    """Return the fields that every resource result has."""
    return {
        **error_fields(error),
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }
