"""Nodes and files of a test process are removed after any end of it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kit.waits import wait_until_blocking

from quorumlog.testing import guard
from quorumlog.testing.node_folder import NodeFolder

ABANDONED = Path(__file__).with_name("abandoned_program.py")
WAIT_S = 60.0
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def is_alive(pid: int) -> bool:
    """Return True if the process exists. A zombie does not count."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sleep", "60"], start_new_session=True)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nodes_and_files_of_a_killed_test_are_removed(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, ABANDONED], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        addresses = json.loads(program.stdout.readline())
        folder = Path(addresses["folder"])
        assert len(addresses["pids"]) == 2
        assert all(map(is_alive, addresses["pids"]))
        assert folder.is_dir()
        program.send_signal(number)
        program.wait()
    wait_until_blocking(lambda: not any(map(is_alive, addresses["pids"])), "a node runs on")
    wait_until_blocking(lambda: not folder.exists(), f"{folder} is still there")


def test_a_home_that_is_closed_leaves_neither_folder_nor_guard() -> None:
    home = NodeFolder()
    (home.folder / "file").write_text("x")
    with sleeper() as child:
        home.started(child.pid)
        child.kill()
        home.ended(child.pid)
    home.close()
    assert not home.folder.exists()
    home.close()


def guarding(folder: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-I", "-S", guard.__file__, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE)


def test_guard_kills_remaining_processes_and_no_ended_ones(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "file").write_text("x")
    with sleeper() as left, sleeper() as gone:
        with guarding(folder) as guarded:
            assert guarded.stdin is not None
            guarded.stdin.write(b"child %d\nchild %d\ngone %d\n" % (left.pid, gone.pid, gone.pid))
            guarded.stdin.close()
        assert left.wait(WAIT_S) == -signal.SIGKILL
        assert gone.poll() is None, "the id may belong to another process"
        gone.kill()
    assert not folder.exists()


def test_guard_does_nothing_after_a_regular_end(tmp_path: Path) -> None:
    with guarding(tmp_path) as guarded:
        guarded.communicate(b"done\n")
    assert guarded.returncode == 0
    assert tmp_path.exists()


def test_guard_ignores_signals_that_end_the_test(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    with sleeper() as child, guarding(folder) as guarded:
        assert guarded.stdin is not None
        guarded.stdin.write(b"child %d\n" % child.pid)
        guarded.stdin.flush()
        wait_until_blocking(
            lambda: all(_ignores(guarded.pid, each) for each in ENDS), "it never comes up"
        )
        for number in ENDS:
            guarded.send_signal(number)
        guarded.stdin.close()
        assert child.wait(WAIT_S) == -signal.SIGKILL


def _ignores(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.split("SigIgn:")[1].split()[0], 16) & 1 << (number - 1))


def test_forked_child_of_a_test_does_not_remove_its_home() -> None:
    home = NodeFolder()
    pid = os.fork()
    if pid == 0:
        home.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert home.folder.is_dir()
    home.close()
    assert not home.folder.exists()
