"""Rules for topic names, the same as in Kafka, so that the checks of all clients agree."""

import re
from typing import Final

from ..errors import InvalidTopic
from ..raftlog import METADATA_LOG_NAME

NAME_LENGTH_MAX: Final = 249
"""In characters: with "-", a partition index and a suffix the name fits the 255 of a file name."""

METADATA_TOPIC: Final = METADATA_LOG_NAME.rpartition("-")[0]
"""The name of the metadata log: a topic of this name would write into its folder."""

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics that only brokers create and write; clients can read them."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9._-]")


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic unless the name is legal."""
    if not name:
        raise InvalidTopic("a topic name must not be empty")
    if name in (".", ".."):
        raise InvalidTopic(f'a topic must not be named "{name}"')
    if name == METADATA_TOPIC:
        raise InvalidTopic(
            f"{METADATA_TOPIC} is reserved for the metadata log; choose another name"
        )
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidTopic(
            f"the topic name has {len(name)} characters; the limit is {NAME_LENGTH_MAX}"
        )
    if not _LEGAL.match(name):
        illegal = "".join(sorted(set(_ILLEGAL.findall(name))))
        raise InvalidTopic(
            f"topic name {name!r} has illegal characters {illegal!r}; use only a-z, A-Z, 0-9,"
            ' ".", "_" and "-"'
        )


def check_not_internal(name: str) -> None:
    """Raise InvalidTopic for an internal topic."""
    if name in INTERNAL_TOPICS:
        raise InvalidTopic(
            "internal topic: only brokers create, write and delete it; clients can read it",
            topic=name,
        )


def collision_key(name: str) -> str:
    """Return a key that is equal for names that differ only in '.' and '_', which are equal in
    metric names."""
    return name.replace(".", "_")
