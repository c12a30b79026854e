"""Configs as this protocol tells them: its numbers for who set a value, and for its type."""

from collections.abc import Iterable
from typing import Any, Final

from ...metadata.topic_configs import INT32_MAX, ConfigType
from ...proto import admin_pb2 as pb
from .api import Fields

CLUSTER_SOURCE: Final = 3
DEFAULT_SOURCE: Final = 5
_SOURCES: Final = {
    pb.CONFIG_SOURCE_TOPIC: 1,  # of the topic
    pb.CONFIG_SOURCE_CLUSTER: CLUSTER_SOURCE,  # of all brokers, changed while they run
    pb.CONFIG_SOURCE_FILE: 4,  # of this broker, from its start on
    pb.CONFIG_SOURCE_ENVIRONMENT: 4,
    pb.CONFIG_SOURCE_FLAG: 4,
    pb.CONFIG_SOURCE_UNSPECIFIED: 4,  # the same, where nobody has said from which of them
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
    return [_entry(config, is_read_only=False) for config in configs]


def described_config(
    config: pb.ConfigDescription,
    *,
    of_cluster: str | None,
    is_changed_here: bool,
    with_synonyms: bool,
    with_doc: bool,
) -> Fields:
    """Return a config as the answer to who asks for it tells it.

    `of_cluster` is what the cluster has set under its name, `is_changed_here` whether it can be
    changed where it was asked for.
    """
    return {
        **_entry(config, is_read_only=not is_changed_here),
        "synonyms": _synonyms(config, of_cluster) if with_synonyms else (),
        "config_type": type_of(config),
        "documentation": config.doc if with_doc else None,
    }


def _entry(config: pb.ConfigDescription, *, is_read_only: bool) -> dict[str, Any]:
    return {
        "name": config.name,
        "value": config.value,
        "read_only": is_read_only,
        "config_source": source_of(config),
        "is_sensitive": False,
    }


def _synonyms(config: pb.ConfigDescription, of_cluster: str | None) -> list[Fields]:
    """Every value that was given, the one in force first."""
    values = []
    if config.source not in (pb.CONFIG_SOURCE_DEFAULT, pb.CONFIG_SOURCE_CLUSTER):
        values.append((config.value, source_of(config)))
    if of_cluster is not None:
        values.append((of_cluster, CLUSTER_SOURCE))
    if config.default_value != of_cluster:  # a topic's default is what the cluster says
        values.append((config.default_value, DEFAULT_SOURCE))
    return [{"name": config.name, "value": value, "source": source} for value, source in values]
