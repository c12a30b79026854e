"""A Grafana dashboard of a cluster, made from the table of metrics.

The variables `job` and `instance` select nodes, `topic` the topics of the panels for topics, which
have series if `metrics.topics.max` allows them.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from . import table as rows
from .table import Metric, MetricKind

TITLE: Final = "quorumlog"
SCHEMA_VERSION: Final = 39  # of Grafana 11; later ones convert it
GRID_COLUMNS: Final = 24
PANEL_COLUMNS: Final = 8
PANEL_LINES: Final = 8
QUANTILE: Final = 0.99

# Units of Grafana.
NUMBER, BYTES, BYTES_PER_S, PER_S = "short", "bytes", "Bps", "ops"
SECONDS, SHARE, FLAG = "s", "percentunit", "bool_yes_no"

_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_NODES: Final = 'job=~"$job", instance=~"$instance"'
_TOPICS: Final = _NODES + ', topic=~"$topic"'
_INTERVAL: Final = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel."""

    expression: str  # PromQL with the variables of the dashboard
    legend: str  # with labels in double braces


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph."""

    title: str
    unit: str
    about: str
    queries: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class PanelRow:
    """A titled row of panels."""

    title: str
    panels: tuple[Panel, ...]


# --- queries -------------------------------------------------------------------------------------


def _series(metric: Metric, selector: str = _NODES) -> str:
    return f"{metric.shown_name}{{{selector}}}"


def _gauge(metric: Metric, *labels: str, total: str = "sum", selector: str = _NODES) -> Query:
    """Return the sum of a gauge, or another total, by these labels or by node."""
    assert metric.kind is MetricKind.GAUGE, f"{metric.name} is a {metric.kind.value}"
    by = labels or ("instance",)
    return Query(f"{total} by ({', '.join(by)}) ({_series(metric, selector)})", _legend(by))


def _rate(metric: Metric, *labels: str) -> Query:
    """Return the rate of a counter by these labels or by node."""
    assert metric.kind is MetricKind.COUNTER, f"{metric.name} is a {metric.kind.value}"
    by = labels or ("instance",)
    rate = f"rate({_series(metric)}[{_INTERVAL}])"
    return Query(f"sum by ({', '.join(by)}) ({rate})", _legend(by))


def _quantile(metric: Metric, *labels: str, selector: str = _NODES) -> Query:
    """Return the 99th percentile of a histogram by these labels or by node."""
    assert metric.kind is MetricKind.HISTOGRAM, f"{metric.name} is a {metric.kind.value}"
    by = labels or ("instance",)
    rate = f"rate({metric.name}_bucket{{{selector}}}[{_INTERVAL}])"
    total = f"sum by ({', '.join(('le', *by))}) ({rate})"
    return Query(f"histogram_quantile({QUANTILE}, {total})", _legend(by))


def _process(expression: str) -> Query:
    """Return an expression on the metrics of the processes of nodes."""
    nodes = _series(rows.READY)
    return Query(f"{expression} and on (job, instance) {nodes}", _legend(["instance"]))


def _legend(labels: Sequence[str]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in labels)


def _named(legend: str, query: Query) -> Query:
    return Query(query.expression, legend)


def _one(title: str, unit: str, query: Query, metric: Metric) -> Panel:
    """Return the panel of one metric, described by its help text."""
    return Panel(title, unit, metric.about, (query,))


# --- panels --------------------------------------------------------------------------------------

_HEALTH: Final = PanelRow(
    "Cluster health",
    (
        _one("Ready", FLAG, _gauge(rows.READY), rows.READY),
        Panel(
            "Partitions with problems",
            NUMBER,
            "Counted by the active controller.",
            (
                _named("without a leader", _gauge(rows.CLUSTER_OFFLINE, "job")),
                _named("below min.insync.replicas", _gauge(rows.CLUSTER_UNDER_MIN_ISR, "job")),
                _named("under-replicated", _gauge(rows.CLUSTER_UNDER_REPLICATED, "job")),
                _named("leader not preferred", _gauge(rows.CLUSTER_NOT_PREFERRED, "job")),
            ),
        ),
        _one("Brokers", NUMBER, _gauge(rows.CLUSTER_BROKERS, "state"), rows.CLUSTER_BROKERS),
        Panel(
            "Topics and partitions",
            NUMBER,
            "Counted by the active controller.",
            (
                _named("topics", _gauge(rows.CLUSTER_TOPICS, "job")),
                _named("partitions", _gauge(rows.CLUSTER_PARTITIONS, "job")),
            ),
        ),
        Panel(
            "Disk used",
            SHARE,
            "Used share of the data directory's disk.",
            (
                Query(
                    f"1 - {_series(rows.DISK_FREE)} / {_series(rows.DISK_SIZE)}",
                    _legend(["instance"]),
                ),
            ),
        ),
        _one("Failed logs", NUMBER, _gauge(rows.STORAGE_FAILED_LOGS), rows.STORAGE_FAILED_LOGS),
    ),
)

_THROUGHPUT: Final = PanelRow(
    "Throughput",
    (
        _one("Produced", BYTES_PER_S, _rate(rows.PRODUCED_BYTES), rows.PRODUCED_BYTES),
        _one("Records produced", PER_S, _rate(rows.PRODUCED_RECORDS), rows.PRODUCED_RECORDS),
        _one("Fetched", BYTES_PER_S, _rate(rows.FETCHED_BYTES), rows.FETCHED_BYTES),
        _one("Errors of producers", PER_S, _rate(rows.PRODUCE_FAILURES), rows.PRODUCE_FAILURES),
        _one("Kafka requests", PER_S, _rate(rows.KAFKA_REQUESTS, "api"), rows.KAFKA_REQUESTS),
        _one("Kafka errors", PER_S, _rate(rows.KAFKA_ERRORS, "api", "code"), rows.KAFKA_ERRORS),
        _one("gRPC calls", PER_S, _rate(rows.CALLS, "method", "outcome"), rows.CALLS),
        _one(
            "Kafka connections",
            NUMBER,
            _gauge(rows.KAFKA_CONNECTIONS, "instance", "listener"),
            rows.KAFKA_CONNECTIONS,
        ),
        Panel(
            "Memory of Kafka requests",
            BYTES,
            rows.KAFKA_HELD.about,
            (
                _gauge(rows.KAFKA_HELD),
                _named("limit", _gauge(rows.KAFKA_HELD_MAX, "job", total="min")),
            ),
        ),
        _one("Throttles", PER_S, _rate(rows.QUOTA_THROTTLES, "quota"), rows.QUOTA_THROTTLES),
        Panel(
            "Records by topic",
            PER_S,
            "Growth of the log end offsets; needs metrics.topics.max.",
            (
                Query(
                    "clamp_min(sum by (topic) (deriv("
                    f"{_series(rows.TOPIC_END_OFFSETS, _TOPICS)}[{_INTERVAL}])), 0)",
                    _legend(["topic"]),
                ),
            ),
        ),
        Panel(
            "Size by topic",
            BYTES,
            "Logs of the leaders; needs metrics.topics.max.",
            (_gauge(rows.TOPIC_BYTES, "topic", selector=_TOPICS),),
        ),
    ),
)

_LATENCY: Final = PanelRow(
    "Latency, 99th percentile",
    (
        _one(
            "Produce",
            SECONDS,
            _quantile(rows.PRODUCE_SECONDS, "instance", "acks"),
            rows.PRODUCE_SECONDS,
        ),
        _one(
            "Fetch without a wait",
            SECONDS,
            _quantile(rows.FETCH_SECONDS, selector=_NODES + ', waited="no"'),
            rows.FETCH_SECONDS,
        ),
        _one(
            "Kafka requests",
            SECONDS,
            _quantile(rows.KAFKA_REQUEST_SECONDS, "api"),
            rows.KAFKA_REQUEST_SECONDS,
        ),
        _one("gRPC calls", SECONDS, _quantile(rows.CALL_SECONDS, "method"), rows.CALL_SECONDS),
        _one(
            "Flush",
            SECONDS,
            _quantile(rows.STORAGE_FLUSH, "instance", "policy"),
            rows.STORAGE_FLUSH,
        ),
        Panel(
            "Event loop",
            SECONDS,
            rows.LOOP_LATENESS.about,
            (
                _quantile(rows.LOOP_LATENESS),
                _named("{{instance}} longest", _gauge(rows.LOOP_STALL)),
            ),
        ),
    ),
)

_REPLICATION: Final = PanelRow(
    "Replication",
    (
        Panel(
            "Partitions led here with problems",
            NUMBER,
            rows.UNDER_REPLICATED.about,
            (
                _named("{{instance}} under-replicated", _gauge(rows.UNDER_REPLICATED)),
                _named("{{instance}} below min ISR", _gauge(rows.UNDER_MIN_ISR)),
                _named("{{instance}} at min ISR", _gauge(rows.AT_MIN_ISR)),
            ),
        ),
        _one(
            "Lag of followers, records",
            NUMBER,
            _gauge(rows.FOLLOWER_LAG, "instance", "follower", total="max"),
            rows.FOLLOWER_LAG,
        ),
        Panel(
            "ISR changes",
            PER_S,
            "ISR shrinks and expansions of partitions led here.",
            (
                _named("{{instance}} shrinks", _rate(rows.ISR_SHRUNK)),
                _named("{{instance}} expansions", _rate(rows.ISR_GROWN)),
            ),
        ),
        _one("Replicated", BYTES_PER_S, _rate(rows.REPLICATED_BYTES), rows.REPLICATED_BYTES),
        _one("Replicas", NUMBER, _gauge(rows.PARTITIONS, "instance", "role"), rows.PARTITIONS),
        _one("Reassignments", NUMBER, _gauge(rows.MOVING), rows.MOVING),
    ),
)

_GROUPS: Final = PanelRow(
    "Groups and lag",
    (
        _one("Groups", NUMBER, _gauge(rows.GROUPS, "state"), rows.GROUPS),
        _one("Members", NUMBER, _gauge(rows.GROUP_MEMBERS), rows.GROUP_MEMBERS),
        _one("Offset commits", PER_S, _rate(rows.GROUP_COMMITS), rows.GROUP_COMMITS),
        _one("Rebalances", PER_S, _rate(rows.GROUP_GENERATIONS), rows.GROUP_GENERATIONS),
        _one(
            "Offsets that readers of committed records wait for",
            NUMBER,
            _gauge(rows.STABLE_OFFSET_LAG, total="max"),
            rows.STABLE_OFFSET_LAG,
        ),
        _one("Waiting fetches", NUMBER, _gauge(rows.FETCHES_WAITING), rows.FETCHES_WAITING),
    ),
)

_TRANSACTIONS: Final = PanelRow(
    "Transactions",
    (
        _one("Open", NUMBER, _gauge(rows.TRANSACTIONS_OPEN), rows.TRANSACTIONS_OPEN),
        _one(
            "Age of the oldest",
            SECONDS,
            _gauge(rows.TRANSACTIONS_OLDEST, total="max"),
            rows.TRANSACTIONS_OLDEST,
        ),
        Panel(
            "Ended",
            PER_S,
            "Transactions committed and aborted, by reason.",
            (
                _named("committed", _rate(rows.TRANSACTION_COMMITS, "job")),
                _named("aborted: {{reason}}", _rate(rows.TRANSACTION_ABORTS, "reason")),
            ),
        ),
        _one("Pending markers", NUMBER, _gauge(rows.MARKERS_PENDING), rows.MARKERS_PENDING),
        _one(
            "Age of the oldest pending marker",
            SECONDS,
            _gauge(rows.MARKERS_OLDEST, total="max"),
            rows.MARKERS_OLDEST,
        ),
        _one(
            "Staged attempts",
            NUMBER,
            _gauge(rows.STAGED_ATTEMPTS, "state"),
            rows.STAGED_ATTEMPTS,
        ),
    ),
)

_CONTROLLERS: Final = PanelRow(
    "Controllers and Raft",
    (
        _one("Active controller", FLAG, _gauge(rows.CONTROLLER_ACTIVE), rows.CONTROLLER_ACTIVE),
        _one("Epoch", NUMBER, _gauge(rows.RAFT_EPOCH, total="max"), rows.RAFT_EPOCH),
        _one("Leader changes", PER_S, _rate(rows.RAFT_LEADER_CHANGES), rows.RAFT_LEADER_CHANGES),
        _one("Lag, records", NUMBER, _gauge(rows.RAFT_LAG, "member", total="max"), rows.RAFT_LAG),
        _one(
            "Silence",
            SECONDS,
            _gauge(rows.RAFT_SILENCE, "member", total="max"),
            rows.RAFT_SILENCE,
        ),
        Panel(
            "Metadata to apply, records",
            NUMBER,
            "Committed records that this node has not applied yet.",
            (
                Query(
                    f"{_series(rows.METADATA_COMMITTED)} - {_series(rows.METADATA_APPLIED)}",
                    _legend(["instance"]),
                ),
            ),
        ),
    ),
)

_PROCESS: Final = PanelRow(
    "Process",
    (
        Panel(
            "CPU, cores",
            NUMBER,
            "CPU time of the process a second.",
            (_process(f"rate(process_cpu_seconds_total{{{_NODES}}}[{_INTERVAL}])"),),
        ),
        Panel(
            "Memory",
            BYTES,
            "Resident memory of the process.",
            (_process(f"process_resident_memory_bytes{{{_NODES}}}"),),
        ),
        Panel(
            "Descriptors used",
            SHARE,
            "Share of the limit of open descriptors.",
            (_process(f"process_open_fds{{{_NODES}}} / process_max_fds{{{_NODES}}}"),),
        ),
        _one("Written to logs", BYTES_PER_S, _rate(rows.STORAGE_WRITTEN), rows.STORAGE_WRITTEN),
        _one("Queued appends", BYTES, _gauge(rows.STORAGE_QUEUED), rows.STORAGE_QUEUED),
        _one("Uptime", SECONDS, _gauge(rows.UPTIME, total="max"), rows.UPTIME),
    ),
)

ROWS: Final = (
    _HEALTH,
    _THROUGHPUT,
    _LATENCY,
    _REPLICATION,
    _GROUPS,
    _TRANSACTIONS,
    _CONTROLLERS,
    _PROCESS,
)
"""The rows of the dashboard, from the top."""


# --- the file ------------------------------------------------------------------------------------


def dashboard_file() -> str:
    """Return the dashboard in Grafana's JSON."""
    return json.dumps(_dashboard(), indent=2) + "\n"


def _dashboard() -> dict[str, Any]:
    return {
        "uid": TITLE,
        "title": TITLE,
        "tags": [TITLE],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,  # one crosshair for all panels
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def _variables() -> Iterator[dict[str, Any]]:
    source = {"name": "datasource", "label": "Data source", "type": "datasource"}
    yield {**source, "query": "prometheus"}
    ready, topics = rows.READY.shown_name, rows.TOPIC_BYTES.shown_name
    for name, label, query in (
        ("job", "Cluster", f"label_values({ready}, job)"),
        ("instance", "Node", f'label_values({ready}{{job=~"$job"}}, instance)'),
        ("topic", "Topic", f'label_values({topics}{{job=~"$job"}}, topic)'),
    ):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": _DATASOURCE,
            "definition": query,
            "query": {"query": query, "refId": name},
            "refresh": 2,  # when the time range changes
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _panels() -> Iterator[dict[str, Any]]:
    """Yield the rows and their panels, from left to right and from the top."""
    line, number = 0, 0
    for row in ROWS:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": line, "w": GRID_COLUMNS, "h": 1},
        }
        line += 1
        for index, panel in enumerate(row.panels):
            number += 1
            down, across = divmod(index, GRID_COLUMNS // PANEL_COLUMNS)
            place = {"x": across * PANEL_COLUMNS, "y": line + down * PANEL_LINES}
            place |= {"w": PANEL_COLUMNS, "h": PANEL_LINES}
            yield {"id": number, "gridPos": place, **_graph(panel)}
        line += -(-len(row.panels) * PANEL_COLUMNS // GRID_COLUMNS) * PANEL_LINES


def _graph(panel: Panel) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": _DATASOURCE,
            "expr": query.expression,
            "legendFormat": query.legend,
        }
        for index, query in enumerate(panel.queries)
    ]
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": targets,
    }
