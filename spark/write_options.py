"""The options of the sink: names, values, validation.

Names are case-insensitive. Invalid, unknown and contradictory options, and those of a read, are
errors with a remedy; none is ignored. Pure; uses no Spark type.
"""

import difflib
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from quorumlog.clients.config import ProducerSettings
from quorumlog.clients.producer.partitioner import PARTITIONERS
from quorumlog.errors import InvalidConfig
from quorumlog.records.compression import Codec
from quorumlog.spark.cluster_access import (
    ACCESS_OPTIONS,
    ACCESS_REFUSED,
    ClusterAccess,
    parse_access,
    unsupported_access,
)
from quorumlog.spark.options import SINK_OPTIONS, GivenOptions, Mode, is_read_option
from quorumlog.staged_names import STAGE_TIMEOUT_MS_DEFAULT


class DeliveryGuarantee(enum.StrEnum):
    """The guarantees of a write."""

    EXACTLY_ONCE = "exactlyonce"
    AT_LEAST_ONCE = "atleastonce"


class OnDifferentBatch(enum.StrEnum):
    """The reactions to a batch that was committed with another number of records."""

    FAIL = "fail"
    WARN = "warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The validated options of one write."""

    mode: Mode
    access: ClusterAccess
    topic: str | None  # overrides the column
    delivery: DeliveryGuarantee
    commit_name: str | None
    commit_number: int | None  # batches only, with a name
    on_different_batch: OnDifferentBatch
    stage_timeout_ms: int
    partitioner: str
    producer: ProducerSettings

    def batch_name(self) -> str | None:
        """Return the name of a batch write's commits; None: without a name.

        The name has option topic, empty for rows with topics of their own: a committed batch of one
        topic is not taken for that of another. No topic has a slash, so names are unique.
        """
        if self.commit_name is None:
            return None
        return f"batch/{self.commit_name}/{self.topic or ''}"

    def stream_name(self, query_id: str) -> str:
        """Return the name of a query's commits. A new checkpoint is a new query id."""
        return f"spark/{query_id}/{self.commit_name or ''}"


_STAGE_TIMEOUT_MS: Final = range(120_000, 86_400_001)
_REQUEST_BYTES: Final = range(1024, (64 << 20) + 1)
DELIVERY_TIMEOUT_MS: Final = 120_000
"""The default of deliveryTimeout."""

_STAGED_ALONE: Final = ("commitName", "commitNumber", "onDifferentBatch", "stageTimeout")
"""Options of exactly-once writes."""

_OFFERED: Final = {
    name.lower(): name for name in ("bootstrap", "topic", *SINK_OPTIONS, *ACCESS_OPTIONS)
}

_REFUSED: Final[dict[str, tuple[str, str]]] = {
    name.lower(): (name, remedy)
    for name, remedy in (
        ("path", "means nothing here; name the topic with 'topic', not in save() or start()"),
        ("createTopic", "does not exist; create the topic before the write"),
        ("includeHeaders", "is for reading; a write takes a column 'headers'"),
        *ACCESS_REFUSED,
        ("kafka.compression.type", "is the Kafka connector's; use 'compression'"),
        ("kafka.partitioner.class", "is the Kafka connector's; use 'partitioner'"),
        ("kafka.buffer.memory", "is the Kafka connector's; use 'bufferSize'"),
        ("kafka.max.request.size", "is the Kafka connector's; use 'maxRequestSize'"),
        ("kafka.delivery.timeout.ms", "is the Kafka connector's; use 'deliveryTimeout'"),
    )
}

_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark itself reads and passes on."""


def parse_write_options(options: Mapping[str, str], mode: Mode) -> WriteOptions:
    """Validate all options of a write; raise InvalidConfig for the first invalid one."""
    _check_names(options)
    given = GivenOptions(options)
    delivery = DeliveryGuarantee(
        _choice(given, "delivery", tuple(DeliveryGuarantee)) or DeliveryGuarantee.EXACTLY_ONCE
    )
    if delivery is DeliveryGuarantee.AT_LEAST_ONCE:
        for name in _STAGED_ALONE:
            if given.text(name) is not None:
                _refuse(name, "is for delivery=exactlyonce; remove one of them")
    commit_name, commit_number = _commit(given, mode)
    different = _choice(given, "onDifferentBatch", tuple(OnDifferentBatch))
    return WriteOptions(
        mode=mode,
        access=parse_access(given),
        topic=given.text("topic"),
        delivery=delivery,
        commit_name=commit_name,
        commit_number=commit_number,
        on_different_batch=OnDifferentBatch(different or OnDifferentBatch.FAIL),
        stage_timeout_ms=_within(given, "stageTimeout", "ms", _STAGE_TIMEOUT_MS)
        or STAGE_TIMEOUT_MS_DEFAULT,
        partitioner=_choice(given, "partitioner", tuple(PARTITIONERS)) or "murmur2",
        producer=_producer_settings(given),
    )


def _check_names(options: Mapping[str, str]) -> None:
    """Raise InvalidConfig, with a remedy, for an unknown or unsupported option."""
    for key in options:
        name = key.lower()
        if name in _OFFERED or name in _SPARKS_OWN:
            continue
        if name in _REFUSED:
            written, remedy = _REFUSED[name]
            _refuse(written, remedy)
        if (reason := unsupported_access(name)) is not None:
            _refuse(key, reason)
        if name.startswith("kafka."):
            _refuse(key, "sets a client of the Kafka connector; there is none here, remove it")
        if is_read_option(name):
            _refuse(key, "is for reading; remove it")
        near = difflib.get_close_matches(name, _OFFERED, n=1)
        known = ", ".join(_OFFERED.values())
        hint = f"did you mean {_OFFERED[near[0]]!r}?" if near else f"known are {known}"
        _refuse(key, f"is unknown; {hint}")


def _commit(given: GivenOptions, mode: Mode) -> tuple[str | None, int | None]:
    name, number = given.text("commitName"), given.number("commitNumber", lowest=0)
    if mode is Mode.STREAM:
        if number is not None:
            _refuse("commitNumber", "is for a batch write; a query numbers its batches, remove it")
        return name, None
    if name is None and number is not None:
        _refuse("commitNumber", "needs 'commitName'; give the name of the job too")
    if name is not None and number is None:
        _refuse("commitName", "needs 'commitNumber'; give each batch the next number")
    return name, number


def _producer_settings(given: GivenOptions) -> ProducerSettings:
    """Return the settings of a task's producer.

    A full buffer blocks the task until the delivery timeout has failed the oldest records, so that
    a slow broker is not an error.
    """
    timeout_ms = given.quantity("deliveryTimeout", unit="ms", lowest=1_000) or DELIVERY_TIMEOUT_MS
    settings = ProducerSettings(delivery_timeout_ms=timeout_ms, max_block_ms=2 * timeout_ms)
    codecs = tuple(codec.name.lower() for codec in Codec)
    if (codec := _choice(given, "compression", codecs)) is not None:
        settings["compression"] = codec
    if (size := given.quantity("bufferSize", unit="bytes", lowest=1)) is not None:
        settings["buffer_size"] = size
    if (size := _within(given, "maxRequestSize", "bytes", _REQUEST_BYTES)) is not None:
        settings["max_request_size"] = size
    return settings


def _choice(given: GivenOptions, name: str, choices: tuple[str, ...]) -> str | None:
    value = given.text(name)
    if value is None:
        return None
    if value.lower() not in choices:
        *most, last = choices
        _refuse(name, f"is {value!r}; it must be {', '.join(most)} or {last}")
    return value.lower()


def _within(given: GivenOptions, name: str, unit: str, bounds: range) -> int | None:
    number = given.quantity(name, unit=unit, lowest=bounds[0])
    if number is not None and number not in bounds:
        _refuse(name, f"is {number} {unit}; it must be {bounds[-1]} {unit} or less")
    return number


def _refuse(name: str, what: str) -> NoReturn:
    raise InvalidConfig(f"option {name!r} {what}")
