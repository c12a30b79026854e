"""A mirror between two real nodes while all three processes are killed in turn: copies are right.

`python -m tests.cluster.mirror_soak --minutes 60` writes to a source without a pause, mirrors it,
and kills (SIGKILL) the source, the target or the mirror every few seconds, and starts it again. At
the end a last mirror catches up, and the run fails when

- a record of the source is not in the copy at its offset, with its key, value, time and headers,
  or the copy has one more (of a compacted topic both may lack what a newer record supersedes),
- a record that was acknowledged by the source is in neither,
- a promoted copy does not go on at the next offset.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import quorumlog
from quorumlog.errors import QuorumlogError

from .node_process import NodeProcess

PLAIN, KEYED = "plain", "keyed"
PARTITIONS = {PLAIN: 3, KEYED: 1}
KEYS = 50
TRY_S = 120.0  # for the last mirror
Row = tuple[bytes | None, bytes | None, int, Any]


@dataclass
class Soak:
    """What a run saw."""

    kills: dict[str, int] = field(default_factory=dict)
    acknowledged: set[bytes] = field(default_factory=set)
    records: int = 0
    problems: list[str] = field(default_factory=list)


class MirrorProcess:
    """`quorumlog mirror` between two addresses."""

    def __init__(self, source: str, target: str, folder: Path) -> None:
        self.command = [
            *(sys.executable, "-m", "quorumlog.cli", "mirror", "--from", source, "--to", target),
            *("--topics", ".*", "--refresh", "0.5", "--progress", "1", "-o", "json"),
        ]
        self._log = folder / "mirror.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it says what it does in its log."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def revive(self) -> None:
        """Start it again if it ended, since a side was down when it began."""
        if self._process is not None and self._process.poll() is not None:
            self.start()

    def catch_up(self) -> dict[str, Any]:
        """Run one until it has everything; return what it says at its end."""
        done = subprocess.run(
            [*self.command, "--once"], capture_output=True, timeout=TRY_S, check=False, text=True
        )
        assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
        last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return last


def soak(folder: Path, *, seconds: float, seed: int = 1, pause_s: float = 2.0) -> Soak:
    """Run it; `problems` says what was wrong."""
    seen, rng = Soak(), random.Random(seed)
    with NodeProcess(folder / "source") as source, NodeProcess(folder / "target") as target:
        _create(source.address)
        mirror = MirrorProcess(source.address, target.address, folder)
        mirror.start()
        stop = threading.Event()
        writer = threading.Thread(target=_write, args=(source.address, stop, seen), daemon=True)
        writer.start()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                time.sleep(rng.uniform(0.5, 1.5) * pause_s)
                victim = rng.choice(("source", "target", "mirror"))
                seen.kills[victim] = seen.kills.get(victim, 0) + 1
                processes: dict[str, NodeProcess | MirrorProcess] = {
                    "source": source,
                    "target": target,
                    "mirror": mirror,
                }
                process = processes[victim]
                process.kill()
                time.sleep(rng.uniform(0, 0.5) * pause_s)
                process.start()
                mirror.revive()
        finally:
            stop.set()
            writer.join(60)
            mirror.kill()
        last = mirror.catch_up()
        if last["stopped"] or last["lag"]:
            seen.problems.append(f"the last mirror did not catch up: {last}")
        _compare(source.address, target.address, seen)
        _promote(target.address, seen)
    return seen


def _create(address: str) -> None:
    with quorumlog.connect(address) as log:
        log.admin.create_topic(PLAIN, partitions=PARTITIONS[PLAIN])
        log.admin.create_topic(
            KEYED,
            partitions=PARTITIONS[KEYED],
            configs={
                "cleanup.policy": "compact",
                "segment.bytes": 64 << 10,
                "min.cleanable.dirty.ratio": "0.01",
            },
        )


def _write(address: str, stop: threading.Event, seen: Soak) -> None:
    number = 0
    while not stop.is_set():
        try:
            with quorumlog.connect(address) as log, log.producer() as producer:
                while not stop.is_set():
                    sent = []
                    for _ in range(50):
                        number += 1
                        value = b"%d " % number + b"." * (number % 300)
                        key = b"key%d" % (number % KEYS)
                        topic = KEYED if number % 3 == 0 else PLAIN
                        headers = {"n": b"%d" % number} if number % 5 == 0 else None
                        sent.append((producer.send(topic, value, key=key, headers=headers), value))
                    for delivery, value in sent:
                        delivery.result(timeout=30)
                        seen.acknowledged.add(value)
        except QuorumlogError:
            stop.wait(0.2)


def _rows(address: str, topic: str, partition: int) -> dict[int, Row]:
    with (
        quorumlog.connect(address) as log,
        log.consumer(assign={topic: [partition]}, start="earliest", until_end=True) as consumer,
    ):
        return {
            each.offset: (each.key, each.value, each.timestamp_ms, tuple(each.headers))
            for each in consumer
        }


def _compare(source: str, target: str, seen: Soak) -> None:
    found: set[bytes | None] = set()
    for topic, partitions in PARTITIONS.items():
        for partition in range(partitions):
            theirs, mine = _rows(source, topic, partition), _rows(target, topic, partition)
            name = f"{topic}-{partition}"
            for offset in theirs.keys() & mine.keys():
                if theirs[offset] != mine[offset]:
                    seen.problems.append(f"{name}: the copy differs at offset {offset}")
            if topic == KEYED:
                if _last(theirs) != _last(mine):
                    seen.problems.append(f"{name}: the copy has other newest records of its keys")
            elif theirs.keys() != mine.keys():
                odd = sorted(theirs.keys() ^ mine.keys())[:5]
                seen.problems.append(f"{name}: only one side has the offsets {odd}")
            if topic == PLAIN:
                found |= {value for _, value, *_ in mine.values()}
            seen.records += len(mine)
    lost = [v for v in seen.acknowledged if int(v.split()[0]) % 3 and v not in found]
    if lost:
        seen.problems.append(f"{len(lost)} acknowledged records are not in the copy: {lost[:3]}")


def _last(rows: dict[int, Row]) -> dict[bytes | None, bytes | None]:
    return {key: value for _, (key, value, *_) in sorted(rows.items())}


def _promote(target: str, seen: Soak) -> None:
    with quorumlog.connect(target) as log:
        for topic, partitions in PARTITIONS.items():
            log.admin.alter_configs(topic, delete=["mirror.source"])
            ends = log.list_offsets(topic)
            with log.producer() as producer:
                for partition in range(partitions):
                    delivery = producer.send(topic, b"mine", key=b"k", partition=partition)
                    where = delivery.result(timeout=30)
                    if where.offset != ends[partition]:
                        seen.problems.append(f"{topic}-{partition} went on at {where.offset}")


def main() -> int:
    """Run from the command line; the exit code says whether all was right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause-s", type=float, default=5.0, help="between two kills, about")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quorumlog-mirror-") as folder:
        seen = soak(
            Path(folder),
            seconds=60 * arguments.minutes,
            seed=arguments.seed,
            pause_s=arguments.pause_s,
        )
    print(f"kills {seen.kills}, acknowledged {len(seen.acknowledged)}, copied {seen.records}")
    print("\n".join(seen.problems) or "the copies are right")
    return 1 if seen.problems else 0


if __name__ == "__main__":
    sys.exit(main())
