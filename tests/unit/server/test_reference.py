"""docs/configuration.md is what the two tables of settings say today."""

import re
from pathlib import Path

from quorumlog.metadata.topic_configs import TOPIC_CONFIGS, check_config
from quorumlog.server.config import parse_toml, settings
from quorumlog.server.reference import configuration_page

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def rows(page: str) -> dict[str, list[str]]:
    """The cells of every row of both tables, by the name in the first one."""
    cells = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row for row in cells}


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == configuration_page(), "run `make docs`"


def test_every_setting_has_one_row_of_four_cells() -> None:
    found = rows(configuration_page())
    assert list(found) == [row.name for row in settings()] + list(TOPIC_CONFIGS)
    assert {len(row) for row in found.values()} == {4}


def test_every_value_that_the_page_offers_is_taken_and_every_other_refused() -> None:
    for name, row in rows(configuration_page()).items():
        if name not in TOPIC_CONFIGS or not row[2].startswith("`"):
            continue
        offered = re.findall(r"`([^`]+)`", row[2].partition("not yet")[0])
        assert offered, name
        assert [check_config(name, value) for value in offered] == offered
        assert set(offered).isdisjoint(TOPIC_CONFIGS[name].planned)


def test_the_example_file_is_a_configuration() -> None:
    text = configuration_page().partition("```toml\n")[2].partition("```")[0]
    assert parse_toml(text, source="example").advertised_grpc == "broker-1.example.net:9094"
