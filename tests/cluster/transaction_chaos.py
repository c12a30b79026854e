"""Chaos test of read-process-write programs: every input record is counted exactly once.

`python -m tests.cluster.transaction_chaos --minutes 30` runs it and prints a report in JSON. Three
nodes have the input and the outputs. A producer writes numbered records, and a program of each
client processes them in transactions, into an output topic and with a group of its own. Brokers,
coordinators and programs are killed by SIGKILL throughout the run; the next process of a program
has the same transactional id. At the end every input record must have exactly one committed record
in every output, and the offsets of every group must be the ends of the input.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from tests.interop.kafka_jars import java_command

import quorumlog
from quorumlog.errors import QuorumlogError
from quorumlog.testing import Cluster

from .transaction_program import FATAL, RESULT, SOURCE

ROOT: Final = Path(__file__).resolve().parents[2]
JAVA_SOURCE: Final = Path(__file__).with_name("TransactionProgram.java")
FRANZ_SOURCE: Final = Path(__file__).with_name("franz")
CLIENTS: Final = ("confluent", "blocking", "asyncio")
PARTITIONS: Final = 4
SETTLE_S: Final = 180.0
END_S: Final = 60.0  # until a program that is stopped has ended
INTERNAL: Final = ("__transaction_state", "__consumer_offsets")
SETTINGS: Final[dict[str, object]] = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    # A killed member keeps its partitions until its session expires.
    "group.consumer.session.timeout.ms": 4_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
}


def program_command(client: str, cluster: Cluster, folder: Path) -> list[str]:
    """Return the command of a client's program, without its name."""
    if client == "java":
        (java, *options, jars) = java_command()
        classpath = os.pathsep.join(map(str, [*Path(jars).parent.glob("*.jar"), folder]))
        compiler = [java, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-cp", classpath]
        subprocess.run([*compiler, "-d", str(folder), str(JAVA_SOURCE)], check=True)
        return [java, *options, classpath, "-Xmx128m", "TransactionProgram", cluster.kafka]
    if client == "franz-go":
        built = folder / "franz"
        subprocess.run(["go", "build", "-o", str(built), "."], cwd=FRANZ_SOURCE, check=True)
        return [str(built), cluster.kafka]
    module = [sys.executable, "-m", "tests.cluster.transaction_program", client]
    return [*module, cluster.kafka if client == "confluent" else cluster.grpc]


@dataclass(slots=True)
class Program:
    """The consecutive processes of one client's program. Its name is its transactional id and its
    group."""

    name: str
    command: list[str]
    log: Path
    kills: int = 0
    fatal_ends: int = 0
    _process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start a process."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.command, self.name, str(PARTITIONS)], cwd=ROOT, stdout=log, stderr=log
            )

    def revive(self) -> None:
        """Start it again if it ended with a fatal error of the protocol."""
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            assert code == FATAL, f"{self.name} ended with {code}: {self.said()}"
            self.fatal_ends += 1
            self.start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Stop it after its current transaction."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(END_S)
        assert code == 0, f"{self.name} ended with {code}: {self.said()}"

    def said(self) -> str:
        """Return the end of its output."""
        return self.log.read_text()[-3_000:]


@dataclass(slots=True)
class TransactionChaos:
    """One run."""

    folder: Path
    clients: Sequence[str]
    seconds: float
    seed: int
    pause_s: tuple[float, float]
    happened: Counter[str] = field(default_factory=Counter)
    _sent: int = 0
    _is_over: threading.Event = field(default_factory=threading.Event)
    _failures: list[Exception] = field(default_factory=list)  # of the producer
    _programs: list[Program] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        """Start everything, run the kills, and check. Return the report."""
        began_s = time.monotonic()
        with Cluster(brokers=3, settings=SETTINGS) as cluster:
            for client in self.clients:
                command = program_command(client, cluster, self.folder)
                self._programs.append(Program(client, command, self.folder / f"{client}.log"))
            try:
                self._kill_until(cluster, began_s + self.seconds)
                transactions = self._judge(cluster)
            finally:
                self._is_over.set()
                for program in self._programs:
                    program.kill()
        return {
            "seconds": round(time.monotonic() - began_s, 1),
            "seed": self.seed,
            "kills": dict(self.happened),
            "records": self._sent,
            "programs": {
                each.name: {
                    "kills": each.kills,
                    "fatal ends": each.fatal_ends,
                    "markers": transactions[each.name],
                }
                for each in self._programs
            },
        }

    def _kill_until(self, cluster: Cluster, end_s: float) -> None:
        for topic in (SOURCE, *(RESULT.format(client) for client in self.clients)):
            cluster.create_topic(topic, partitions=PARTITIONS)
        producing = threading.Thread(target=self._produce, args=(cluster.grpc,))
        producing.start()
        rng = random.Random(self.seed)
        for program in self._programs:
            program.start()
        while time.monotonic() < end_s:
            time.sleep(rng.uniform(*self.pause_s))
            for program in self._programs:
                program.revive()
            self._happen(cluster, rng)
        self._is_over.set()
        producing.join()
        for error in self._failures:
            raise error

    def _produce(self, address: str) -> None:
        """Write numbered records to every partition, many times per second."""
        try:
            with quorumlog.connect(address) as log, log.producer(linger_ms=5) as producer:
                while not self._is_over.is_set():
                    for index in range(PARTITIONS):
                        self._sent += 1
                        producer.send(SOURCE, b"%d" % self._sent, partition=index)
                    producer.flush()
                    self._is_over.wait(0.04)
        except Exception as error:
            self._failures.append(error)

    # --- events --------------------------------------------------------------------------------

    def _happen(self, cluster: Cluster, rng: random.Random) -> None:
        """Kill a program, a broker, or the leader of an internal topic."""
        drawn = rng.random()
        if drawn < 0.5:
            program = rng.choice(self._programs)
            program.kill()
            program.kills += 1
            program.start()
            self.happened["program"] += 1
            return
        number = 1 + rng.randrange(3)
        if drawn < 0.8:
            number = self._leader_of(cluster, rng) or number
            self.happened["coordinator"] += 1
        else:
            self.happened["broker"] += 1
        cluster.kill(number)
        time.sleep(rng.uniform(0.0, 1.0))
        cluster.start(number)

    def _leader_of(self, cluster: Cluster, rng: random.Random) -> int:
        """Return the leader of a partition of an internal topic, 0 if it does not exist yet."""
        try:
            return cluster.leader(rng.choice(INTERNAL), rng.randrange(3))
        except QuorumlogError:
            return 0

    # --- checks --------------------------------------------------------------------------------

    def _judge(self, cluster: Cluster) -> dict[str, int]:
        """Wait until all input is processed; compare the committed outputs with the input. Return
        the number of offsets without a committed record in each output."""
        transactions = {}
        with quorumlog.connect(cluster.grpc) as log:
            ends = {index: 0 for index in range(PARTITIONS)}
            with log.consumer(SOURCE, until_end=True) as consumer:
                for record in consumer:
                    ends[record.partition] = record.offset + 1
            for program in self._programs:
                self._wait_until_processed(log, program, ends)
            for program in self._programs:
                program.stop()
                transactions[program.name] = check_output(log, program.name, ends)
        return transactions

    def _wait_until_processed(
        self, log: quorumlog.Log, program: Program, ends: dict[int, int]
    ) -> None:
        end_s = time.monotonic() + SETTLE_S
        committed: dict[int, int | None] = {}
        while any(committed.get(index) != end for index, end in ends.items() if end):
            assert time.monotonic() < end_s, (
                f"{program.name}: {committed} of {ends} is processed: {program.said()}"
            )
            for each in self._programs:
                each.revive()
            time.sleep(0.2)
            try:
                group = log.admin.describe_group(program.name)
            except QuorumlogError:
                continue
            committed = {
                one.partition: one.committed for one in group.offsets if one.topic == SOURCE
            }


def check_output(log: quorumlog.Log, name: str, ends: dict[int, int]) -> int:
    """Check that each record of the input is in a program's output exactly once. Return the number
    of offsets without a committed record: of aborted records and of markers."""
    counted: Counter[str] = Counter()
    with log.consumer(RESULT.format(name), until_end=True) as consumer:
        for record in consumer:
            counted[(record.key or b"").decode()] += 1
        end = sum(consumer.end_offsets().values())
    expected = {f"{index}/{offset}" for index, end in ends.items() for offset in range(end)}
    missing, extra = sorted(expected - set(counted)), sorted(set(counted) - expected)
    twice = [key for key, count in counted.items() if count > 1]
    assert not missing, f"{name}: {len(missing)} of {len(expected)} were lost: {missing[:5]}"
    assert not twice, f"{name}: {len(twice)} of {len(expected)} count twice: {twice[:5]}"
    assert not extra, f"{name}: {len(extra)} records were never read: {extra[:5]}"
    return end - len(expected)


def others() -> list[str]:
    """Return the clients in other languages that this machine can run."""
    found = []
    try:
        java_command()
        found.append("java")
    except pytest.skip.Exception as reason:
        print(f"without java: {reason}", flush=True)
    if shutil.which("go") is None:
        print("without franz-go: there is no go on the PATH", flush=True)
    else:
        found.append("franz-go")
    return found


def run_transaction_chaos(
    folder: Path,
    *,
    clients: Sequence[str],
    seconds: float,
    seed: int,
    pause_s: tuple[float, float] = (0.3, 2.5),
) -> dict[str, Any]:
    """Run the test in a folder. Raise AssertionError with the failure."""
    return TransactionChaos(folder, clients, seconds, seed, pause_s).run()


def main() -> int:
    """Parse the command line and run; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.transaction_chaos")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    clients = [*CLIENTS, *others()]
    with tempfile.TemporaryDirectory() as name:
        seconds = 60 * options.minutes
        report = run_transaction_chaos(
            Path(name), clients=clients, seconds=seconds, seed=options.seed
        )
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
