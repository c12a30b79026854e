"""Settings of the quorum of controllers, and of partition leaders and followers."""

from dataclasses import dataclass

from .declaration import MIB, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class QuorumSettings:
    """The controllers, and brokers' sessions with them."""

    controller_voters: tuple[str, ...] = setting(
        "controller.voters",
        (),
        'Initial voters of the quorum, as "id@host:port:directory id"; empty: this node alone. '
        "After formatting, commands change the voters; this list then only has addresses for "
        "contacting the quorum.",
        field_name="controller.quorum.voters",
    )
    controller_bootstrap: tuple[str, ...] = setting(
        "controller.bootstrap",
        (),
        "host:port of controllers that a node contacts to find the quorum's leader.",
        field_name="controller.quorum.bootstrap.servers",
    )
    election_timeout_ms: int = setting(
        "controller.election.timeout.ms",
        1_000,
        "A voter without a heartbeat of the leader for one to two times this long starts an "
        "election: shorter replaces a failed leader sooner, and also a slow one.",
        unit="ms",
        low=50,
        high=600_000,
        field_name="controller.quorum.election.timeout.ms",
    )
    heartbeat_ms: int = setting(
        "controller.heartbeat.ms",
        100,
        "Interval of the leader's heartbeats; at most half of the election timeout.",
        unit="ms",
        low=10,
        high=300_000,
    )
    session_timeout_ms: int = setting(
        "broker.session.timeout.ms",
        3_000,
        "Time without a broker's heartbeat after which the controller fences it: shorter detects "
        "failures sooner, and also fences stalled brokers.",
        unit="ms",
        low=200,
        high=600_000,
    )
    partitions_default: int = setting(
        "num.partitions",
        1,
        "Partitions of a topic that is created without a count; equal on all controllers.",
        unit="partitions",
        low=1,
        high=10_000,
    )
    replication_factor_default: int = setting(
        "default.replication.factor",
        1,
        "Replicas of a topic that is created without a count; equal on all controllers. More "
        "replicas survive the loss of more brokers, at the cost of disk space and network traffic.",
        unit="replicas",
        low=1,
        high=1_000,
    )


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
