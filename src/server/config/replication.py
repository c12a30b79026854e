"""Settings of partition leaders and followers."""

from dataclasses import dataclass

from .rows import MIB, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ReplicationSettings:
    """Followers and leaders of partitions."""

    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        30_000,
        "Time after which a follower that has not caught up with its leader leaves the in-sync "
        "replicas: shorter keeps writes from waiting for it, and also removes stalled replicas.",
        unit="ms",
        low=100,
        high=3_600_000,
    )
    lapsed_leader_accepts_acks_one: str = setting(
        "lapsed.leader.accepts.acks.one",
        "false",
        "Accept records with acks 0 and 1 on a leader without contact to a controller for the "
        "session timeout: another leader may have been elected, and such records would be lost.",
        choices=("false", "true"),
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        500,
        "Maximum wait of a follower's fetch at a leader without new records; shorter costs more "
        "requests in an idle cluster.",
        unit="ms",
        low=10,
        high=60_000,
    )
    replica_fetch_bytes_max: int = setting(
        "replica.fetch.max.bytes",
        MIB,
        "Maximum bytes of one partition in a response to a follower; a single larger batch is "
        "still sent.",
        unit="bytes",
        low=1,
        high=64 * MIB,
    )
    replica_response_bytes_max: int = setting(
        "replica.fetch.response.max.bytes",
        10 * MIB,
        "Maximum bytes of a response to a follower; a single larger batch is still sent.",
        unit="bytes",
        low=1,
        high=48 * MIB,
    )
