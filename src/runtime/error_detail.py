"""QuorumlogError <-> the message `quorumlog.v1.Error` that carries it over any wire. Pure.

The unique `name` decides the class; an unknown one (a newer peer) becomes `UnknownServerError` and
keeps the peer's code and retriable flag in its text only.
"""

from ..errors import ERROR_BY_NAME, QuorumlogError, UnknownServerError
from ..proto import errors_pb2


def encode_error(error: QuorumlogError) -> errors_pb2.Error:
    """Return the message for an error."""
    return errors_pb2.Error(
        code=error.code,
        name=error.name,
        message=error.message,
        retriable=error.retriable,
        topic=error.topic,
        partition=error.partition,
    )


def decode_error(message: errors_pb2.Error) -> QuorumlogError:
    """Return the error for a message, of the very class that was encoded."""
    known = ERROR_BY_NAME.get(message.name)
    if known is None:
        text = f"{message.name} ({message.code}): {message.message}"
        error: QuorumlogError = UnknownServerError(text)
    else:
        error = known(message.message)
    error.topic = message.topic
    error.partition = message.partition if message.HasField("partition") else None
    return error
