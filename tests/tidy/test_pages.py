"""The links of the pages and the paths that they name exist."""

import re
import tomllib
from pathlib import Path

import pytest

from quorumlog.runtime.lanes import LIMITS, lane_limits

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\]\(([^)#:]+)\)")  # except links to other sites
PATH = re.compile(r"`((?:src|tests|spark|proto|docs|examples|benchmarks)/(?:[\w/]|\.\w)*)`")


def prose(page: Path) -> str:
    """Return a page without its code."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_and_paths_of_a_page_exist(page: Path) -> None:
    text = prose(page)
    missing = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    missing += [path for path in PATH.findall(text) if not (ROOT / path).exists()]
    assert not missing


def test_every_page_of_docs_is_linked_from_the_architecture() -> None:
    links = set(LINK.findall(prose(ROOT / "ARCHITECTURE.md")))
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= links


def test_the_lanes_of_the_architecture_are_those_of_the_runtime() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (\d+) \|", prose(ROOT / "ARCHITECTURE.md"), re.MULTILINE)
    assert {lane.partition(":")[0] for lane, _ in rows} == set(LIMITS)
    for lane, threads in rows:
        assert lane_limits(lane).threads == int(threads), lane


def test_the_picture_of_the_layers_has_those_of_the_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [
        re.sub(r"\(\w+\)", "", layer).replace("|", " ").split()
        for layer in contracts["contracts"][0]["layers"]
    ]
    picture = (ROOT / "ARCHITECTURE.md").read_text().partition("```\n")[2].partition("```")[0]
    drawn = [re.split(r"\s{2,}", line)[0].split() for line in picture.splitlines()]
    ranks = {name: rank for rank, row in enumerate(layers) for name in row if name != "aio"}
    assert sorted(name for row in drawn for name in row if name != "|") == sorted(ranks)
    order = [ranks[row[0]] for row in drawn]
    assert order == sorted(order), "top down, in the direction of imports"
