"""The table of consumer group configs, which are stored in the metadata (KIP-848).

A group need not exist to have configs. The default of each config is a setting of the brokers. Rows
and validation are those of topic configs.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ..errors import InvalidConfig, InvalidGroupId
from ..settings.declaration import nearest
from .topic_configs import TEXT_MAX, ConfigType, TopicConfig, check_row

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNOR: Final = "consumer.assignor"
GROUP_LENGTH_MAX: Final = 8_150  # characters, as for any group id

CONFIGURED_GROUPS_MAX: Final = 10_000
"""The maximum number of groups with configs, which each node holds."""

CONFIGURED_ID_CHARACTERS_MAX: Final = 2_000_000
"""The maximum length of the ids of groups with configs, in all."""

_ROWS: Final = (
    TopicConfig(
        name=ASSIGNOR,
        type=ConfigType.CHOICE,
        default="uniform",
        doc="Assignor of the group if its members choose none. By default the first one of the"
        " brokers' `group.consumer.assignors`.",
        choices=("uniform", "range"),
        changes="at the next assignment",
        field_name=None,
    ),
    TopicConfig(
        name=HEARTBEAT_INTERVAL,
        type=ConfigType.WHOLE,
        default="5000",
        doc="Heartbeat interval of the group's KIP-848 members. By default the brokers'"
        " `group.consumer.heartbeat.interval.ms`.",
        unit="ms",
        low=100,
        high=600_000,
        changes="at a member's next heartbeat",
    ),
    TopicConfig(
        name=SESSION_TIMEOUT,
        type=ConfigType.WHOLE,
        default="45000",
        doc="Session timeout of the group's KIP-848 members: a member without heartbeats is"
        " removed. By default the brokers' `group.consumer.session.timeout.ms`.",
        unit="ms",
        low=6_000,  # a coordinator without a controller serves for a part of it
        high=3_600_000,
        changes="at a member's next heartbeat",
    ),
)

GROUP_CONFIGS: Final[Mapping[str, TopicConfig]] = {row.name: row for row in _ROWS}
"""By name, ascending."""

BROKER_SETTINGS: Final[Mapping[str, str]] = {
    ASSIGNOR: "group.consumer.assignors",
    HEARTBEAT_INTERVAL: "group.consumer.heartbeat.interval.ms",
    SESSION_TIMEOUT: "group.consumer.session.timeout.ms",
}
"""The setting of the brokers that is the default of each config."""


def check_config_group(group: str) -> None:
    """Raise InvalidGroupId for a group that cannot have configs."""
    if not 1 <= len(group) <= GROUP_LENGTH_MAX:
        raise InvalidGroupId(
            f"the group id has {len(group)} characters; give 1 to {GROUP_LENGTH_MAX}"
        )


def check_group_changes(
    changes: Iterable[tuple[str, str | None]], present: Mapping[str, str]
) -> dict[str, str | None]:
    """Return changes of the present configs in canonical form, by ascending name; None resets to
    the default. Raise InvalidConfig for an unknown or repeated name, an invalid value, and a change
    after which the session timeout is not above the heartbeat interval.

    The controller has no settings of other brokers, so an absent config counts with the default of
    its setting.
    """
    checked: dict[str, str | None] = {}
    for name, value in changes:
        row = known_group_config(name)
        if name in checked:
            raise InvalidConfig(f"{name} is given more than once; give each config once")
        checked[name] = None if value is None else check_row(row, value)
    after = {**present, **checked}
    session = after.get(SESSION_TIMEOUT) or GROUP_CONFIGS[SESSION_TIMEOUT].default
    interval = after.get(HEARTBEAT_INTERVAL) or GROUP_CONFIGS[HEARTBEAT_INTERVAL].default
    is_compared = SESSION_TIMEOUT in checked or HEARTBEAT_INTERVAL in checked
    if is_compared and int(session) <= int(interval):
        raise InvalidConfig(
            f"{SESSION_TIMEOUT}: {session} is not above {HEARTBEAT_INTERVAL}={interval}; raise it,"
            " or lower the interval"
        )
    return dict(sorted(checked.items()))


def known_group_config(name: str) -> TopicConfig:
    """Return the row of a config; raise InvalidConfig, with the nearest name, if it is unknown."""
    if len(name) > TEXT_MAX:
        raise InvalidConfig(f"the config name has {len(name)} characters; give at most {TEXT_MAX}")
    row = GROUP_CONFIGS.get(name)
    if row is None:
        near = nearest(name, GROUP_CONFIGS)
        hint = f"did you mean {near}?" if near else f"configs are {', '.join(GROUP_CONFIGS)}"
        raise InvalidConfig(f"unknown group config {name!r}; {hint}")
    return row
