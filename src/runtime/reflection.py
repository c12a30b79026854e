"""Server reflection: the descriptors of a symbol in the loaded protobuf files.

The two versions of the protocol differ only in their package, and tools use the newer one first.
The older one's descriptors are in grpc's package; the newer one's are derived from them by name.
Pure: the caller passes the messages.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor

if TYPE_CHECKING:
    from google.protobuf import descriptor_pb2
    from grpc_reflection.v1alpha import reflection_pb2

# grpc's status numbers, which reflection puts into its responses.
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
    """Fill the response to one request. `services` are the full names of the served services."""
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
            case asked_for:  # empty, or of a later version
                response.error_response.error_code = _UNIMPLEMENTED
                response.error_response.error_message = f"{asked_for} is not supported"
    except KeyError as error:
        response.error_response.error_code = _NOT_FOUND
        response.error_response.error_message = f"{error.args[0]} not found"


def files_of_symbol(symbol: str) -> list[bytes]:
    """Return the serialized descriptors of the file that defines a symbol and of its imports.

    The file itself is first. Raise KeyError if no such symbol is loaded.
    """
    if symbol == _NEW or symbol.startswith(f"{_NEW}."):
        _find(_file_of_symbol, _OLD + symbol.removeprefix(_NEW), symbol)
        return [_new_reflection()]
    return _with_imports(_find(_file_of_symbol, symbol, symbol))


def files_of_name(name: str) -> list[bytes]:
    """Return the same for a file name such as "quorumlog/v1/log.proto". Raise KeyError if
    unknown."""
    if name == _NEW_FILE:
        return [_new_reflection()]
    return _with_imports(_find(_pool().FindFileByName, name, name))


def files_of_extension(type_name: str, number: int) -> list[bytes]:
    """Return the same for the file that extends a message by a field. Raise KeyError if none
    does."""
    extended = _find(_pool().FindMessageTypeByName, type_name, type_name)
    for extension in _pool().FindAllExtensions(extended):
        if extension.number == number:
            return _with_imports(extension.file)
    raise KeyError(f"extension {number} of {type_name}")


def extension_numbers(type_name: str) -> list[int]:
    """Return the field numbers of a message's extensions, ascending. Raise KeyError if it is
    unknown."""
    extended = _find(_pool().FindMessageTypeByName, type_name, type_name)
    return sorted(extension.number for extension in _pool().FindAllExtensions(extended))


def is_described(service: str) -> bool:
    """Return True if a service's descriptor is loaded."""
    try:
        descriptor_pool.Default().FindServiceByName(service)
    except KeyError:
        return False
    return True


def _pool() -> Any:
    """Return the loaded descriptors. The stubs lack some of its methods."""
    return descriptor_pool.Default()


def _file_message() -> "descriptor_pb2.FileDescriptorProto":
    from google.protobuf import descriptor_pb2  # needed for reflection only

    return descriptor_pb2.FileDescriptorProto()


def _find(look_up: Callable[[str], Any], key: str, asked: str) -> Any:
    """Look up a key. Raise KeyError with the requested name."""
    try:
        return look_up(key)
    except KeyError:
        raise KeyError(asked) from None


def _file_of_symbol(symbol: str) -> FileDescriptor:
    """Return the file of a symbol. The pool does not find methods by name, so their service is
    used."""
    try:
        return _pool().FindFileContainingSymbol(symbol)  # type: ignore[no-any-return]
    except KeyError:
        service, _, method = symbol.rpartition(".")
        found = _pool().FindServiceByName(service).methods_by_name[method]
        return found.containing_service.file  # type: ignore[no-any-return]


def _new_reflection() -> bytes:
    """Return the newer protocol's file: the older one with its name."""
    proto = _file_message()
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
            proto = _file_message()
            current.CopyToProto(proto)
            found[current.name] = proto.SerializeToString(deterministic=True)
            waiting.extend(current.dependencies)
    return list(found.values())
