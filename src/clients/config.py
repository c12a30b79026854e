"""What a client may be told: frozen, validated once, one field = name, unit, default, trade-off.

Names follow the field's with the unit last; the comment gives the field's own name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, TypedDict, TypeVar

from ..errors import InvalidConfig
from ..records.compression import LEVELS, Codec, codec_named

KIB = 1024
MIB = 1024 * KIB

ACKS: tuple[str, ...] = ("all", "leader", "none")
ACKS_NUMBERS = {"-1": "all", "1": "leader", "0": "none"}
ON_FULL: tuple[str, ...] = ("wait", "raise")
REQUEST_SIZE_MAX = 64 * MIB  # no broker takes a larger message
FETCH_WAIT_MS_MAX = 60_000  # no broker waits longer
INT32_MAX = 2**31 - 1
POLL_INTERVAL_MS_MAX = 3_600_000  # no coordinator waits longer
OUT_OF_RANGE: tuple[str, ...] = ("raise", "earliest", "latest")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What holds for every call of one client."""

    connect_timeout_ms: int = 5_000  # until the first broker must have answered
    request_timeout_ms: int = 30_000  # request.timeout.ms: one attempt of one call
    call_timeout_ms: int = 60_000  # default.api.timeout.ms: a call with all its attempts
    retry_backoff_ms_min: int = 50  # retry.backoff.ms: before the first repeat, with jitter
    retry_backoff_ms_max: int = 1_000  # retry.backoff.max.ms: doubling ends here
    metadata_age_ms_max: int = 300_000  # metadata.max.age.ms: leaders are looked up again after it

    def __post_init__(self) -> None:
        for name in (
            "connect_timeout_ms",
            "request_timeout_ms",
            "call_timeout_ms",
            "retry_backoff_ms_min",
            "retry_backoff_ms_max",
            "metadata_age_ms_max",
        ):
            _at_least(name, getattr(self, name), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """How a producer gathers, compresses and delivers records."""

    # acks: "all" in-sync replicas, the "leader" alone, or "none" (no answer awaited: what was sent
    # counts as delivered, without an offset); or as the field writes them, -1, 1 and 0
    acks: str | int = "all"
    # enable.idempotence: what is sent again is stored once, in its order, over restarts and from
    # leader to leader; needs acks="all". None: on with acks="all", off without
    enable_idempotence: bool | None = None
    # linger.ms: a batch that is not full leaves after it, 0: at once; below delivery_timeout_ms
    linger_ms: int = 5
    batch_size: int = 960 * KIB  # batch.size before compression; below the usual max.message.bytes
    compression: str = "none"  # compression.type: none, gzip, snappy, lz4, zstd
    compression_level: int | None = None  # compression.<codec>.level; None: the codec's own choice
    # buffer.memory: what records without an outcome take here: keys, values, headers and their
    # objects, then the encoded batch and 8 bytes a record in their place. A request being sent
    # holds one more copy.
    buffer_size: int = 64 * MIB
    on_full: str = "wait"  # a full buffer: "wait" up to block_ms_max, or "raise" Overloaded at once
    request_size_max: int = 8 * MIB  # max.request.size, bytes of one request to one broker
    block_ms_max: int = 60_000  # max.block.ms: send() waits so long for room and metadata in all
    # delivery.timeout.ms: from send() to the outcome; an answer under way gets 5 s at least
    delivery_timeout_ms: int = 120_000

    def __post_init__(self) -> None:
        _one_of("acks", self.acks_name, ACKS)
        if self.enable_idempotence not in (None, True, False):
            raise InvalidConfig(
                f"enable_idempotence is {self.enable_idempotence!r}: give True, False, or None for "
                "whatever acks allows"
            )
        if self.enable_idempotence and self.acks_name != "all":
            raise InvalidConfig(
                f"enable_idempotence needs acks='all', acks is {self.acks!r}: leave one of them out"
            )
        if not isinstance(self.compression, str):
            raise InvalidConfig(f"compression is {self.compression!r}: give the name of a codec")
        codec_named(self.compression)
        _level("compression_level", self.compression_level, self.codec)
        _one_of("on_full", self.on_full, ON_FULL)
        _at_least("linger_ms", self.linger_ms, 0)
        _at_least("batch_size", self.batch_size, 1)
        _at_least("buffer_size", self.buffer_size, 1)
        _at_least("request_size_max", self.request_size_max, KIB)
        _at_most("request_size_max", self.request_size_max, REQUEST_SIZE_MAX)
        _at_least("block_ms_max", self.block_ms_max, 0)
        _at_least("delivery_timeout_ms", self.delivery_timeout_ms, 1)
        if self.linger_ms >= self.delivery_timeout_ms:
            raise InvalidConfig(
                f"linger_ms is {self.linger_ms}, delivery_timeout_ms {self.delivery_timeout_ms}: "
                "records would be late before they are sent; give a shorter linger_ms"
            )

    @property
    def acks_name(self) -> str:
        """The name of `acks`, one of ACKS."""
        return ACKS_NUMBERS.get(str(self.acks), str(self.acks))

    @property
    def is_idempotent(self) -> bool:
        """Whether what is sent again is stored once."""
        if self.enable_idempotence is None:
            return self.acks_name == "all"
        return self.enable_idempotence

    @property
    def codec(self) -> Codec:
        """The codec that `compression` names."""
        return codec_named(self.compression)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How a consumer reads ahead."""

    fetch_wait_ms_max: int = 500  # fetch.max.wait.ms: a long poll without news ends after it
    fetch_bytes_min: int = 1  # fetch.min.bytes: the broker waits for so much
    fetch_bytes_max: int = 16 * MIB  # fetch.max.bytes of one answer
    partition_bytes_max: int = 2 * MIB  # max.partition.fetch.bytes of one answer
    prefetch_bytes_max: int = 2 * MIB  # a partition with more undelivered bytes is not fetched
    # queued.max.messages.kbytes, in bytes: read ahead of all partitions, and under way; a batch
    # that is larger than what is left comes all the same, one a call
    prefetch_total_bytes_max: int = 64 * MIB
    poll_records_max: int = 500  # max.poll.records: records of one poll()
    on_out_of_range: str = "raise"  # auto.offset.reset, when the position is gone
    rack: str = ""  # client.rack: the failure zone to read in, where a replica in sync is there
    # enable.auto.commit, in a group: what was handed out and followed by another poll is committed
    # now and then, before partitions are given back, and by close
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000  # auto.commit.interval.ms: how often that happens
    # max.poll.interval.ms, in a group: a consumer that reads no further for so long leaves its
    # group; others wait so long at most for what it shall give back
    max_poll_interval_ms: int = 300_000
    # group.remote.assignor: how the coordinator shares out, "uniform" or "range"; "": its default
    assignor: str = ""

    def __post_init__(self) -> None:
        _one_of("on_out_of_range", self.on_out_of_range, OUT_OF_RANGE)
        _at_least("fetch_wait_ms_max", self.fetch_wait_ms_max, 0)
        _at_least("fetch_bytes_min", self.fetch_bytes_min, 0)
        _at_least("fetch_bytes_max", self.fetch_bytes_max, KIB)
        _at_least("partition_bytes_max", self.partition_bytes_max, KIB)
        _at_least("prefetch_bytes_max", self.prefetch_bytes_max, 1)
        _at_least("prefetch_total_bytes_max", self.prefetch_total_bytes_max, KIB)
        _at_most("fetch_wait_ms_max", self.fetch_wait_ms_max, FETCH_WAIT_MS_MAX)
        _at_most("fetch_bytes_min", self.fetch_bytes_min, INT32_MAX)
        _at_most("fetch_bytes_max", self.fetch_bytes_max, INT32_MAX)
        _at_most("partition_bytes_max", self.partition_bytes_max, INT32_MAX)
        _at_least("poll_records_max", self.poll_records_max, 1)
        _at_least("auto_commit_interval_ms", self.auto_commit_interval_ms, 1)
        _at_least("max_poll_interval_ms", self.max_poll_interval_ms, 1)
        _at_most("max_poll_interval_ms", self.max_poll_interval_ms, POLL_INTERVAL_MS_MAX)
        if self.auto_commit not in (True, False):
            raise InvalidConfig(f"auto_commit is {self.auto_commit!r}: give True or False")


class ClientSettings(TypedDict, total=False):
    """The fields of `ClientConfig` as keyword arguments."""

    connect_timeout_ms: int
    request_timeout_ms: int
    call_timeout_ms: int
    retry_backoff_ms_min: int
    retry_backoff_ms_max: int
    metadata_age_ms_max: int


class ProducerSettings(TypedDict, total=False):
    """The fields of `ProducerConfig` as keyword arguments."""

    acks: str | int
    enable_idempotence: bool | None
    linger_ms: int
    batch_size: int
    compression: str
    compression_level: int | None
    buffer_size: int
    on_full: str
    request_size_max: int
    block_ms_max: int
    delivery_timeout_ms: int


class ConsumerSettings(TypedDict, total=False):
    """The fields of `ConsumerConfig` as keyword arguments."""

    fetch_wait_ms_max: int
    fetch_bytes_min: int
    fetch_bytes_max: int
    partition_bytes_max: int
    prefetch_bytes_max: int
    prefetch_total_bytes_max: int
    poll_records_max: int
    on_out_of_range: str
    rack: str
    auto_commit: bool
    auto_commit_interval_ms: int
    max_poll_interval_ms: int
    assignor: str


ConfigT = TypeVar("ConfigT", ClientConfig, ProducerConfig, ConsumerConfig)


def config_of(kind: type[ConfigT], settings: Mapping[str, Any]) -> ConfigT:
    """Return the config of keyword arguments; raises TypeError for a name that is no field, with
    the nearest one, and InvalidConfig for a bad value."""
    names = [each.name for each in fields(kind)]
    for name in settings:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            raise TypeError(f"there is no setting {name!r}: {hint}")
    return kind(**settings)


def parse_bootstrap(bootstrap: str) -> tuple[str, ...]:
    """Split "host:port,host:port" into addresses; raises InvalidConfig for anything else."""
    if not isinstance(bootstrap, str):
        raise InvalidConfig(
            f"{bootstrap!r} is not a bootstrap address: give one str, host:port, or several by "
            "commas"
        )
    addresses = tuple(part.strip() for part in bootstrap.split(",") if part.strip())
    if not addresses:
        raise InvalidConfig("the bootstrap address is empty: give host:port, e.g. 127.0.0.1:9094")
    for address in addresses:
        host, colon, port = address.rpartition(":")
        is_port = colon and port.isdecimal() and 0 < int(port) < 65536
        if not (host and is_port) or "/" in host:
            raise InvalidConfig(
                f"{address!r} is not a bootstrap address: give host:port, e.g. 127.0.0.1:9094"
            )
    return addresses


def _at_least(name: str, value: int, least: int) -> None:
    if type(value) is not int:  # a float would surface in a message much later
        raise InvalidConfig(f"{name} is {value!r}: give a whole number, {least} or more")
    if value < least:
        raise InvalidConfig(f"{name} is {value}: give {least} or more")


def _at_most(name: str, value: int, most: int) -> None:
    if value > most:
        raise InvalidConfig(f"{name} is {value}: give {most} or less")


def _level(name: str, level: int | None, codec: Codec) -> None:
    if level is None:
        return
    levels = LEVELS.get(codec)
    if levels is None:
        raise InvalidConfig(f"{name} is {level!r}, but {codec.name.lower()} has no levels")
    if type(level) is not int or level not in levels:
        raise InvalidConfig(
            f"{name} is {level!r}: {codec.name.lower()} takes {levels[0]} to {levels[-1]}"
        )


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidConfig(f"{name} is {value!r}: give one of {', '.join(choices)}")
