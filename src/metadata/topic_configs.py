"""The table of topic configs: name, type, default, range, unit and description of each.

Validation, effective values, the documentation and tools use it. Values are sent and stored as
text, in the canonical form that `check_config` returns.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ..errors import InvalidConfig
from ..settings.declaration import nearest
from ..settings.quantities import parse_quantity
from ..settings.query_groups import HOLD_GROUPS_MAX, RETENTION_HOLDS, holds_text, parse_holds
from ..storage.config import PRODUCER, LogConfig, TimestampType

INT64_MAX: Final = 2**63 - 1
NO_LIMIT: Final = -1  # the lowest value of a config without a limit
INT32_MAX: Final = 2**31 - 1
BATCH_BYTES_MAX: Final = (
    64 << 20
)  # a larger batch could be stored, but no fetch response could carry it
TEXT_MAX: Final = 249
"""The maximum length of config names and of most values; longer ones are rejected unparsed."""

MIRROR_SOURCE: Final = "mirror.source"
"""The config of a mirror topic with its source."""

_SOURCE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,120}(/[A-Za-z0-9_-]{1,60})?\Z")


class ConfigType(StrEnum):
    """The types of config values."""

    WHOLE = "whole number"
    FRACTION = "number from 0 to 1"
    CHOICE = "one of a list"
    LIST = "any of a list"
    SWITCH = "true or false"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One row of the table."""

    name: str
    type: ConfigType
    default: str  # "" if it depends on the topic: see effective_configs
    doc: str  # one or two sentences, with the trade-off
    unit: str = ""
    low: int = 0  # of a whole number, inclusive
    high: int = INT64_MAX
    choices: tuple[str, ...] = ()
    since: str | None = "0.1"  # release in which it takes effect; None: accepted, no effect yet
    changes: str = "at once"  # when a change takes effect on an open log
    field_name: str | None = ""  # Kafka's name; "": the same; None: Kafka has none
    length_max: int = TEXT_MAX  # of a value; longer ones are rejected unparsed

    @property
    def interval(self) -> str:
        """The range of a whole number: "1..10", "0 or more"."""
        if self.low == NO_LIMIT:
            return "0 or more, or -1 for no limit"
        return f"{self.low} or more" if self.high == INT64_MAX else f"{self.low}..{self.high}"

    @property
    def is_list(self) -> bool:
        """True if a value is a comma-separated list."""
        return self.name == RETENTION_HOLDS or self.type is ConfigType.LIST

    @property
    def takes(self) -> str:
        """The valid values as text."""
        match self.type:
            case ConfigType.WHOLE:
                return f"a whole number of {self.unit}, {self.interval}"
            case ConfigType.FRACTION:
                return "a number from 0 to 1, such as 0.5"
            case ConfigType.CHOICE:
                return " or ".join(self.choices)
            case ConfigType.LIST:
                return f"any of {', '.join(self.choices)}, or an empty list"
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


_LOG: Final = LogConfig()
"""The defaults of a log. Those of retention.ms and message.timestamp.after.max.ms differ here: a
log of an unknown topic keeps every record."""

_ROWS: Final = (
    TopicConfig(
        name="cleanup.policy",
        type=ConfigType.LIST,
        default="delete",
        doc="Cleanup of old records: delete removes whole segments by age or size, compact keeps"
        " the last record of each key, compact,delete does both. An empty list keeps every record"
        " (KIP-1161). Compacted topics reject records without a key.",
        choices=("delete", "compact"),
    ),
    _choice(
        "compression.type",
        PRODUCER,
        "Codec of stored batches: producer stores them unchanged. With any other value the leader"
        " recompresses batches with another codec, which costs CPU time; a batch that then exceeds"
        " max.message.bytes is rejected.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    ),
    _whole(
        "delete.retention.ms",
        _LOG.delete_retention_ms,
        "Time that a compacted topic keeps tombstones (null values) after cleaning. A consumer that"
        " needs longer to read from the start can miss a deletion.",
        unit="ms",
        low=0,
    ),
    _whole(
        "file.delete.delay.ms",
        _LOG.file_delete_delay_ms,
        "Delay between renaming the files of a deleted segment and removing them; no delay if disk"
        " space is short. Consumers with open files do not need the delay.",
        unit="ms",
        low=0,
    ),
    _choice(
        "flush.policy",
        "",
        "When a record is acknowledged: replicated when the in-sync replicas have it in memory,"
        " fsync when they have it on disk. Default: fsync if the smaller of replication factor and"
        " min.insync.replicas is 1, else replicated.",
        choices=("replicated", "fsync"),
        field_name=None,
    ),
    _whole(
        "index.interval.bytes",
        _LOG.index_interval_bytes,
        "Log bytes per index entry. A larger interval saves memory, a smaller one speeds up"
        " lookups.",
        unit="bytes",
        low=0,
        high=INT32_MAX,
        changes="next segment",
    ),
    _whole(
        "max.compaction.lag.ms",
        _LOG.max_compaction_lag_ms,
        "Maximum time before a record of a compacted topic is cleaned, even if the dirty ratio is"
        " low.",
        unit="ms",
        low=1,
    ),
    _whole(
        "max.message.bytes",
        _LOG.message_bytes_max,
        "Largest record batch that a producer may send, compressed.",
        unit="bytes",
        low=61,
        high=BATCH_BYTES_MAX,
    ),
    _whole(
        "message.timestamp.after.max.ms",
        3600 * 1000,
        "Batches with a timestamp further ahead of the broker's clock are rejected, because such"
        " records would outlive retention.ms. Does not apply to records without a timestamp, or"
        " with LogAppendTime.",
        unit="ms",
        low=0,
    ),
    _whole(
        "message.timestamp.before.max.ms",
        _LOG.timestamp_before_max_ms,
        "Batches with a timestamp further behind the broker's clock are rejected. Does not apply to"
        " records without a timestamp, or with LogAppendTime.",
        unit="ms",
        low=0,
    ),
    _choice(
        "message.timestamp.type",
        TimestampType.CREATE.value,
        "Source of timestamps: CreateTime keeps the producer's, LogAppendTime sets the leader's"
        " clock at the append for all records of a batch.",
        choices=("CreateTime", "LogAppendTime"),
    ),
    TopicConfig(
        name="min.cleanable.dirty.ratio",
        type=ConfigType.FRACTION,
        default=str(_LOG.min_cleanable_dirty_ratio),
        doc="Share of a compacted log that must be dirty before it is cleaned. A lower ratio saves"
        " space and costs more I/O.",
    ),
    _whole(
        "min.compaction.lag.ms",
        _LOG.min_compaction_lag_ms,
        "Minimum age before a record of a compacted topic is cleaned. A consumer that lags less"
        " reads every record.",
        unit="ms",
        low=0,
    ),
    TopicConfig(
        name="min.insync.replicas",
        type=ConfigType.WHOLE,
        default="",
        doc="In-sync replicas that a write with acks=all requires. More are safer, fewer keep the"
        " partition writable longer. Default: 2 with three or more replicas, else 1.",
        unit="replicas",
        low=1,
        high=INT32_MAX,
    ),
    TopicConfig(
        name=MIRROR_SOURCE,
        type=ConfigType.TEXT,
        default="",
        doc="Source cluster and topic id of a mirror topic. Only `quorumlog mirror` writes to a"
        " mirror topic, at the offsets of its source. Set when the topic is created, removed by"
        " `quorumlog mirror promote`, and otherwise constant.",
        unit="a cluster id, or CLUSTER/TOPIC-ID",
        field_name=None,
    ),
    _choice(
        "record.validation",
        _LOG.record_validation.value,
        "Validation of produced batches besides header and CRC: full checks every record, header"
        " only records of uncompressed batches, which saves decompression.",
        choices=("full", "header"),
        field_name=None,
    ),
    _whole(
        "retention.bytes",
        _LOG.retention_bytes,
        "The oldest segments are deleted while at least this size remains; -1: no limit. Applies to"
        " cleanup.policy delete.",
        unit="bytes",
        low=-1,
    ),
    TopicConfig(
        name=RETENTION_HOLDS,
        type=ConfigType.TEXT,
        default="",
        doc="Groups whose unread records are exempt from retention, each until a time at most seven"
        " days ahead, and up to a partition size. Written by streaming queries with"
        " retentionHold=true. Does not protect from deletion of records or from compaction.",
        unit=f"comma-separated GROUP@END/BYTES, END in ms since 1970, up to {HOLD_GROUPS_MAX}"
        " groups",
        field_name=None,
        length_max=2 * HOLD_GROUPS_MAX * 160,
    ),
    _whole(
        "retention.ms",
        7 * 24 * 3600 * 1000,
        "Age of the newest record after which a segment is deleted; -1: never. Applies to"
        " cleanup.policy delete. A record with a future timestamp keeps its segment until then.",
        unit="ms",
        low=-1,
    ),
    _whole(
        "segment.bytes",
        _LOG.segment_bytes,
        "Maximum size of a segment. Retention deletes whole segments.",
        unit="bytes",
        low=1024,
        high=INT32_MAX,
    ),
    _whole(
        "segment.index.bytes",
        _LOG.index_bytes_max,
        "Maximum size of an index; a full index closes its segment.",
        unit="bytes",
        low=12,
        high=INT32_MAX,
    ),
    _whole(
        "segment.ms",
        _LOG.segment_ms,
        "Maximum time span of the records of a segment.",
        unit="ms",
        low=1,
    ),
    TopicConfig(
        name="unclean.leader.election.enable",
        type=ConfigType.SWITCH,
        default="",
        doc="Allow the election of a replica outside the ISR if no other is available; may lose"
        " acknowledged records. Default: the cluster config, else false.",
    ),
)

TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {row.name: row for row in _ROWS}
"""By name, ascending."""


def check_config(name: str, value: str) -> str:
    """Return the value in canonical form. Raise InvalidConfig for an unknown name or an invalid
    value. Units such as "7d" and "1GiB" are converted to the unit of the config."""
    return check_row(known_config(name), value)


def check_row(row: TopicConfig, value: str) -> str:
    """Return a value of a row in canonical form; raise InvalidConfig as `check_config` does."""
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
            if text not in row.choices:
                raise InvalidConfig(f"{name} is {text!r}; give {row.takes}")
            return text
        case ConfigType.LIST:
            return _check_list(row, text)
        case ConfigType.SWITCH:
            if text.lower() not in ("true", "false"):
                raise InvalidConfig(f"{name} is {text!r}; give {row.takes}")
            return text.lower()
        case ConfigType.TEXT:
            return _check_text(row, text)


def known_config(name: str) -> TopicConfig:
    """Return the row of a config; raise InvalidConfig, with the nearest name, if it is unknown."""
    row = TOPIC_CONFIGS.get(name)
    if len(name) > TEXT_MAX:
        raise InvalidConfig(f"the config name has {len(name)} characters; give at most {TEXT_MAX}")
    if row is None:
        near = nearest(name, TOPIC_CONFIGS)
        hint = f"did you mean {near}?" if near else f"configs are {', '.join(TOPIC_CONFIGS)}"
        raise InvalidConfig(f"unknown topic config {name!r}; {hint}")
    return row


def check_configs(
    configs: Iterable[tuple[str, str]], *, replication_factor: int
) -> list[tuple[str, str]]:
    """Return the configs of a new topic in canonical form, by ascending name. Raise InvalidConfig,
    also for a repeated name and for min.insync.replicas above the replication factor."""
    checked = check_changes(configs, {}, replication_factor=replication_factor)
    return sorted((name, value) for name, value in checked.items() if value is not None)


def check_changes(
    changes: Iterable[tuple[str, str | None]],
    configs: Mapping[str, str],
    *,
    replication_factor: int,
) -> dict[str, str | None]:
    """Return changes of a topic's `configs` in canonical form, by ascending name; None resets to
    the default. Raise InvalidConfig as `check_configs` does for the resulting configs."""
    checked: dict[str, str | None] = {}
    for name, value in changes:
        if name in checked:
            raise InvalidConfig(f"{name} is given more than once; give each config once")
        known_config(name)
        checked[name] = None if value is None else check_config(name, value)
    after = {**configs, **checked}
    in_sync = int(after.get("min.insync.replicas") or "1")
    if in_sync > replication_factor and "min.insync.replicas" in checked:
        raise InvalidConfig(
            f"min.insync.replicas is {in_sync}, above the replication factor"
            f" {replication_factor}; every write with acks=all would fail; give"
            f" 1..{replication_factor}"
        )
    return dict(sorted(checked.items()))


def effective_min_isr(configs: Mapping[str, str], *, replication_factor: int) -> int:
    """Return min.insync.replicas of a partition, set or default, limited to [1,
    replication_factor]."""
    value = configs.get("min.insync.replicas")
    wanted = int(value) if value else 2 if replication_factor >= 3 else 1
    return max(1, min(wanted, replication_factor))


def effective_configs(
    configs: Mapping[str, str],
    *,
    replication_factor: int,
    cluster_configs: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the value of every topic config by ascending name: set for the topic, else for the
    cluster, else the default."""
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
    """Return a list value with missing parts added, or with parts removed. Raise InvalidConfig if
    the config is not a list. The result is not validated."""
    if not row.is_list:
        raise InvalidConfig(f"{row.name} is not a list; set its value, {row.takes}")
    present = [part for part in value.split(",") if part]
    if is_removal:
        return ",".join(part for part in present if part not in set(parts))
    return ",".join(dict.fromkeys([*present, *parts]))


def _check_list(row: TopicConfig, text: str) -> str:
    """Return a list such as "delete, compact" without spaces and repeated parts, in its order."""
    parts = dict.fromkeys(part.strip() for part in text.split(",")) if text else {}
    if not parts.keys() <= set(row.choices):
        raise InvalidConfig(f"{row.name} is {text!r}; give {row.takes}")
    return ",".join(parts)


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
        valid = "or -1 for no limit" if row.low == NO_LIMIT else f"{row.interval} {row.unit}"
        raise InvalidConfig(f"{row.name} is {text!r}; {error}, {valid}") from None
    if not row.low <= number <= row.high:
        raise InvalidConfig(f"{row.name} is {number}; give {row.takes}")
    return str(number)
