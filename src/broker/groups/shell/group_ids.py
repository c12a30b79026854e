"""The limits of group ids and of other strings of requests."""

from typing import Final

from ....errors import InvalidGroupId, InvalidRequest

NAME_LENGTH_MAX: Final = 8_150
"""Maximum length of a group id and of a member's strings, in characters: at most 32,600 bytes. A
member id is such a string and 33 more characters; at most 32,767 bytes can be stored."""
TEXTS: Final = (
    "member_id",
    "instance_id",
    "client_id",
    "client_host",
    "protocol_type",
    "pattern",
    "rack",
    "assignor",
)
PROTOCOLS: Final = "protocols"
"""The field with a name in each of its parts."""


def check_group(group: str) -> None:
    """Raise InvalidGroupId if the group id is empty or too long."""
    if not group:
        raise InvalidGroupId("the group id is empty; set group.id")
    if len(group) > NAME_LENGTH_MAX:
        raise InvalidGroupId(
            f"the group id has {len(group)} characters, the limit is {NAME_LENGTH_MAX}; use a"
            " shorter one"
        )


def check_texts(request: object) -> None:
    """Raise InvalidRequest if a string of the request is too long to be stored."""
    names = _text_fields.get(type(request))
    if names is None:
        names = tuple(name for name in (*TEXTS, PROTOCOLS) if hasattr(request, name))
        _text_fields[type(request)] = names
    for name in names:
        found = getattr(request, name)
        if name == PROTOCOLS:
            for protocol, _ in found:
                if len(protocol) > NAME_LENGTH_MAX:
                    raise _too_long("the name of a protocol", protocol)
        elif found and len(found) > NAME_LENGTH_MAX:
            raise _too_long(name, found)


_text_fields: Final[dict[type, tuple[str, ...]]] = {}
"""The string fields of each type of request."""


def _too_long(name: str, text: str) -> InvalidRequest:
    return InvalidRequest(
        f"{name} has {len(text)} characters, the limit is {NAME_LENGTH_MAX}; use a shorter one"
    )
