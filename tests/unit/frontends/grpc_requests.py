"""gRPC requests about resources of a name, built from the descriptors."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from tests.kit.node import WAIT_MS

from quorumlog import services
from quorumlog.errors import QuorumlogError
from quorumlog.runtime import Channel, Method

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
TRIES = 100

INTERNAL: Final = ("Controller", "Raft", "Replica", "TransactionCoordination")
"""Services between nodes."""

METHODS: Final[Mapping[str, Method[Any, Any]]] = {
    each.path.removeprefix("/quorumlog.v1."): each
    for each in vars(services).values()
    if isinstance(each, Method)
    and not each.path.startswith(tuple(f"/quorumlog.v1.{name}/" for name in INTERNAL))
}

_BY_FIELD: Final[Mapping[str, Any]] = {
    "cluster_id": "",
    "passed_on": False,
    "topic_id": b"",
    "directory_id": b"d" * 16,
    "acks": 0,
    "isolation": 0,
    "end_offset": None,
    "start_time_ms": None,
    "leader_epoch": None,
    "min_metadata_offset": 0,
    "rack": "",
    "records": b"",
    "producer": None,  # of Publish
    "base_sequence": 0,
}
_SPECIAL: Final[Mapping[str, Mapping[str, Any]]] = {
    "Log/Publish": {"transactional_id": ""},
    "Admin/CreateAcls": {"pattern_type": 3, "host": "*", "principal": "User:alice"},
    "Admin/DescribeClientQuotas": {"type": "user"},
}


def filled(message: Message, name: str, fields: Mapping[str, Any]) -> Message:
    """Fill a request: every string is the name, every list has one element."""
    for field in message.DESCRIPTOR.fields:
        value = fields.get(field.name, ...)
        if value is None or (field.containing_oneof and not _is_first(field)):
            continue
        is_list = field.is_repeated
        if field.message_type is not None:
            into = getattr(message, field.name)
            filled(into.add() if is_list else into, name, fields)
            if not is_list:
                into.SetInParent()
            continue
        if value is ... or (isinstance(value, bytes) and field.type != field.TYPE_BYTES):
            value = {field.TYPE_STRING: name, field.TYPE_BYTES: b"x", field.TYPE_BOOL: False}.get(
                field.type, 1
            )
        if is_list:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    return message


def _is_first(field: Any) -> bool:
    return bool(field.containing_oneof.fields[0] is field)


async def answer_about(
    channel: Channel, path: str, name: str, **fields: Any
) -> Message | QuorumlogError:
    """Return a method's response to a request in which every resource has the name."""
    method = METHODS[path]
    request = filled(method.request(), name, {**_BY_FIELD, **_SPECIAL.get(path, {}), **fields})
    try:
        if not method.streaming:
            answer: Message = await channel.call(method, request, timeout_ms=WAIT_MS)
        else:
            stream = await channel.stream(method, timeout_ms=WAIT_MS)
            await stream.send(request)
            received = await stream.receive()
            assert received is not None
            answer = received
            await stream.finish()
    except QuorumlogError as error:
        return error
    return answer


async def asked(channel: Channel, method: Method[Q, R], request: Q) -> R:
    """Call, and retry while a coordinator is being found or loads."""
    for _ in range(TRIES):
        try:
            return await channel.call(method, request, timeout_ms=WAIT_MS)
        except QuorumlogError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(0.1)
    raise AssertionError(f"{method.path} was never answered")
