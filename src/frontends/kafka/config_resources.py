"""Configs of the Kafka protocol: resources, entries and changes, translated to those of
`api.configs`.

Each resource of a request has its own result. The changes of one resource apply atomically.

A broker without a name stands for the whole cluster: settings of every broker that change at run
time.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from ...api.configs import ConfigDescription, ConfigResource, ConfigSource, ResourceType
from ...errors import InvalidRequest, QuorumlogError
from ...ids import Offset
from ...metadata import AlterClusterConfigs, AlterConfigs, AlterGroupConfigs, ListChange
from ...metadata.topic_configs import INT32_MAX, ConfigType
from .api import Answer, BrokerContext, Call, Fields
from .encoding_offload import encode_if_large
from .error_codes import error_fields
from .item_results import check_count, outcomes, repeated, wait_applied

TOPIC: Final = 2
BROKER: Final = 4
GROUP: Final = 32

_THROTTLES: Final = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
)
"""The configs that partition-moving tools set to throttle a move; here replication.throttled.rate
of the cluster does that."""

OTHERS: Final = {8: "loggers", 16: "client metrics"}
"""Resource types that have configs in the protocol but none here."""


def resource_of(resource: Any) -> ConfigResource:
    """Return the named resource; raises InvalidRequest for a type without configs here."""
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC:
        return ConfigResource(type=ResourceType.TOPIC, topic=name)
    if kind == GROUP:
        return ConfigResource(type=ResourceType.GROUP, group=name)
    if kind != BROKER:
        what = f"{OTHERS[kind]} have no configs here" if kind in OTHERS else "there is no such type"
        raise InvalidRequest(
            f"resource type {kind}: {what}; give 2 (topic), 4 (broker) or 32 (group)"
        )
    if not name:
        return ConfigResource(type=ResourceType.CLUSTER)
    if not (name.isascii() and name.isdigit()) or int(name) > 2**31 - 1:
        raise InvalidRequest(
            f"broker {name!r}: not a node id; give a node id, or an empty name for the cluster"
        )
    return ConfigResource(type=ResourceType.BROKER, broker=int(name))


def is_never_set(resource: Any, name: str) -> bool:
    """Return True if the config can never be set on this resource, so that deleting it changes
    nothing. True for every config of a single broker, and for the throttles that tools always
    clear."""
    is_one_broker = resource.resource_type == BROKER and resource.resource_name
    return bool(is_one_broker) or name in _THROTTLES


def key_of(resource: Any) -> tuple[int, str]:
    """Return the identity of a resource within a request."""
    return resource.resource_type, resource.resource_name


def result_of(resource: Any, error: QuorumlogError | None) -> dict[str, Any]:
    """Return the fields that every resource result has."""
    return {
        **error_fields(error),
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


CLUSTER_SOURCE: Final = 3
DEFAULT_SOURCE: Final = 5
_SOURCES: Final = {
    ConfigSource.TOPIC: 1,  # DYNAMIC_TOPIC_CONFIG
    ConfigSource.CLUSTER: CLUSTER_SOURCE,  # DYNAMIC_DEFAULT_BROKER_CONFIG
    ConfigSource.FILE: 4,  # STATIC_BROKER_CONFIG
    ConfigSource.ENVIRONMENT: 4,
    ConfigSource.FLAG: 4,
    ConfigSource.UNSPECIFIED: 4,  # a static source that was not reported
    ConfigSource.DEFAULT: DEFAULT_SOURCE,
    ConfigSource.GROUP: 8,  # GROUP_CONFIG
}

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7


def type_of(config: ConfigDescription) -> int:
    """Return the number of a config's type."""
    match config.type:
        case ConfigType.SWITCH:
            return BOOLEAN
        case ConfigType.FRACTION:
            return DOUBLE
        case ConfigType.WHOLE:
            return INT if config.high is not None and config.high <= INT32_MAX else LONG
        case ConfigType.LIST | "list of text":
            return LIST
        case _:
            return STRING


def created_configs(configs: Iterable[ConfigDescription]) -> list[Fields]:
    """Return the configs of a created topic, as CreateTopics returns them."""
    return [_entry(config, is_read_only=False) for config in configs]


def described_config(
    config: ConfigDescription,
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


def _entry(config: ConfigDescription, *, is_read_only: bool) -> dict[str, Any]:
    return {
        "name": config.name,
        "value": config.value,
        "read_only": is_read_only,
        "config_source": _SOURCES[config.source],
        "is_sensitive": False,
    }


def _synonyms(config: ConfigDescription, of_cluster: str | None) -> list[Fields]:
    """Return every value that is set, the effective one first."""
    values = []
    if config.source not in (ConfigSource.DEFAULT, ConfigSource.CLUSTER):
        values.append((config.value, _SOURCES[config.source]))
    if of_cluster is not None:
        values.append((of_cluster, CLUSTER_SOURCE))
    if config.default_value != of_cluster:  # a topic's default is the cluster's value
        values.append((config.default_value, DEFAULT_SOURCE))
    return [{"name": config.name, "value": value, "source": source} for value, source in values]


ConfigChange: TypeAlias = tuple[str, str | None] | ListChange
"""A config with its new value (None: its default), or elements of a list."""

ChangesOf: TypeAlias = Callable[[Any], Sequence[ConfigChange]]
"""Returns the changes of a resource of the request; raises InvalidRequest."""


async def alter(
    broker: BrokerContext, call: Call, changes_of: ChangesOf, *, replace: bool
) -> Answer:
    """Change each resource that is named once. `replace`: configs that are not named return to
    their defaults."""
    resources = call.body.resources
    twice = repeated(map(key_of, resources))

    async def change(resource: Any) -> None:
        if key_of(resource) in twice:
            raise InvalidRequest("resource: named twice in the request; name each resource once")
        check_count(len(resource.configs))
        for name in repeated(config.name for config in resource.configs):
            raise InvalidRequest(f"{name}: given twice for this resource; give each config once")
        await _alter(broker, call, resource_of(resource), changes_of(resource), replace=replace)

    results = await outcomes(broker, resources, change, context=call.context)
    responses = (result_of(*each) for each in zip(resources, results, strict=True))
    return await encode_if_large(broker, call, {"responses": responses}, elements=len(resources))


async def _alter(
    broker: BrokerContext,
    call: Call,
    resource: ConfigResource,
    changes: Sequence[ConfigChange],
    *,
    replace: bool,
) -> None:
    if not (changes or replace):
        await _look(broker, call, resource)
        return
    if resource.type is ResourceType.BROKER:
        raise InvalidRequest(
            "settings of a single broker are read-only; edit its configuration file, or name no"
            " broker to change the cluster's settings"
        )
    await wait_applied(
        broker, await _submit(broker, call, resource, changes, replace=replace), call.context
    )


async def _submit(
    broker: BrokerContext,
    call: Call,
    resource: ConfigResource,
    changes: Sequence[ConfigChange],
    *,
    replace: bool,
) -> Offset:
    """Change configs of a topic, of a group or of the cluster; return the offset of the change."""
    configs, validate_only = broker.api.configs, call.body.validate_only
    values = tuple(each for each in changes if not isinstance(each, ListChange))
    lists = tuple(each for each in changes if isinstance(each, ListChange))
    if resource.type is ResourceType.TOPIC:
        of_topic = AlterConfigs(
            topic=resource.topic,
            changes=values,
            lists=lists,
            validate_only=validate_only,
            replace=replace,
        )
        return (await configs.alter_topic(of_topic, call.context)).offset
    if resource.type is ResourceType.GROUP:
        of_group = AlterGroupConfigs(
            group=resource.group,
            changes=values,
            lists=lists,
            validate_only=validate_only,
            replace=replace,
        )
        return (await configs.alter_group(of_group, call.context)).offset
    of_cluster = AlterClusterConfigs(
        changes=values, lists=lists, validate_only=validate_only, replace=replace
    )
    return (await configs.alter_cluster(of_cluster, call.context)).offset


async def _look(broker: BrokerContext, call: Call, resource: ConfigResource) -> None:
    """Raise the error that a change of the resource would raise; change nothing."""
    (described,), _ = await broker.api.configs.describe([resource], call.context)
    if described.error is not None:
        raise described.error
