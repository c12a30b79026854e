"""The options of the data source: names, values, validation.

Names and forms are those of Spark's Kafka connector, case-insensitive. Invalid, unknown,
contradictory and unsupported options are errors with a remedy; none is ignored. Intended
differences to that connector: `bootstrap` instead of `kafka.bootstrap.servers`, `isolationLevel`
defaults to read_committed, and a stream that starts at `latest` needs a `groupId`. Pure; uses no
Spark type.
"""

import difflib
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NoReturn, TypeAlias

from quorumlog.errors import InvalidConfig
from quorumlog.ids import TopicPartition
from quorumlog.settings.quantities import parse_quantity
from quorumlog.settings.query_groups import START_GROUP_PREFIX, can_hold
from quorumlog.spark.cluster_access import (
    ACCESS_OPTIONS,
    ACCESS_REFUSED,
    ClusterAccess,
    parse_access,
    unsupported_access,
)
from quorumlog.spark.offsets import (
    EARLIEST,
    LATEST,
    NUMBER_MAX,
    Offsets,
    parse_assignment,
    parse_positions,
)


class Mode(enum.StrEnum):
    """The kinds of reads."""

    BATCH = "batch"
    STREAM = "stream"


class Isolation(enum.StrEnum):
    """The isolation levels: records of committed transactions only, or all below the high
    watermark."""

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
    """All partitions of the topics whose whole name matches, possibly none."""

    pattern: str


Selection: TypeAlias = Assigned | Subscribed | SubscribedPattern


@dataclass(frozen=True, slots=True)
class AtEarliest:
    """Every partition at its log start."""


@dataclass(frozen=True, slots=True)
class AtLatest:
    """Every partition at its end at planning time."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Each partition at its own offset; -2 is earliest, -1 latest. Must have exactly the selected
    partitions."""

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
    """The reaction if no record is at or after a starting time."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a micro-batch."""

    offsets_max: int | None = None  # >= 1
    bytes_max: int | None = None  # >= 1
    offsets_min: int | None = None  # >= 1, at most offsets_max; wait for this number
    delay_ms_max: int = 15 * 60 * 1000  # the maximum wait for offsets_min

    @property
    def has_any(self) -> bool:
        """True if there is a limit."""
        return any((self.offsets_max, self.bytes_max, self.offsets_min))


@dataclass(frozen=True, slots=True)
class RetentionHold:
    """Exempts records that the query's group has not read from retention."""

    bytes_max: int  # >= 1; partition size up to which records are held


class ValueFormat(enum.StrEnum):
    """The formats of values that the source decodes."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    ARROW = "arrow"


class BadValueMode(enum.StrEnum):
    """The reactions to a value that does not decode."""

    FAIL = "fail"
    DROP = "drop"
    DEAD_LETTER = "deadletter"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """The decoding of values."""

    format: ValueFormat
    schema: str | None  # as given; None only where the schema of the read has the type
    message: str | None  # Protobuf only: the full name of the message
    header_bytes: int  # >= 0; removed from the start of each value
    mode: BadValueMode
    dead_letter_topic: str | None  # with BadValueMode.DEAD_LETTER only


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The validated options of one read."""

    mode: Mode
    access: ClusterAccess
    selection: Selection
    start: Position
    start_no_match: NoMatch
    end: Position  # always AtLatest for a stream
    fail_on_data_loss: bool
    min_partitions: int | None  # >= 1; a hint for splitting large ranges
    max_records_per_partition: int | None  # >= 1; maximum offsets per range
    limits: Limits  # streams only
    group_id: str | None  # streams only; group of the query's progress
    hold: RetentionHold | None  # only with a group
    mirror_of: str | None  # streams only; the source cluster of mirror topics, with equal offsets
    include_headers: bool | None  # None: not given
    isolation: Isolation
    poll_timeout_ms: int  # >= 1; time without data after which a task fails
    values: ValueOptions | None  # None: values stay binary
    pushdown: bool  # batches only; filters narrow the ranges

    @property
    def starts_at_end(self) -> bool:
        """True if the start depends on the end of a log, so that a second lookup may differ."""
        match self.start:
            case AtEarliest():
                return False
            case AtLatest():
                return True
            case AtOffsets(offsets):
                return LATEST in offsets.values()
            case AtTimestamp() | AtTimestamps():
                return self.start_no_match is NoMatch.LATEST


@dataclass(frozen=True, slots=True)
class _Option:
    name: str
    modes: tuple[Mode, ...] = (Mode.BATCH, Mode.STREAM)


_BATCHES_ALONE: Final = (Mode.BATCH,)
_STREAMS_ALONE: Final = (Mode.STREAM,)

HELD_BYTES: Final = 10 << 30
"""The default of retentionHoldBytes."""
GROUP_LENGTH_MAX: Final = 1_000

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
        _Option("endingOffsets", _BATCHES_ALONE),
        _Option("endingTimestamp", _BATCHES_ALONE),
        _Option("endingOffsetsByTimestamp", _BATCHES_ALONE),
        _Option("failOnDataLoss"),
        _Option("minPartitions"),
        _Option("maxRecordsPerPartition"),
        _Option("maxOffsetsPerTrigger", _STREAMS_ALONE),
        _Option("minOffsetsPerTrigger", _STREAMS_ALONE),
        _Option("maxTriggerDelay", _STREAMS_ALONE),
        _Option("maxBytesPerTrigger", _STREAMS_ALONE),
        _Option("groupId", _STREAMS_ALONE),
        _Option("retentionHold", _STREAMS_ALONE),
        _Option("retentionHoldBytes", _STREAMS_ALONE),
        _Option("mirrorOf", _STREAMS_ALONE),
        _Option("includeHeaders"),
        _Option("isolationLevel"),
        _Option("pollTimeoutMs"),
        _Option("valueFormat"),
        _Option("valueSchema"),
        _Option("valueMessage"),
        _Option("valueHeaderBytes"),
        _Option("mode"),
        _Option("deadLetterTopic"),
        _Option("pushdown", _BATCHES_ALONE),
        *(_Option(name) for name in ACCESS_OPTIONS),
    )
}

SINK_OPTIONS: Final = (
    "delivery",
    "commitName",
    "commitNumber",
    "onDifferentBatch",
    "stageTimeout",
    "partitioner",
    "compression",
    "bufferSize",
    "maxRequestSize",
    "deliveryTimeout",
)
"""The options of the sink that a read does not have; see `write_options`."""

_REFUSED: Final[dict[str, tuple[str, str]]] = {
    name.lower(): (name, remedy)
    for name, remedy in (
        ("groupIdPrefix", "does not exist here: no group is generated; name one with 'groupId'"),
        ("rack", "is not offered yet; remove it"),
        *((name, "is for writing; remove it") for name in SINK_OPTIONS),
        ("topic", "is for writing; to read use 'subscribe'"),
        ("path", "means nothing here; name the topic with 'subscribe', not in load()"),
        *ACCESS_REFUSED,
        ("kafka.isolation.level", "is the Kafka connector's; use 'isolationLevel'"),
        ("kafka.group.id", "is the Kafka connector's; use 'groupId'"),
        ("kafkaConsumer.pollTimeoutMs", "is the Kafka connector's; use 'pollTimeoutMs'"),
        ("fetchOffset.numRetries", "is the Kafka connector's; remove it, calls are repeated"),
        ("fetchOffset.retryIntervalMs", "is the Kafka connector's; remove it, calls are repeated"),
    )
}

_CATALOG_TABLE: Final = (
    "Spark does not store the options of a catalog table with a Python source, so the table cannot "
    "be read; use CREATE TEMPORARY VIEW ... USING quorumlog OPTIONS (...)"
)

_SELECTIONS: Final = ("assign", "subscribe", "subscribePattern")

_NEEDS_GROUP: Final = (
    "a stream that starts at 'latest' needs the option 'groupId': Spark looks up the start again "
    "after a failed first batch, and records between the two lookups would be lost silently, so "
    "the start is stored at the broker under the query's group; give each query its own groupId, "
    "or start at 'earliest' or at explicit offsets"
)


def check_names(options: Mapping[str, str]) -> None:
    """Raise InvalidConfig, with a remedy, for an unknown or unsupported option."""
    if any(key.lower() == "provider" for key in options):
        raise InvalidConfig(_CATALOG_TABLE)
    for key in options:
        name = key.lower()
        if name in _OFFERED:
            continue
        if name in _REFUSED:
            written, remedy = _REFUSED[name]
            _refuse(written, remedy)
        if (reason := unsupported_access(name)) is not None:
            _refuse(key, reason)
        if name.startswith("kafka."):
            _refuse(key, "sets a client of the Kafka connector; there is none here, remove it")
        near = difflib.get_close_matches(name, _OFFERED, n=1)
        hint = f"did you mean {_OFFERED[near[0]].name!r}?" if near else f"known are {_known()}"
        _refuse(key, f"is unknown; {hint}")


def is_read_option(name: str) -> bool:
    """Return True if a read has an option of this name, in any case."""
    return name.lower() in _OFFERED


def parse_include_headers(options: Mapping[str, str]) -> bool | None:
    """Return includeHeaders, None if it is not given."""
    return GivenOptions(options).boolean("includeHeaders")


def parse_values(options: Mapping[str, str]) -> ValueOptions | None:
    """Return the decoding of values, None if values stay binary; raise InvalidConfig."""
    return _values(GivenOptions(options))


def parse_options(options: Mapping[str, str], mode: Mode) -> ReadOptions:
    """Validate all options of a read; raise InvalidConfig for the first invalid one."""
    check_names(options)
    if not options:
        raise InvalidConfig(f"no option is given. Is this a catalog table? {_CATALOG_TABLE}")
    given = GivenOptions(options)
    for name in options:
        option = _OFFERED[name.lower()]
        if mode not in option.modes:
            _refuse(option.name, f"is not for a {mode} read; remove it")
    start, no_match = _start(given, mode)
    group_id = _group_id(given)
    parsed = ReadOptions(
        mode=mode,
        access=parse_access(given),
        selection=_selection(given),
        start=start,
        start_no_match=no_match,
        end=_end(given),
        fail_on_data_loss=given.boolean("failOnDataLoss") is not False,
        min_partitions=given.number("minPartitions", lowest=1),
        max_records_per_partition=given.number("maxRecordsPerPartition", lowest=1),
        limits=_limits(given),
        group_id=group_id,
        hold=_hold(given, group_id),
        mirror_of=given.text("mirrorOf"),
        include_headers=given.boolean("includeHeaders"),
        isolation=_isolation(given),
        poll_timeout_ms=given.number("pollTimeoutMs", lowest=1) or 120_000,
        values=_values(given),
        pushdown=given.boolean("pushdown") is True,
    )
    _check_dead_letters(parsed)
    if mode is Mode.STREAM and parsed.starts_at_end and group_id is None:
        raise InvalidConfig(_NEEDS_GROUP)
    return parsed


def check_without_limits(options: ReadOptions, spark_version: tuple[int, int]) -> None:
    """Raise InvalidConfig for a limit of micro-batches, which needs Spark 4.2."""
    limits = options.limits
    for name, value in (
        ("maxOffsetsPerTrigger", limits.offsets_max),
        ("maxBytesPerTrigger", limits.bytes_max),
        ("minOffsetsPerTrigger", limits.offsets_min),
    ):
        if value is not None:
            major, minor = spark_version
            _refuse(
                name,
                f"needs Spark 4.2 or later; Spark {major}.{minor} does not pass the start of a "
                "micro-batch to a Python source; remove the option, or upgrade Spark",
            )


class GivenOptions:
    """The given options, looked up case-insensitively."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}

    def text(self, name: str) -> str | None:
        """Return the option's text without surrounding blanks; raise InvalidConfig if empty."""
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

    def quantity(self, name: str, *, unit: str, lowest: int) -> int | None:
        """Return a number that may have a unit: "15min", "64MiB"."""
        value = self.text(name)
        if value is None:
            return None
        try:
            number = parse_quantity(value, unit)
        except ValueError as error:
            _refuse(name, f"is {value!r}; {error}")
        if not lowest <= number <= NUMBER_MAX:
            _refuse(name, f"is {value!r}; it must be {lowest} {unit} or more")
        return number


def _selection(given: GivenOptions) -> Selection:
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


def _start(given: GivenOptions, mode: Mode) -> tuple[Position, NoMatch]:
    strategy = (given.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in tuple(NoMatch):
        _refuse(
            "startingOffsetsByTimestampStrategy", f"is {strategy!r}; it must be error or latest"
        )
    timed = _timed(given, "startingTimestamp", "startingOffsetsByTimestamp")
    if timed is not None:
        return timed, NoMatch(strategy)
    return _starting_offsets(given, mode), NoMatch(strategy)


def _starting_offsets(given: GivenOptions, mode: Mode) -> Position:
    value = given.text("startingOffsets")
    if value is None:
        return AtEarliest() if mode is Mode.BATCH else AtLatest()
    if value.lower() == "earliest":
        return AtEarliest()
    if value.lower() == "latest":
        _check_latest_start(mode)
        return AtLatest()
    offsets = parse_positions(
        "startingOffsets",
        value,
        lowest=EARLIEST,
        meaning="an offset is 0 or more, or -2 for earliest",
    )
    if LATEST in offsets.values():
        _check_latest_start(mode)
    return AtOffsets(offsets)


def _check_latest_start(mode: Mode) -> None:
    if mode is Mode.BATCH:
        _refuse("startingOffsets", "is latest (-1), so a batch would be empty; use 'earliest'")


def _end(given: GivenOptions) -> Position:
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


def _timed(given: GivenOptions, for_all: str, for_each: str) -> AtTimestamp | AtTimestamps | None:
    """Return the position by time, None if not given; a time for all has precedence."""
    number = given.number(for_all, lowest=0)
    if number is not None:
        return AtTimestamp(number)
    value = given.text(for_each)
    if value is None:
        return None
    meaning = "a time is milliseconds since 1970 (UTC), 0 or more"
    return AtTimestamps(parse_positions(for_each, value, lowest=0, meaning=meaning))


def _limits(given: GivenOptions) -> Limits:
    limits = Limits(
        offsets_max=given.number("maxOffsetsPerTrigger", lowest=1),
        offsets_min=given.number("minOffsetsPerTrigger", lowest=1),
        bytes_max=given.quantity("maxBytesPerTrigger", unit="bytes", lowest=1),
    )
    least, most = limits.offsets_min, limits.offsets_max
    if least is not None and most is not None and least > most:
        _refuse(
            "minOffsetsPerTrigger",
            f"is {least}, more than maxOffsetsPerTrigger, {most}; no micro-batch could be both",
        )
    delay_ms = given.quantity("maxTriggerDelay", unit="ms", lowest=1)
    if delay_ms is None:
        return limits
    if least is None:
        _refuse("maxTriggerDelay", "says how long minOffsetsPerTrigger may wait; give that too")
    return replace(limits, delay_ms_max=delay_ms)


def _group_id(given: GivenOptions) -> str | None:
    group = given.text("groupId")
    if group is None:
        return None
    if len(group) > GROUP_LENGTH_MAX:
        _refuse("groupId", f"has {len(group)} characters; give {GROUP_LENGTH_MAX} at most")
    if group.startswith(START_GROUP_PREFIX):
        _refuse("groupId", f"begins with {START_GROUP_PREFIX!r}, as groups that hold starts do")
    return group


def _hold(given: GivenOptions, group_id: str | None) -> RetentionHold | None:
    bytes_max = given.quantity("retentionHoldBytes", unit="bytes", lowest=1)
    if not given.boolean("retentionHold"):
        if bytes_max is not None:
            _refuse("retentionHoldBytes", "bounds what retentionHold keeps; set that to true")
        return None
    if group_id is None:
        _refuse("retentionHold", "keeps what the query's group has not read; give a groupId")
    if given.text("assign") is not None:
        _refuse(
            "retentionHold",
            "keeps whole topics, with what is not read of the partitions that 'assign' leaves out; "
            "use 'subscribe' or 'subscribePattern'",
        )
    if not can_hold(group_id):
        _refuse(
            "retentionHold",
            f"needs a groupId of up to 120 letters, digits, '.', '_' and '-', not {group_id!r}",
        )
    return RetentionHold(bytes_max or HELD_BYTES)


_WITH_FORMAT: Final = ("valueSchema", "valueMessage", "valueHeaderBytes", "mode", "deadLetterTopic")
_HEADER_BYTES_MAX: Final = 1_024


def _values(given: GivenOptions) -> ValueOptions | None:
    format_name = given.text("valueFormat")
    if format_name is None:
        for name in _WITH_FORMAT:
            if given.text(name) is not None:
                _refuse(name, "is for decoding values; give valueFormat too, or remove it")
        return None
    if format_name.lower() not in tuple(ValueFormat):
        _refuse("valueFormat", f"is {format_name!r}; it must be one of {', '.join(ValueFormat)}")
    kind = ValueFormat(format_name.lower())
    mode_name = given.text("mode") or BadValueMode.FAIL
    if mode_name.lower() not in tuple(BadValueMode):
        _refuse("mode", f"is {mode_name!r}; it must be one of {', '.join(BadValueMode)}")
    header_bytes = given.number("valueHeaderBytes", lowest=0) or 0
    if header_bytes > _HEADER_BYTES_MAX:
        _refuse("valueHeaderBytes", f"is {header_bytes}; give {_HEADER_BYTES_MAX} at most")
    return ValueOptions(
        format=kind,
        schema=_value_schema(given, kind),
        message=_value_message(given, kind),
        header_bytes=header_bytes,
        mode=BadValueMode(mode_name.lower()),
        dead_letter_topic=_dead_letter_topic(given, BadValueMode(mode_name.lower())),
    )


def _value_schema(given: GivenOptions, kind: ValueFormat) -> str | None:
    schema = given.text("valueSchema")
    if schema is None and kind is ValueFormat.AVRO:
        _refuse("valueSchema", "is missing; give the writer's Avro schema as JSON, or its file")
    if schema is None and kind is ValueFormat.PROTOBUF:
        _refuse(
            "valueSchema",
            "is missing; give the file of a descriptor set, which protoc writes with "
            "--descriptor_set_out and --include_imports",
        )
    return schema


def _value_message(given: GivenOptions, kind: ValueFormat) -> str | None:
    message = given.text("valueMessage")
    if message is None and kind is ValueFormat.PROTOBUF:
        _refuse("valueMessage", "is missing; give the message's full name: package.Message")
    if message is not None and kind is not ValueFormat.PROTOBUF:
        _refuse("valueMessage", f"is for valueFormat=protobuf, not {kind}; remove it")
    return message


def _dead_letter_topic(given: GivenOptions, mode: BadValueMode) -> str | None:
    topic = given.text("deadLetterTopic")
    if topic is None and mode is BadValueMode.DEAD_LETTER:
        _refuse("deadLetterTopic", "is missing; mode=deadletter writes bad records to it")
    if topic is not None and mode is not BadValueMode.DEAD_LETTER:
        _refuse("deadLetterTopic", "is for mode=deadletter; set that mode, or remove it")
    return topic


def _check_dead_letters(options: ReadOptions) -> None:
    """Refuse a dead letter topic that the read itself reads: each run would append to its own
    input."""
    topic = None if options.values is None else options.values.dead_letter_topic
    if topic is None:
        return
    match options.selection:
        case Assigned(places):
            is_read = any(place.topic == topic for place in places)
        case Subscribed(topics):
            is_read = topic in topics
        case SubscribedPattern(pattern):
            is_read = re.fullmatch(pattern, topic) is not None
    if is_read:
        _refuse("deadLetterTopic", f"is {topic!r}, which this read selects; name another topic")


def _isolation(given: GivenOptions) -> Isolation:
    value = (given.text("isolationLevel") or Isolation.READ_COMMITTED).lower()
    if value not in tuple(Isolation):
        _refuse("isolationLevel", f"is {value!r}; it must be {' or '.join(Isolation)}")
    return Isolation(value)


def _known() -> str:
    return ", ".join(option.name for option in _OFFERED.values())


def _refuse(name: str, what: str) -> NoReturn:
    raise InvalidConfig(f"option {name!r} {what}")
