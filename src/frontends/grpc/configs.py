"""Descriptions of topic configs, cluster configs and node settings for admin clients. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...errors import InvalidRequest
from ...metadata import TOPIC_CONFIGS, ConfigType, TopicConfig, check_topic_name, effective_configs
from ...metadata.cluster_configs import CLUSTER_CONFIGS
from ...metadata.topic_configs import INT64_MAX
from ...proto import admin_pb2 as pb
from ...settings import Setting, ValueOrigin, value_text

RESOURCES_MAX: Final = 1_000  # in one DescribeConfigs request: each resource returns a whole table
CHANGES_MAX: Final = 1_000  # in one request

_SOURCES: Final = {
    "default": pb.CONFIG_SOURCE_DEFAULT,
    "file": pb.CONFIG_SOURCE_FILE,
    "environment": pb.CONFIG_SOURCE_ENVIRONMENT,
    "flag": pb.CONFIG_SOURCE_FLAG,
}
_TYPES: Final = {int: "whole number", bool: "text", str: "text", tuple: "list of text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSetting:
    """One setting of the running node."""

    row: Setting
    value: Any
    origin: ValueOrigin


def describe_topic_configs(
    configs: Mapping[str, str], cluster_configs: Mapping[str, str], *, replication_factor: int
) -> list[pb.ConfigDescription]:
    """Return every config of a topic, set (in `configs`) or not, by ascending name. The cluster's
    value is the default of a config that the topic does not set."""

    def values(configs: Mapping[str, str]) -> dict[str, str]:
        return effective_configs(
            configs, replication_factor=replication_factor, cluster_configs=cluster_configs
        )

    now = values(configs)
    described = []
    for name, row in TOPIC_CONFIGS.items():
        if name in configs:
            source = pb.CONFIG_SOURCE_TOPIC
        elif name in CLUSTER_CONFIGS and name in cluster_configs:
            source = pb.CONFIG_SOURCE_CLUSTER
        else:
            source = pb.CONFIG_SOURCE_DEFAULT
        others = {key: value for key, value in configs.items() if key != name}
        described.append(
            _described(row, value=now[name], default=values(others)[name], source=source)
        )
    return described


def describe_cluster_configs(configs: Mapping[str, str]) -> list[pb.ConfigDescription]:
    """Return every config of the cluster, set or not, by ascending name."""
    return [
        _described(
            row,
            value=configs.get(name, row.default),
            default=row.default,
            source=pb.CONFIG_SOURCE_CLUSTER if name in configs else pb.CONFIG_SOURCE_DEFAULT,
        )
        for name, row in CLUSTER_CONFIGS.items()
    ]


def _described(
    row: TopicConfig, *, value: str, default: str, source: pb.ConfigSource
) -> pb.ConfigDescription:
    """Describe a row of the config tables in `metadata`."""
    entry = pb.ConfigDescription(
        name=row.name,
        value=value,
        default_value=default,
        source=source,
        type=row.type.value,
        unit=row.unit,
        doc=row.doc,
        changes=row.changes,
    )
    match row.type:
        case ConfigType.WHOLE:
            entry.low = row.low
            if row.high < INT64_MAX:
                entry.high = row.high
        case ConfigType.FRACTION:
            entry.low, entry.high = 0, 1
        case ConfigType.CHOICE:
            entry.choices.extend(row.choices)
        case ConfigType.SWITCH:
            entry.choices.extend(("false", "true"))
        case ConfigType.TEXT:
            pass  # the unit describes the format
    return entry


def describe_node_settings(settings: Sequence[NodeSetting]) -> list[pb.ConfigDescription]:
    """Return every setting of a node, by ascending name."""
    described = []
    for setting in sorted(settings, key=lambda setting: setting.row.name):
        row = setting.row
        described.append(
            pb.ConfigDescription(
                name=row.name,
                value=value_text(setting.value),
                default_value=value_text(row.default),
                source=_SOURCES.get(setting.origin.kind, pb.CONFIG_SOURCE_UNSPECIFIED),
                place=setting.origin.place,
                type=_TYPES[row.kind],
                unit=row.unit,
                low=row.low,
                high=row.high,
                choices=row.choices,
                doc=row.doc,
                changes=row.changes,
            )
        )
    return described


def check_resources(resources: Sequence[pb.ConfigResource]) -> None:
    """Raise InvalidRequest for an empty or oversized request, or an invalid resource."""
    if not 1 <= len(resources) <= RESOURCES_MAX:
        raise InvalidRequest(f"resources: {len(resources)} entries; give 1..{RESOURCES_MAX}")
    for index, resource in enumerate(resources):
        match resource.WhichOneof("resource"):
            case "topic":
                check_topic_name(resource.topic)
            case "broker":
                if resource.broker < 0:
                    raise InvalidRequest(
                        f"broker: {resource.broker} is not a node id; give 0 or more"
                    )
            case "cluster" if resource.cluster:
                continue
            case _:
                raise InvalidRequest(
                    f"resources[{index}]: it names no topic, broker or cluster; give one of them"
                )


def check_alteration(request: pb.AlterConfigsRequest) -> None:
    """Raise InvalidRequest for no changes or too many; the controller checks the rest."""
    check_topic_name(request.topic)
    check_changes(request.changes, replace=request.replace, topic=request.topic)


def check_changes(
    changes: Sequence[pb.ConfigChange], *, replace: bool = False, topic: str = ""
) -> None:
    """Raise InvalidRequest for too many changes, or for none unless `replace` is set."""
    if not (0 if replace else 1) <= len(changes) <= CHANGES_MAX:
        raise InvalidRequest(f"changes: {len(changes)} entries; give 1..{CHANGES_MAX}", topic=topic)
    for change in changes:
        if change.operation not in pb.ConfigOperation.values():
            raise InvalidRequest(
                f"{change.name}: unknown operation {change.operation}; give CONFIG_OPERATION_SET,"
                " CONFIG_OPERATION_APPEND or CONFIG_OPERATION_SUBTRACT",
                topic=topic,
            )
        if change.operation != pb.CONFIG_OPERATION_SET and not change.HasField("value"):
            raise InvalidRequest(
                f"{change.name}: no value to append or subtract; give one", topic=topic
            )
