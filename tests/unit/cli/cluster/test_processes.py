"""Processes are identified by id and start time, so no other process gets a signal."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorumlog.cli.cluster.processes import (
    Life,
    ProcessIdentity,
    life_of,
    send,
    spawn,
    wait_gone,
    wait_paused,
)
from quorumlog.errors import TimedOut

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
WAIT_S = 120.0


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[ProcessIdentity]:
    """Start a process that sleeps."""
    name = spawn(
        SLEEPER,
        output=str(tmp_path / "log"),
        folder=str(tmp_path),
        environment={**os.environ, "MARK": "1"},
    )
    try:
        yield name
    finally:
        send(name, signal.SIGKILL)
        wait_gone(name, WAIT_S)


def test_process_runs_pauses_resumes_and_ends(sleeper: ProcessIdentity) -> None:
    assert life_of(sleeper) is Life.RUNNING
    assert send(sleeper, signal.SIGSTOP)
    while life_of(sleeper) is not Life.PAUSED:
        os.sched_yield()
    assert send(sleeper, signal.SIGCONT)
    while life_of(sleeper) is not Life.RUNNING:
        os.sched_yield()
    assert send(sleeper, signal.SIGKILL)
    wait_gone(sleeper, WAIT_S)
    assert life_of(sleeper) is Life.DOWN
    assert not send(sleeper, signal.SIGKILL)


def test_another_process_with_the_id_is_neither_reported_nor_signalled(
    sleeper: ProcessIdentity,
) -> None:
    """A stale file names the id of an ended process that the system has reused."""
    other = ProcessIdentity(sleeper.pid, "boot/12345")
    assert life_of(other) is Life.DOWN
    assert not send(other, signal.SIGKILL)
    wait_gone(other, 0)
    assert life_of(sleeper) is Life.RUNNING


@pytest.mark.parametrize("pid", [-1, 0, 2**22 + 1])
def test_invalid_id_counts_as_down(pid: int) -> None:
    assert life_of(ProcessIdentity(pid, "")) is Life.DOWN
    assert not send(ProcessIdentity(pid, ""), signal.SIGTERM)


def test_process_that_does_not_end_in_time_is_reported(sleeper: ProcessIdentity) -> None:
    with pytest.raises(TimedOut, match=f"process {sleeper.pid}"):
        wait_gone(sleeper, 0.05)


def test_stopped_process_counts_as_paused_after_the_wait(
    sleeper: ProcessIdentity,
) -> None:
    with pytest.raises(TimedOut, match="has not stopped"):
        wait_paused(sleeper, 0.05)
    send(sleeper, signal.SIGSTOP)
    wait_paused(sleeper, WAIT_S)
    assert life_of(sleeper) is Life.PAUSED


def test_process_is_detached_from_the_terminal_and_writes_to_its_file(
    sleeper: ProcessIdentity, tmp_path: Path
) -> None:
    assert os.getsid(sleeper.pid) == sleeper.pid != os.getsid(0)
    while not (tmp_path / "log").read_text().endswith("\n"):
        os.sched_yield()
    assert (tmp_path / "log").read_text() == "up\n"


def test_without_proc_ps_gives_the_same_result(
    sleeper: ProcessIdentity, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("quorumlog.cli.cluster.processes._PROC", str(tmp_path))
    started = subprocess.check_output(
        ["ps", "-o", "lstart=", "-p", str(sleeper.pid)], text=True, env={"LC_ALL": "C"}
    ).strip()
    assert life_of(ProcessIdentity(sleeper.pid, started)) is Life.RUNNING
    assert life_of(ProcessIdentity(sleeper.pid, "Thu Jan  1 00:00:00 1970")) is Life.DOWN
    assert life_of(ProcessIdentity(2**22 + 1, started)) is Life.DOWN
