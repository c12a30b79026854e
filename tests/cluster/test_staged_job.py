"""A parallel job with staged commits on three nodes, with kills of its processes and of nodes."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cluster.staged_job_program import RECORDS, TASKS

from quorumlog.testing import Cluster

TOP = Path(__file__).parents[2]
KILLS = 9
END_S = 120


@pytest.mark.long
def test_each_record_counts_once_while_drivers_and_brokers_are_killed(tmp_path: Path) -> None:
    chance = random.Random(1)
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "driver.log"
    checkpoint.write_text("0")
    with Cluster(brokers=3) as cluster:
        cluster.create_topic("out", partitions=3)
        arguments = (cluster.grpc, "out", str(checkpoint))
        driver = start(arguments, output)
        try:
            for turn in range(KILLS):
                wait_for_batch(driver, checkpoint, output)
                time.sleep(chance.uniform(0, 1))  # at any step of a batch
                if turn % 3 < 2:
                    kill(driver)
                    driver = start(arguments, output)
                else:
                    node = chance.choice((1, 2, 3))
                    cluster.kill(node)
                    wait_for_batch(driver, checkpoint, output)
                    cluster.start(node)
            (tmp_path / "checkpoint.stop").touch()
            assert driver.wait(END_S) == 0, output.read_text()
        finally:
            kill(driver)
        with cluster.connect() as log, log.consumer("out", until_end=True) as consumer:
            found = sorted(str(record.text) for record in consumer)
    batches = int(checkpoint.read_text())
    assert batches >= KILLS
    assert found == sorted(
        f"{batch} {task} {number}"
        for batch in range(batches)
        for task in range(TASKS)
        for number in range(RECORDS)
    )


def wait_for_batch(driver: "subprocess.Popen[bytes]", checkpoint: Path, output: Path) -> None:
    """Wait until another batch is committed."""
    before, end_s = checkpoint.read_text(), time.monotonic() + END_S
    while checkpoint.read_text() == before:
        assert driver.poll() is None, output.read_text()
        assert time.monotonic() < end_s, output.read_text()
        time.sleep(0.05)


def start(arguments: tuple[str, ...], output: Path) -> "subprocess.Popen[bytes]":
    """Start the driver as the leader of a process group, which its workers join."""
    with output.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.staged_job_program", *arguments],
            cwd=TOP,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def kill(driver: "subprocess.Popen[bytes]") -> None:
    """Kill the driver and its workers, as `kill -9`."""
    if driver.poll() is None:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
