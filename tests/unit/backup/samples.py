"""Manifests and ranges for tests."""

from quorumlog.backup.manifest import (
    BackupGroup,
    BackupOffset,
    BackupPartition,
    BackupTopic,
    Manifest,
    StoredRange,
)

BACKUP = "20261130T025023123Z-3f2a9c01"
CLUSTER = "cluster-1"


def stored(first: int, end: int, *, crc: int = 7, size: int = 100) -> StoredRange:
    """Return an object of the offsets [first, end)."""
    return StoredRange(first, end, end - first, size, crc)


def topic(name: str = "orders", number: int = 1, *ranges: StoredRange) -> BackupTopic:
    """Return a topic of one partition."""
    end = ranges[-1].end if ranges else 0
    start = ranges[0].first if ranges else 0
    return BackupTopic(
        name=name,
        id=f"{number:032x}",
        replication=3,
        is_compacted=False,
        configs={"retention.ms": "1000", "min.insync.replicas": "2"},
        partitions=[BackupPartition(start, end, list(ranges))],
    )


def manifest(*topics: BackupTopic, groups: tuple[BackupGroup, ...] = ()) -> Manifest:
    """Return the manifest of a backup of these topics."""
    return Manifest(
        format=1,
        backup=BACKUP,
        cluster=CLUSTER,
        started_ms=1_000,
        ended_ms=2_000,
        topics=list(topics),
        groups=list(groups),
        access=None,
        problems=[],
    )


def group(name: str, topic_name: str, partition: int, offset: int) -> BackupGroup:
    """Return a group with one committed offset."""
    return BackupGroup(name, [BackupOffset(topic_name, partition, offset, "")])
