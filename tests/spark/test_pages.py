"""The Spark programs of the pages run (how: `tests/docs/player.py`)."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAYER = ROOT / "tests" / "docs" / "player.py"
PAGE_S = 900


GUIDE = "spark_quickstart.md"
"""A page that runs only here: its commands show the records of its programs."""

CLUSTER = "docs/secure_cluster.md"
"""A page that runs up to its program; `test_secure_cluster.py` runs it without Spark."""

PAGES = ("README.md", "docs/quickstart.md", "docs/spark.md", f"docs/{GUIDE}", "docs/security.md")


@pytest.mark.long
@pytest.mark.timeout(PAGE_S + 60)
def test_the_pages_have_the_documented_results_with_spark(tmp_path: Path) -> None:
    """In a separate process and JVM, as for a reader."""
    begun, _, rest = (ROOT / CLUSTER).read_text().partition("\n## On several machines\n")
    assert "quorumlog.spark" in begun
    assert "quorumlog.spark" not in rest
    (tmp_path / "begun.md").write_text(begun)
    pages = [*(ROOT / page for page in PAGES), tmp_path / "begun.md"]
    command = [sys.executable, str(PLAYER), *map(str, pages), "--spark"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PAGE_S, check=False)
    assert done.returncode == 0, done.stderr


def test_every_page_with_a_spark_program_is_run() -> None:
    pages = {*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")}
    pages.remove(ROOT / "docs" / "package_page.md")  # its programs are those of the first page
    with_spark = [path for path in pages if "from quorumlog.spark" in path.read_text()]
    assert {str(path.relative_to(ROOT)) for path in with_spark} == {*PAGES, CLUSTER}
