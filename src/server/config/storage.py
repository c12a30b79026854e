"""Settings: the disk, and what keeps it in order."""

from dataclasses import dataclass

from .rows import MIB, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Storage:
    """The data directory and those who work on it."""

    reserve_bytes: int = setting(
        "storage.reserve.bytes",
        256 * MIB,
        "Free space of the disk below which producers are refused, at most 3 % of a small disk, so "
        "that reads, retention and deletions go on. 0: none, producers may fill the disk.",
        unit="bytes",
        low=0,
        high=1 << 50,
    )
    retention_check_interval_ms: int = setting(
        "retention.check.interval.ms",
        60_000,
        "Every log is looked at this often, to drop old segments and to see what to compact.",
        unit="ms",
        low=10,
        high=24 * 3_600_000,
        field_name="log.retention.check.interval.ms",
    )
    clean_bytes_per_second: int = setting(
        "clean.bytes.per.second",
        128 * MIB,
        "Bytes that compaction may read and write a second; more cleans sooner and takes the disk "
        "from others. 0: no limit.",
        unit="bytes",
        low=0,
        high=1 << 40,
        field_name="log.cleaner.io.max.bytes.per.second",
    )
    unlink_bytes_per_second: int = setting(
        "unlink.bytes.per.second",
        1024 * MIB,
        "Bytes of files that retention and compaction took out that may be given back to the file "
        "system a second: freeing much at once holds up writes. No limit where the reserve is used "
        "up. 0: no limit ever.",
        unit="bytes",
        low=0,
        high=1 << 40,
    )
    clean_buffer_bytes: int = setting(
        "clean.buffer.bytes",
        128 * MIB,
        "Memory for the keys of one compaction: with less a large log takes more passes.",
        unit="bytes",
        low=64 << 10,
        high=64 << 30,
        field_name="log.cleaner.dedupe.buffer.size",
    )
    producer_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        24 * 3_600_000,
        "A producer id that wrote nothing to a partition for so long is forgotten there: a batch "
        "of it that is repeated later is stored twice. Time while the node is down does not count.",
        unit="ms",
        low=1_000,
        high=365 * 24 * 3_600_000,
    )
    producers_max: int = setting(
        "producer.ids.max",
        10_000,
        "Producer ids that one partition remembers, about 1 KiB each; beyond it the longest idle "
        "is forgotten, never one with an open transaction or one that wrote within two minutes: "
        "a new producer is then told to come back later.",
        unit="producer ids",
        low=1,
        high=1_000_000,
    )
