"""THE table of topic configs: name, type, default, range, unit and meaning of each.

Validation, effective values, the documentation and what the tools list all come from here. Values
travel and are kept as text, in the canonical form that `check_config` returns.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ..errors import InvalidConfig
from ..settings.quantities import parse_quantity
from ..settings.query_groups import HOLD_GROUPS_MAX, RETENTION_HOLDS, holds_text, parse_holds
from ..settings.rows import nearest

INT64_MAX: Final = 2**63 - 1
INT32_MAX: Final = 2**31 - 1
BATCH_BYTES_MAX: Final = 64 << 20  # a larger one would be stored, and no answer could carry it
TEXT_MAX: Final = 249
"""Characters of a config's name, and of most values: what is longer is refused unread."""

MIRROR_SOURCE: Final = "mirror.source"
"""Of a mirror topic: what it is a copy of."""

_SOURCE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,120}(/[A-Za-z0-9_-]{1,60})?\Z")


class ConfigType(StrEnum):
    """How a value is written."""

    WHOLE = "whole number"
    FRACTION = "number from 0 to 1"
    CHOICE = "one of a list"
    SWITCH = "true or false"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One row of the table."""

    name: str
    type: ConfigType
    default: str  # "" where it depends on the topic: see effective_configs
    doc: str  # one or two sentences, with the trade-off
    unit: str = ""
    low: int = 0  # of a whole number, inclusive
    high: int = INT64_MAX
    choices: tuple[str, ...] = ()
    since: str | None = "0.1"  # version in which it takes effect; None: accepted, no effect yet
    # Every config may change while the topic is in use; from when on a running log obeys.
    changes: str = "at once"
    field_name: str | None = ""  # what the field calls it; "": the same; None: it has none
    length_max: int = TEXT_MAX  # characters of a value: what is longer is refused unread

    @property
    def interval(self) -> str:
        """What a whole number may be: "1..10", "-1 or more"."""
        return f"{self.low} or more" if self.high == INT64_MAX else f"{self.low}..{self.high}"

    @property
    def is_list(self) -> bool:
        """Whether a value is a list by commas."""
        return self.name == RETENTION_HOLDS or any("," in choice for choice in self.choices)

    @property
    def takes(self) -> str:
        """What a value may be, in words."""
        match self.type:
            case ConfigType.WHOLE:
                return f"a whole number of {self.unit}, {self.interval}"
            case ConfigType.FRACTION:
                return "a number from 0 to 1, such as 0.5"
            case ConfigType.CHOICE:
                return " or ".join(self.choices)
            case ConfigType.SWITCH:
                return "true or false"
            case ConfigType.TEXT:
                return self.unit


def _whole(
    name: str,
    default: int,
    doc: str,
    *,
    unit: str,
    low: int,
    high: int = INT64_MAX,
    since: str | None = "0.1",
    changes: str = "at once",
) -> TopicConfig:
    return TopicConfig(
        name=name,
        type=ConfigType.WHOLE,
        default=str(default),
        doc=doc,
        unit=unit,
        low=low,
        high=high,
        since=since,
        changes=changes if since else "no effect yet",
    )


def _choice(
    name: str,
    default: str,
    doc: str,
    *,
    choices: tuple[str, ...],
    field_name: str | None = "",
) -> TopicConfig:
    return TopicConfig(
        name=name,
        type=ConfigType.CHOICE,
        default=default,
        doc=doc,
        choices=choices,
        field_name=field_name,
    )


_ROWS: Final = (
    _choice(
        "cleanup.policy",
        "delete",
        "What happens to old records: delete drops whole segments by age or size, compact keeps the"
        " last record of each key, compact,delete does both. Compacted topics take no records"
        " without a key.",
        choices=("delete", "compact", "compact,delete"),
    ),
    _choice(
        "compression.type",
        "producer",
        "How batches are kept: producer keeps them as they came, without touching a byte. Any other"
        " value makes the leader inflate and compress every batch that came otherwise, which costs"
        " it processor time; what then is above max.message.bytes is refused.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    ),
    _whole(
        "delete.retention.ms",
        24 * 3600 * 1000,
        "A compacted topic keeps tombstones (null values) so long after it cleaned what they"
        " delete: a reader that takes longer from the start may miss a deletion.",
        unit="ms",
        low=0,
    ),
    _whole(
        "file.delete.delay.ms",
        60_000,
        "The files of a dropped segment are renamed at once and removed so much later, at once when"
        " space is short. Readers that have them open need no delay.",
        unit="ms",
        low=0,
    ),
    _choice(
        "flush.policy",
        "",
        "When a record counts as stored: replicated acknowledges when the in-sync replicas have it"
        " in memory, fsync when they have it on disk. Default: fsync when the smaller of"
        " replication factor and min.insync.replicas is 1, else replicated.",
        choices=("replicated", "fsync"),
        field_name=None,
    ),
    _whole(
        "index.interval.bytes",
        4096,
        "One index entry per so many bytes of log: fewer save memory, more shorten searches.",
        unit="bytes",
        low=0,
        high=INT32_MAX,
        changes="next segment",
    ),
    _whole(
        "max.compaction.lag.ms",
        INT64_MAX,
        "A compacted topic cleans a record at the latest so long after it was written, however few"
        " are dirty.",
        unit="ms",
        low=1,
    ),
    _whole(
        "max.message.bytes",
        1024 * 1024 + 12,
        "Largest record batch that a producer may send, compressed.",
        unit="bytes",
        low=61,
        high=BATCH_BYTES_MAX,
    ),
    _whole(
        "message.timestamp.after.max.ms",
        3600 * 1000,
        "Batches whose newest timestamp is further ahead of the broker's clock are refused: such"
        " records would outlive retention.ms. Timestamps of none, and LogAppendTime, are not held"
        " to it.",
        unit="ms",
        low=0,
    ),
    _whole(
        "message.timestamp.before.max.ms",
        INT64_MAX,
        "Batches with a timestamp further behind the broker's clock are refused. Timestamps of"
        " none, and LogAppendTime, are not held to it.",
        unit="ms",
        low=0,
    ),
    _choice(
        "message.timestamp.type",
        "CreateTime",
        "Whose clock a record's timestamp is: CreateTime keeps the producer's, LogAppendTime sets"
        " the leader's at the append for all records of a batch.",
        choices=("CreateTime", "LogAppendTime"),
    ),
    TopicConfig(
        name="min.cleanable.dirty.ratio",
        type=ConfigType.FRACTION,
        default="0.5",
        doc="A compacted topic is cleaned once so much of it was written since it last was: less"
        " saves space and costs more reading and writing.",
    ),
    _whole(
        "min.compaction.lag.ms",
        0,
        "A compacted topic leaves records younger than this alone: a reader no further behind sees"
        " every one.",
        unit="ms",
        low=0,
    ),
    TopicConfig(
        name="min.insync.replicas",
        type=ConfigType.WHOLE,
        default="",
        doc="With acks=all a write needs so many in-sync replicas: more lose less, fewer stay"
        " writable longer. Default: 2 from three replicas on, else 1.",
        unit="replicas",
        low=1,
        high=INT32_MAX,
    ),
    TopicConfig(
        name=MIRROR_SOURCE,
        type=ConfigType.TEXT,
        default="",
        doc="The cluster, and the id of the topic there, that this topic is a copy of: only"
        " `quorumlog mirror` writes it then, at the offsets of its source. Set when the topic is"
        " created, taken away by `quorumlog mirror promote`, and never changed.",
        unit="a cluster id, or CLUSTER/TOPIC-ID",
        field_name=None,
    ),
    _choice(
        "record.validation",
        "full",
        "What is checked in a producer's batch besides its header and CRC: full walks every record,"
        " header only those of uncompressed batches, which saves inflating the others.",
        choices=("full", "header"),
        field_name=None,
    ),
    _whole(
        "retention.bytes",
        -1,
        "Oldest segments are dropped while the partition keeps this much without them; -1: no"
        " limit. Applies to cleanup.policy delete.",
        unit="bytes",
        low=-1,
    ),
    TopicConfig(
        name=RETENTION_HOLDS,
        type=ConfigType.TEXT,
        default="",
        doc="Groups whose unread records are kept though retention would take them, each until a"
        " time, seven days ahead at most, and while the partition has no more than so many bytes."
        " Streaming queries with retentionHold=true write it; records that are deleted, or that"
        " compaction takes, are not kept.",
        unit=f"GROUP@END/BYTES, END in ms since 1970, by commas, of up to {HOLD_GROUPS_MAX} groups",
        field_name=None,
        length_max=2 * HOLD_GROUPS_MAX * 160,
    ),
    _whole(
        "retention.ms",
        7 * 24 * 3600 * 1000,
        "Segments whose newest record is older are dropped; -1: never. Applies to cleanup.policy"
        " delete; a record from the future keeps its segment until then.",
        unit="ms",
        low=-1,
    ),
    _whole(
        "segment.bytes",
        1024 * 1024 * 1024,
        "A segment is closed before it grows beyond: retention works by whole segments.",
        unit="bytes",
        low=1024,
        high=INT32_MAX,
    ),
    _whole(
        "segment.index.bytes",
        10 * 1024 * 1024,
        "A segment is closed when one of its indexes is this large.",
        unit="bytes",
        low=12,
        high=INT32_MAX,
    ),
    _whole(
        "segment.ms",
        7 * 24 * 3600 * 1000,
        "A segment is closed when its records span more time.",
        unit="ms",
        low=1,
    ),
    TopicConfig(
        name="unclean.leader.election.enable",
        type=ConfigType.SWITCH,
        default="",
        doc="Whether a replica outside the ISR may lead when no other is left, at the price of"
        " acknowledged records. Default: what is set for the cluster, else false.",
    ),
)

TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {row.name: row for row in _ROWS}
"""By name, ascending."""


def check_config(name: str, value: str) -> str:
    """Return the value in canonical form; raises InvalidConfig for an unknown name (naming the
    nearest) and for a value it does not take (naming what it does). Units are taken where the row
    has one that knows them: "7d", "1GiB"."""
    return check_row(known_config(name), value)


def check_row(row: TopicConfig, value: str) -> str:
    """Return a value of a row in canonical form; raises InvalidConfig as `check_config`."""
    name = row.name
    if len(value) > row.length_max:
        raise InvalidConfig(f"{name} has {len(value)} characters; give {row.takes}")
    text = value.strip()
    match row.type:
        case ConfigType.WHOLE:
            return _check_whole(row, text)
        case ConfigType.FRACTION:
            return _check_fraction(row, text)
        case ConfigType.CHOICE:
            text = _ordered(text, row.choices)
            if text not in row.choices:
                raise InvalidConfig(f"{name} is {text!r}; give {row.takes}")
            return text
        case ConfigType.SWITCH:
            if text.lower() not in ("true", "false"):
                raise InvalidConfig(f"{name} is {text!r}; give {row.takes}")
            return text.lower()
        case ConfigType.TEXT:
            return _check_text(row, text)


def known_config(name: str) -> TopicConfig:
    """Return the row of a config; raises InvalidConfig naming the nearest."""
    row = TOPIC_CONFIGS.get(name)
    if len(name) > TEXT_MAX:
        raise InvalidConfig(f"a config's name has {len(name)} characters; give at most {TEXT_MAX}")
    if row is None:
        near = nearest(name, TOPIC_CONFIGS)
        hint = f"; did you mean {near}?" if near else f"; known are {', '.join(TOPIC_CONFIGS)}"
        raise InvalidConfig(f"there is no topic config {name!r}{hint}")
    return row


def check_configs(
    configs: Iterable[tuple[str, str]], *, replication_factor: int
) -> list[tuple[str, str]]:
    """Return all of a new topic's configs in canonical form, by ascending name; raises
    InvalidConfig, also for a name given twice and for more in-sync replicas than replicas."""
    checked = check_changes(configs, {}, replication_factor=replication_factor)
    return sorted((name, value) for name, value in checked.items() if value is not None)


def check_changes(
    changes: Iterable[tuple[str, str | None]],
    configs: Mapping[str, str],
    *,
    replication_factor: int,
) -> dict[str, str | None]:
    """Return changes of a topic's `configs` in canonical form, by ascending name; None: back to
    the default. Raises InvalidConfig, as `check_configs` does, for what would come of it."""
    checked: dict[str, str | None] = {}
    for name, value in changes:
        if name in checked:
            raise InvalidConfig(f"{name} is given twice; give each config once")
        known_config(name)
        checked[name] = None if value is None else check_config(name, value)
    after = {**configs, **checked}
    in_sync = int(after.get("min.insync.replicas") or "1")
    if in_sync > replication_factor and "min.insync.replicas" in checked:
        raise InvalidConfig(
            f"min.insync.replicas is {in_sync}, above the replication factor"
            f" {replication_factor}: no write with acks=all could ever succeed; give"
            f" 1..{replication_factor}"
        )
    return dict(sorted(checked.items()))


def effective_min_isr(configs: Mapping[str, str], *, replication_factor: int) -> int:
    """Return how many in-sync replicas a partition needs: what was set or the default, and never
    more than it has replicas (but at least 1)."""
    value = configs.get("min.insync.replicas")
    wanted = int(value) if value else 2 if replication_factor >= 3 else 1
    return max(1, min(wanted, replication_factor))


def effective_configs(
    configs: Mapping[str, str],
    *,
    replication_factor: int,
    cluster_configs: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return every config of the table with its value for a topic, by ascending name: what was
    set, else what was set for the cluster where that has a config of this name, else the
    default."""
    values = {name: configs.get(name, row.default) for name, row in TOPIC_CONFIGS.items()}
    if not values["min.insync.replicas"]:
        values["min.insync.replicas"] = "2" if replication_factor >= 3 else "1"
    if not values["flush.policy"]:
        copies = min(replication_factor, int(values["min.insync.replicas"]))
        values["flush.policy"] = "fsync" if copies == 1 else "replicated"
    if not values["unclean.leader.election.enable"]:
        of_cluster = (cluster_configs or {}).get("unclean.leader.election.enable")
        values["unclean.leader.election.enable"] = of_cluster or "false"
    return values


def changed_list(row: TopicConfig, value: str, parts: Iterable[str], *, is_removal: bool) -> str:
    """Return a list with parts added that are not in it, or taken out; raises InvalidConfig for a
    row that takes no list. What comes of it may be a value that the row does not take."""
    if not row.is_list:
        raise InvalidConfig(f"{row.name} is no list; set it to what it shall be, {row.takes}")
    present = [part for part in value.split(",") if part]
    if is_removal:
        return ",".join(part for part in present if part not in set(parts))
    return ",".join(dict.fromkeys([*present, *parts]))


def _ordered(text: str, choices: tuple[str, ...]) -> str:
    """Return a choice made of several, such as "delete, compact", as the table writes it."""
    parts = {part.strip() for part in text.split(",")}
    return next((choice for choice in choices if parts == set(choice.split(","))), text)


def _check_text(row: TopicConfig, text: str) -> str:
    if row.name == RETENTION_HOLDS:
        try:
            return holds_text(parse_holds(text))
        except ValueError as error:
            raise InvalidConfig(f"{row.name}: {error}; give {row.takes}") from None
    if not _SOURCE.match(text):
        raise InvalidConfig(f"{row.name} is {text!r}; give {row.takes}")
    return text


def _check_fraction(row: TopicConfig, text: str) -> str:
    whole, _, fraction = text.partition(".")
    is_number = whole.isascii() and whole.isdigit() and f"0{fraction}".isascii()
    if not is_number or not f"0{fraction}".isdigit() or not 0 <= float(text) <= 1:
        raise InvalidConfig(f"{row.name} is {text!r}; give {row.takes}")
    return f"{float(text):g}"


def _check_whole(row: TopicConfig, text: str) -> str:
    try:
        number = parse_quantity(text, row.unit)
    except ValueError as error:
        raise InvalidConfig(f"{row.name} is {text!r}; {error}, {row.interval} {row.unit}") from None
    if not row.low <= number <= row.high:
        raise InvalidConfig(f"{row.name} is {number}; give {row.takes}")
    return str(number)
