"""docs/testing_with_quorumlog.md: its programs run, its tests pass, its names exist."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from quorumlog.server.config import settings
from quorumlog.testing import Broker, ClientHistory, Cluster

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "testing_with_quorumlog.md"
WAIT_S = 500

BLOCK = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def files() -> dict[str, str]:
    """Return the page's programs by the file name in their first line."""
    text = PAGE.read_text()
    found = dict(BLOCK.findall(text))
    assert len(found) == text.count("```python"), "a program without a name"
    return found


def run(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    for name, text in files().items():
        if name.startswith(("test_", "conftest")):
            (tmp_path / name).write_text(text)
    plugin = () if _is_entrance_known() else ("-p", "pytest_quorumlog")
    run(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", *plugin)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in files() if not name.startswith(("test_", "conftest"))]
)
def test_a_program_of_the_page_runs(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(files()[name])
    run(tmp_path, name)


def test_calls_of_the_page_exist_and_its_names_are_settings() -> None:
    text = PAGE.read_text()
    rows = re.findall(r"^\| `(.+?)\(.*?` \|", text, re.MULTILINE)
    assert len(rows) >= 9
    for row in rows:
        for called in re.findall(r"(\w+)\(", row + "("):
            assert hasattr(Cluster, called) or hasattr(ClientHistory, called), called
    both = {name for name, _ in inspect.getmembers(Broker) if not name.startswith("_")}
    assert {"kafka", "grpc", "create_topic", "connect", "kill", "start"} <= both
    known = {row.name for row in settings()}
    named = set(re.findall(r"`([a-z]+(?:\.[a-z]+)+)`", text)) - {"enable.auto.commit"}
    named -= {name for name in named if name.startswith("quorumlog.")}
    assert named <= known, named - known


def _is_entrance_known() -> bool:
    """Return True if this environment has the plugin's entry point, which an install writes."""
    from importlib.metadata import entry_points

    return any(each.value == "pytest_quorumlog" for each in entry_points(group="pytest11"))
