"""`quorumlog console` and `quorumlog dev --console`."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.console.process import END_S, Console, Visitor
from tests.kit.command import COMMAND

from quorumlog.errors import InvalidConfig


@pytest.mark.long
def test_dev_serves_a_console_that_ends_with_it(tmp_path: Path) -> None:
    arguments = ["--data-dir", str(tmp_path / "data"), "--grpc-port", "0", "--output", "json"]
    command = [sys.executable, "-P", *COMMAND[1:], "dev", "--console", *arguments]
    shared = tmp_path / "shared"  # another user may have put modules into the current folder
    shared.mkdir()
    for name in ("quorumlog", "json"):
        (shared / f"{name}.py").write_text("raise SystemExit(3)\n")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=shared) as dev:
        try:
            assert dev.stdout is not None
            ready, console = (json.loads(dev.stdout.readline()) for _ in range(2))
            visitor = Visitor(Console(url=console["console"], pid=0))
            visitor.login()
            assert ready["grpc"] in visitor.get("/").body
            dev.send_signal(signal.SIGTERM)
            assert dev.wait(END_S) == 0
            assert dev.stdout.read() == ""  # ends when the console has closed it
        finally:
            dev.kill()


def test_address_beyond_loopback_needs_tls() -> None:
    done = subprocess.run(
        [*COMMAND, "console", "--host", "0.0.0.0", "--output", "json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert json.loads(done.stderr)["error"] == InvalidConfig.name
    assert "--tls-certificate" in done.stderr
