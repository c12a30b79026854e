"""Answers to server reflection: which descriptors describe a symbol of the loaded protobuf files.

Two versions of the protocol are alike but for their package, and tools ask for the newer one first.
The older one's descriptors come with grpc's package; the newer one's are made of them by name.
Pure: the messages are handed in, since grpc's packages have homes of their own.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor

if TYPE_CHECKING:
    from grpc_reflection.v1alpha import reflection_pb2

# grpc's status numbers, which reflection repeats inside its responses.
_NOT_FOUND: Final = 5
_UNIMPLEMENTED: Final = 12


REFLECTION_SERVICES: Final = (
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
)
_NEW, _OLD = "grpc.reflection.v1", "grpc.reflection.v1alpha"
_NEW_FILE, _OLD_FILE = (
    "grpc/reflection/v1/reflection.proto",
    "grpc_reflection/v1alpha/reflection.proto",
)


def answer_reflection(
    request: "reflection_pb2.ServerReflectionRequest",
    response: "reflection_pb2.ServerReflectionResponse",
    services: Sequence[str],
) -> None:
    """Fill the response to one request; `services` are the full names that are served."""
    response.valid_host = request.host
    response.original_request.CopyFrom(request)
    try:
        match request.WhichOneof("message_request"):
            case "list_services":
                for name in services:
                    response.list_services_response.service.add(name=name)
            case "file_containing_symbol":
                files = files_of_symbol(request.file_containing_symbol)
                response.file_descriptor_response.file_descriptor_proto.extend(files)
            case "file_by_filename":
                files = files_of_name(request.file_by_filename)
                response.file_descriptor_response.file_descriptor_proto.extend(files)
            case "file_containing_extension":
                asked = request.file_containing_extension
                files = files_of_extension(asked.containing_type, asked.extension_number)
                response.file_descriptor_response.file_descriptor_proto.extend(files)
            case "all_extension_numbers_of_type":
                name = request.all_extension_numbers_of_type
                numbers = extension_numbers(name)
                response.all_extension_numbers_response.base_type_name = name
                response.all_extension_numbers_response.extension_number.extend(numbers)
            case asked_for:  # nothing, or what is not invented yet
                response.error_response.error_code = _UNIMPLEMENTED
                response.error_response.error_message = f"{asked_for} is not answered here"
    except KeyError as error:
        response.error_response.error_code = _NOT_FOUND
        response.error_response.error_message = f"no {error.args[0]} here"


def files_of_symbol(symbol: str) -> list[bytes]:
    """Return the serialised descriptors of the file that defines a symbol and of all it imports,
    the file itself first; KeyError when no such symbol is loaded."""
    if symbol == _NEW or symbol.startswith(f"{_NEW}."):
        _find(_file_of_symbol, _OLD + symbol.removeprefix(_NEW), symbol)
        return [_new_reflection()]
    return _with_imports(_find(_file_of_symbol, symbol, symbol))


def files_of_name(name: str) -> list[bytes]:
    """Return the same for a file name such as "quorumlog/v1/log.proto"; KeyError when unknown."""
    if name == _NEW_FILE:
        return [_new_reflection()]
    return _with_imports(_find(_pool().FindFileByName, name, name))


def files_of_extension(type_name: str, number: int) -> list[bytes]:
    """Return the same for the file that extends a message by a field; KeyError when none does."""
    extended = _find(_pool().FindMessageTypeByName, type_name, type_name)
    for extension in _pool().FindAllExtensions(extended):
        if extension.number == number:
            return _with_imports(extension.file)
    raise KeyError(f"extension {number} of {type_name}")


def extension_numbers(type_name: str) -> list[int]:
    """Return the field numbers by which a message is extended, ascending; KeyError when the
    message is unknown."""
    extended = _find(_pool().FindMessageTypeByName, type_name, type_name)
    return sorted(extension.number for extension in _pool().FindAllExtensions(extended))


def is_described(service: str) -> bool:
    """Whether a service's descriptor is loaded."""
    try:
        descriptor_pool.Default().FindServiceByName(service)
    except KeyError:
        return False
    return True


def _pool() -> Any:
    """Return the loaded descriptors; the stubs say nothing of some of its methods."""
    return descriptor_pool.Default()


def _find(look_up: Callable[[str], Any], key: str, asked: str) -> Any:
    """Look up; KeyError with what was asked for."""
    try:
        return look_up(key)
    except KeyError:
        raise KeyError(asked) from None


def _file_of_symbol(symbol: str) -> FileDescriptor:
    """Return the file of a symbol; methods, which the pool does not know by name, included."""
    try:
        return _pool().FindFileContainingSymbol(symbol)  # type: ignore[no-any-return]
    except KeyError:
        service, _, method = symbol.rpartition(".")
        found = _pool().FindServiceByName(service).methods_by_name[method]
        return found.containing_service.file  # type: ignore[no-any-return]


def _new_reflection() -> bytes:
    """Return the newer protocol's file: the older one under its name."""
    proto = descriptor_pb2.FileDescriptorProto()
    _pool().FindFileByName(_OLD_FILE).CopyToProto(proto)
    proto.name, proto.package = _NEW_FILE, _NEW
    for message in proto.message_type:
        for field in message.field:
            if not field.type_name:
                continue
            field.type_name = field.type_name.replace(f".{_OLD}.", f".{_NEW}.")
    for service in proto.service:
        for method in service.method:
            method.input_type = method.input_type.replace(f".{_OLD}.", f".{_NEW}.")
            method.output_type = method.output_type.replace(f".{_OLD}.", f".{_NEW}.")
    return proto.SerializeToString(deterministic=True)


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
