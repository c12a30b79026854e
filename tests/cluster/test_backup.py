"""A backup of a cluster and its restore, with kills of the commands and of a node."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest

from quorumlog.clients.blocking import Log
from quorumlog.errors import QuorumlogError
from quorumlog.testing import Broker, Cluster

pytest.importorskip("obstore")

TOPICS: Final = {"plain": 3, "keyed": 1, "small": 2}
GROUP: Final = "readers"
SIZE: Final = 20_000  # bytes of a record: some objects in each partition
RECORDS: Final = 1_000  # of a partition
COMMAND: Final = (sys.executable, "-m", "quorumlog.cli", "backup")
ATTEMPTS_MAX: Final = 40
TRY_S: Final = 300.0


def start(*words: str, address: str) -> "subprocess.Popen[str]":
    """Start `quorumlog backup`."""
    command = [*COMMAND, *words, "-b", address, "-o", "json", "--progress", "0.2"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Wait for the end of a command; return its result."""
    out, err = process.communicate(timeout=TRY_S)
    assert process.returncode == 0, out[-2_000:] + err[-2_000:]
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


def killed_some_times(
    words: tuple[str, ...], again: tuple[str, ...], address: str, rng: random.Random
) -> int:
    """Kill (SIGKILL) the command at random times until an attempt ends uninterrupted. Return the
    number of kills that interrupted one."""
    kills, wait_s = 0, 0.6
    for _ in range(ATTEMPTS_MAX):
        process = start(*words, *(again if kills else ()), address=address)
        try:
            process.wait(rng.uniform(0.5, 1.0) * wait_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills, wait_s = kills + 1, wait_s * 1.5
            continue
        out, err = process.communicate()
        assert process.returncode == 0, out[-2_000:] + err[-2_000:]
        return kills
    raise AssertionError(f"the command did not end in {ATTEMPTS_MAX} attempts")


def fill(log: Log) -> None:
    """Fill all topics, and read a part as a group."""
    for name, partitions in TOPICS.items():
        configs = {"retention.ms": 86_400_000, "segment.bytes": 4 << 20}
        log.admin.create_topic(name, partitions=partitions, configs=configs)
    with log.producer() as producer:
        for number in range(RECORDS):
            for name, partitions in TOPICS.items():
                size = 50 if name == "small" else SIZE
                for partition in range(partitions):
                    value = random.Random(f"{name}{partition}{number}").randbytes(size)
                    producer.send(name, value, key=b"%d" % number, partition=partition)
            if number % 100 == 0:
                producer.flush()
    with log.group_consumer(GROUP, ["plain", "small"]) as consumer:
        read = 0
        while read < RECORDS:
            read += len(consumer.poll(timeout_ms=1_000))
        consumer.commit()


def contents(log: Log) -> dict[tuple[str, int], list[Any]]:
    """Return every record of each partition."""
    found: dict[tuple[str, int], list[Any]] = {}
    for name, partitions in TOPICS.items():
        for partition in range(partitions):
            with log.consumer([(name, partition)], until_end=True) as consumer:
                found[name, partition] = [
                    (each.offset, each.timestamp_ms, each.key, each.value, each.headers)
                    for each in consumer
                ]
    return found


def offsets(log: Log) -> dict[tuple[str, int], int | None]:
    group = log.admin.describe_group(GROUP)
    return {(each.topic, each.partition): each.committed for each in group.offsets}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_backup_survives_kills_of_its_commands_and_of_a_node(tmp_path: Path) -> None:
    rng = random.Random(7)
    store = str(tmp_path / "store")
    with Cluster(brokers=3) as cluster, Broker() as broker:
        with cluster.connect() as log:
            fill(log)
            expected, committed = contents(log), offsets(log)
            ends = {name: log.list_offsets(name) for name in TOPICS}
            configs = {name: log.admin.describe_topic(name).configs for name in TOPICS}
        words: tuple[str, ...] = ("create", "--to", store, "--bandwidth", "40MiB")
        slow = start(*words, address=cluster.grpc)
        wait_for(lambda: any((tmp_path / "store").glob("data/*/*/*")))
        victim = cluster.leader("plain")
        cluster.kill(victim)
        finish(slow)
        cluster.start(victim)
        other = str(tmp_path / "other")
        words = ("create", "--to", other, "--bandwidth", "40MiB")
        assert killed_some_times(words, (), cluster.grpc, rng) > 0
        for place in (store, other):
            assert finish(start_plain("verify", "--from", place))["damaged"] == 0
        words = ("restore", "--from", other, "--bandwidth", "40MiB", "--replication", "1")
        assert killed_some_times(words, ("--resume",), broker.grpc, rng) > 0
        with broker.connect() as log:
            assert contents(log) == expected
            assert offsets(log) == committed
            assert {name: log.list_offsets(name) for name in TOPICS} == ends
            assert {name: log.admin.describe_topic(name).configs for name in TOPICS} == configs
            with log.producer() as producer:
                producer.send("keyed", b"next").result()


def start_plain(*words: str) -> "subprocess.Popen[str]":
    """Start a command without a cluster."""
    return subprocess.Popen(
        [*COMMAND, *words, "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: Any) -> None:
    """Wait until the condition holds."""
    until_s = time.monotonic() + TRY_S
    while time.monotonic() < until_s:
        try:
            if condition():
                return
        except (OSError, QuorumlogError):
            pass
        time.sleep(0.05)
    raise AssertionError("the condition does not hold")
