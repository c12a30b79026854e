"""Client settings: frozen dataclasses, validated at construction.

Names follow Kafka's, with its word order. The comment beside each field gives Kafka's name; it is
the field's row in docs/clients.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, TypedDict, TypeVar

from ..errors import InvalidConfig
from ..records.compression import LEVELS, Codec, codec_named
from .credentials import SCRAM, TLS, Token, channel_security

KIB = 1024
MIB = 1024 * KIB

ACKS: tuple[str, ...] = ("all", "leader", "none")
ACKS_NUMBERS = {"-1": "all", "1": "leader", "0": "none"}
ON_FULL: tuple[str, ...] = ("wait", "raise")
REQUEST_SIZE_MAX = 64 * MIB  # the broker's limit of a message
FETCH_WAIT_MS_MAX = 60_000  # the broker's limit of a long poll
INT32_MAX = 2**31 - 1
POLL_INTERVAL_MS_MAX = 3_600_000  # the coordinator's limit of a rebalance
OUT_OF_RANGE: tuple[str, ...] = ("raise", "earliest", "latest")
ISOLATION_LEVELS: tuple[str, ...] = ("read_committed", "read_uncommitted")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings of every call of a client."""

    connect_timeout_ms: int = 5_000  # time limit of the first response of any broker
    request_timeout_ms: int = 30_000  # request.timeout.ms: time limit of one attempt
    call_timeout_ms: int = 60_000  # default.api.timeout.ms: time limit of a call with its retries
    retry_backoff_ms: int = 50  # retry.backoff.ms: pause before the first retry, with jitter
    retry_backoff_max_ms: int = 1_000  # retry.backoff.max.ms: limit of the doubling pause
    metadata_max_age_ms: int = 300_000  # metadata.max.age.ms: metadata is refreshed after it
    # security.protocol: `TLS(ca=...)` encrypts the connections; None: none are encrypted
    tls: TLS | None = None
    # sasl.jaas.config: `SCRAM(user=..., password=...)` or `Token(...)`; None: no credentials
    credentials: SCRAM | Token | None = None

    def __post_init__(self) -> None:
        channel_security(self.tls, self.credentials)
        for name in (
            "connect_timeout_ms",
            "request_timeout_ms",
            "call_timeout_ms",
            "retry_backoff_ms",
            "retry_backoff_max_ms",
            "metadata_max_age_ms",
        ):
            _at_least(name, getattr(self, name), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """Settings of a producer: batching, compression, delivery."""

    # acks: "all" in-sync replicas, the "leader" alone, or "none" (fire-and-forget: a record counts
    # as delivered once it is sent, without an offset); Kafka's -1, 1 and 0 are accepted too
    acks: str | int = "all"
    # enable.idempotence: retries are stored once and in order, across broker restarts and leader
    # changes; requires acks="all". None: on with acks="all", off otherwise
    enable_idempotence: bool | None = None
    # transactional.id: records are sent in transactions; a producer with the same id fences the
    # earlier ones and ends their transaction. None: no transactions
    transactional_id: str | None = None
    # transaction.timeout.ms: a transaction that takes longer is aborted by the coordinator
    transaction_timeout_ms: int = 60_000
    # linger.ms: a partial batch is sent after it, 0: at once; must be below delivery_timeout_ms
    linger_ms: int = 5
    batch_size: int = 960 * KIB  # batch.size before compression; below the usual max.message.bytes
    compression: str = "none"  # compression.type: none, gzip, snappy, lz4, zstd
    compression_level: int | None = None  # compression.<codec>.level; None: the codec's default
    # buffer.memory: memory of records without an outcome: keys, values, headers and their Python
    # objects; after encoding, the batch and 8 bytes a record. A request in flight holds one more
    # copy.
    buffer_size: int = 64 * MIB
    on_full: str = "wait"  # a full buffer: "wait" up to max_block_ms, or "raise" Overloaded at once
    max_request_size: int = 8 * MIB  # max.request.size: bytes of one request to one broker
    max_block_ms: int = 60_000  # max.block.ms: total wait of send() for buffer space and metadata
    # delivery.timeout.ms: from send() to the outcome; a request in flight gets at least 5 s
    delivery_timeout_ms: int = 120_000

    def __post_init__(self) -> None:
        _one_of("acks", self.acks_name, ACKS)
        if self.enable_idempotence not in (None, True, False):
            raise InvalidConfig(
                f"enable_idempotence is {self.enable_idempotence!r}: give True, False, or None "
                "(derived from acks)"
            )
        if self.enable_idempotence and self.acks_name != "all":
            raise InvalidConfig(
                f"enable_idempotence needs acks='all', acks is {self.acks!r}: remove one of them"
            )
        _name_or_none("transactional_id", self.transactional_id)
        if self.transactional_id is not None and not self.is_idempotent:
            raise InvalidConfig(
                f"transactional_id is {self.transactional_id!r} and needs acks='all' and"
                " idempotence: remove acks and enable_idempotence"
            )
        _at_least("transaction_timeout_ms", self.transaction_timeout_ms, 1)
        _at_most("transaction_timeout_ms", self.transaction_timeout_ms, INT32_MAX)
        if not isinstance(self.compression, str):
            raise InvalidConfig(f"compression is {self.compression!r}: give the name of a codec")
        codec_named(self.compression)
        _level("compression_level", self.compression_level, self.codec)
        _one_of("on_full", self.on_full, ON_FULL)
        _at_least("linger_ms", self.linger_ms, 0)
        _at_least("batch_size", self.batch_size, 1)
        _at_least("buffer_size", self.buffer_size, 1)
        _at_least("max_request_size", self.max_request_size, KIB)
        _at_most("max_request_size", self.max_request_size, REQUEST_SIZE_MAX)
        _at_least("max_block_ms", self.max_block_ms, 0)
        _at_least("delivery_timeout_ms", self.delivery_timeout_ms, 1)
        if self.linger_ms >= self.delivery_timeout_ms:
            raise InvalidConfig(
                f"linger_ms is {self.linger_ms}, delivery_timeout_ms {self.delivery_timeout_ms}: "
                "records would expire before they are sent; give a shorter linger_ms"
            )

    @property
    def acks_name(self) -> str:
        """The name of `acks`, one of ACKS."""
        return ACKS_NUMBERS.get(str(self.acks), str(self.acks))

    @property
    def is_idempotent(self) -> bool:
        """True if retries are stored once."""
        if self.enable_idempotence is None:
            return self.acks_name == "all"
        return self.enable_idempotence

    @property
    def codec(self) -> Codec:
        """The codec that `compression` names."""
        return codec_named(self.compression)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Settings of a consumer: fetching, prefetching, group membership."""

    fetch_max_wait_ms: int = 500  # fetch.max.wait.ms: time limit of a long poll
    fetch_min_bytes: int = 1  # fetch.min.bytes: bytes that the broker waits for
    fetch_max_bytes: int = 16 * MIB  # fetch.max.bytes: bytes of one response
    # max.partition.fetch.bytes: bytes of a partition in it
    max_partition_fetch_bytes: int = 2 * MIB
    # a partition with more undelivered bytes is not fetched
    max_partition_prefetch_bytes: int = 2 * MIB
    # queued.max.messages.kbytes, in bytes: prefetched data of all partitions, fetches in flight
    # included; a batch larger than the rest of the budget is still fetched, one per request
    prefetch_max_bytes: int = 64 * MIB
    max_poll_records: int = 500  # max.poll.records: records of one poll()
    on_out_of_range: str = "raise"  # auto.offset.reset: action on a position out of range
    # isolation.level: "read_committed" delivers records of committed transactions and those outside
    # of transactions, up to the first open transaction; "read_uncommitted" all records
    isolation_level: str = "read_committed"
    rack: str | None = None  # client.rack: rack to fetch from, if an in-sync replica is in it
    # enable.auto.commit, in a group: delivered records count as processed at the next poll; they
    # are committed periodically, before a partition is revoked, and by close
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000  # auto.commit.interval.ms: interval of those commits
    # max.poll.interval.ms, in a group: a consumer that does not poll for this long leaves its
    # group; it is also the time limit of a revocation
    max_poll_interval_ms: int = 300_000
    # group.remote.assignor: assignor of the coordinator, "uniform" or "range"; None: its default
    assignor: str | None = None

    def __post_init__(self) -> None:
        _one_of("on_out_of_range", self.on_out_of_range, OUT_OF_RANGE)
        check_isolation_level(self.isolation_level)
        _at_least("fetch_max_wait_ms", self.fetch_max_wait_ms, 0)
        _at_least("fetch_min_bytes", self.fetch_min_bytes, 0)
        _at_least("fetch_max_bytes", self.fetch_max_bytes, KIB)
        _at_least("max_partition_fetch_bytes", self.max_partition_fetch_bytes, KIB)
        _at_least("max_partition_prefetch_bytes", self.max_partition_prefetch_bytes, 1)
        _at_least("prefetch_max_bytes", self.prefetch_max_bytes, KIB)
        _at_most("fetch_max_wait_ms", self.fetch_max_wait_ms, FETCH_WAIT_MS_MAX)
        _at_most("fetch_min_bytes", self.fetch_min_bytes, INT32_MAX)
        _at_most("fetch_max_bytes", self.fetch_max_bytes, INT32_MAX)
        _at_most("max_partition_fetch_bytes", self.max_partition_fetch_bytes, INT32_MAX)
        _at_least("max_poll_records", self.max_poll_records, 1)
        _at_least("auto_commit_interval_ms", self.auto_commit_interval_ms, 1)
        _at_least("max_poll_interval_ms", self.max_poll_interval_ms, 1)
        _at_most("max_poll_interval_ms", self.max_poll_interval_ms, POLL_INTERVAL_MS_MAX)
        if self.auto_commit not in (True, False):
            raise InvalidConfig(f"auto_commit is {self.auto_commit!r}: give True or False")
        _name_or_none("rack", self.rack)
        _name_or_none("assignor", self.assignor)


class ClientSettings(TypedDict, total=False):
    """The fields of `ClientConfig` as keyword arguments."""

    connect_timeout_ms: int
    request_timeout_ms: int
    call_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    tls: TLS | None
    credentials: SCRAM | Token | None


class ProducerSettings(TypedDict, total=False):
    """The fields of `ProducerConfig` as keyword arguments."""

    acks: str | int
    enable_idempotence: bool | None
    transaction_timeout_ms: int
    linger_ms: int
    batch_size: int
    compression: str
    compression_level: int | None
    buffer_size: int
    on_full: str
    max_request_size: int
    max_block_ms: int
    delivery_timeout_ms: int


class ConsumerSettings(TypedDict, total=False):
    """The fields of `ConsumerConfig` as keyword arguments."""

    fetch_max_wait_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    max_partition_prefetch_bytes: int
    prefetch_max_bytes: int
    max_poll_records: int
    on_out_of_range: str
    isolation_level: str
    rack: str | None
    auto_commit: bool
    auto_commit_interval_ms: int
    max_poll_interval_ms: int
    assignor: str | None


ConfigT = TypeVar("ConfigT", ClientConfig, ProducerConfig, ConsumerConfig)


def make_config(kind: type[ConfigT], settings: Mapping[str, Any]) -> ConfigT:
    """Return a config from keyword arguments.

    Raises TypeError for an unknown name, with the closest match, and InvalidConfig for a bad
    value.
    """
    names = [each.name for each in fields(kind)]
    for name in settings:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            raise TypeError(f"there is no setting {name!r}: {hint}")
    return kind(**settings)


def parse_bootstrap(bootstrap: str) -> tuple[str, ...]:
    """Split "host:port,host:port" into addresses; raise InvalidConfig if one is malformed."""
    if not isinstance(bootstrap, str):
        raise InvalidConfig(
            f"{bootstrap!r} is not a bootstrap address: give a str of host:port, or several "
            "separated by commas"
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
    if type(value) is not int:  # a float would fail much later, when a request is encoded
        raise InvalidConfig(f"{name} is {value!r}: give a whole number, {least} or more")
    if value < least:
        raise InvalidConfig(f"{name} is {value}: give {least} or more")


def _at_most(name: str, value: int, most: int) -> None:
    if value > most:
        raise InvalidConfig(f"{name} is {value}: give {most} or less")


def _name_or_none(name: str, value: object) -> None:
    if value is not None and not (isinstance(value, str) and value):
        raise InvalidConfig(f"{name} is {value!r}: give a name as a str, or None")


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


def check_isolation_level(value: str) -> None:
    """Raise InvalidConfig for an unknown isolation level."""
    _one_of("isolation_level", value, ISOLATION_LEVELS)


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidConfig(f"{name} is {value!r}: give one of {', '.join(choices)}")
