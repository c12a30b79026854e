"""Tables of settings as Markdown, rendered from the declarations. Pure.

`cli.configuration_page` puts them on their page together with the clients' tables.
"""

from collections.abc import Iterable, Iterator, Sequence

from ..metadata.cluster_configs import CLUSTER_CONFIGS
from ..metadata.group_configs import GROUP_CONFIGS
from ..metadata.topic_configs import INT64_MAX, TOPIC_CONFIGS, ConfigType, TopicConfig
from ..settings import Setting, value_text
from ..settings.quantities import quantity_text
from .config import settings


def node_table() -> str:
    """Return the table of a node's settings."""
    return settings_table(settings())


def settings_table(rows: Iterable[Setting]) -> str:
    """Return a table of settings."""
    return _table(("setting", "default", "takes", "meaning"), [_row(row) for row in rows])


def topic_table() -> str:
    """Return the table of a topic's configs."""
    return _table(
        ("config", "default", "takes", "a change takes effect", "meaning"),
        [_topic_row(row) for row in TOPIC_CONFIGS.values()],
    )


def cluster_table() -> str:
    """Return the table of the cluster's configs."""
    return _table(
        ("config", "default", "takes", "meaning"),
        [_cluster_row(row) for row in CLUSTER_CONFIGS.values()],
    )


def group_table() -> str:
    """Return the table of a consumer group's configs."""
    return _table(
        ("config", "default", "takes", "a change takes effect", "meaning"),
        [_topic_row(row) for row in GROUP_CONFIGS.values()],
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _row(row: Setting) -> tuple[str, str, str, str]:
    return _code(row.name), _default(row), _takes(row), row.doc + _other_name(row.field_name)


def _default(row: Setting) -> str:
    if row.default is None:
        return "must be given"
    if isinstance(row.default, tuple):
        return _code(", ".join(row.default)) if row.default else "none"
    if isinstance(row.default, int) and not isinstance(row.default, bool):
        return _number(row.default, row.unit)
    return _code(value_text(row.default)) if row.default != "" else "empty"


def _number(number: int, unit: str) -> str:
    short = quantity_text(number, unit)
    return _code(number) if short == str(number) else f"{_code(number)} ({short})"


def _takes(row: Setting) -> str:
    if row.kind is tuple:
        return "list of text"
    if row.kind in (str, bool):
        return _codes(row.choices) if row.choices else "text"
    return _words(_range(row.low, row.high), row.unit)


def _other_name(name: str | None) -> str:
    return f" In Kafka: `{name}`." if name else ""


def _cluster_row(row: TopicConfig) -> tuple[str, str, str, str]:
    name, default, takes, _, doc = _topic_row(row)
    return name, default, takes, doc


def _topic_row(row: TopicConfig) -> tuple[str, str, str, str, str]:
    default = _code(row.default) if row.default else "see there"
    if row.type is ConfigType.TEXT:
        default = "none"
    if row.type is ConfigType.WHOLE and row.default:
        default = _number(int(row.default), row.unit)
    doc = row.doc if row.field_name is not None else f"{row.doc} Kafka has none."
    return _code(row.name), default, "; ".join(_topic_takes(row)), row.changes, doc


def _topic_takes(row: TopicConfig) -> Iterator[str]:
    match row.type:
        case ConfigType.WHOLE:
            high = None if row.high == INT64_MAX else row.high
            yield _words(_range(row.low, high), row.unit)
        case ConfigType.FRACTION:
            yield "0 to 1"
        case ConfigType.CHOICE:
            yield _codes(row.choices)
        case ConfigType.LIST:
            yield f"any of {_codes(row.choices)}; an empty list"
        case ConfigType.SWITCH:
            yield _codes(("true", "false"))
        case ConfigType.TEXT:
            yield row.unit


def _range(low: int | None, high: int | None) -> str:
    assert low is not None, "a number has a lower bound"
    return f"{low:,} or more" if high is None else f"{low:,} to {high:,}"


def _words(*words: str) -> str:
    return " ".join(word for word in words if word)


def _codes(values: Iterable[str]) -> str:
    return ", ".join(_code(value) for value in values)


def _code(value: object) -> str:
    return f"`{value}`"
