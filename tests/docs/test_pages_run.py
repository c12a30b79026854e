"""Every block of every page runs, or has the reason of its exclusion; see `player.py`."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import quorumlog

ROOT = Path(__file__).parents[2]
PLAYER = Path(__file__).with_name("player.py")
PAGE_S = 900

HELD_ELSEWHERE = {
    "docs/benchmarks.md",
    "docs/cli.md",
    "docs/configuration.md",
    "docs/deployment.md",
    "docs/grpc.md",
    "docs/package_page.md",
    "docs/raft.md",
    "docs/secure_cluster.md",
    "docs/spark_quickstart.md",
    "docs/storage_format.md",
    "docs/testing.md",
    "docs/testing_with_quorumlog.md",
}
"""Pages with a separate test that reads the page."""

WARNINGS = (
    "-Werror",
    "-Wignore:open_text is deprecated:DeprecationWarning",
    "-Wignore:read_text is deprecated:DeprecationWarning",
)
"""Warnings are errors, except those of kafka-python 3.0 when it reads its schemas."""

NOT_RUN_MAX = 18
"""The limit of excluded blocks on all pages together."""


def pages() -> list[str]:
    """Return every page of the repository, relative to its root."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    return sorted(str(page.relative_to(ROOT)) for page in found)


def played() -> list[str]:
    """Return the pages that the player runs."""
    return [page for page in pages() if page not in HELD_ELSEWHERE]


LONG = frozenset(
    f"docs/{name}.md"
    for name in (
        *("backup", "migrating_from_kafka", "operations", "quickstart", "quorum"),
        *("secure_cluster", "security", "spark", "transactions"),
    )
)
"""Pages that run for longer than ten seconds."""


@cache
def listed() -> list[dict[str, Any]]:
    """Return the blocks of all pages that the player runs."""
    command = [sys.executable, str(PLAYER), *(str(ROOT / page) for page in played()), "--list"]
    blocks: list[dict[str, Any]] = json.loads(subprocess.check_output(command))
    return blocks


@pytest.mark.slow
@pytest.mark.timeout(PAGE_S + 60)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.long] * (page in LONG)) for page in played()],
)
def test_a_page_has_the_documented_results(page: str) -> None:
    mine = [block for block in listed() if block["page"] == Path(page).name]
    if all(block["not_run"] for block in mine):
        return
    command = [sys.executable, *WARNINGS, str(PLAYER), str(ROOT / page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PAGE_S, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_few_blocks_are_excluded_and_each_has_a_reason() -> None:
    left_out = [block for block in listed() if block["not_run"]]
    assert len(left_out) <= NOT_RUN_MAX, [block["text"] for block in left_out]
    assert all(len(block["not_run"].split()) >= 3 for block in left_out), "write a longer reason"


def test_a_page_that_is_not_played_has_a_separate_test() -> None:
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    read = "\n".join(path.read_text() for path in tests)
    assert set(pages()) >= HELD_ELSEWHERE
    assert all(f'"{Path(page).name}"' in read for page in HELD_ELSEWHERE)


# --- the player: each of these pages must fail ---------------------------------------------------

Written = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def play(tmp_path: Path) -> Written:
    """Return a function that runs a page with the given text."""

    def run(text: str) -> "subprocess.CompletedProcess[str]":
        page = tmp_path / "page.md"
        page.write_text(text)
        return subprocess.run(
            [sys.executable, str(PLAYER), str(page)],
            capture_output=True,
            text=True,
            timeout=PAGE_S,
            check=False,
        )

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nprint(1)\n```\n```text\n2\n```\n", "the page shows"),
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```sh\nmake nothing-of-the-kind\n```\n", "no such target"),
        ("```toml\nnode.idd = 1\n```\n", "node.id"),
        ("```\nwhat is this\n```\n", "no rule to run"),
    ],
)
def test_the_player_reports_a_page_that_differs(play: Written, text: str, message: str) -> None:
    done = play(text)
    assert done.returncode == 1
    assert message in done.stderr
    assert "page.md:" in done.stderr


@pytest.mark.slow
def test_the_player_runs_blocks_in_order_and_dots_match_any_text(play: Written) -> None:
    page = (
        "```python\nimport asyncio\nnumber = 20\n```\n"
        "```python\nawait asyncio.sleep(0)\nprint(number + 1)\nprint('then')\nprint('x', 7)\n```\n"
        "```text\n21\n...\nx ...\n```\n"
        "<!-- not run: it would not end -->\n```sh\nsleep infinity\n```\n"
    )
    done = play(page)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_program_in_help_runs(play: Written) -> None:
    """`help(quorumlog)` begins with a program."""
    code = (quorumlog.__doc__ or "").partition("```python\n")[2].partition("```")[0]
    done = play(f"```python\n{code}```\n```text\n0 b'hello'\n```\n")
    assert done.returncode == 0, done.stderr
