"""Config entries of Kafka responses: the protocol's numbers for a value's source and type."""

from collections.abc import Iterable
from typing import Any, Final

from ...metadata.topic_configs import INT32_MAX, ConfigType
from ...proto import admin_pb2 as pb
from .api import Fields

CLUSTER_SOURCE: Final = 3
DEFAULT_SOURCE: Final = 5
_SOURCES: Final = {
    pb.CONFIG_SOURCE_TOPIC: 1,  # DYNAMIC_TOPIC_CONFIG
    pb.CONFIG_SOURCE_CLUSTER: CLUSTER_SOURCE,  # DYNAMIC_DEFAULT_BROKER_CONFIG
    pb.CONFIG_SOURCE_FILE: 4,  # STATIC_BROKER_CONFIG
    pb.CONFIG_SOURCE_ENVIRONMENT: 4,
    pb.CONFIG_SOURCE_FLAG: 4,
    pb.CONFIG_SOURCE_UNSPECIFIED: 4,  # a static source that was not reported
    pb.CONFIG_SOURCE_DEFAULT: DEFAULT_SOURCE,
}
UNKNOWN_SOURCE: Final = 0

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7


def source_of(config: pb.ConfigDescription) -> int:
    """Return the number of a config's source."""
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
    """Return the configs of a created topic, as CreateTopics returns them."""
    return [_entry(config, is_read_only=False) for config in configs]


def described_config(
    config: pb.ConfigDescription,
    *,
    of_cluster: str | None,
    is_changed_here: bool,
    with_synonyms: bool,
    with_doc: bool,
) -> Fields:
    """Return a config as DescribeConfigs returns it.

    `of_cluster` is the cluster's value of the same name; `is_changed_here` is True if the config
    can be changed at the described resource.
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
    """Return every value that is set, the effective one first."""
    values = []
    if config.source not in (pb.CONFIG_SOURCE_DEFAULT, pb.CONFIG_SOURCE_CLUSTER):
        values.append((config.value, source_of(config)))
    if of_cluster is not None:
        values.append((of_cluster, CLUSTER_SOURCE))
    if config.default_value != of_cluster:  # a topic's default is the cluster's value
        values.append((config.default_value, DEFAULT_SOURCE))
    return [{"name": config.name, "value": value, "source": source} for value, source in values]
