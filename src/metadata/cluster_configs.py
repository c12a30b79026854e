"""The table of cluster configs, which are stored in the metadata and equal on every node.

Rows and validation are those of topic configs.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ..errors import InvalidConfig
from ..settings.declaration import nearest
from .topic_configs import TEXT_MAX, TOPIC_CONFIGS, ConfigType, TopicConfig, check_row

_ROWS: Final = (
    TopicConfig(
        name="auto.leader.rebalance.enable",
        type=ConfigType.SWITCH,
        default="true",
        doc="Elect preferred leaders automatically. It balances the load; each election makes a"
        " partition unavailable for a moment.",
    ),
    TopicConfig(
        name="leader.imbalance.check.interval.seconds",
        type=ConfigType.WHOLE,
        default="300",
        doc="Interval of the controller's checks for leader imbalance.",
        unit="s",
        low=1,
        high=24 * 3600,
    ),
    TopicConfig(
        name="leader.imbalance.per.broker.percentage",
        type=ConfigType.WHOLE,
        default="10",
        doc="Preferred leaders of a broker are elected if more than this percentage of the"
        " partitions that it should lead are led by other brokers.",
        unit="percent",
        low=0,
        high=100,
    ),
    TopicConfig(
        name="replication.throttled.rate",
        type=ConfigType.WHOLE,
        default="-1",
        doc="Limit, per second and broker, of replication for replicas that a reassignment adds;"
        " -1: no limit. A reassignment never completes if the limit is below the rate of new"
        " records.",
        unit="bytes",
        low=-1,
    ),
    TopicConfig(
        name="unclean.leader.election.enable",
        type=ConfigType.SWITCH,
        default="false",
        doc="Default for topics: allow the election of a replica that may lack acknowledged"
        " records if no other is available.",
    ),
)

CLUSTER_CONFIGS: Final[Mapping[str, TopicConfig]] = {row.name: row for row in _ROWS}
"""By name, ascending."""


def check_cluster_changes(changes: Iterable[tuple[str, str | None]]) -> dict[str, str | None]:
    """Return changes in canonical form, by ascending name; None resets to the default. Raise
    InvalidConfig for an unknown or repeated name and for an invalid value."""
    checked: dict[str, str | None] = {}
    for name, value in changes:
        row = known_cluster_config(name)
        if name in checked:
            raise InvalidConfig(f"{name} is given more than once; give each config once")
        checked[name] = None if value is None else check_row(row, value)
    return dict(sorted(checked.items()))


def effective_cluster_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the value of every cluster config, set or default, by ascending name."""
    return {name: configs.get(name, row.default) for name, row in CLUSTER_CONFIGS.items()}


def cluster_number(configs: Mapping[str, str], name: str) -> int:
    """Return the value of a whole-number config."""
    return int(configs.get(name) or CLUSTER_CONFIGS[name].default)


def cluster_switch(configs: Mapping[str, str], name: str) -> bool:
    """Return the value of a boolean config."""
    return (configs.get(name) or CLUSTER_CONFIGS[name].default) == "true"


def may_elect_unclean(topic_configs: Mapping[str, str], cluster_configs: Mapping[str, str]) -> bool:
    """Return True if the topic allows unclean leader election."""
    name = "unclean.leader.election.enable"
    value = topic_configs.get(name)
    return value == "true" if value else cluster_switch(cluster_configs, name)


def known_cluster_config(name: str) -> TopicConfig:
    """Return the row of a config; raise InvalidConfig, with the nearest name, if it is unknown."""
    if len(name) > TEXT_MAX:
        raise InvalidConfig(f"the config name has {len(name)} characters; give at most {TEXT_MAX}")
    row = CLUSTER_CONFIGS.get(name)
    if row is None and name in TOPIC_CONFIGS:
        raise InvalidConfig(
            f"unknown cluster config {name!r}; it is a topic config, set it for a topic"
        )
    if row is None:
        near = nearest(name, CLUSTER_CONFIGS)
        hint = f"did you mean {near}?" if near else f"configs are {', '.join(CLUSTER_CONFIGS)}"
        raise InvalidConfig(f"unknown cluster config {name!r}; {hint}")
    return row
