"""The data source's options: their names, their values, and what is refused.

Names and forms are those of Spark's Kafka connector, case-insensitive. Everything wrong, unknown,
contradictory or not yet offered is refused by name, with what would be right; nothing is ignored.
Differences to that connector, on purpose: `bootstrap` instead of `kafka.bootstrap.servers`,
`isolationLevel` defaults to read_committed, and a stream must say where it starts.
Owns no I/O and knows no Spark type.
"""

import difflib
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from quorumlog.errors import InvalidConfig
from quorumlog.spark.offsets import (
    EARLIEST,
    LATEST,
    NUMBER_MAX,
    Offsets,
    TopicPartition,
    parse_assignment,
    parse_positions,
)


class Mode(enum.StrEnum):
    """How the source is read."""

    BATCH = "batch"
    STREAM = "stream"


class Isolation(enum.StrEnum):
    """Which records are seen: only decided ones, or all committed ones."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True, slots=True)
class Assigned:
    """Exactly these partitions."""

    places: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """All partitions of these topics; each must exist."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribedPattern:
    """All partitions of the topics whose whole name matches; there may be none."""

    pattern: str


Selection: TypeAlias = Assigned | Subscribed | SubscribedPattern


@dataclass(frozen=True, slots=True)
class AtEarliest:
    """Every partition at its log start."""


@dataclass(frozen=True, slots=True)
class AtLatest:
    """Every partition at its end, as it is when the read is planned."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Each partition at its own offset; -2 earliest, -1 latest. Must name exactly the partitions
    read."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """Every partition at its first record at or after a time, in milliseconds since 1970 (UTC)."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """Each partition at its first record at or after its own time, in milliseconds since 1970
    (UTC)."""

    timestamps_ms: Offsets


Position: TypeAlias = AtEarliest | AtLatest | AtOffsets | AtTimestamp | AtTimestamps


class NoMatch(enum.StrEnum):
    """What to do when no record is at or after a starting time."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """All options of one read, checked."""

    mode: Mode
    bootstrap: tuple[str, ...]  # "host:port", at least one; tried in this order
    selection: Selection
    start: Position
    start_no_match: NoMatch
    end: Position  # always AtLatest for a stream
    fail_on_data_loss: bool
    min_partitions: int | None  # >= 1; a hint: large ranges are split until about so many
    max_records_per_partition: int | None  # >= 1; no range holds more offsets
    max_offsets_per_trigger: int | None  # >= 1; streams only
    include_headers: bool | None  # None: not said
    isolation: Isolation
    poll_timeout_ms: int  # >= 1; how long a task waits for the next bytes before it fails


@dataclass(frozen=True, slots=True)
class _Option:
    name: str
    modes: tuple[Mode, ...] = (Mode.BATCH, Mode.STREAM)


_ENDS_ARE_FOR_BATCH: Final = (Mode.BATCH,)

_OFFERED: Final[dict[str, _Option]] = {
    option.name.lower(): option
    for option in (
        _Option("bootstrap"),
        _Option("assign"),
        _Option("subscribe"),
        _Option("subscribePattern"),
        _Option("startingOffsets"),
        _Option("startingTimestamp"),
        _Option("startingOffsetsByTimestamp"),
        _Option("startingOffsetsByTimestampStrategy"),
        _Option("endingOffsets", _ENDS_ARE_FOR_BATCH),
        _Option("endingTimestamp", _ENDS_ARE_FOR_BATCH),
        _Option("endingOffsetsByTimestamp", _ENDS_ARE_FOR_BATCH),
        _Option("failOnDataLoss"),
        _Option("minPartitions"),
        _Option("maxRecordsPerPartition"),
        _Option("maxOffsetsPerTrigger", (Mode.STREAM,)),
        _Option("includeHeaders"),
        _Option("isolationLevel"),
        _Option("pollTimeoutMs"),
    )
}

_QUERY_GROUPS: Final = "needs query groups at the broker, which are not offered yet; remove it"
_REFUSED: Final[dict[str, tuple[str, str]]] = {
    name.lower(): (name, remedy)
    for name, remedy in (
        ("groupId", _QUERY_GROUPS),
        ("retentionHold", _QUERY_GROUPS),
        ("groupIdPrefix", "does not exist here: no group is generated for a query; remove it"),
        ("minOffsetsPerTrigger", "is not offered yet; use maxOffsetsPerTrigger or remove it"),
        ("maxTriggerDelay", "is not offered yet; use a processing-time trigger or remove it"),
        ("maxBytesPerTrigger", "is not offered yet; use maxOffsetsPerTrigger"),
        ("valueFormat", "is not offered yet; decode with from_json(cast(value as string), ...)"),
        ("pushdown", "is not offered yet; narrow the read by starting and ending options"),
        ("rack", "is not offered yet; remove it"),
        ("delivery", "is for writing, which is not offered yet; remove it"),
        ("topic", "is for writing; to read use 'subscribe'"),
        ("path", "means nothing here; name the topic with 'subscribe', not in load()"),
        ("kafka.bootstrap.servers", "is the Kafka connector's; use 'bootstrap', host:port"),
        ("kafka.isolation.level", "is the Kafka connector's; use 'isolationLevel'"),
        ("kafka.group.id", "is the Kafka connector's; remove it"),
        ("kafkaConsumer.pollTimeoutMs", "is the Kafka connector's; use 'pollTimeoutMs'"),
        ("fetchOffset.numRetries", "is the Kafka connector's; remove it, calls are repeated"),
        ("fetchOffset.retryIntervalMs", "is the Kafka connector's; remove it, calls are repeated"),
    )
}

_CATALOG_TABLE: Final = (
    "Spark keeps no options of a catalog table whose source is in Python, so the table could never "
    "be read; use CREATE TEMPORARY VIEW ... USING quorumlog OPTIONS (...)"
)

_SELECTIONS: Final = ("assign", "subscribe", "subscribePattern")

_STREAM_LATEST: Final = (
    "a stream cannot start at 'latest' yet: Spark asks for the start again after a failed first "
    "batch, and the records between the two answers would be lost without an error; that needs "
    "the start stored in a query group at the broker, which is not offered yet. Use 'earliest' or "
    "explicit offsets"
)


def check_names(options: Mapping[str, str]) -> None:
    """Refuse every option that is not offered, naming it and what would be right; raises
    InvalidConfig."""
    if any(key.lower() == "provider" for key in options):
        raise InvalidConfig(_CATALOG_TABLE)
    for key in options:
        name = key.lower()
        if name in _OFFERED:
            continue
        if name in _REFUSED:
            written, remedy = _REFUSED[name]
            _refuse(written, remedy)
        if name.startswith("kafka."):
            _refuse(key, "sets a client of the Kafka connector; there is none here, remove it")
        near = difflib.get_close_matches(name, _OFFERED, n=1)
        hint = f"did you mean {_OFFERED[near[0]].name!r}?" if near else f"known are {_known()}"
        _refuse(key, f"is unknown; {hint}")


def parse_include_headers(options: Mapping[str, str]) -> bool | None:
    """Return includeHeaders, None when it is not said."""
    return _Given(options).boolean("includeHeaders")


def parse_options(options: Mapping[str, str], mode: Mode) -> ReadOptions:
    """Check all options of a read; raises InvalidConfig naming the first wrong one."""
    check_names(options)
    if not options:
        raise InvalidConfig(f"no option is given. Is this a catalog table? {_CATALOG_TABLE}")
    given = _Given(options)
    for name in options:
        option = _OFFERED[name.lower()]
        if mode not in option.modes:
            _refuse(option.name, f"is not for a {mode} read; remove it")
    start, no_match = _start(given, mode)
    return ReadOptions(
        mode=mode,
        bootstrap=_bootstrap(given),
        selection=_selection(given),
        start=start,
        start_no_match=no_match,
        end=_end(given),
        fail_on_data_loss=given.boolean("failOnDataLoss") is not False,
        min_partitions=given.number("minPartitions", lowest=1),
        max_records_per_partition=given.number("maxRecordsPerPartition", lowest=1),
        max_offsets_per_trigger=given.number("maxOffsetsPerTrigger", lowest=1),
        include_headers=given.boolean("includeHeaders"),
        isolation=_isolation(given),
        poll_timeout_ms=given.number("pollTimeoutMs", lowest=1) or 120_000,
    )


class _Given:
    """The options as given, looked up without case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}

    def text(self, name: str) -> str | None:
        """Return the option's text without surrounding blanks; an empty one is refused."""
        value = self._values.get(name.lower())
        if value is None:
            return None
        if not value.strip():
            _refuse(name, "is empty; give it a value or remove it")
        return value.strip()

    def boolean(self, name: str) -> bool | None:
        value = self.text(name)
        if value is None:
            return None
        if value.lower() not in ("true", "false"):
            _refuse(name, f"is {value!r}; it must be true or false")
        return value.lower() == "true"

    def number(self, name: str, *, lowest: int) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"\+?[0-9]{1,19}", value) or not lowest <= int(value) <= NUMBER_MAX:
            _refuse(name, f"is {value!r}; it must be a whole number of {lowest} or more")
        return int(value)


def _bootstrap(given: _Given) -> tuple[str, ...]:
    value = given.text("bootstrap")
    if value is None:
        _refuse("bootstrap", "is missing; give a broker's gRPC address, e.g. localhost:9094")
    addresses = tuple(part.strip() for part in value.split(",") if part.strip())
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            _refuse("bootstrap", f"has {address!r}; an address is host:port")
    if not addresses:
        _refuse("bootstrap", "names no address; give host:port, e.g. localhost:9094")
    return addresses


def _selection(given: _Given) -> Selection:
    named = [name for name in _SELECTIONS if given.text(name) is not None]
    if len(named) != 1:
        had = f"not {' and '.join(named)} together" if named else "none is given"
        raise InvalidConfig(
            f"exactly one of the options {', '.join(_SELECTIONS)} must be given; {had}"
        )
    value = given.text(named[0])
    assert value is not None, f"{named[0]} was just found"
    if named[0] == "assign":
        return Assigned(parse_assignment("assign", value))
    if named[0] == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        if not topics:
            _refuse("subscribe", "names no topic; give one or several, separated by commas")
        return Subscribed(topics)
    try:
        re.compile(value)
    except re.error as error:
        _refuse("subscribePattern", f"is {value!r}, not a regular expression: {error}")
    return SubscribedPattern(value)


def _start(given: _Given, mode: Mode) -> tuple[Position, NoMatch]:
    strategy = (given.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in tuple(NoMatch):
        _refuse(
            "startingOffsetsByTimestampStrategy", f"is {strategy!r}; it must be error or latest"
        )
    timed = _timed(given, "startingTimestamp", "startingOffsetsByTimestamp")
    if timed is not None:
        if mode is Mode.STREAM and strategy == NoMatch.LATEST:
            _refuse("startingOffsetsByTimestampStrategy", f"is 'latest'; {_STREAM_LATEST}")
        return timed, NoMatch(strategy)
    return _starting_offsets(given, mode), NoMatch(strategy)


def _starting_offsets(given: _Given, mode: Mode) -> Position:
    value = given.text("startingOffsets")
    if value is None:
        if mode is Mode.STREAM:
            _refuse("startingOffsets", f"is missing, which would mean 'latest'; {_STREAM_LATEST}")
        return AtEarliest()
    if value.lower() == "earliest":
        return AtEarliest()
    if value.lower() == "latest":
        _refuse_latest_start(mode)
    offsets = parse_positions(
        "startingOffsets",
        value,
        lowest=EARLIEST,
        meaning="an offset is 0 or more, or -2 for earliest",
    )
    if LATEST in offsets.values():
        _refuse_latest_start(mode)
    return AtOffsets(offsets)


def _refuse_latest_start(mode: Mode) -> NoReturn:
    match mode:
        case Mode.BATCH:
            _refuse("startingOffsets", "is latest (-1), so a batch would be empty; use 'earliest'")
        case Mode.STREAM:
            _refuse("startingOffsets", f"is latest (-1); {_STREAM_LATEST}")


def _end(given: _Given) -> Position:
    timed = _timed(given, "endingTimestamp", "endingOffsetsByTimestamp")
    if timed is not None:
        return timed
    value = given.text("endingOffsets")
    if value is None or value.lower() == "latest":
        return AtLatest()
    if value.lower() == "earliest":
        _refuse("endingOffsets", "is 'earliest', so nothing would be read; use 'latest'")
    offsets = parse_positions(
        "endingOffsets", value, lowest=EARLIEST, meaning="an offset is 0 or more, or -1 for latest"
    )
    if EARLIEST in offsets.values():
        _refuse("endingOffsets", "has -2 (earliest), so nothing would be read; use -1 for latest")
    return AtOffsets(offsets)


def _timed(given: _Given, for_all: str, for_each: str) -> AtTimestamp | AtTimestamps | None:
    """Return the position by time, if one is given; one time for all goes before one for each."""
    number = given.number(for_all, lowest=0)
    if number is not None:
        return AtTimestamp(number)
    value = given.text(for_each)
    if value is None:
        return None
    meaning = "a time is milliseconds since 1970 (UTC), 0 or more"
    return AtTimestamps(parse_positions(for_each, value, lowest=0, meaning=meaning))


def _isolation(given: _Given) -> Isolation:
    value = (given.text("isolationLevel") or Isolation.READ_COMMITTED).lower()
    if value not in tuple(Isolation):
        _refuse("isolationLevel", f"is {value!r}; it must be {' or '.join(Isolation)}")
    return Isolation(value)


def _known() -> str:
    return ", ".join(option.name for option in _OFFERED.values())


def _refuse(name: str, what: str) -> NoReturn:
    raise InvalidConfig(f"option {name!r} {what}")
