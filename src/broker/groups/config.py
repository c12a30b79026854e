"""Settings and limits of consumer groups."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ...errors import InvalidConfig
from ...metadata.group_configs import ASSIGNOR, HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from ...settings import setting

OFFSETS_TOPIC: Final = "__consumer_offsets"
ASSIGNORS: Final = ("uniform", "range")
MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The settings of the group coordinator, equal on all brokers."""

    offsets_partitions: int = setting(
        "offsets.topic.num.partitions",
        50,
        "Number of partitions of __consumer_offsets at its creation. Groups, and so the load of "
        "their coordinators, are spread over them. It cannot be changed later.",
        unit="partitions",
        low=1,
        high=1_000,
    )
    offsets_replicas: int = setting(
        "offsets.topic.replication.factor",
        0,
        "Replication factor of __consumer_offsets at its creation. 0: the number of initial voters "
        "of the cluster, at most 3. The topic is created once as many brokers are registered; "
        "until then, groups have no coordinator.",
        unit="replicas",
        low=0,
        high=100,
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        7 * 24 * 60,
        "Retention of a group's committed offsets after its last member left, or after its last "
        "subscription to the topic ended.",
        unit="minutes",
        low=1,
        high=2**31 - 1,
    )
    offsets_check_ms: int = setting(
        "offsets.retention.check.interval.ms",
        600_000,
        "Interval between searches for expired offsets.",
        unit="ms",
        low=1,
        high=2**31 - 1,
    )
    note_bytes_max: int = setting(
        "offset.metadata.max.bytes",
        4_096,
        "Maximum size of the metadata string of a committed offset.",
        unit="bytes",
        low=0,
        high=32_767,
    )
    waits_max: int = setting(
        "group.waits.max",
        10_000,
        "Pending joins and commits of groups in one partition of __consumer_offsets; further ones "
        "fail with a retriable error.",
        unit="requests",
        low=1,
        high=10_000_000,
    )
    size_max: int = setting(
        "group.max.size",
        10_000,
        "Maximum number of members of a group.",
        unit="members",
        low=1,
        high=1_000_000,
    )
    session_timeout_min_ms: int = setting(
        "group.min.session.timeout.ms",
        6_000,
        "Minimum session timeout of a classic group's member.",
        unit="ms",
        low=1,
        high=2**31 - 1,
    )
    session_timeout_max_ms: int = setting(
        "group.max.session.timeout.ms",
        1_800_000,
        "Maximum session timeout of a classic group's member: after a crash, its partitions are "
        "not read for that long.",
        unit="ms",
        low=1,
        high=2**31 - 1,
    )
    initial_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        3_000,
        "Wait of an empty classic group for more members before its first rebalance: longer saves "
        "rebalances when many members start at once, and delays the first record. 0 with "
        "`quorumlog dev` and `quorumlog.testing`.",
        unit="ms",
        low=0,
        high=300_000,
    )
    consumer_session_ms: int = setting(
        "group.consumer.session.timeout.ms",
        45_000,
        "Session timeout of members of KIP-848 groups: a member without heartbeats is removed.",
        unit="ms",
        low=1_000,
        high=3_600_000,
    )
    consumer_heartbeat_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        "Heartbeat interval of members of KIP-848 groups. An assignment advances with the "
        "members' heartbeats.",
        unit="ms",
        low=100,
        high=600_000,
    )
    assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        ASSIGNORS,
        "Assignors that groups of KIP-848 may use; the first one is the default.",
    )
    pattern_refresh_ms: int = setting(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        "Interval at which the patterns of KIP-848 groups are matched with the topics.",
        unit="ms",
        low=10_000,
        high=2**31 - 1,
    )
    migration: str = setting(
        "group.consumer.migration.policy",
        "bidirectional",
        "Online conversion of groups: from classic to KIP-848 (upgrade), back (downgrade), both, "
        "or neither.",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    )
    # of KIP-848 groups with many members: the interval between two assignments
    # (group.consumer.assignment.interval.ms in Kafka)
    assignment_interval_ms: int = 1_000
    group_bytes_max: int = 48 << 20  # subscriptions and assignments of all members

    @property
    def offsets_retention_ms(self) -> int:
        """The retention of committed offsets."""
        return self.offsets_retention_minutes * MINUTE_MS

    def of_group(self, configs: Mapping[str, str]) -> "GroupConfig":
        """Return the settings of a group with these configs of its own (`metadata.group_configs`).
        Its assignor comes first, which makes it the default."""
        if not configs:
            return self
        session, interval = configs.get(SESSION_TIMEOUT), configs.get(HEARTBEAT_INTERVAL)
        return replace(
            self,
            consumer_session_ms=self.consumer_session_ms if session is None else int(session),
            consumer_heartbeat_ms=self.consumer_heartbeat_ms if interval is None else int(interval),
            assignors=tuple(sorted(self.assignors, key=lambda name: name != configs.get(ASSIGNOR))),
        )

    def check(self) -> None:
        """Raise InvalidConfig for an empty list of assignors, or an unknown one."""
        if not self.assignors or set(self.assignors) - set(ASSIGNORS):
            raise InvalidConfig(
                f"group.consumer.assignors: {list(self.assignors)}; give {' or '.join(ASSIGNORS)},"
                " or both; the first is the default of members"
            )
