"""The examples run and have the results that their docstrings describe."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import quorumlog
from quorumlog.testing import Broker

EXAMPLES = Path(__file__).parents[2] / "examples"
PLAYED_ELSEWHERE = {
    "flights.py",  # `make demo`
    "flights_nodes.py",  # and test_demo_nodes.py
    "flights_stream.py",
    *(f"spark_{name}.py" for name in ("delays", "features", "upserts")),  # tests/spark
}
WAIT_S = 240

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Start the broker that all tests of this file share; return its gRPC address."""
    with Broker() as broker:
        yield broker.grpc


def run(example: str, *arguments: str, folder: Path) -> str:
    """Run an example and return its output."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / example), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def send(address: str, topic: str, *values: str) -> None:
    with quorumlog.connect(address) as log:
        log.admin.create_topic(topic, if_not_exists=True)
        with log.producer() as producer:
            for value in values:
                producer.send(topic, value, key=b"k")


@pytest.mark.long
def test_tail_resumes_at_its_last_position(address: str, tmp_path: Path) -> None:
    arguments = ("tailed", "--bootstrap", address, "--until-end")
    send(address, "tailed", "one", "two")
    assert run("tail.py", *arguments, folder=tmp_path) == "0:0 one\n0:1 two\n"
    send(address, "tailed", "three")
    assert run("tail.py", *arguments, folder=tmp_path) == "0:2 three\n"
    assert run("tail.py", *arguments, folder=tmp_path) == ""


def test_pipeline_sends_invalid_records_to_a_separate_topic(address: str, tmp_path: Path) -> None:
    late = json.dumps({"carrier": "UA", "dep_delay": 20})
    send(address, "departed", late, "no JSON", json.dumps({"carrier": "AA"}))
    arguments = ("departed", "delays", "--bootstrap", address, "--until-end")
    output = run("pipeline.py", *arguments, folder=tmp_path)
    assert output == "2 records to delays, 1 to departed.dead\n"
    with quorumlog.connect(address) as log:
        found = [json.loads(record.value or b"") for record in read(log, "delays")]
        assert found == [{"carrier": "UA", "late": True}, {"carrier": "AA", "late": False}]
        (dead,) = read(log, "departed.dead")
        assert (dead.key, dead.value) == (b"k", b"no JSON")
        assert dict(dead.headers)["error"]


def read(log: quorumlog.Log, topic: str) -> list[quorumlog.ConsumerRecord]:
    with log.consumer(topic, until_end=True) as consumer:
        return list(consumer)


@pytest.mark.long
def test_arrow_tables_are_written_and_read_twice(address: str, tmp_path: Path) -> None:
    for _ in range(2):
        output = run(
            "arrow_roundtrip.py", "--bootstrap", address, "--rows", "3000", folder=tmp_path
        )
        assert output.startswith("3,000 rows there and back")
        assert output.endswith("equal: True\n")


@pytest.mark.long
def test_parallel_job_commits_the_records_of_all_processes_once(
    address: str, tmp_path: Path
) -> None:
    job = ("totals", "--bootstrap", address, "--tasks", "3", "--number")
    output = run("parallel_job.py", *job, "17", "--fail-first", folder=tmp_path)
    assert output == "batch 17 is committed: 300 records\n"
    again = run("parallel_job.py", *job, "17", folder=tmp_path)
    assert again == "batch 17 was committed before: 300 records\n"
    with quorumlog.connect(address) as log:
        found = sorted(str(record.text) for record in read(log, "totals"))
    assert found == sorted(f"task {task}, record {n}" for task in range(3) for n in range(100))


def test_every_example_is_run() -> None:
    text = Path(__file__).read_text()
    names = {path.name for path in EXAMPLES.glob("*.py")} - PLAYED_ELSEWHERE
    assert all(f'"{name}"' in text for name in names), names
