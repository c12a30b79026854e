"""`quorumlog console` and `quorumlog dev --console`."""

import json
import signal
import subprocess
from pathlib import Path

from tests.console.process import END_S, Console, Visitor
from tests.kit.command import COMMAND

from quorumlog.errors import InvalidConfig


def test_dev_serves_a_console_that_ends_with_it(tmp_path: Path) -> None:
    arguments = ["--data-dir", str(tmp_path / "data"), "--grpc-port", "0", "--output", "json"]
    with subprocess.Popen(
        [*COMMAND, "dev", "--console", *arguments], stdout=subprocess.PIPE, text=True
    ) as dev:
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
