"""Translation between QuorumlogError and the message `quorumlog.v1.Error`. Pure.

The unique `name` selects the class. An unknown one (of a newer peer) becomes `UnknownServerError`
with the peer's code and flag only in its text. Extra fields of a class (the leader, the position of
damage) are included.
"""

from ..errors import (
    ERROR_BY_NAME,
    AuthorizationOutdated,
    CorruptionError,
    FencedWrite,
    NotController,
    NotLeaderOrFollower,
    NumberTooOld,
    QuorumlogError,
    StageLost,
    UnknownServerError,
)
from ..ids import NO_EPOCH, NO_NODE, NodeId
from ..proto import errors_pb2


def encode_error(error: QuorumlogError) -> errors_pb2.Error:
    message = errors_pb2.Error(
        code=error.code,
        name=error.name,
        message=_plain(error.message),
        retriable=error.retriable,
        topic=_plain(error.topic),
        partition=error.partition,
    )
    if isinstance(error, NotLeaderOrFollower | NotController) and error.leader_id != NO_NODE:
        message.leader_id = error.leader_id
    if isinstance(error, NotLeaderOrFollower):
        message.leader_address = error.leader_address
        if error.leader_epoch != NO_EPOCH:
            message.leader_epoch = error.leader_epoch
    elif isinstance(error, CorruptionError):
        message.path = _plain(error.path)
        if error.position >= 0:
            message.position = error.position
    elif isinstance(error, NumberTooOld) and error.number >= 0:
        message.number = error.number
    elif isinstance(error, FencedWrite) and error.write_id >= 0:
        message.write_id = error.write_id
    elif isinstance(error, StageLost) and error.task >= 0:
        message.task = error.task
    elif isinstance(error, AuthorizationOutdated) and error.metadata_offset >= 0:
        message.metadata_offset = error.metadata_offset
    return message


def decode_error(message: errors_pb2.Error) -> QuorumlogError:
    """Return the error of a message, of the class that was encoded."""
    known = ERROR_BY_NAME.get(message.name)
    if known is None:
        text = f"{message.name} ({message.code}): {message.message}"
        error: QuorumlogError = UnknownServerError(text)
    else:
        error = known(message.message)
    error.topic = message.topic
    error.partition = message.partition if message.HasField("partition") else None
    if isinstance(error, NotLeaderOrFollower | NotController):
        error.leader_id = NodeId(message.leader_id) if message.HasField("leader_id") else NO_NODE
    if isinstance(error, NotLeaderOrFollower):
        error.leader_address = message.leader_address
        error.leader_epoch = message.leader_epoch if message.HasField("leader_epoch") else NO_EPOCH
    elif isinstance(error, CorruptionError):
        error.path = message.path
        error.position = message.position if message.HasField("position") else -1
    elif isinstance(error, NumberTooOld):
        error.number = message.number if message.HasField("number") else -1
    elif isinstance(error, FencedWrite):
        error.write_id = message.write_id if message.HasField("write_id") else -1
    elif isinstance(error, StageLost):
        error.task = message.task if message.HasField("task") else -1
    elif isinstance(error, AuthorizationOutdated):
        has_offset = message.HasField("metadata_offset")
        error.metadata_offset = message.metadata_offset if has_offset else -1
    return error


def _plain(text: str) -> str:
    """Return the text as valid UTF-8: file names may have other bytes."""
    return text if text.isascii() else text.encode(errors="replace").decode()
