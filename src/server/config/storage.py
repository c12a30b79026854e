"""Settings of the data directory, retention and compaction."""

from dataclasses import dataclass

from .declaration import MIB, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class StorageSettings:
    """The data directory and its background tasks."""

    reserve_bytes: int = setting(
        "storage.reserve.bytes",
        256 * MIB,
        "Free disk space below which produce requests are rejected, at most 3 % of a small disk, "
        "so that reads, retention and deletions keep working. 0: no reserve.",
        unit="bytes",
        low=0,
        high=1 << 50,
    )
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
        "such an id, a new producer gets a retriable error.",
        unit="producer ids",
        low=1,
        high=1_000_000,
    )
