"""Which partition of `__consumer_offsets` a group lives in: Kafka's rule, so that its data moves
over unchanged."""

from typing import Final

from ....errors import InvalidGroupId, InvalidRequest

NAME_LENGTH_MAX: Final = 8_150
"""Characters of a group's name, and of what a member brings: at most 32,600 bytes. A member's id is
made of such a name and 33 more, and at most 32,767 can be stored."""
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
    texts = [(name, getattr(request, name, None)) for name in TEXTS]
    texts += [("the name of a protocol", each[0]) for each in getattr(request, "protocols", ())]
    for name, text in texts:
        if text and len(text) > NAME_LENGTH_MAX:
            raise InvalidRequest(
                f"{name} has {len(text)} characters, at most {NAME_LENGTH_MAX} are taken"
            )


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
    return (java_hash(group) & 0x7FFFFFFF) % partitions
