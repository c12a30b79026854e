"""Child processes import no module of their current folder, where another user may put it."""

import os
import sys
from pathlib import Path

import pytest
from tests.kit.command import invoke

from quorumlog.cli.cluster.processes import spawn, wait_gone
from quorumlog.runtime.child_environment import child_environment
from quorumlog.spark.sessions import check_worker_python
from quorumlog.testing.node_folder import NodeFolder
from quorumlog.testing.node_process import NodeProcess

pytestmark = pytest.mark.slow
WAIT_S = 120.0


def plant(folder: Path, *names: str) -> Path:
    """Create modules that create the returned file when they are imported."""
    mark = folder / "imported"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        text = f"open({str(mark)!r}, 'w').close()\nraise SystemExit(3)\n"
        (folder / f"{name}.py").write_text(text)
    return mark


def test_cluster_node_imports_no_module_of_its_folder(tmp_path: Path) -> None:
    mark = plant(tmp_path / "c" / "node-1", "quorumlog", "json")
    (tmp_path / "c").chmod(0o755)
    (tmp_path / "c" / "node-1").chmod(0o755)
    try:
        result = invoke("cluster", "up", "--nodes", "1", "--data-dir", str(tmp_path / "c"))
        assert not mark.exists()
        assert result.exit_code == 0, result.output
    finally:
        invoke("cluster", "down", "--data-dir", str(tmp_path / "c"))


def test_nodes_of_tests_import_no_module_of_their_folder() -> None:
    home = NodeFolder()
    try:
        rows = {
            "data.dir": str(home.folder / "data"),
            "listeners.grpc": "127.0.0.1:0",
            "listeners.controller": "127.0.0.1:0",
        }
        node = NodeProcess(home, 1, "node 1", rows)
        mark = plant(node.folder, "quorumlog", "json")
        node.start_nowait()
        node.wait_ready(WAIT_S)
        node.stop()
        assert not mark.exists()
    finally:
        home.close()


def test_probe_of_a_worker_python_imports_no_module_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = plant(tmp_path / "shared", "json")
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    monkeypatch.chdir(tmp_path / "shared")
    check_worker_python(str(other))
    assert not mark.exists()


def test_child_of_a_child_imports_no_module_of_the_current_folder(tmp_path: Path) -> None:
    mark = plant(tmp_path / "shared", "victim")
    inner = "import sys, subprocess; subprocess.run([sys.executable, '-m', 'victim'])"
    child = spawn(
        [sys.executable, "-c", inner],
        output=str(tmp_path / "log"),
        folder=str(tmp_path / "shared"),
        environment=child_environment(os.environ),
    )
    wait_gone(child, WAIT_S)
    assert "No module named victim" in (tmp_path / "log").read_text()
    assert not mark.exists()
