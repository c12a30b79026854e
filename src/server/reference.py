"""The page of settings (docs/configuration.md), rendered from the two typed tables.

Pure text: `make docs` writes the page, a test holds the page against the tables.
"""

from collections.abc import Iterable, Iterator, Sequence

from ..metadata.topic_configs import INT64_MAX, TOPIC_CONFIGS, ConfigType, TopicConfig
from ..settings import Setting
from .config import settings

_NODE = """\
# Configuration

Generated from the tables that check the settings (`make docs`); edit those.

## A node

`quorumlog server --config node.toml` reads TOML. Dotted keys and tables are the same thing. An
unknown key is refused with the nearest right one, a value out of range with the range.
`quorumlog dev` needs no file: it uses the defaults, and `./quorumlog-data` unless `--data-dir`
names another folder.

```toml
data.dir = "/var/lib/quorumlog"
node.id = 1
listeners.grpc = "0.0.0.0:9094"
advertised.grpc = "broker-1.example.net:9094"
```

The directory is formatted once, with `quorumlog storage format --config node.toml`.
"""

_AFTER_NODE = """\
Two environment variables: `QUORUMLOG_LOG` is the level of what a node writes to stderr (DEBUG,
INFO, WARNING, ERROR; default WARNING), `QUORUMLOG_BOOTSTRAP` is where the command line finds a
broker (default 127.0.0.1:9094).

## A topic

Given when the topic is created and kept with it:
`quorumlog topics create flights --config segment.bytes=67108864`, or `configs` of
`Admin.CreateTopic`. They cannot be changed later yet. An unknown name is refused with the nearest
right one. *Not yet* names values that Kafka knows and that are refused here until they work.
*No effect yet*: the value is checked and kept, and nothing acts on it.
"""


def configuration_page() -> str:
    """Return the whole page."""
    node = _table(
        ("setting", "default", "takes", "meaning"), [_node_row(row) for row in settings()]
    )
    topic = _table(
        ("config", "default", "takes", "meaning"),
        [_topic_row(row) for row in TOPIC_CONFIGS.values()],
    )
    return f"{_NODE}\n{node}\n{_AFTER_NODE}\n{topic}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _node_row(row: Setting) -> tuple[str, str, str, str]:
    return f"`{row.name}`", _node_default(row), _node_takes(row), row.doc


def _node_default(row: Setting) -> str:
    if row.default is None:
        return "must be given"
    if isinstance(row.default, tuple):
        return _code(", ".join(row.default)) if row.default else "none"
    return _code(row.default) if row.default != "" else "empty"


def _node_takes(row: Setting) -> str:
    if row.kind is tuple:
        return "list of text"
    if row.kind is str:
        return "text"
    return _words(_range(row.low, row.high), row.unit)


def _topic_row(row: TopicConfig) -> tuple[str, str, str, str]:
    default = _code(row.default) if row.default else "see there"
    doc = row.doc if row.since else f"{row.doc} *No effect yet.*"
    return f"`{row.name}`", default, "; ".join(_topic_takes(row)), doc


def _topic_takes(row: TopicConfig) -> Iterator[str]:
    match row.type:
        case ConfigType.WHOLE:
            high = None if row.high == INT64_MAX else row.high
            yield _words(_range(row.low, high), row.unit)
        case ConfigType.CHOICE:
            yield _codes(row.choices)
        case ConfigType.SWITCH:
            yield _codes(value for value in ("true", "false") if value not in row.planned)
    if row.planned:
        yield f"not yet {_codes(row.planned)}"


def _range(low: int | None, high: int | None) -> str:
    assert low is not None, "a number without a lower bound"
    return f"{low:,} or more" if high is None else f"{low:,} to {high:,}"


def _words(*words: str) -> str:
    return " ".join(word for word in words if word)


def _codes(values: Iterable[str]) -> str:
    return ", ".join(_code(value) for value in values)


def _code(value: object) -> str:
    return f"`{value}`"
