"""A streaming query and kills of its session at each step of its micro-batches, with restarts."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# The command `quorumlog` of this Python, wherever its script is.
QUORUMLOG = (sys.executable, "-m", "quorumlog.cli")

PROGRAM = Path(__file__).with_name("killed_query.py")
SECONDS_MAX = 300

STEPS = ("plan", "planned", "tasks", "sink", "committed", "replanned", "second sink")
COMMITTED = {"replanned": 15, "second sink": 11}
"""The committed offset of the query's group, at a start of 5, once batch 0 is committed."""
CASES = [("latest", step) for step in STEPS] + [("earliest", "tasks"), ("earliest", "sink")]


def until(claim: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not claim():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Command:
    """Commands for one broker in separate processes: this process forks, and must not have a
    client."""

    def __init__(self, address: str) -> None:
        self._bootstrap = ("--bootstrap", address)

    def __call__(self, *words: str, stdin: str = "") -> str:
        done = subprocess.run(
            [*QUORUMLOG, *words, *self._bootstrap], input=stdin, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fill(self, topic: str, numbers: range) -> None:
        self("produce", topic, stdin="".join(f"{number}\n" for number in numbers))

    def lag(self, group: str) -> int:
        return int(json.loads(self("groups", "describe", group, "-o", "json"))["lag"])


def start(plan: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start the query as the leader of a process group."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), json.dumps(plan)], start_new_session=True
    )


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("where", "step"), CASES)
def test_a_query_killed_at_a_step_loses_nothing_and_reads_nothing_twice(
    own_broker: Any, tmp_path: Path, where: str, step: str
) -> None:
    command = Command(own_broker.address)
    command("topics", "create", "t", "--partitions", "1")
    command.fill("t", range(5))
    folder = tmp_path / "query"
    folder.mkdir()
    plan = {
        "bootstrap": own_broker.address,
        "topic": "t",
        "start": where,
        "folder": str(folder),
        "step": step,
    }
    query = start(plan)
    try:
        until(lambda: (folder / "waits").exists(), "the query does not start")
        command.fill("t", range(5, 15))
        (folder / "go").touch()
        query.wait(SECONDS_MAX)
    finally:
        query.kill()
    assert query.returncode == -9
    command.fill("t", range(15, 20))
    begins = 5 if where == "latest" else 0
    assert command.lag("t") == 20 - COMMITTED.get(step, begins)
    again = start(plan | {"step": ""})
    try:
        assert again.wait(SECONDS_MAX) == 0
    finally:
        again.kill()
    batches = sorted(folder.glob("batch-*.json"), key=lambda path: int(path.stem[6:]))
    rows = [row for path in batches for row in json.loads(path.read_text())]
    assert rows == [*range(begins, 20)]
    assert command.lag("t") == 0
    groups = json.loads(command("groups", "list", "--internal", "-o", "json"))
    assert [each["group"] for each in groups] == ["t"], "batch 0 is committed"
