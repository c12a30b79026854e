"""Rates of backup and restore of a topic, compared with a bare copy of the same bytes.

A broker has a topic of random records. Each round copies the segments of the topic to a new folder
with `shutil` and syncs each file, then makes a backup of the topic in a new folder, then restores
it to a second broker. The times of the commands include the start of their processes. Everything is
on one disk, and read from the page cache if it fits.

Run: python benchmarks/backup.py [--rounds 3] [--size-mib 1024] [--partitions 4] [--data-dir DIR]
Goal: backup and restore reach at least 0.5 of the rate of the bare copy.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quorumlog.clients.blocking import Log
from quorumlog.testing import Broker

RECORD_BYTES = 1_000
GOAL = 0.5
TOPIC = "measured"
RESULTS = Path(__file__).parent / "results"


def fill(log: Log, size: int, partitions: int) -> None:
    """Write `size` bytes of random records, evenly to all partitions."""
    log.admin.create_topic(TOPIC, partitions=partitions, configs={"segment.bytes": 256 << 20})
    block = os.urandom(RECORD_BYTES * 1_000)
    values = [block[at : at + RECORD_BYTES] for at in range(0, len(block), RECORD_BYTES)]
    with log.producer(batch_size=1 << 20) as producer:
        for number in range(size // len(block)):
            producer.send_many(TOPIC, values, partition=number % partitions)
            if number % 20 == 0:
                producer.flush()


def bare_copy(source: Path, target: Path) -> int:
    """Copy the topic's segments and sync each copy; return their size in bytes."""
    copied = 0
    for path in sorted(source.glob(f"{TOPIC}-*/*.log")):
        to = target / path.parent.name / path.name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)
        with to.open("rb+") as file:
            os.fsync(file.fileno())
        copied += path.stat().st_size
    return copied


def command(*words: str) -> dict[str, Any]:
    """Run `quorumlog backup` and return its result."""
    done = subprocess.run(
        [sys.executable, "-m", "quorumlog.cli", "backup", *words, "-o", "json", "--progress", "0"],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def timed(work: Callable[[], object]) -> float:
    """Return the duration of the work in seconds."""
    begun_s = time.perf_counter()
    work()
    return time.perf_counter() - begun_s


def play_round(folder: Path, source: Broker, target: Broker) -> dict[str, float]:
    """Measure one round; return the rate of each row in bytes per second."""
    copied: list[int] = []
    copy_s = timed(lambda: copied.append(bare_copy(source.data_dir, folder / "copy")))
    size = copied[0]
    shutil.rmtree(folder / "copy")
    store = str(folder / "store")
    names = ("--topics", TOPIC)
    backup_s = timed(lambda: command("create", "--to", store, *names, "-b", source.grpc))
    restore_s = timed(lambda: command("restore", "--from", store, "-b", target.grpc))
    with target.connect() as log:
        log.admin.delete_topic(TOPIC)
    shutil.rmtree(store)
    return {"bare copy": size / copy_s, "backup": size / backup_s, "restore": size / restore_s}


def main() -> None:
    """Measure, print the rows, and store them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--data-dir", default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.data_dir) as name:
        folder = Path(name)
        with (
            Broker(data_dir=folder / "source") as source,
            Broker(data_dir=folder / "target") as target,
        ):
            with source.connect() as log:
                fill(log, options.size_mib << 20, options.partitions)
            rounds = [play_round(folder, source, target) for _ in range(options.rounds)]
    for row in rounds[0]:
        rates = [each[row] for each in rounds]
        ratio = statistics.median([each[row] / each["bare copy"] for each in rounds])
        verdict = "" if row == "bare copy" else ("  reached" if ratio >= GOAL else "  missed")
        print(f"{row:10} {statistics.median(rates) / 1e6:8.0f} MB/s  {ratio:5.2f}{verdict}")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "backup.json").write_text(json.dumps({"rounds": rounds}, indent=2) + "\n")


if __name__ == "__main__":
    main()
