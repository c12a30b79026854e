"""THE table of configs of the whole cluster: kept in the metadata, equal on every node at once.

Rows, checks and texts are those of the topic configs. Nodes read them by the functions below.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ..errors import InvalidConfig
from ..settings.rows import nearest
from .topic_configs import TEXT_MAX, TOPIC_CONFIGS, ConfigType, TopicConfig, check_row

_ROWS: Final = (
    TopicConfig(
        name="auto.leader.rebalance.enable",
        type=ConfigType.SWITCH,
        default="true",
        doc="Whether the controller gives leaderships back to the first replicas of the"
        " assignments by itself: even load, at the price of a moment without a leader each.",
    ),
    TopicConfig(
        name="leader.imbalance.check.interval.seconds",
        type=ConfigType.WHOLE,
        default="300",
        doc="How often the controller looks for brokers that lead too little of what is theirs.",
        unit="s",
        low=1,
        high=24 * 3600,
    ),
    TopicConfig(
        name="leader.imbalance.per.broker.percentage",
        type=ConfigType.WHOLE,
        default="10",
        doc="A broker's leaderships are given back once so many percent of the partitions whose"
        " first replica it holds are led by others.",
        unit="percent",
        low=0,
        high=100,
    ),
    TopicConfig(
        name="replication.throttled.rate",
        type=ConfigType.WHOLE,
        default="-1",
        doc="What each broker reads at most for replicas that a reassignment adds, so that moving"
        " data leaves room for clients; -1: no limit. Below the rate of new records a move never"
        " ends.",
        unit="bytes",
        low=-1,
    ),
    TopicConfig(
        name="unclean.leader.election.enable",
        type=ConfigType.SWITCH,
        default="false",
        doc="For topics that do not say otherwise: whether a replica that may lack acknowledged"
        " records may lead when no other is left.",
    ),
)

CLUSTER_CONFIGS: Final[Mapping[str, TopicConfig]] = {row.name: row for row in _ROWS}
"""By name, ascending."""


def check_cluster_changes(changes: Iterable[tuple[str, str | None]]) -> dict[str, str | None]:
    """Return changes in canonical form, by ascending name; None: back to the default. Raises
    InvalidConfig for an unknown name (naming the nearest), a name given twice and a bad value."""
    checked: dict[str, str | None] = {}
    for name, value in changes:
        row = known_cluster_config(name)
        if name in checked:
            raise InvalidConfig(f"{name} is given twice; give each config once")
        checked[name] = None if value is None else check_row(row, value)
    return dict(sorted(checked.items()))


def effective_cluster_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """Return every config of the table with its value, by ascending name: what was set, else the
    default."""
    return {name: configs.get(name, row.default) for name, row in CLUSTER_CONFIGS.items()}


def cluster_number(configs: Mapping[str, str], name: str) -> int:
    """Return the value of a config that is a whole number."""
    return int(configs.get(name) or CLUSTER_CONFIGS[name].default)


def cluster_switch(configs: Mapping[str, str], name: str) -> bool:
    """Return the value of a config that is true or false."""
    return (configs.get(name) or CLUSTER_CONFIGS[name].default) == "true"


def may_elect_unclean(topic_configs: Mapping[str, str], cluster_configs: Mapping[str, str]) -> bool:
    """Whether a replica that may lack acknowledged records may lead a partition of the topic."""
    name = "unclean.leader.election.enable"
    value = topic_configs.get(name)
    return value == "true" if value else cluster_switch(cluster_configs, name)


def known_cluster_config(name: str) -> TopicConfig:
    """Return the row of a config; raises InvalidConfig naming the nearest."""
    if len(name) > TEXT_MAX:
        raise InvalidConfig(f"a config's name has {len(name)} characters; give at most {TEXT_MAX}")
    row = CLUSTER_CONFIGS.get(name)
    if row is None and name in TOPIC_CONFIGS:
        raise InvalidConfig(
            f"there is no cluster config {name!r}, but one of topics; set it for a topic"
        )
    if row is None:
        near = nearest(name, CLUSTER_CONFIGS)
        hint = f"; did you mean {near}?" if near else f"; known are {', '.join(CLUSTER_CONFIGS)}"
        raise InvalidConfig(f"there is no cluster config {name!r}{hint}")
    return row
