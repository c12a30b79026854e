"""What configs belong to, as this protocol names it, and as the calls of `Admin` do.

A broker without a name is the whole cluster: every broker, changed while they run.
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
"""What a tool that moves partitions sets to slow the move down; here the cluster's config
replication.throttled.rate does that."""

OTHERS: Final = {8: "loggers", 16: "client metrics", 32: "groups"}
"""What has configs in the protocol, and none here."""


def resource_of(resource: Any) -> pb.ConfigResource:
    """Return what a part of a request names; raises InvalidRequest for what has no configs here."""
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC:
        return pb.ConfigResource(topic=name)
    if kind != BROKER:
        what = f"{OTHERS[kind]} have no configs here" if kind in OTHERS else "it is none"
        raise InvalidRequest(f"resource type is {kind}: {what}; give 2 topic or 4 broker")
    if not name:
        return pb.ConfigResource(cluster=True)
    if not (name.isascii() and name.isdigit()) or int(name) > 2**31 - 1:
        raise InvalidRequest(f"broker is {name!r}; give a node id, or nothing for the cluster")
    return pb.ConfigResource(broker=int(name))


def is_never_set(resource: Any, name: str) -> bool:
    """Whether a config can never have been set there, so that deleting it changes nothing: any of
    one broker, and those that tools clear behind them whether they have set them or not."""
    is_one_broker = resource.resource_type == BROKER and resource.resource_name
    return bool(is_one_broker) or name in _THROTTLES


def key_of(resource: Any) -> tuple[int, str]:
    """Return what tells a part of a request from the others."""
    return resource.resource_type, resource.resource_name


def result_of(resource: Any, error: QuorumlogError | None) -> dict[str, Any]:
    """Return the fields that each result has."""
    return {
        **error_fields(error),
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }
