"""Translation between errors and gRPC statuses.

A `quorumlog.v1.Error` in the status details restores the handler's typed error at the caller.
"""

from typing import Any, Final

from google.protobuf.message import DecodeError
from google.rpc import status_pb2  # type: ignore[import-untyped]

from ..errors import QuorumlogError
from ..proto import errors_pb2
from .error_detail import decode_error, encode_error
from .foreign_status import explain_status
from .quiet_grpc import grpc

# Limits of an error in the trailing metadata, which peers limit to 8 KiB: UTF-8 bytes of its text,
# which is sent three times and once percent-encoded, and of each name in its detail.
ERROR_TEXT_MAX: Final = 1000
ERROR_NAME_MAX: Final = 400
STATUS_DETAILS: Final = "grpc-status-details-bin"


def encode_status(
    error: QuorumlogError,
) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """Return the status, its text, and the trailing metadata with the typed detail."""
    code = grpc.StatusCode[error.status]
    text = _clipped(str(error), ERROR_TEXT_MAX)
    detail = encode_error(error)
    detail.message = _clipped(detail.message, ERROR_TEXT_MAX)
    detail.topic = _clipped(detail.topic, ERROR_NAME_MAX)
    detail.path = _clipped(detail.path, ERROR_NAME_MAX)
    detail.leader_address = _clipped(detail.leader_address, ERROR_NAME_MAX)
    status = status_pb2.Status(code=code.value[0], message=text)
    status.details.add().Pack(detail)
    return code, text, ((STATUS_DETAILS, status.SerializeToString()),)


def _clipped(text: str, size_max: int) -> str:
    """Return the text truncated to `size_max` bytes."""
    return text.encode(errors="replace")[:size_max].decode(errors="ignore")


def decode_failure(
    failure: Any, path: str, address: str, unknown: type[QuorumlogError]
) -> QuorumlogError:
    """Return the error of a failed call: the handler's, or one derived from the status.

    `unknown` is the class for an unknown outcome. `failure` is an RpcError with a code.
    """
    typed = _find_detail(failure)
    if typed is not None:
        return typed
    code: grpc.StatusCode = failure.code()
    return explain_status(
        code=code.name,
        text=failure.details() or "",
        path=path,
        address=address,
        unknown=unknown,
    )


def _find_detail(failure: Any) -> QuorumlogError | None:
    """Return the error of the typed detail, or None if there is no readable one."""
    try:
        for key, value in failure.trailing_metadata() or ():
            if key == STATUS_DETAILS:
                for detail in status_pb2.Status.FromString(value).details:
                    message = errors_pb2.Error()
                    if detail.Unpack(message):
                        return decode_error(message)
    except DecodeError:  # of a foreign server: the status has the error
        return None
    return None
