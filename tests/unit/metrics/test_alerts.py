"""The alert rules and the dashboard: their metrics, commands and pages exist, and rules fire."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kit.prometheus import program

from quorumlog.cli.main import LazyCommands
from quorumlog.frontends.http.exposition import expose
from quorumlog.metrics import METRICS, MetricKind, Scrape
from quorumlog.metrics.alerts import ALERTS, AlertSeverity, rules_file
from quorumlog.metrics.dashboard import ROWS, dashboard_file

ROOT = Path(__file__).parents[3]
SERIES = re.compile(r"\b(?:quorumlog|process)_[a-z_]+\b")
COMMAND = re.compile(r"`quorumlog ([a-z -]+)")
CLUSTER = {"job": "q", "instance": "a:9095"}


def exported() -> set[str]:
    """Return the names of all series that a node exports."""
    names = {metric.shown_name for metric in METRICS}
    names |= {f"{each.name}_bucket" for each in METRICS if each.kind is MetricKind.HISTOGRAM}
    body, _ = expose(Scrape(), accept="", with_process=True)
    return names | set(re.findall(r"^(process_\w+) ", body.decode(), re.M))


def expressions() -> Iterator[str]:
    yield from (alert.expression for alert in ALERTS)
    yield from (query.expression for row in ROWS for each in row.panels for query in each.queries)


def test_every_series_of_the_rules_and_of_the_dashboard_is_exported() -> None:
    found = {name for each in expressions() for name in SERIES.findall(each)}
    assert len(found) > 50
    assert found - exported() == set()
    texts = " ".join(alert.meaning for alert in ALERTS) + dashboard_file()
    assert set(SERIES.findall(texts)) - exported() == set()


def test_every_command_of_a_remedy_exists() -> None:
    texts = [each.remedy for each in ALERTS]
    texts.append((ROOT / "src/cli/doctor.py").read_text().replace('"\n            f"', ""))
    commands = {found for text in texts for found in COMMAND.findall(text)}
    assert len(commands) > 5
    for command in commands:
        first, *rest = command.split()
        found: Any = LazyCommands()[first]
        for word in rest:
            assert word in found.commands, command
            found = found.commands[word]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda each: each.name)
def test_the_page_of_a_remedy_has_its_section(alert: Any) -> None:
    name, _, anchor = alert.page.partition("#")
    text = re.sub(r"```.*?```", "", (ROOT / "docs" / name).read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    anchors = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in titles}
    assert anchor in anchors


def test_the_rules_are_those_of_the_table() -> None:
    (group,) = yaml.safe_load(rules_file())["groups"]
    rules = {rule["alert"]: rule for rule in group["rules"]}
    assert list(rules) == [alert.name for alert in ALERTS]
    for alert in ALERTS:
        rule = rules[alert.name]
        assert (rule["expr"], rule["for"]) == (alert.expression, alert.duration)
        assert rule["labels"] == {"severity": alert.severity.value}
        assert rule["annotations"]["remedy"] == alert.remedy
    severities = [list(AlertSeverity).index(alert.severity) for alert in ALERTS]
    assert severities == sorted(severities)


def test_the_dashboard_has_every_panel_once_and_none_over_another() -> None:
    panels = json.loads(dashboard_file())["panels"]
    assert [each["title"] for each in panels if each["type"] == "row"] == [r.title for r in ROWS]
    assert len({each["id"] for each in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for each in panels:
        place = each["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, each["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


# --- promtool ------------------------------------------------------------------------------------


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """Return the path of a file with the rules."""
    path = tmp_path / "quorumlog.rules.yml"
    path.write_text(rules_file())
    return path


def promtool(*arguments: str | Path) -> None:
    command = [program("promtool"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules(rules: Path) -> None:
    promtool("check", "rules", rules)


@dataclass(frozen=True, slots=True)
class Firing:
    """An alert that fires from a minute on, and not before."""

    name: str
    series: Mapping[str, str]  # values of each minute by series
    minute: int
    labels: Mapping[str, str]
    summary: str
    quiet: int = field(default=0)  # a minute in which it does not fire


FIRINGS = (
    Firing(
        "QuorumlogOfflinePartitions",
        {'quorumlog_cluster_offline_partitions{job="q", instance="a:9095"}': "0 0 3 3 3 3"},
        3,
        CLUSTER,
        "3 partitions of q have no leader",
        quiet=2,
    ),
    Firing(
        "QuorumlogNoController",
        {
            'quorumlog_controller_active{job="q", instance="a:9095"}': "1 1 0 0 0",
            'quorumlog_controller_active{job="q", instance="b:9095"}': "0 0 0 0 0",
            'quorumlog_controller_active{job="r", instance="c:9095"}': "1 1 1 1 1",
        },
        3,
        {"job": "q"},
        "q has 0 active controllers",
        quiet=1,
    ),
    Firing(
        "QuorumlogMetricsMissing",
        {
            'quorumlog_ready{job="q", instance="a:9095"}': "1x20 stale",
            'quorumlog_ready{job="q", instance="b:9095"}': "1x40",
        },
        24,
        CLUSTER,
        "a:9095 reports no metrics",
        quiet=20,
    ),
    Firing(
        "QuorumlogProduceFailures",
        {'quorumlog_produce_failures_total{job="q", instance="a:9095"}': "0x9 60+60x20"},
        20,
        CLUSTER,
        "Producers get 1 errors a second from a:9095",
        quiet=9,
    ),
    Firing(
        "QuorumlogAuditLinesLost",
        {'quorumlog_audit_lines_lost_total{job="q", instance="a:9095"}': "0x9 1x20"},
        10,
        CLUSTER,
        "a:9095 loses lines of its audit log",
        quiet=9,
    ),
    Firing(
        "QuorumlogRequestMemoryFull",
        {
            'quorumlog_kafka_requests_held_bytes{job="q", instance="a:9095"}': "0 268000000x9",
            'quorumlog_kafka_requests_held_max_bytes{job="q", instance="a:9095"}': "268435456x10",
        },
        7,
        CLUSTER,
        "a:9095 holds 255.6MiB of requests",
        quiet=5,
    ),
    Firing(
        "QuorumlogDescriptorsLow",
        {
            'process_open_fds{job="q", instance="a:9095"}': "900x10",
            'process_max_fds{job="q", instance="a:9095"}': "1000x10",
            'quorumlog_ready{job="q", instance="a:9095"}': "1x10",
            'process_open_fds{job="other", instance="z:1"}': "900x10",
            'process_max_fds{job="other", instance="z:1"}': "1000x10",
        },
        6,
        CLUSTER,
        "a:9095 uses 90% of its descriptors",
        quiet=4,
    ),
)


@pytest.mark.parametrize("firing", FIRINGS, ids=lambda each: each.name)
def test_an_alert_fires_once_its_condition_lasted(
    firing: Firing, rules: Path, tmp_path: Path
) -> None:
    (alert,) = (each for each in ALERTS if each.name == firing.name)
    expected = {
        "exp_labels": {**firing.labels, "severity": alert.severity.value},
        "exp_annotations": {
            "summary": firing.summary,
            "description": alert.meaning,
            "remedy": alert.remedy,
            "runbook": f"docs/{alert.page}",
        },
    }
    moments = [(firing.quiet, []), (firing.minute, [expected])]
    case = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values} for name, values in firing.series.items()
                ],
                "alert_rule_test": [
                    {"eval_time": f"{minute}m", "alertname": firing.name, "exp_alerts": alerts}
                    for minute, alerts in moments
                ],
            }
        ],
    }
    path = tmp_path / "case.yml"
    path.write_text(yaml.safe_dump(case))
    promtool("test", "rules", path)
