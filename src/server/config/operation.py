"""Settings of metrics, logging and shutdown."""

from dataclasses import dataclass

from .rows import setting

LOG_FORMATS = ("text", "json")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class OperationSettings:
    """Metrics, log, shutdown."""

    metric_topics_max: int = setting(
        "metrics.topics.max",
        0,
        "Number of topics, the first by name, with metrics of end offsets and sizes. Each topic "
        "adds two time series a node, and a lookup of each of its partitions. 0: none.",
        unit="topics",
        low=0,
        high=10_000,
    )
    log_format: str = setting(
        "log.format",
        "text",
        "Format of log lines on stderr: text, or json with every field by name. The environment "
        "variable QUORUMLOG_LOG sets the level.",
    )
    controlled_shutdown_timeout_ms: int = setting(
        "controlled.shutdown.timeout.ms",
        10_000,
        "Maximum wait of a stopping broker until others lead its partitions and the metadata is "
        "replicated; without a controller it waits two seconds. 0: no controlled shutdown.",
        unit="ms",
        low=0,
        high=3_600_000,
    )
    shutdown_grace_ms: int = setting(
        "shutdown.grace.ms",
        2_000,
        "Time for calls in progress to end when the node stops.",
        unit="ms",
        low=0,
        high=600_000,
    )
