"""Configuration of a log and of a data directory.

The comment of a field has Kafka's key. Values are checked once, here. A topic's configs arrive as
strings already validated by the metadata layer's table of topic configs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from ..errors import InvalidConfig
from ..records.compression import Codec
from ..records.validate import ValidationMode
from ..settings import setting
from ..settings.query_groups import RETENTION_HOLDS, Hold, parse_holds

Choice = TypeVar("Choice", bound=StrEnum)

MIB: Final = 1024 * 1024
SEGMENT_BYTES_MAX: Final = 2**31 - 1
"""Positions in an index file are signed 32-bit numbers in Kafka's tools."""

KEEP: Final = -1
"""Value of retention.ms and retention.bytes that disables them. It is the default here, so that a
log of an unknown topic loses nothing; the metadata layer has the defaults of topics."""


class FlushPolicy(StrEnum):
    """The durability that an acknowledgement guarantees."""

    REPLICATED = "replicated"  # the in-sync replicas have the batch in memory
    FSYNC = "fsync"  # the in-sync replicas have the batch on disk


class TimestampType(StrEnum):
    """The clock that sets a log's timestamps."""

    CREATE = "CreateTime"
    APPEND = "LogAppendTime"


PRODUCER: Final = "producer"
"""Value of compression.type: a batch keeps its producer's codec."""

KEPT_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""The other values of compression.type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The configuration of one log."""

    segment_bytes: int = 1024 * MIB  # segment.bytes: roll before a segment grows beyond it
    segment_ms: int = 7 * 24 * 3600 * 1000  # segment.ms: roll when a segment spans more time
    index_bytes_max: int = 10 * MIB  # segment.index.bytes: roll at this size of an index
    index_interval_bytes: int = 4096  # index.interval.bytes: one index entry per this many bytes
    message_bytes_max: int = MIB + 12  # max.message.bytes: largest batch of a client
    inflate_bytes_max: int = 64 * MIB  # limit of one compressed batch, inflated
    flush_policy: FlushPolicy = FlushPolicy.REPLICATED  # flush.policy
    record_validation: ValidationMode = ValidationMode.FULL  # record.validation
    # compression.type: codec of stored batches; None: producer
    compression_type: Codec | None = None
    log_append_time: bool = False  # message.timestamp.type is LogAppendTime
    timestamp_before_max_ms: int = 2**63 - 1  # message.timestamp.before.max.ms: reject older
    timestamp_after_max_ms: int = 2**63 - 1  # message.timestamp.after.max.ms: reject later
    delete_enabled: bool = True  # cleanup.policy has "delete": retention_* apply
    compacted: bool = False  # cleanup.policy has "compact": offsets may have gaps
    retention_ms: int = KEEP  # retention.ms: delete segments with older records only
    retention_bytes: int = KEEP  # retention.bytes: delete oldest segments above this
    min_cleanable_dirty_ratio: float = 0.5  # min.cleanable.dirty.ratio: clean above it
    delete_retention_ms: int = 24 * 3600 * 1000  # delete.retention.ms: keep tombstones as long
    min_compaction_lag_ms: int = 0  # min.compaction.lag.ms: keep younger records
    max_compaction_lag_ms: int = 2**63 - 1  # max.compaction.lag.ms: clean older dirt anyway
    file_delete_delay_ms: int = 60_000  # file.delete.delay.ms: keep `.deleted` files as long
    mirror_source: str = ""  # mirror.source: log that this one copies; empty: none
    holds: tuple[Hold, ...] = ()  # retention.holds: groups that hold unread records

    def __post_init__(self) -> None:
        require("segment.bytes", self.segment_bytes, 61, SEGMENT_BYTES_MAX)
        require("segment.ms", self.segment_ms, 1, 2**63 - 1)
        require("segment.index.bytes", self.index_bytes_max, 12, SEGMENT_BYTES_MAX)
        require("index.interval.bytes", self.index_interval_bytes, 0, SEGMENT_BYTES_MAX)
        require("max.message.bytes", self.message_bytes_max, 61, SEGMENT_BYTES_MAX)
        require("message.timestamp.before.max.ms", self.timestamp_before_max_ms, 0, 2**63 - 1)
        require("message.timestamp.after.max.ms", self.timestamp_after_max_ms, 0, 2**63 - 1)
        require("retention.ms", self.retention_ms, KEEP, 2**63 - 1)
        require("retention.bytes", self.retention_bytes, KEEP, 2**63 - 1)
        require("delete.retention.ms", self.delete_retention_ms, 0, 2**63 - 1)
        require("min.compaction.lag.ms", self.min_compaction_lag_ms, 0, 2**63 - 1)
        require("max.compaction.lag.ms", self.max_compaction_lag_ms, 1, 2**63 - 1)
        require("file.delete.delay.ms", self.file_delete_delay_ms, 0, 2**63 - 1)
        if not 0 <= self.min_cleanable_dirty_ratio <= 1:
            ratio = self.min_cleanable_dirty_ratio
            raise InvalidConfig(f"min.cleanable.dirty.ratio must be in [0, 1], not {ratio}")

    @property
    def converts(self) -> bool:
        """True if the log stores uncompressed batches of producers otherwise than they come."""
        return self.log_append_time or self.compression_type not in (None, Codec.NONE)

    @property
    def keeps_compressed(self) -> bool:
        """True if the log checks the records of compressed batches, and stores them as they
        come."""
        return self.compression_type is None and self.record_validation is ValidationMode.FULL

    @staticmethod
    def from_topic_configs(configs: Mapping[str, str]) -> "LogConfig":
        """Read a topic's configs; other keys are skipped, missing ones default.

        Raises InvalidConfig for a value that does not parse.
        """
        default = LogConfig()
        cleanup = configs.get("cleanup.policy", "delete").split(",")
        return LogConfig(
            segment_bytes=whole(configs, "segment.bytes", default.segment_bytes),
            segment_ms=whole(configs, "segment.ms", default.segment_ms),
            index_bytes_max=whole(configs, "segment.index.bytes", default.index_bytes_max),
            index_interval_bytes=whole(
                configs, "index.interval.bytes", default.index_interval_bytes
            ),
            message_bytes_max=whole(configs, "max.message.bytes", default.message_bytes_max),
            flush_policy=choice(
                FlushPolicy, "flush.policy", configs.get("flush.policy", default.flush_policy)
            ),
            record_validation=choice(
                ValidationMode,
                "record.validation",
                configs.get("record.validation", default.record_validation),
            ),
            compression_type=kept_codec(configs.get("compression.type", PRODUCER)),
            log_append_time=choice(
                TimestampType,
                "message.timestamp.type",
                configs.get("message.timestamp.type", TimestampType.CREATE),
            )
            is TimestampType.APPEND,
            timestamp_before_max_ms=whole(
                configs, "message.timestamp.before.max.ms", default.timestamp_before_max_ms
            ),
            timestamp_after_max_ms=whole(
                configs, "message.timestamp.after.max.ms", default.timestamp_after_max_ms
            ),
            delete_enabled="delete" in cleanup,
            compacted="compact" in cleanup,
            retention_ms=whole(configs, "retention.ms", default.retention_ms),
            retention_bytes=whole(configs, "retention.bytes", default.retention_bytes),
            min_cleanable_dirty_ratio=fraction(
                configs, "min.cleanable.dirty.ratio", default.min_cleanable_dirty_ratio
            ),
            delete_retention_ms=whole(configs, "delete.retention.ms", default.delete_retention_ms),
            min_compaction_lag_ms=whole(
                configs, "min.compaction.lag.ms", default.min_compaction_lag_ms
            ),
            max_compaction_lag_ms=whole(
                configs, "max.compaction.lag.ms", default.max_compaction_lag_ms
            ),
            mirror_source=configs.get("mirror.source", ""),
            holds=holds_of(configs.get(RETENTION_HOLDS, "")),
            file_delete_delay_ms=whole(
                configs, "file.delete.delay.ms", default.file_delete_delay_ms
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryConfig:
    """The configuration of one data directory."""

    write_group_bytes_max: int = MIB
    """Bytes of one write group; a larger batch is a group of its own. An fsync log has at most two
    groups unsynced, so this bounds a torn tail and the latency of one fsync."""

    write_bytes_max: int = 4 * MIB
    """Bytes of one write of a log that does not flush each write. Batches queued during a write go
    out with the next one, so that a busy loop does not write batch by batch."""

    inline_write_bytes_max: int = 2 * MIB
    """Largest write performed on the loop, into the page cache, while such writes return at once.
    On another thread, the processor would first fetch the bytes from this one's cache, which takes
    several times as long as the write. Larger writes go to the write lane, as do those of fsync
    logs above 128 KiB, which wait for the device anyway."""

    queue_bytes_max: int = 64 * MIB
    """Bytes of batches queued for their write; above it appends raise Overloaded. A batch being
    recompressed counts with its largest possible result until the result is known."""

    checkpoint_interval_ms: int = 1000
    """Interval under load at which logs are flushed and recovery points stored."""

    checkpoint_flush_bytes_max: int = 32 * MIB
    """Bytes flushed by one such checkpoint, those of slow logs first. Logs that are written faster
    than that are left to the kernel, which writes in its own time: to flush them every second would
    limit appends to the rate of the disk, while an acknowledgement does not wait for it."""

    checkpoint_flush_ms_max: int = 30_000
    """Time after which a log is flushed, whatever its size."""

    unflushed_bytes_max: int = 1024 * MIB
    """Unflushed bytes of a log above which the next checkpoint flushes it: about a segment. They
    bound the part of the log that a start after a crash checks and writes again."""

    reserve_bytes: int = setting(
        "storage.reserve.bytes",
        256 * MIB,
        "Free disk space below which produce requests are rejected, at most 3 % of a small disk, "
        "so that reads, retention and deletions keep working. 0: no reserve.",
        unit="bytes",
        low=0,
        high=1 << 50,
    )

    open_files_max: int = 1000  # files kept open; least recently used ones are closed first
    index_cache_bytes: int = 32 * MIB  # indexes of inactive segments kept in memory
    cpu_lane_bytes_min: int = 64 * 1024
    """Batches above this size that must be inflated or compressed are processed in the cpu lane. So
    are smaller ones that inflate to more than four times this size, or of which more than a quarter
    of it must be compressed."""

    # The first check is at a random time in the second half of the interval: nodes that start
    # together do not check together.
    retention_check_interval_ms: int = setting(
        "retention.check.interval.ms",
        60_000,
        "Interval at which every log is checked for old segments and for compaction.",
        unit="ms",
        low=10,
        high=24 * 3_600_000,
        field_name="log.retention.check.interval.ms",
    )

    clean_bytes_per_second: int = setting(
        "clean.bytes.per.second",
        128 * MIB,
        "Bytes that compaction may read and write a second; more compacts sooner at the cost of "
        "other disk traffic. 0: no limit.",
        unit="bytes",
        low=0,
        high=1 << 40,
        field_name="log.cleaner.io.max.bytes.per.second",
    )

    unlink_bytes_per_second: int = setting(
        "unlink.bytes.per.second",
        1024 * MIB,
        "Bytes of deleted files that may be unlinked a second: unlinking much at once delays "
        "writes. No limit while the reserve is used up. 0: never a limit.",
        unit="bytes",
        low=0,
        high=1 << 40,
    )

    clean_buffer_bytes: int = setting(
        "clean.buffer.bytes",
        128 * MIB,
        "Memory for the keys of one compaction: with less, a large log takes more passes.",
        unit="bytes",
        low=64 << 10,
        high=64 << 30,
        field_name="log.cleaner.dedupe.buffer.size",
    )

    clean_slice_bytes: int = MIB
    """Bytes of compaction per job of its lane; a shutdown or a deletion waits for one job."""

    producer_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        24 * 3_600_000,
        "Time after its last batch until a producer id expires in a partition; a later retry of an "
        "expired batch is stored twice. Downtime of the node does not count.",
        unit="ms",
        low=1_000,
        high=365 * 24 * 3_600_000,
    )

    producers_max: int = setting(
        "producer.ids.max",
        10_000,
        "Producer ids of one partition, about 1 KiB each; above it the longest idle is removed, "
        "but never one with an open transaction or with a batch of the last two minutes. Without "
        "such an id, a new producer gets a retriable error. Staged attempts count too, see "
        "`staged.attempts.max`.",
        unit="producer ids",
        low=1,
        high=1_000_000,
    )

    def __post_init__(self) -> None:
        require("write_group_bytes_max", self.write_group_bytes_max, 1, 2**40)
        require("write_bytes_max", self.write_bytes_max, 1, 2**40)
        require("queue_bytes_max", self.queue_bytes_max, 1, 2**40)
        require("checkpoint_interval_ms", self.checkpoint_interval_ms, 1, 2**40)
        require("checkpoint_flush_bytes_max", self.checkpoint_flush_bytes_max, 0, 2**62)
        require("checkpoint_flush_ms_max", self.checkpoint_flush_ms_max, 0, 2**40)
        require("unflushed_bytes_max", self.unflushed_bytes_max, 0, 2**62)
        require("reserve_bytes", self.reserve_bytes, 0, 2**62)
        require("open_files_max", self.open_files_max, 1, 2**31)
        require("retention_check_interval_ms", self.retention_check_interval_ms, 1, 2**40)
        require("clean_bytes_per_second", self.clean_bytes_per_second, 0, 2**50)
        require("unlink_bytes_per_second", self.unlink_bytes_per_second, 0, 2**50)
        require("clean_buffer_bytes", self.clean_buffer_bytes, 1024, 2**40)
        require("clean_slice_bytes", self.clean_slice_bytes, 1, 2**40)
        require("producer_expiration_ms", self.producer_expiration_ms, 1, 2**50)
        require("producers_max", self.producers_max, 1, 2**24)


def whole(configs: Mapping[str, str], key: str, default: int) -> int:
    """Return a config as a whole number, or raise InvalidConfig."""
    text = configs.get(key)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise InvalidConfig(f"{key} must be a whole number, not {text!r}") from None


def fraction(configs: Mapping[str, str], key: str, default: float) -> float:
    """Return a config as a number, or raise InvalidConfig."""
    text = configs.get(key)
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        raise InvalidConfig(f"{key} must be a number, not {text!r}") from None


def kept_codec(text: str) -> Codec | None:
    """Return the codec of a topic's compression.type, None for the producer's own; raises
    InvalidConfig."""
    if text == PRODUCER:
        return None
    if text not in KEPT_CODECS:
        names = ", ".join((PRODUCER, *KEPT_CODECS))
        raise InvalidConfig(f"compression.type must be one of {names}, not {text!r}")
    return KEPT_CODECS[text]


def choice(kind: type[Choice], key: str, text: str) -> Choice:
    """Return the member of an enum; raise InvalidConfig with the valid values otherwise."""
    try:
        return kind(text)
    except ValueError:
        names = ", ".join(member.value for member in kind)
        raise InvalidConfig(f"{key} must be one of {names}, not {text!r}") from None


def holds_of(text: str) -> tuple[Hold, ...]:
    """Return the holds of a topic's retention.holds, or raise InvalidConfig."""
    try:
        return parse_holds(text)
    except ValueError as error:
        raise InvalidConfig(f"{RETENTION_HOLDS}: {error}") from None


def require(key: str, value: int, least: int, most: int) -> None:
    """Raise InvalidConfig unless least <= value <= most."""
    if not least <= value <= most:
        raise InvalidConfig(f"{key} must be in [{least}, {most}], not {value}")
