"""The Spark programs of the pages run (how: `tests/docs/player.py`)."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAYER = ROOT / "tests" / "docs" / "player.py"
PAGE_S = 900


GUIDE = "spark_quickstart.md"
"""A page that is played here only: its commands show the records of its programs."""

# The last one: its commands need the credentials of its node.
PAGES = ("README.md", "docs/quickstart.md", "docs/spark.md", f"docs/{GUIDE}", "docs/security.md")


@pytest.mark.timeout(PAGE_S + 60)
def test_the_pages_do_what_they_say_with_spark_too() -> None:
    """In a process and a JVM of their own, as a reader would."""
    command = [sys.executable, str(PLAYER), *(str(ROOT / page) for page in PAGES), "--spark"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PAGE_S, check=False)
    assert done.returncode == 0, done.stderr


def test_no_page_with_a_spark_program_is_forgotten() -> None:
    pages = {*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")}
    pages.remove(ROOT / "docs" / "package_page.md")  # its programs are the first page's
    with_spark = [path for path in pages if "from quorumlog.spark" in path.read_text()]
    assert {str(path.relative_to(ROOT)) for path in with_spark} == set(PAGES)
