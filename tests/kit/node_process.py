"""A node process that a test kills, stops, pauses and starts again at the same address."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from quorumlog.server.main import format_storage, load_config
from quorumlog.testing.ports import Ports

READY_S = 120.0
STOP_S = 120.0

SERVE = """
import sys
from quorumlog.server.main import serve
sys.exit(serve(sys.argv[1], as_json=True))
"""

FORMAT = """
import sys
from quorumlog.server.main import format_storage, load_config
format_storage(load_config(sys.argv[1]))
"""


_PORTS = Ports()  # used until the process ends: a node restarts at its own port


def free_port() -> int:
    """Return a free port that no other process gets while its node is down."""
    return int(_PORTS.take().rpartition(":")[2])


def lose_topic(data_dir: Path, topic: str) -> None:
    """Remove a topic's logs and checkpoint entries from the directory of a stopped node: its
    brokers find the topic in the metadata, without records."""
    for log in data_dir.glob(f"{topic}-*"):
        shutil.rmtree(log)
    for checkpoint in data_dir.glob("*-offset-checkpoint"):
        version, _, *entries = checkpoint.read_text().splitlines()
        kept = [entry for entry in entries if not entry.startswith(f"{topic} ")]
        checkpoint.write_text("\n".join([version, str(len(kept)), *kept, ""]))


class NodeProcess:
    """A node with a configuration file in `folder`; formatted at once, started on enter."""

    def __init__(
        self,
        folder: Path,
        *,
        advertised: str = "",
        settings: Mapping[str, object] | None = None,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        python: Path | None = None,
    ) -> None:
        """`settings` override those of a single node; `prefix` is a command that runs the node's
        command, with `environment` in addition to this process's. `python` is the interpreter of
        another release, which also formats the directory."""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "node.toml"
        self._log = folder / "node.log"
        lines: dict[str, object] = {
            "data.dir": str(folder / "data"),
            "listeners.grpc": f"127.0.0.1:{free_port()}",
            "listeners.controller": f"127.0.0.1:{free_port()}",
        }
        if advertised:
            lines["advertised.grpc"] = advertised
        lines |= settings or {}
        self.address = str(lines["listeners.grpc"])
        self.data_dir = str(lines["data.dir"])
        rows = (f"{name} = {json.dumps(value)}\n" for name, value in lines.items())
        self._file.write_text("".join(rows))
        self._prefix = list(prefix)
        self._environment = {**os.environ, **(environment or {})}
        self.python = python or Path(sys.executable)  # for the next start
        if python is None:
            format_storage(load_config(str(self._file)))
        else:
            command = [str(python), "-c", FORMAT, str(self._file)]
            subprocess.run(command, check=True, env=self._environment)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "NodeProcess":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Return the id of the running process."""
        assert self._process is not None, "the node is down"
        return self._process.pid

    @property
    def is_up(self) -> bool:
        """Return True if it was started, and not killed or stopped since then."""
        return self._process is not None

    def ended(self) -> int | None:
        """Return the exit code if it has exited by itself."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start it and wait until it serves."""
        assert self._process is None, "the node is up"
        with self._log.open("a") as log:
            process = subprocess.Popen(
                [*self._prefix, str(self.python), "-c", SERVE, str(self._file)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
            )
        assert process.stdout is not None
        self._process = process
        seen, _, _ = select.select([process.stdout], [], [], READY_S)
        line = process.stdout.readline() if seen else ""
        if not line:
            self.kill()
            raise AssertionError(f"the node does not start: {self.complaints()[-5_000:]}")

    def kill(self) -> None:
        """Kill it (SIGKILL), without any cleanup. Do nothing if it is down."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def stop(self) -> int:
        """Stop it (SIGTERM); return its exit code."""
        assert self._process is not None, "the node is down"
        self._process.terminate()
        code = self._process.wait(STOP_S)
        self.kill()
        return code

    def pause(self) -> None:
        """Pause it (SIGSTOP): its connections stay open without responses."""
        assert self._process is not None, "the node is down"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it (SIGCONT)."""
        assert self._process is not None, "the node is down"
        self._process.send_signal(signal.SIGCONT)

    def complaints(self) -> str:
        """Return its stderr, of all its processes."""
        return self._log.read_text()
