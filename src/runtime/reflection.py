"""Answers to server reflection: which descriptors describe a symbol of the loaded protobuf files.

Pure: the messages are handed in, since grpc's packages have one home, `grpc_network`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor

if TYPE_CHECKING:
    from grpc_reflection.v1alpha import reflection_pb2

# grpc's status numbers, which reflection repeats inside its responses.
_NOT_FOUND: Final = 5
_UNIMPLEMENTED: Final = 12


def answer_reflection(
    request: "reflection_pb2.ServerReflectionRequest",
    response: "reflection_pb2.ServerReflectionResponse",
    services: Sequence[str],
) -> None:
    """Fill the response to one request; `services` are the full names that are served."""
    response.valid_host = request.host
    response.original_request.CopyFrom(request)
    match request.WhichOneof("message_request"):
        case "list_services":
            for name in services:
                response.list_services_response.service.add(name=name)
        case "file_containing_symbol":
            _answer_files(response, files_of_symbol, request.file_containing_symbol)
        case "file_by_filename":
            _answer_files(response, files_of_name, request.file_by_filename)
        case asked:  # extensions, of which proto3 files have none, and what is not invented yet
            response.error_response.error_code = _UNIMPLEMENTED
            response.error_response.error_message = f"{asked} is not answered here"


def _answer_files(
    response: "reflection_pb2.ServerReflectionResponse",
    find: Callable[[str], list[bytes]],
    name: str,
) -> None:
    try:
        response.file_descriptor_response.file_descriptor_proto.extend(find(name))
    except KeyError:
        response.error_response.error_code = _NOT_FOUND
        response.error_response.error_message = f"no {name} here"


def files_of_symbol(symbol: str) -> list[bytes]:
    """Return the serialised descriptors of the file that defines a symbol and of all it imports,
    the file itself first; KeyError when no such symbol is loaded."""
    return _with_imports(descriptor_pool.Default().FindFileContainingSymbol(symbol))


def files_of_name(name: str) -> list[bytes]:
    """Return the same for a file name such as "quorumlog/v1/log.proto"; KeyError when unknown."""
    return _with_imports(descriptor_pool.Default().FindFileByName(name))


def is_described(service: str) -> bool:
    """Whether a service's descriptor is loaded."""
    try:
        descriptor_pool.Default().FindServiceByName(service)
    except KeyError:
        return False
    return True


def _with_imports(file: FileDescriptor) -> list[bytes]:
    found: dict[str, bytes] = {}
    waiting = [file]
    while waiting:
        current = waiting.pop()
        if current.name not in found:
            proto = descriptor_pb2.FileDescriptorProto()
            current.CopyToProto(proto)
            found[current.name] = proto.SerializeToString(deterministic=True)
            waiting.extend(current.dependencies)
    return list(found.values())
