"""Alerts on a node's metrics: one table, from which the Prometheus rules and the table of
docs/observability.md are made.

The expressions aggregate by `job`: give each cluster a scrape job of its own.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from . import table as rows
from .table import Metric

PAGES: Final = "docs"  # folder of the pages that the rules name


class AlertSeverity(StrEnum):
    """The label `severity` of an alert, the highest first."""

    CRITICAL = "critical"  # records cannot be written or read: alert at any time
    WARNING = "warning"  # one more failure, or more time, may be critical


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert."""

    name: str
    severity: AlertSeverity
    expression: str  # PromQL; true for the series that are returned
    duration: str  # of the condition before the alert fires, as "5m"; "0s": at once
    summary: str  # with the labels and the value of the series, in the template language
    meaning: str  # sentences
    remedy: str  # sentences, each an instruction
    page: str  # page of the documentation with the remedy, "operations.md#lose-a-broker"


def _shown(metric: Metric) -> str:
    return metric.shown_name


def _rate(metric: Metric) -> str:
    return f"rate({metric.shown_name}[5m])"


ALERTS: Final = (
    Alert(
        name="QuorumlogOfflinePartitions",
        severity=AlertSeverity.CRITICAL,
        expression=f"{_shown(rows.CLUSTER_OFFLINE)} > 0",
        duration="1m",
        summary="{{ $value }} partitions of {{ $labels.job }} have no leader",
        meaning="A partition has no leader: it can be neither written nor read.",
        remedy="Start one of the brokers that `quorumlog explain under-min-isr` names.",
        page="operations.md#recover-an-offline-partition",
    ),
    Alert(
        name="QuorumlogNoController",
        severity=AlertSeverity.CRITICAL,
        expression=f"sum by (job) ({_shown(rows.CONTROLLER_ACTIVE)}) != 1",
        duration="1m",
        summary="{{ $labels.job }} has {{ $value }} active controllers",
        meaning="The quorum has no leader, or a controller's metrics are missing.",
        remedy="`quorumlog quorum status` shows the voters that are missing; start them.",
        page="quorum.md#without-a-majority",
    ),
    Alert(
        name="QuorumlogUnderMinIsrPartitions",
        severity=AlertSeverity.CRITICAL,
        expression=f"{_shown(rows.UNDER_MIN_ISR)} > 0",
        duration="1m",
        summary="{{ $value }} partitions led by {{ $labels.instance }} refuse acks=all",
        meaning="Producers with `acks=all` are refused.",
        remedy="`quorumlog explain under-min-isr` names the brokers to start.",
        page="operations.md#lose-a-broker",
    ),
    Alert(
        name="QuorumlogDiskLow",
        severity=AlertSeverity.CRITICAL,
        expression=f"{_shown(rows.DISK_LOW)} == 1",
        duration="1m",
        summary="The disk of {{ $labels.instance }} is nearly full",
        meaning="Producers are refused on this node.",
        remedy="Shorten `retention.ms` or `retention.bytes` of large topics, or enlarge the disk."
        " `quorumlog brokers describe` shows the sizes of the logs.",
        page="cli.md#quorumlog-brokers-describe",
    ),
    Alert(
        name="QuorumlogFailedLogs",
        severity=AlertSeverity.CRITICAL,
        expression=f"{_shown(rows.STORAGE_FAILED_LOGS)} > 0",
        duration="0s",
        summary="The disk of {{ $labels.instance }} failed under {{ $value }} logs",
        meaning="A disk has failed.",
        remedy="Replace the disk. Other replicas lead, and supply the new one.",
        page="quorum.md#replace-a-lost-disk",
    ),
    Alert(
        name="QuorumlogMetricsMissing",
        severity=AlertSeverity.WARNING,
        expression=f"{_shown(rows.READY)} offset 15m unless on (job, instance)"
        f" {_shown(rows.READY)}",
        duration="2m",
        summary="{{ $labels.instance }} reports no metrics",
        meaning="A node that was scraped 15 minutes ago is not scraped any more.",
        remedy="Start the node; `quorumlog explain fenced` shows why a broker is down.",
        page="operations.md#lose-a-broker",
    ),
    Alert(
        name="QuorumlogNotReady",
        severity=AlertSeverity.WARNING,
        expression=f"{_shown(rows.READY)} == 0",
        duration="5m",
        summary="{{ $labels.instance }} runs and is not ready",
        meaning="The node runs and does not perform its roles.",
        remedy="`/ready` of the node lists the obstacles.",
        page="observability.md#check-a-node",
    ),
    Alert(
        name="QuorumlogUnderReplicatedPartitions",
        severity=AlertSeverity.WARNING,
        expression=f"{_shown(rows.UNDER_REPLICATED)} > 0",
        duration="5m",
        summary="{{ $value }} partitions led by {{ $labels.instance }} lack an in-sync replica",
        meaning="A broker is down or falls behind; the next failure may cost a partition.",
        remedy="`quorumlog explain not-isr` names the cause for each replica.",
        page="operations.md#lose-a-broker",
    ),
    Alert(
        name="QuorumlogLeadersNotPreferred",
        severity=AlertSeverity.WARNING,
        expression=f"{_shown(rows.CLUSTER_NOT_PREFERRED)} / {_shown(rows.CLUSTER_PARTITIONS)}"
        " > 0.2",
        duration="30m",
        summary="{{ $value | humanizePercentage }} of the leaders of {{ $labels.job }} are not"
        " the preferred ones",
        meaning="Leaders are not on their preferred replicas: load is uneven.",
        remedy="Run `quorumlog partitions elect-leader`.",
        page="operations.md#lose-a-broker",
    ),
    Alert(
        name="QuorumlogLoopStalled",
        severity=AlertSeverity.WARNING,
        expression=f"{_shown(rows.LOOP_STALL)} > 0.5",
        duration="0s",
        summary="The event loop of {{ $labels.instance }} was blocked for"
        " {{ $value | humanizeDuration }}",
        meaning="The event loop was blocked; above the session timeout the broker would be fenced.",
        remedy="Look for a machine without CPU time or memory, or a disk that does not respond.",
        page="deployment.md#sizing",
    ),
    Alert(
        name="QuorumlogMetadataBehind",
        severity=AlertSeverity.WARNING,
        expression=f"{_shown(rows.METADATA_COMMITTED)} - {_shown(rows.METADATA_APPLIED)} > 1000",
        duration="5m",
        summary="{{ $labels.instance }} has not applied {{ $value }} metadata records",
        meaning="This node falls behind in applying metadata.",
        remedy="Compare its CPU time and disk with those of the other nodes; restart it if neither"
        " is busy.",
        page="quorum.md#watch-it",
    ),
    Alert(
        name="QuorumlogVoterBehind",
        severity=AlertSeverity.WARNING,
        expression=f"{_shown(rows.RAFT_LAG)} > 1000",
        duration="5m",
        summary="Voter {{ $labels.member }} of {{ $labels.job }} lacks {{ $value }} records",
        meaning="The voter falls behind, and soon does not count for a majority.",
        remedy="`quorumlog quorum status` shows the voter; start it, or replace a lost disk.",
        page="quorum.md#watch-it",
    ),
    Alert(
        name="QuorumlogProduceFailures",
        severity=AlertSeverity.WARNING,
        expression=f"{_rate(rows.PRODUCE_FAILURES)} > 0",
        duration="5m",
        summary="Producers get {{ $value | humanize }} errors a second from {{ $labels.instance }}",
        meaning="Producers get errors; `quorumlog_calls_total` and `quorumlog_kafka_errors_total`"
        " show which.",
        remedy="`quorumlog doctor` checks the cluster.",
        page="operations.md#lose-a-broker",
    ),
    Alert(
        name="QuorumlogAuditLinesLost",
        severity=AlertSeverity.WARNING,
        expression=f"{_rate(rows.AUDIT_LOST)} > 0",
        duration="0s",
        summary="{{ $labels.instance }} loses lines of its audit log",
        meaning="Authentications, denials and changes are not in the audit log; the requests are"
        " carried out.",
        remedy="Look for `audit.lines_lost` in the node's log. Free space on the disk of"
        " `audit.log.file`, or correct the access to its folder.",
        page="security.md#audit-log",
    ),
    Alert(
        name="QuorumlogConnectionsRefused",
        severity=AlertSeverity.WARNING,
        expression=f"{_rate(rows.KAFKA_REFUSED)} > 0",
        duration="5m",
        summary="{{ $labels.instance }} refuses Kafka clients on {{ $labels.listener }}",
        meaning="More Kafka clients connect than `kafka.connections.max` allows.",
        remedy="Raise `kafka.connections.max` and the limit of descriptors, or add brokers.",
        page="deployment.md#sizing",
    ),
    Alert(
        name="QuorumlogRequestMemoryFull",
        severity=AlertSeverity.WARNING,
        expression=f"{_shown(rows.KAFKA_HELD)} > 0.9 * {_shown(rows.KAFKA_HELD_MAX)}",
        duration="5m",
        summary="{{ $labels.instance }} holds {{ $value | humanize1024 }}B of requests",
        meaning="Kafka clients send faster than the broker works; they are slowed down.",
        remedy="Add brokers, or limit clients with quotas.",
        page="operations.md#limit-clients-with-quotas",
    ),
    Alert(
        name="QuorumlogDescriptorsLow",
        severity=AlertSeverity.WARNING,
        expression="process_open_fds / process_max_fds > 0.8"
        f" and on (job, instance) {_shown(rows.READY)}",
        duration="5m",
        summary="{{ $labels.instance }} uses {{ $value | humanizePercentage }} of its descriptors",
        meaning="At the limit the node accepts no connections, and changes of files wait.",
        remedy="Raise the limit of descriptors (`LimitNOFILE`, `ulimit -n`).",
        page="deployment.md#sizing",
    ),
    Alert(
        name="QuorumlogTransactionOpenLong",
        severity=AlertSeverity.WARNING,
        expression=f"{_shown(rows.TRANSACTIONS_OLDEST)} > 900",
        duration="1m",
        summary="A transaction coordinated by {{ $labels.instance }} is open for"
        " {{ $value | humanizeDuration }}",
        meaning="Readers of committed records wait at the first record of an open transaction.",
        remedy="`quorumlog transactions list` shows it; end it with `quorumlog transactions"
        " abort`.",
        page="cli.md#quorumlog-transactions-abort",
    ),
)
"""All alerts, critical ones first."""


def rules_file() -> str:
    """Return a rules file of Prometheus (YAML) with all alerts."""
    return "\n".join(
        [
            "# Made by `quorumlog metrics alerts`. Give each cluster a scrape job of its own.",
            "groups:",
            "  - name: quorumlog",
            "    rules:",
            *(line for alert in ALERTS for line in _rule(alert)),
            "",
        ]
    )


def _rule(alert: Alert) -> Iterator[str]:
    """Yield the lines of one rule. A JSON string is a YAML string in double quotes."""
    yield f"      - alert: {alert.name}"
    yield f"        expr: {json.dumps(alert.expression)}"
    yield f"        for: {alert.duration}"
    yield "        labels:"
    yield f"          severity: {alert.severity}"
    yield "        annotations:"
    yield f"          summary: {json.dumps(alert.summary)}"
    yield f"          description: {json.dumps(alert.meaning)}"
    yield f"          remedy: {json.dumps(alert.remedy)}"
    yield f"          runbook: {PAGES}/{alert.page}"


def alerts_table(severity: AlertSeverity) -> str:
    """Return the alerts of a severity as a table for docs/observability.md."""
    head = "| alert | condition | for | meaning | remedy |\n| --- | --- | --- | --- | --- |\n"
    return head + "".join(_row(each) for each in _of(severity))


def _of(severity: AlertSeverity) -> Sequence[Alert]:
    return [each for each in ALERTS if each.severity is severity]


def _row(alert: Alert) -> str:
    place = alert.page.removeprefix("observability.md")  # a link within the page
    return (
        f"| {alert.name.removeprefix('Quorumlog')} | `{alert.expression}` | {alert.duration} |"
        f" {alert.meaning} | {alert.remedy} [More]({place}) |\n"
    )
