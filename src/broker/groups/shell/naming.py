"""Which partition of `__consumer_offsets` a group lives in: Kafka's rule, so that its data moves
over unchanged."""

from functools import lru_cache
from typing import Final

from ....errors import InvalidGroupId, InvalidRequest

NAME_LENGTH_MAX: Final = 8_150
"""Characters of a group's name, and of what a member brings: at most 32,600 bytes. A member's id is
made of such a name and 33 more, and at most 32,767 can be stored."""
KNOWN_LENGTH_MAX: Final = 256
"""Of groups with shorter names it is known where they live, and not looked for again."""
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
"""The field that has a name in each of its parts."""


def check_group(group: str) -> None:
    """Raise InvalidGroupId unless a group may be called so."""
    if not group:
        raise InvalidGroupId("the name of the group is empty: give group.id")
    if len(group) > NAME_LENGTH_MAX:
        raise InvalidGroupId(
            f"the name of the group has {len(group)} characters, at most {NAME_LENGTH_MAX} are"
            " taken"
        )


def check_texts(request: object) -> None:
    """Raise InvalidRequest where a request brings a text that is too long to be stored."""
    names = _texts_of.get(type(request))
    if names is None:
        names = tuple(name for name in (*TEXTS, PROTOCOLS) if hasattr(request, name))
        _texts_of[type(request)] = names
    for name in names:
        found = getattr(request, name)
        if name == PROTOCOLS:
            for protocol, _ in found:
                if len(protocol) > NAME_LENGTH_MAX:
                    raise _too_long("the name of a protocol", protocol)
        elif found and len(found) > NAME_LENGTH_MAX:
            raise _too_long(name, found)


_texts_of: Final[dict[type, tuple[str, ...]]] = {}
"""The texts that requests of a kind have."""


def _too_long(name: str, text: str) -> InvalidRequest:
    return InvalidRequest(f"{name} has {len(text)} characters, at most {NAME_LENGTH_MAX} are taken")


def java_hash(text: str) -> int:
    """Return what Java's String.hashCode does, as an unsigned number of 32 bits: over UTF-16
    units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value


def partition_of(group: str, partitions: int) -> int:
    """Return a group's partition, of so many."""
    hashed = _known_hash(group) if len(group) <= KNOWN_LENGTH_MAX else java_hash(group)
    return (hashed & 0x7FFFFFFF) % partitions


_known_hash = lru_cache(maxsize=4_096)(java_hash)  # every request of a member asks for it
