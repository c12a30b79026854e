"""A standalone Spark cluster on this machine: a master and workers in separate processes."""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyspark

from quorumlog.spark.sessions import find_java

END_SECONDS_MAX: Final = 60


def environment() -> dict[str, str]:
    """Return the environment of a user's shell, without the variables of the test session."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    kept.pop("SPARK_LOCAL_IP", None)
    return kept


@contextlib.contextmanager
def cluster(folder: Path, hosts: tuple[str, ...] = ("127.0.0.1", "127.0.0.1")) -> Iterator[str]:
    """Start a master, and on each host a worker with one core; yield the master's address."""
    with contextlib.ExitStack() as ends:
        address = r"(spark://\S+:\d+)"
        master = ends.enter_context(daemon("deploy.master.Master", folder, "127.0.0.1", address))
        for number, host in enumerate(hosts):
            own = folder / f"worker-{number}"
            arguments = ("-c", "1", "-m", "1g", "-d", str(own), master)
            ready = "Successfully registered with (master)"
            ends.enter_context(daemon("deploy.worker.Worker", own, host, ready, *arguments))
        yield master


@contextlib.contextmanager
def daemon(name: str, folder: Path, host: str, ready: str, *arguments: str) -> Iterator[str]:
    """Start a daemon of a cluster on a free port; return the first group of `ready` in its log."""
    folder.mkdir(exist_ok=True)
    home = Path(pyspark.__file__).parent
    path = folder / f"{name}.log"
    own = {"JAVA_HOME": str(find_java(os.environ)), "SPARK_HOME": str(home)}
    own["SPARK_DAEMON_JAVA_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    with path.open("w") as output:
        process = subprocess.Popen(
            [
                str(home / "bin" / "spark-class"), f"org.apache.spark.{name}",
                "--host", host, "--port", "0", "--webui-port", "0", *arguments,
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment() | own,
        )  # fmt: skip
        try:
            yield _wait_for(path, ready, process)
        finally:
            process.terminate()
            process.wait(END_SECONDS_MAX)


def _wait_for(path: Path, ready: str, process: subprocess.Popen[bytes]) -> str:
    while (found := re.search(ready, path.read_text())) is None:
        assert process.poll() is None, path.read_text()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    return found[1]
