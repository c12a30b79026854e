"""Settings of the controller."""

from dataclasses import dataclass

from ..settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Defaults and times of the controller; equal on all controllers."""

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
    partitions_max: int = 10_000  # per topic
    session_tick_ms: int = 250  # maximum interval of the check for expired sessions
    applied_wait_ms: int = 500  # time that a response waits for brokers to apply the change
    # Records appended and replayed in a step of the event loop, a few milliseconds; a decision with
    # more is a long one.
    records_at_once: int = 100
