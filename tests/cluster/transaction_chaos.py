"""A read-process-write program under kills: every input record is counted exactly once.

`python -m tests.cluster.transaction_chaos --minutes 10` runs it and prints a report in JSON. Three
nodes hold input and output. A producer writes numbered records, and a program processes them in
transactions. Brokers, coordinators and the program are killed by SIGKILL all the time; the next
process of the program has the same transactional id. At the end every input record must have
exactly one committed output record, and the group's offsets must be the ends of the input.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import quorumlog
from quorumlog.errors import QuorumlogError
from quorumlog.testing import Cluster

from .transaction_program import FATAL, GROUP, RESULT, SOURCE

ROOT: Final = Path(__file__).resolve().parents[2]
PARTITIONS: Final = 4
SETTLE_S: Final = 180.0
END_S: Final = 60.0  # of a program that was told to stop
INTERNAL: Final = ("__transaction_state", "__consumer_offsets")
SETTINGS: Final[dict[str, object]] = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}


@dataclass(slots=True)
class TransactionChaos:
    """One run."""

    folder: Path
    seconds: float
    seed: int
    pause_s: tuple[float, float] = (0.3, 2.0)
    happened: Counter[str] = field(default_factory=Counter)
    _sent: int = 0
    _lives: int = 0  # of the program
    _is_over: threading.Event = field(default_factory=threading.Event)
    _failures: list[Exception] = field(default_factory=list)  # of the producer
    _program: "subprocess.Popen[bytes] | None" = None

    def run(self) -> dict[str, Any]:
        """Start everything, kill, judge; return the report."""
        began_s = time.monotonic()
        with Cluster(brokers=3, settings=SETTINGS) as cluster:
            try:
                self._kill_until(cluster, began_s + self.seconds)
                self._judge(cluster)
            finally:
                self._is_over.set()
                if self._program is not None:
                    self._program.kill()
                    self._program.wait()
        return {
            "seconds": round(time.monotonic() - began_s, 1),
            "seed": self.seed,
            "events": dict(self.happened),
            "records": self._sent,
            "lives": self._lives,
        }

    def _kill_until(self, cluster: Cluster, end_s: float) -> None:
        for topic in (SOURCE, RESULT):
            cluster.create_topic(topic, partitions=PARTITIONS)
        producing = threading.Thread(target=self._produce, args=(cluster.grpc,))
        producing.start()
        rng = random.Random(self.seed)
        self._start_program(cluster)
        while time.monotonic() < end_s:
            time.sleep(rng.uniform(*self.pause_s))
            self._happen(cluster, rng)
        self._is_over.set()
        producing.join()
        for error in self._failures:
            raise error

    def _produce(self, address: str) -> None:
        """Write numbered records to every partition, many times a second."""
        try:
            with quorumlog.connect(address) as log, log.producer(linger_ms=5) as producer:
                while not self._is_over.is_set():
                    for index in range(PARTITIONS):
                        self._sent += 1
                        producer.send(SOURCE, b"%d" % self._sent, partition=index)
                    producer.flush()
                    self._is_over.wait(0.02)
        except Exception as error:
            self._failures.append(error)

    # --- what happens --------------------------------------------------------------------------

    def _happen(self, cluster: Cluster, rng: random.Random) -> None:
        """Kill the program, a broker, or the leader of an internal topic."""
        self._revive(cluster)
        drawn = rng.random()
        if drawn < 0.4:
            assert self._program is not None
            self._program.kill()
            self._program.wait()
            self._start_program(cluster)
            self.happened["program"] += 1
            return
        number = 1 + rng.randrange(3)
        if drawn < 0.75:
            number = self._leader_of(cluster, rng.choice(INTERNAL)) or number
            self.happened["coordinator"] += 1
        else:
            self.happened["broker"] += 1
        cluster.kill(number)
        time.sleep(rng.uniform(0.0, 1.0))
        cluster.start(number)

    def _leader_of(self, cluster: Cluster, topic: str) -> int:
        """Return the leader of a topic's first partition, 0 if it does not exist yet."""
        try:
            return cluster.leader(topic)
        except QuorumlogError:
            return 0

    def _start_program(self, cluster: Cluster) -> None:
        self._lives += 1
        with (self.folder / "program.log").open("ab") as log:
            self._program = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.cluster.transaction_program"),
                    *(cluster.kafka, "counter", str(PARTITIONS)),
                ],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    def _revive(self, cluster: Cluster) -> None:
        """Start the program again if it ended with a fatal error of the protocol."""
        assert self._program is not None
        code = self._program.poll()
        if code is None:
            return
        assert code == FATAL, f"the program ended with {code}: {self._said()}"
        self.happened["fatal"] += 1
        self._start_program(cluster)

    def _said(self) -> str:
        return (self.folder / "program.log").read_text()[-3_000:]

    # --- the end -------------------------------------------------------------------------------

    def _judge(self, cluster: Cluster) -> None:
        """Wait until all input is processed; compare the committed output with the input."""
        with quorumlog.connect(cluster.grpc) as log:
            ends = {index: 0 for index in range(PARTITIONS)}
            with log.consumer(SOURCE, until_end=True) as consumer:
                for record in consumer:
                    ends[record.partition] = record.offset + 1
            self._wait_until_processed(cluster, log, ends)
            assert self._program is not None
            self._program.send_signal(signal.SIGTERM)
            code = self._program.wait(END_S)
            assert code == 0, f"the program ended with {code}: {self._said()}"
            counted: Counter[str] = Counter()
            with log.consumer(RESULT, until_end=True) as consumer:
                for record in consumer:
                    counted[(record.key or b"").decode()] += 1
        expected = {f"{index}/{offset}" for index, end in ends.items() for offset in range(end)}
        missing, extra = sorted(expected - set(counted)), sorted(set(counted) - expected)
        twice = [key for key, count in counted.items() if count > 1]
        assert not missing, f"{len(missing)} of {len(expected)} records were lost: {missing[:5]}"
        assert not twice, f"{len(twice)} of {len(expected)} records count twice: {twice[:5]}"
        assert not extra, f"{len(extra)} records were never read: {extra[:5]}"

    def _wait_until_processed(
        self, cluster: Cluster, log: quorumlog.Log, ends: dict[int, int]
    ) -> None:
        end_s = time.monotonic() + SETTLE_S
        committed: dict[int, int | None] = {}
        while any(committed.get(index) != end for index, end in ends.items() if end):
            assert time.monotonic() < end_s, f"{committed} of {ends} is processed: {self._said()}"
            self._revive(cluster)
            time.sleep(0.2)
            try:
                group = log.admin.describe_group(GROUP)
            except QuorumlogError:
                continue
            committed = {
                one.partition: one.committed for one in group.offsets if one.topic == SOURCE
            }


def run_transaction_chaos(
    folder: Path, *, seconds: float, seed: int, pause_s: tuple[float, float] = (0.3, 2.0)
) -> dict[str, Any]:
    """Run in a folder of its own; raises AssertionError with what went wrong."""
    return TransactionChaos(folder, seconds, seed, pause_s).run()


def main() -> int:
    """Parse the command line and run; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.transaction_chaos")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        report = run_transaction_chaos(Path(name), seconds=60 * options.minutes, seed=options.seed)
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
