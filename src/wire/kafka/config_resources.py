"""What configs belong to, as this protocol names it, and as the calls of `Admin` do.

A broker without a name is the whole cluster: every broker, changed while they run.
"""

from typing import Any, Final

from ...errors import InvalidRequest, QuorumlogError
from ...proto import admin_pb2 as pb
from .messages import error_fields

TOPIC: Final = 2
BROKER: Final = 4

_OTHERS: Final = {8: "loggers", 16: "client metrics", 32: "groups"}


def resource_of(resource: Any) -> pb.ConfigResource:
    """Return what a part of a request names; raises InvalidRequest for what has no configs here."""
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC:
        return pb.ConfigResource(topic=name)
    if kind != BROKER:
        what = f"{_OTHERS[kind]} have no configs here" if kind in _OTHERS else "it is none"
        raise InvalidRequest(f"resource type is {kind}: {what}; give 2 topic or 4 broker")
    if not name:
        return pb.ConfigResource(cluster=True)
    if not (name.isascii() and name.isdigit()) or int(name) > 2**31 - 1:
        raise InvalidRequest(f"broker is {name!r}; give a node id, or nothing for the cluster")
    return pb.ConfigResource(broker=int(name))


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
