"""The source through Spark Connect, on `local-cluster` and on a standalone cluster, each in
processes of its own."""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

import quorumlog
from quorumlog.spark.sessions import find_java

PROGRAM = Path(__file__).parent / "cluster_program.py"
SECONDS_MAX = 300
ROWS = 3_000
PARTITIONS = 3


@pytest.fixture
def run(
    broker: Any, log: quorumlog.Log, topic: Callable[..., str], tmp_path: Path
) -> Callable[..., dict[str, Any]]:
    """Run the program on a master; return what it found."""
    name = topic(partitions=PARTITIONS)
    with log.producer() as producer:
        for row in range(ROWS):
            producer.send(name, value=str(row), partition=row % PARTITIONS)

    def run(master: str) -> dict[str, Any]:
        plan = {"master": master, "bootstrap": broker.address, "topic": name}
        plan["folder"] = str(tmp_path)
        done = subprocess.run(
            [sys.executable, str(PROGRAM), json.dumps(plan)],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            cwd=tmp_path,
            env=environment(),
        )
        assert done.returncode == 0, done.stderr[-5_000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run


def environment() -> dict[str, str]:
    """The environment of a user's shell: nothing of the session that runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    kept.pop("SPARK_LOCAL_IP", None)
    return kept


def check(found: dict[str, Any], *, executors: int | None) -> None:
    last = ROWS // PARTITIONS - 1
    expected = [
        [partition, ROWS // PARTITIONS, 0, last, sum(range(partition, ROWS, PARTITIONS))]
        for partition in range(PARTITIONS)
    ]
    assert found["by itself"] == expected
    assert found["batch"] == expected
    assert found["ends"]
    assert found["stream"] == expected
    assert found.get("executors") == executors


def test_spark_connect_reads_and_streams(run: Callable[..., dict[str, Any]]) -> None:
    check(run("connect"), executors=None)


@pytest.mark.long  # the standalone cluster has the same processes, and more
def test_a_local_cluster_reads_and_streams(run: Callable[..., dict[str, Any]]) -> None:
    check(run("local-cluster[2,1,1024]"), executors=2)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers."""
    with contextlib.ExitStack() as ends:
        master = ends.enter_context(daemon("deploy.master.Master", tmp_path, r"(spark://\S+:\d+)"))
        for number in range(2):
            folder = tmp_path / f"worker-{number}"
            arguments = ("-c", "1", "-m", "1g", "-d", str(folder), master)
            ready = "Successfully registered with (master)"
            ends.enter_context(daemon("deploy.worker.Worker", folder, ready, *arguments))
        yield master


@contextlib.contextmanager
def daemon(name: str, folder: Path, ready: str, *arguments: str) -> Iterator[str]:
    """Start a daemon of a cluster on a free port; give the first group of `ready` in its log."""
    folder.mkdir(exist_ok=True)
    home = Path(pyspark.__file__).parent
    java = str(find_java(os.environ))
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    with (folder / f"{name}.log").open("w+") as output:
        process = subprocess.Popen(
            [
                str(home / "bin" / "spark-class"), f"org.apache.spark.{name}",
                "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments,
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment()
            | {"JAVA_HOME": java, "SPARK_HOME": str(home), "SPARK_DAEMON_JAVA_OPTS": options},
        )  # fmt: skip
        try:
            yield wait_for(Path(output.name), ready, process)
        finally:
            process.terminate()
            process.wait(SECONDS_MAX)


def wait_for(path: Path, ready: str, process: subprocess.Popen[bytes]) -> str:
    found = None
    while (found := re.search(ready, path.read_text())) is None:
        assert process.poll() is None, path.read_text()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    return found[1]


def test_a_standalone_cluster_reads_and_streams(
    run: Callable[..., dict[str, Any]], standalone: str
) -> None:
    check(run(standalone), executors=2)
