"""Configs as this protocol tells them: its numbers for who set a value, and for its type."""

from collections.abc import Iterable
from typing import Any, Final

from ...metadata.topic_configs import INT32_MAX, ConfigType
from ...proto import admin_pb2 as pb
from .api import Fields

DEFAULT_SOURCE: Final = 5
_SOURCES: Final = {
    pb.CONFIG_SOURCE_TOPIC: 1,  # of the topic
    pb.CONFIG_SOURCE_CLUSTER: 3,  # of all brokers, changed while they run
    pb.CONFIG_SOURCE_FILE: 4,  # of this broker, from its start on
    pb.CONFIG_SOURCE_ENVIRONMENT: 4,
    pb.CONFIG_SOURCE_FLAG: 4,
    pb.CONFIG_SOURCE_DEFAULT: DEFAULT_SOURCE,
}
UNKNOWN_SOURCE: Final = 0

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7


def source_of(config: pb.ConfigDescription) -> int:
    """Return the number of who set a config."""
    return _SOURCES.get(config.source, UNKNOWN_SOURCE)


def type_of(config: pb.ConfigDescription) -> int:
    """Return the number of a config's type."""
    match config.type:
        case ConfigType.SWITCH:
            return BOOLEAN
        case ConfigType.FRACTION:
            return DOUBLE
        case ConfigType.WHOLE:
            return INT if config.HasField("high") and config.high <= INT32_MAX else LONG
        case "list of text":
            return LIST
        case _:
            return LIST if any("," in choice for choice in config.choices) else STRING


def created_configs(configs: Iterable[pb.ConfigDescription]) -> list[Fields]:
    """Return the configs of a topic that was created, as its result tells them."""
    return [_entry(config) for config in configs]


def _entry(config: pb.ConfigDescription) -> dict[str, Any]:
    return {
        "name": config.name,
        "value": config.value,
        "read_only": False,
        "config_source": source_of(config),
        "is_sensitive": False,
    }
