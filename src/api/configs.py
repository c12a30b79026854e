"""Configs of topics, of the cluster and of consumer groups, and settings of this node: describe and
alter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import partial
from typing import Any, Final

from msgspec import Struct

from ..errors import InvalidRequest, QuorumlogError
from ..ids import NodeId, Offset
from ..metadata import (
    TOPIC_CONFIGS,
    AlterClusterConfigs,
    AlterConfigs,
    AlterGroupConfigs,
    ClusterConfigsAltered,
    ConfigsAltered,
    ConfigType,
    GroupConfigsAltered,
    Submitted,
    TopicConfig,
    check_topic_name,
    effective_configs,
)
from ..metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ..metadata.cluster_configs import CLUSTER_CONFIGS
from ..metadata.group_configs import BROKER_SETTINGS, GROUP_CONFIGS, check_config_group
from ..metadata.topic_configs import INT64_MAX
from ..settings import Setting, ValueOrigin, value_text
from .authorizer import Authorizer
from .metadata_access import MetadataAccess, existing_topic
from .request_context import RequestContext
from .validation import check_distinct, check_node_id

RESOURCES_MAX: Final = 1_000  # described in one call: each resource returns a whole table
CHANGES_MAX: Final = 1_000  # in one call

_TYPES: Final = {int: "whole number", bool: "text", str: "text", tuple: "list of text"}


class ResourceType(Enum):
    """The types of resources with configs."""

    TOPIC = "topic"
    BROKER = "broker"
    CLUSTER = "cluster"
    GROUP = "group"


class ConfigResource(Struct, frozen=True, kw_only=True):
    """A resource with configs."""

    type: ResourceType
    topic: str = ""  # its name; other types: empty
    broker: int = -1  # its node id; other types: -1
    group: str = ""  # its id; other types: empty

    def __str__(self) -> str:
        name = self.topic or self.group or (self.broker if self.broker >= 0 else "")
        return f"{self.type.value} {name}".strip()


class ConfigSource(StrEnum):
    """The source of a value. The values of a node's settings are those of `ValueOrigin.kind`."""

    UNSPECIFIED = ""  # a static source that was not recorded
    DEFAULT = "default"
    TOPIC = "topic"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"
    CLUSTER = "cluster"
    GROUP = "group"


class ConfigDescription(Struct, frozen=True, kw_only=True):
    """A config with its effective value and its declaration."""

    name: str
    value: str
    default_value: str  # the value if the resource did not set it
    source: ConfigSource
    place: str = ""  # of a node's value: a flag, a variable, "file:line"
    type: str  # a value of `ConfigType`, or "list of text"
    unit: str
    low: int | None = None  # inclusive
    high: int | None = None  # inclusive
    choices: tuple[str, ...] = ()
    doc: str
    changes: str  # the time at which a new value takes effect


class DescribedConfigs(Struct, frozen=True, kw_only=True):
    """The configs of one resource, or the error."""

    resource: ConfigResource
    configs: tuple[ConfigDescription, ...] = ()  # by ascending name
    error: QuorumlogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSetting:
    """One setting of the running node."""

    row: Setting
    value: Any
    origin: ValueOrigin


class ConfigAdmin:
    """The operations on configs."""

    def __init__(
        self,
        metadata: MetadataAccess,
        authorizer: Authorizer,
        *,
        node_id: NodeId,
        settings: Sequence[NodeSetting],
    ) -> None:
        self._metadata = metadata
        self._authorizer = authorizer
        self._node_id = node_id
        self._settings = settings

    async def describe(
        self, resources: Sequence[ConfigResource], context: RequestContext
    ) -> tuple[list[DescribedConfigs], Offset]:
        """Return the configs of each resource in order, and the offset of the metadata. Settings
        are those of this node: another broker's have an error."""
        check_resources(resources)
        image = await self._metadata.reach(context)
        described = []
        for resource in resources:
            try:
                self._check(AclOperation.DESCRIBE_CONFIGS, resource, context)
                configs = self._configs_of(resource)
            except QuorumlogError as error:
                described.append(DescribedConfigs(resource=resource, error=error))
            else:
                described.append(DescribedConfigs(resource=resource, configs=tuple(configs)))
        return described, image.offset

    async def alter_topic(
        self, command: AlterConfigs, context: RequestContext
    ) -> Submitted[ConfigsAltered]:
        """Set and delete configs of one topic, all or none."""
        check_topic_name(command.topic)
        resource = ConfigResource(type=ResourceType.TOPIC, topic=command.topic)
        authorize = partial(self._check, AclOperation.ALTER_CONFIGS, resource, context)
        authorize()
        _check_changes(command, topic=command.topic)
        return await self._metadata.submit(command, context, authorize)

    async def alter_cluster(
        self, command: AlterClusterConfigs, context: RequestContext
    ) -> Submitted[ClusterConfigsAltered]:
        """Set and delete configs of the whole cluster, all or none."""
        resource = ConfigResource(type=ResourceType.CLUSTER)
        authorize = partial(self._check, AclOperation.ALTER_CONFIGS, resource, context)
        authorize()
        _check_changes(command)
        return await self._metadata.submit(command, context, authorize)

    async def alter_group(
        self, command: AlterGroupConfigs, context: RequestContext
    ) -> Submitted[GroupConfigsAltered]:
        """Set and delete configs of one consumer group, all or none."""
        check_config_group(command.group)
        resource = ConfigResource(type=ResourceType.GROUP, group=command.group)
        authorize = partial(self._check, AclOperation.ALTER_CONFIGS, resource, context)
        authorize()
        _check_changes(command)
        return await self._metadata.submit(command, context, authorize)

    def _check(
        self, operation: AclOperation, resource: ConfigResource, context: RequestContext
    ) -> None:
        """Raise AuthorizationFailed; the settings of a broker belong to the cluster."""
        match resource.type:
            case ResourceType.TOPIC:
                kind, name = AclResourceType.TOPIC, resource.topic
            case ResourceType.GROUP:
                kind, name = AclResourceType.GROUP, resource.group
            case ResourceType.BROKER | ResourceType.CLUSTER:
                kind, name = AclResourceType.CLUSTER, CLUSTER_NAME
        self._authorizer.check(context.client, operation, kind, name)

    def _configs_of(self, resource: ConfigResource) -> list[ConfigDescription]:
        image = self._metadata.image
        match resource.type:
            case ResourceType.CLUSTER:
                return describe_cluster_configs(image.cluster_configs)
            case ResourceType.BROKER:
                if resource.broker != self._node_id:
                    raise InvalidRequest(
                        f"broker {resource.broker}: settings are local to each broker and this is"
                        f" broker {self._node_id}; ask broker {resource.broker}"
                    )
                return describe_node_settings(self._settings)
            case ResourceType.GROUP:
                of_group: Mapping[str, str] = image.group_configs.get(resource.group, {})
                return describe_group_configs(of_group, self._settings)
            case ResourceType.TOPIC:
                topic = existing_topic(image, resource.topic)
                return describe_topic_configs(
                    topic.configs,
                    image.cluster_configs,
                    replication_factor=topic.replication_factor,
                )


# --- validation ----------------------------------------------------------------------------------


def check_resources(resources: Sequence[ConfigResource]) -> None:
    """Raise InvalidRequest for an empty or oversized list, or an invalid resource."""
    if not 1 <= len(resources) <= RESOURCES_MAX:
        raise InvalidRequest(f"resources: {len(resources)} entries; give 1..{RESOURCES_MAX}")
    check_distinct("resources", map(str, resources))
    for resource in resources:
        match resource.type:
            case ResourceType.TOPIC:
                check_topic_name(resource.topic)
            case ResourceType.BROKER:
                check_node_id("broker", resource.broker)
            case ResourceType.GROUP:
                check_config_group(resource.group)
            case ResourceType.CLUSTER:
                pass


def _check_changes(
    command: AlterConfigs | AlterClusterConfigs | AlterGroupConfigs, *, topic: str = ""
) -> None:
    """Raise InvalidRequest for too many changes, or for none unless `replace` is set."""
    count = len(command.changes) + len(command.lists)
    if not (0 if command.replace else 1) <= count <= CHANGES_MAX:
        raise InvalidRequest(f"changes: {count} entries; give 1..{CHANGES_MAX}", topic=topic)


# --- descriptions --------------------------------------------------------------------------------


def describe_topic_configs(
    configs: Mapping[str, str], cluster_configs: Mapping[str, str], *, replication_factor: int
) -> list[ConfigDescription]:
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
            source = ConfigSource.TOPIC
        elif name in CLUSTER_CONFIGS and name in cluster_configs:
            source = ConfigSource.CLUSTER
        else:
            source = ConfigSource.DEFAULT
        others = {key: value for key, value in configs.items() if key != name}
        described.append(
            _described(row, value=now[name], default=values(others)[name], source=source)
        )
    return described


def describe_cluster_configs(configs: Mapping[str, str]) -> list[ConfigDescription]:
    """Return every config of the cluster, set or not, by ascending name."""
    return [
        _described(
            row,
            value=configs.get(name, row.default),
            default=row.default,
            source=ConfigSource.CLUSTER if name in configs else ConfigSource.DEFAULT,
        )
        for name, row in CLUSTER_CONFIGS.items()
    ]


def describe_group_configs(
    configs: Mapping[str, str], settings: Sequence[NodeSetting]
) -> list[ConfigDescription]:
    """Return every config of a consumer group, set (in `configs`) or not, by ascending name. The
    default of each is a setting of the brokers, here of this one."""
    by_name = {setting.row.name: setting for setting in settings}
    described = []
    for name, row in GROUP_CONFIGS.items():
        setting = by_name.get(BROKER_SETTINGS[name])
        default, source = row.default, ConfigSource.DEFAULT
        if setting is not None:
            default = value_text(setting.value).partition(",")[0].strip()
            source = ConfigSource(setting.origin.kind)
        if name in configs:
            source = ConfigSource.GROUP
        value = configs.get(name, default)
        described.append(_described(row, value=value, default=default, source=source))
    return described


def describe_node_settings(settings: Sequence[NodeSetting]) -> list[ConfigDescription]:
    """Return every setting of a node, by ascending name."""
    described = []
    for setting in sorted(settings, key=lambda setting: setting.row.name):
        row = setting.row
        described.append(
            ConfigDescription(
                name=row.name,
                value=value_text(setting.value),
                default_value=value_text(row.default),
                source=ConfigSource(setting.origin.kind),
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


def _described(
    row: TopicConfig, *, value: str, default: str, source: ConfigSource
) -> ConfigDescription:
    """Describe a row of the config tables in `metadata`."""
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    match row.type:
        case ConfigType.WHOLE:
            low, high = row.low, row.high if row.high < INT64_MAX else None
        case ConfigType.FRACTION:
            low, high = 0, 1
        case ConfigType.CHOICE | ConfigType.LIST:
            choices = row.choices
        case ConfigType.SWITCH:
            choices = ("false", "true")
        case ConfigType.TEXT:
            pass  # the unit describes the format
    return ConfigDescription(
        name=row.name,
        value=value,
        default_value=default,
        source=source,
        type=row.type.value,
        unit=row.unit,
        low=low,
        high=high,
        choices=choices,
        doc=row.doc,
        changes=row.changes,
    )
