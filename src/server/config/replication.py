"""Settings: replicas and those who lead them."""

from dataclasses import dataclass

from .rows import MIB, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Replication:
    """Followers and leaders of partitions."""

    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        30_000,
        "A follower that has not caught up with its leader for so long leaves the in-sync "
        "replicas: shorter keeps writes from waiting for it, and takes a stall for a failure.",
        unit="ms",
        low=100,
        high=3_600_000,
    )
    lapsed_leader_accepts_acks_one: str = setting(
        "lapsed.leader.accepts.acks.one",
        "false",
        "Whether a leader that hears from no controller for the session time-out takes records "
        "with acks 0 and 1: another may lead by then, and these are the ones that would be lost.",
        choices=("false", "true"),
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        500,
        "How long a leader with no news keeps a follower's request; shorter costs an idle cluster "
        "more.",
        unit="ms",
        low=10,
        high=60_000,
    )
    replica_fetch_bytes_max: int = setting(
        "replica.fetch.max.bytes",
        MIB,
        "Bytes of one partition in an answer to a follower; the first batch comes even if larger.",
        unit="bytes",
        low=1,
        high=64 * MIB,
    )
    replica_response_bytes_max: int = setting(
        "replica.fetch.response.max.bytes",
        10 * MIB,
        "Bytes of an answer to a follower; the first batch comes even if larger.",
        unit="bytes",
        low=1,
        high=48 * MIB,
    )
