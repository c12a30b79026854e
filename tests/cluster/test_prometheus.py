"""Prometheus scrapes a node and evaluates all rules and queries of the dashboard."""

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.kit.node_process import free_port
from tests.kit.prometheus import program

from quorumlog.metrics.alerts import ALERTS, rules_file
from quorumlog.metrics.dashboard import ROWS
from quorumlog.testing import Broker

pytestmark = pytest.mark.slow

WAIT_S = 90.0
LOOK_S = 0.2
VARIABLES = {"$job": ".*", "$instance": ".*", "$topic": ".*", "$__rate_interval": "1m"}
QUERIES = [query.expression for row in ROWS for panel in row.panels for query in panel.queries]


class Prometheus:
    """The HTTP interface of the process."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of a response. Raise AssertionError for an error."""
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"http://{self._address}{path}?{query}") as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 503:  # it is starting
                    raise
                raise AssertionError(f"{parameters}: {error.read().decode()}") from None
        assert found["status"] == "success", found
        return found["data"]

    def values(self, expression: str) -> list[Any]:
        """Return the series of an instant query."""
        found: list[Any] = self.get("/api/v1/query", query=expression)["result"]
        return found

    def wait_for(self, expression: str) -> None:
        """Wait until a query has a result."""
        end = time.monotonic() + WAIT_S
        while True:
            try:
                if self.values(expression):
                    return
            except urllib.error.URLError:
                pass  # it is starting
            assert time.monotonic() < end, f"{expression} stays empty"
            time.sleep(LOOK_S)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Start Prometheus with the rules; it scrapes a node with a topic and some records."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "quorumlog.rules.yml").write_text(rules_file())
    binary = program("prometheus")
    with Broker(settings={"metrics.topics.max": 10}) as broker:
        topic = broker.create_topic("flights")
        with broker.connect() as log, log.producer() as producer:
            producer.send(topic, value=b"x")
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["quorumlog.rules.yml"],
            "scrape_configs": [
                {"job_name": "flights", "static_configs": [{"targets": [broker.http]}]}
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        address = f"127.0.0.1:{free_port()}"
        command = [binary, "--config.file", "prometheus.yml", "--storage.tsdb.path", "data"]
        command += ["--web.listen-address", address]
        with (folder / "prometheus.log").open("w") as log_file:
            process = subprocess.Popen(command, cwd=folder, stdout=log_file, stderr=log_file)
            try:
                found = Prometheus(address)
                found.wait_for('rate(quorumlog_uptime_seconds{job="flights"}[1m])')
                yield found
            finally:
                process.terminate()
                process.wait(WAIT_S)


def test_every_query_of_the_dashboard_has_a_result(prometheus: Prometheus) -> None:
    empty = []
    for query in QUERIES:
        expression = query
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        if not prometheus.values(expression):
            empty.append(expression)
    # Series that an idle node with a single replica does not have.
    of_clients = ("kafka_request", "kafka_errors", "quota_throttles", "waited")
    of_others = ("follower_lag", "raft_silence", "abort")
    absent = (*of_clients, *of_others)
    assert [each for each in empty if not any(part in each for part in absent)] == []


def test_no_alert_of_a_healthy_node_fires(prometheus: Prometheus) -> None:
    end = time.monotonic() + WAIT_S
    while True:
        (group,) = prometheus.get("/api/v1/rules")["groups"]
        rules = {rule["name"]: (rule["health"], rule["state"]) for rule in group["rules"]}
        if all(health != "unknown" for health, _ in rules.values()):
            break
        assert time.monotonic() < end, rules
        time.sleep(LOOK_S)
    rules.pop("QuorumlogLoopStalled")  # on a busy machine
    names = [alert.name for alert in ALERTS if alert.name != "QuorumlogLoopStalled"]
    assert rules == dict.fromkeys(names, ("ok", "inactive"))
