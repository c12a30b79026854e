"""Settings: the quorum of controllers, and what it decides by."""

from dataclasses import dataclass

from .rows import setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Quorum:
    """The controllers, and a broker's session with them."""

    controller_voters: tuple[str, ...] = setting(
        "controller.voters",
        (),
        'The voters with which the quorum is formed, as "id@host:port:directory id"; empty: this '
        "node alone. Once it is formed, commands change it, and this list only says whom to ask.",
        field_name="controller.quorum.voters",
    )
    controller_bootstrap: tuple[str, ...] = setting(
        "controller.bootstrap",
        (),
        "host:port of members of the quorum that a node without a vote asks who leads.",
        field_name="controller.quorum.bootstrap.servers",
    )
    election_timeout_ms: int = setting(
        "controller.election.timeout.ms",
        1_000,
        "A voter that hears no leader for one to two times as long calls an election: shorter "
        "replaces a dead leader sooner, and a slow one too.",
        unit="ms",
        low=50,
        high=600_000,
        field_name="controller.quorum.election.timeout.ms",
    )
    heartbeat_ms: int = setting(
        "controller.heartbeat.ms",
        100,
        "The leader says so often that it lives; at most half of the election time-out.",
        unit="ms",
        low=10,
        high=300_000,
    )
    session_timeout_ms: int = setting(
        "broker.session.timeout.ms",
        3_000,
        "Silence after which the controller fences a broker; shorter finds failures sooner and "
        "takes a stall for one.",
        unit="ms",
        low=200,
        high=600_000,
    )
    partitions_default: int = setting(
        "num.partitions",
        1,
        "Partitions of a topic that is created without a number; equal on all controllers.",
        unit="partitions",
        low=1,
        high=10_000,
    )
    replication_factor_default: int = setting(
        "default.replication.factor",
        1,
        "Replicas of a topic that is created without a number; equal on all controllers. More "
        "survive the loss of more brokers, and each costs its disk and network.",
        unit="replicas",
        low=1,
        high=1_000,
    )
