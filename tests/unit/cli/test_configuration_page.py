"""docs/configuration.md matches the tables of settings."""

import re
from dataclasses import fields
from pathlib import Path

from quorumlog.cli.pages import configuration_page
from quorumlog.cli.settings import CLIENT_SETTINGS
from quorumlog.clients.config import ClientConfig, ConsumerConfig, ProducerConfig
from quorumlog.metadata.cluster_configs import CLUSTER_CONFIGS
from quorumlog.metadata.group_configs import GROUP_CONFIGS
from quorumlog.metadata.topic_configs import TOPIC_CONFIGS, check_config
from quorumlog.server.config import parse_toml, settings
from quorumlog.settings import file_source

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def rows(page: str) -> dict[str, list[str]]:
    """Return the cells of every row of the tables of nodes, topics and the command line, by
    name."""
    part = page.partition("## A node")[2].partition("## A Python client")[0]
    cells = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row for row in cells}


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == configuration_page(), "run `make docs`"


def test_every_setting_has_one_row() -> None:
    found = rows(configuration_page())
    client = [row.name for row in CLIENT_SETTINGS]
    of_cluster = [name for name in CLUSTER_CONFIGS if name not in TOPIC_CONFIGS]
    named = [row.name for row in settings()] + list(TOPIC_CONFIGS) + of_cluster
    assert list(found) == named + list(GROUP_CONFIGS) + client
    in_both = TOPIC_CONFIGS.keys() & CLUSTER_CONFIGS.keys()
    with_five = (TOPIC_CONFIGS.keys() - in_both) | GROUP_CONFIGS.keys()
    assert {name for name, row in found.items() if len(row) == 5} == with_five
    assert {len(row) for row in found.values()} == {4, 5}


def test_every_setting_of_the_python_clients_is_listed() -> None:
    part = configuration_page().partition("## A Python client")[2]
    for kind in (ClientConfig, ProducerConfig, ConsumerConfig):
        for each in fields(kind):
            assert f"\n| `{each.name}` | " in part, each.name


def test_every_value_of_the_page_is_accepted_and_others_are_refused() -> None:
    for name, row in rows(configuration_page()).items():
        if name not in TOPIC_CONFIGS or not row[2].startswith("`"):
            continue
        offered = re.findall(r"`([^`]+)`", row[2])
        assert offered, name
        assert [check_config(name, value) for value in offered] == offered


def test_the_example_files_are_configurations() -> None:
    node, client = re.findall(r"```toml\n(.*?)```", configuration_page(), re.DOTALL)
    assert parse_toml(node, source="example").advertised_grpc == "broker-1.example.net:9094"
    read = file_source(CLIENT_SETTINGS, client, path="example", table=("client",))
    assert read.values["connect_timeout_ms"][0] == 10_000
    read = file_source(CLIENT_SETTINGS, client, path="example", table=("context", "prod"))
    assert read.values["sasl_user"][0] == "alice"
