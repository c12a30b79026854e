"""Settings: consumer groups, and what is kept of them."""

from dataclasses import dataclass

from ...errors import InvalidConfig
from .rows import setting

ASSIGNORS = ("uniform", "range")


def check_assignors(names: tuple[str, ...]) -> None:
    """Raise InvalidConfig unless there is an assignor, and every one of that name."""
    if not names or set(names) - set(ASSIGNORS):
        raise InvalidConfig(
            f"group.consumer.assignors is {list(names)}; give {' or '.join(ASSIGNORS)}, or both,"
            " that for members which ask for none first"
        )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Groups:
    """Coordinators of consumer groups; equal on all brokers."""

    offsets_partitions: int = setting(
        "offsets.topic.num.partitions",
        50,
        "Partitions of __consumer_offsets when it is made: the groups are shared out among them, "
        "and so among the brokers. It cannot change later.",
        unit="partitions",
        low=1,
        high=1_000,
    )
    offsets_replicas: int = setting(
        "offsets.topic.replication.factor",
        0,
        "Replicas of __consumer_offsets when it is made. 0: as many as the cluster was formed of "
        "nodes, at most 3. Until as many brokers are there no group finds a coordinator.",
        unit="replicas",
        low=0,
        high=100,
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        7 * 24 * 60,
        "What a group has committed is forgotten so long after its last member went, or after "
        "nobody of it reads the topic any more.",
        unit="minutes",
        low=1,
        high=2**31 - 1,
    )
    offsets_check_ms: int = setting(
        "offsets.retention.check.interval.ms",
        600_000,
        "How often old offsets are looked for.",
        unit="ms",
        low=1,
        high=2**31 - 1,
    )
    note_bytes_max: int = setting(
        "offset.metadata.max.bytes",
        4_096,
        "The longest note that may be committed beside an offset.",
        unit="bytes",
        low=0,
        high=32_767,
    )
    group_waits_max: int = setting(
        "group.waits.max",
        10_000,
        "Requests of groups that wait in one partition of __consumer_offsets, joins and commits; "
        "beyond it they are refused.",
        unit="requests",
        low=1,
        high=10_000_000,
    )
    group_size_max: int = setting(
        "group.max.size",
        10_000,
        "Members of one group.",
        unit="members",
        low=1,
        high=1_000_000,
    )
    group_session_min_ms: int = setting(
        "group.min.session.timeout.ms",
        6_000,
        "The shortest session that a member of a classic group may ask for.",
        unit="ms",
        low=1,
        high=2**31 - 1,
    )
    group_session_max_ms: int = setting(
        "group.max.session.timeout.ms",
        1_800_000,
        "The longest session that a member of a classic group may ask for: so long nobody reads "
        "what it had when it dies.",
        unit="ms",
        low=1,
        high=2**31 - 1,
    )
    group_initial_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        3_000,
        "How long an empty classic group waits for more members before it shares out: longer saves "
        "rebalances when many start at once, and delays the first record. With `quorumlog dev` 0.",
        unit="ms",
        low=0,
        high=300_000,
    )
    group_consumer_session_ms: int = setting(
        "group.consumer.session.timeout.ms",
        45_000,
        "A member of a group of KIP-848 that is silent for so long has left.",
        unit="ms",
        low=1_000,
        high=3_600_000,
    )
    group_consumer_heartbeat_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        "How often members of groups of KIP-848 are to say that they live; an assignment moves on "
        "with each.",
        unit="ms",
        low=100,
        high=600_000,
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        ("uniform", "range"),
        "How groups of KIP-848 may have their partitions shared out; the first one is for members "
        "that ask for none.",
    )
    group_pattern_refresh_ms: int = setting(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        "How often the patterns of groups of KIP-848 are matched against the topics anew.",
        unit="ms",
        low=10_000,
        high=2**31 - 1,
    )
    group_migration: str = setting(
        "group.consumer.migration.policy",
        "bidirectional",
        "Whether a group may change its protocol while members of both are in it: to KIP-848 "
        "(upgrade), back (downgrade), both, or not.",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    )
