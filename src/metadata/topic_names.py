"""Which names a topic may have: the field's rules, so that every client's checks agree."""

import re
from typing import Final

from ..errors import InvalidTopic
from ..raftlog import METADATA_LOG_NAME

NAME_LENGTH_MAX: Final = 249
"""Characters; with "-", a partition index and a suffix it still fits a file name of 255."""

METADATA_TOPIC: Final = METADATA_LOG_NAME.rpartition("-")[0]
"""Its folder is the quorum's own log: a topic of this name would write into it."""

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets"})
"""Topics that brokers make and write for themselves; whoever wants may read them."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9._-]")


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic, saying why, unless the name is legal."""
    if not name:
        raise InvalidTopic("a topic name must not be empty")
    if name in (".", ".."):
        raise InvalidTopic(f'a topic must not be named "{name}"')
    if name == METADATA_TOPIC:
        raise InvalidTopic(f"{METADATA_TOPIC} is the metadata quorum's own log: choose another")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidTopic(
            f"a topic name has at most {NAME_LENGTH_MAX} characters, this one has {len(name)}"
        )
    if not _LEGAL.match(name):
        illegal = "".join(sorted(set(_ILLEGAL.findall(name))))
        raise InvalidTopic(
            f"topic name {name!r} has illegal characters {illegal!r}: use only a-z, A-Z, 0-9,"
            ' ".", "_" and "-"'
        )


def check_not_internal(name: str) -> None:
    """Raise InvalidTopic for a topic that brokers keep for themselves."""
    if name in INTERNAL_TOPICS:
        raise InvalidTopic(
            "brokers keep this topic for themselves: they make it and write it, and nobody else may"
            " make, write or delete it; reading is free",
            topic=name,
        )


def collision_key(name: str) -> str:
    """Equal for names that differ only in '.' and '_': metric names cannot tell those apart."""
    return name.replace(".", "_")
