"""Settings and limits of consumer groups; the names in comments are Kafka's settings."""

from dataclasses import dataclass
from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The settings of all groups of a broker; times in milliseconds."""

    offsets_partitions: int = 50  # offsets.topic.num.partitions, at creation
    offsets_replicas: int = 0  # offsets.topic.replication.factor; 0: derived from the cluster size
    offsets_retention_ms: int = 7 * 24 * 3_600_000  # offsets.retention.minutes
    offsets_check_ms: int = 600_000  # offsets.retention.check.interval.ms
    waits_max: int = 10_000  # pending requests of one partition of `__consumer_offsets`
    note_bytes_max: int = 4_096  # offset.metadata.max.bytes
    size_max: int = 10_000  # group.max.size, and group.consumer.max.size
    group_bytes_max: int = 48 << 20  # subscriptions and assignments of all members
    # Classic groups.
    session_timeout_min_ms: int = 6_000  # group.min.session.timeout.ms
    session_timeout_max_ms: int = 1_800_000  # group.max.session.timeout.ms
    initial_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    # Groups of KIP-848.
    consumer_session_ms: int = 45_000  # group.consumer.session.timeout.ms
    consumer_heartbeat_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    assignors: tuple[str, ...] = (
        "uniform",
        "range",
    )  # group.consumer.assignors; the first is the default
    assignment_interval_ms: int = 1_000  # group.consumer.assignment.interval.ms, for large groups
    pattern_refresh_ms: int = 600_000  # group.consumer.regex.refresh.interval.ms
    migration: str = (
        "bidirectional"  # group.consumer.migration.policy: also upgrade, downgrade, off
    )
