"""Settings: what the node tells of itself, and how it stops."""

from dataclasses import dataclass

from .rows import setting

LOG_FORMATS = ("text", "json")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Operation:
    """Metrics, journal, end."""

    metric_topics_max: int = setting(
        "metrics.topics.max",
        0,
        "Topics, the first by name, whose end offsets and sizes the metrics tell; each is two "
        "series a node, and a look at every partition of it. 0: none.",
        unit="topics",
        low=0,
        high=10_000,
    )
    log_format: str = setting(
        "log.format",
        "text",
        "What a line of the journal on stderr is: text for people, or json with every field by "
        "name. QUORUMLOG_LOG says from which level on.",
    )
    controlled_shutdown_timeout_ms: int = setting(
        "controlled.shutdown.timeout.ms",
        10_000,
        "How long a broker that stops waits at most until others lead what it led and the cluster "
        "knows; without a controller it waits two seconds. 0: it does not ask.",
        unit="ms",
        low=0,
        high=3_600_000,
    )
    shutdown_grace_ms: int = setting(
        "shutdown.grace.ms",
        2_000,
        "How long calls under way may go on when the node stops.",
        unit="ms",
        low=0,
        high=600_000,
    )
