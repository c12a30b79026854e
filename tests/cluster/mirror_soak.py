"""Soak test of a mirror between two real nodes while all three processes are killed in turn.

`python -m tests.cluster.mirror_soak --minutes 60` writes to a source, reads it as a group, mirrors
it, and kills (SIGKILL) the source, the target or the mirror every few seconds, and starts it again.
The group ends before the producer. A last mirror catches up. The run fails if

- a record of the source is not in the copy at its offset, with its key, value, time and headers, or
  the copy has another record (of a compacted topic both may lack superseded records),
- an acknowledged record is in neither,
- a promoted copy does not continue at the next offset,
- the group has committed another offset in the target than in the source, has not read a record
  below it, or does not continue exactly there once the copies are promoted.
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

from tests.kit.node_process import NodeProcess

import quorumlog
from quorumlog.errors import QuorumlogError

PLAIN, KEYED = "plain", "keyed"
PARTITIONS = {PLAIN: 3, KEYED: 1}
KEYS = 50
GROUP = "readers"
BATCH = 50  # records that are sent together
TRY_S = 300.0  # time limit of the last mirror
VICTIMS = ("source", "target", "mirror")
Place = tuple[str, int]
Row = tuple[bytes | None, bytes | None, int, Any]


@dataclass
class Soak:
    """The findings of a run."""

    kills: dict[str, int] = field(default_factory=dict)
    acknowledged: set[bytes] = field(default_factory=set)
    records: int = 0
    read: dict[Place, set[int]] = field(default_factory=dict)  # offsets returned to the group
    problems: list[str] = field(default_factory=list)


class MirrorProcess:
    """A process of `quorumlog mirror` between two addresses."""

    def __init__(self, source: str, target: str, folder: Path) -> None:
        self.command = [
            *(sys.executable, "-m", "quorumlog.cli", "mirror", "--from", source, "--to", target),
            *("--topics", ".*", "--refresh", "0.5", "--progress", "1", "-o", "json"),
        ]
        self._log = folder / "mirror.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it with its output in its log file."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def revive(self) -> None:
        """Start it again if it exited because a side was unavailable."""
        if self._process is not None and self._process.poll() is not None:
            self.start()

    def catch_up(self) -> dict[str, Any]:
        """Run a mirror until it has caught up; return its output."""
        done = subprocess.run(
            [*self.command, "--once"], capture_output=True, timeout=TRY_S, check=False, text=True
        )
        assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
        last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return last


def soak(
    folder: Path, *, seconds: float, seed: int = 1, pause_s: float = 2.0, rate: float = 500
) -> Soak:
    """Run the test with at most `rate` records per second. `problems` has the failures."""
    seen, rng = Soak(), random.Random(seed)
    with NodeProcess(folder / "source") as source, NodeProcess(folder / "target") as target:
        _create(source.address)
        mirror = MirrorProcess(source.address, target.address, folder)
        mirror.start()
        stop, stop_group = threading.Event(), threading.Event()
        work = (source.address, stop, seen, rate)
        writer = threading.Thread(target=_write, args=work, daemon=True)
        writer.start()
        group = threading.Thread(target=_read, args=(source.address, stop_group, seen), daemon=True)
        group.start()
        end, start_s = time.monotonic() + seconds, 0.0
        try:
            # A slow machine runs longer, with more time between kills, until there is enough to
            # judge.
            while time.monotonic() < end or len(seen.kills) < len(VICTIMS) or not seen.read:
                time.sleep(max(rng.uniform(0.5, 1.5) * pause_s, start_s))
                victim = rng.choice(VICTIMS)
                seen.kills[victim] = seen.kills.get(victim, 0) + 1
                processes: dict[str, NodeProcess | MirrorProcess] = {
                    "source": source,
                    "target": target,
                    "mirror": mirror,
                }
                process = processes[victim]
                process.kill()
                time.sleep(rng.uniform(0, 0.5) * pause_s)
                begun = time.monotonic()
                process.start()
                start_s = max(start_s, time.monotonic() - begun)
                mirror.revive()
        finally:
            stop_group.set()
            group.join(TRY_S)
            written = len(seen.acknowledged)
            while len(seen.acknowledged) < written + 2 * BATCH and writer.is_alive():
                time.sleep(0.01)  # leave records for the group unread
            stop.set()
            writer.join(TRY_S)
            mirror.kill()
        last = mirror.catch_up()
        if last["stopped"] or last["lag"]:
            seen.problems.append(f"the last mirror did not catch up: {last}")
        _compare(source.address, target.address, seen)
        committed = _compare_groups(source.address, target.address, seen)
        _promote(target.address, seen)
        _go_on(target.address, committed, seen)
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


def _write(address: str, stop: threading.Event, seen: Soak, rate: float) -> None:
    number = 0
    while not stop.is_set():
        try:
            with quorumlog.connect(address) as log, log.producer() as producer:
                while not stop.is_set():
                    sent, began = [], time.monotonic()
                    for _ in range(BATCH):
                        number += 1
                        value = b"%d " % number + b"." * (number % 300)
                        key = b"key%d" % (number % KEYS)
                        topic = KEYED if number % 3 == 0 else PLAIN
                        headers = {"n": b"%d" % number} if number % 5 == 0 else None
                        sent.append((producer.send(topic, value, key=key, headers=headers), value))
                    for delivery, value in sent:
                        delivery.result()  # within its own delivery timeout
                        seen.acknowledged.add(value)
                    stop.wait(began + BATCH / rate - time.monotonic())
        except QuorumlogError:
            stop.wait(0.2)


def _read(address: str, stop: threading.Event, seen: Soak) -> None:
    """Read as a member of the group, and commit, until the stop."""
    while not stop.is_set():
        try:
            with (
                quorumlog.connect(address) as log,
                log.group_consumer(GROUP, list(PARTITIONS), start="earliest") as consumer,
            ):
                while not stop.is_set():
                    for each in consumer.poll(timeout_ms=200):
                        seen.read.setdefault((each.topic, each.partition), set()).add(each.offset)
        except QuorumlogError:
            stop.wait(0.2)


def _rows(address: str, topic: str, partition: int) -> dict[int, Row]:
    with (
        quorumlog.connect(address) as log,
        log.consumer({topic: [partition]}, start="earliest", until_end=True) as consumer,
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


def _compare_groups(source: str, target: str, seen: Soak) -> dict[Place, int]:
    """Return the committed offsets of the group in the target."""
    committed = []
    for address in (source, target):
        with quorumlog.connect(address) as log:
            offsets = log.admin.describe_group(GROUP).offsets
            committed.append(
                {(each.topic, each.partition): each.committed or 0 for each in offsets}
            )
    if committed[0] != committed[1]:
        seen.problems.append(f"{GROUP} has committed {committed[0]}, and {committed[1]} in copies")
    for partition in range(PARTITIONS[PLAIN]):
        place = (PLAIN, partition)
        passed = set(range(committed[1].get(place, 0))) - seen.read.get(place, set())
        if passed:
            seen.problems.append(f"{GROUP} passed over {place} {sorted(passed)[:5]}")
    return committed[1]


def _go_on(target: str, committed: dict[Place, int], seen: Soak) -> None:
    """Read the rest with the group in the target: from the committed offset to the end."""
    with quorumlog.connect(target) as log:
        left = {
            (PLAIN, partition): set(range(committed.get((PLAIN, partition), 0), end))
            for partition, end in log.list_offsets(PLAIN).items()
        }
        if not any(left.values()):
            seen.problems.append("nothing was left to read for the group")
        odd: list[tuple[str, int, int]] = []
        end = time.monotonic() + TRY_S
        with log.group_consumer(GROUP, PLAIN, start="earliest") as consumer:
            while any(left.values()) and time.monotonic() < end and not odd:
                for each in consumer.poll(timeout_ms=500):
                    place = (each.topic, each.partition)
                    if each.offset not in left[place]:
                        odd.append((*place, each.offset))
                    left[place].discard(each.offset)
        if odd:
            seen.problems.append(f"{GROUP} was given {odd[:5]} in the target once more")
        if any(left.values()):
            missing = {place: sorted(offsets)[:5] for place, offsets in left.items() if offsets}
            seen.problems.append(f"{GROUP} was not given {missing} in the target")


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
                    where = delivery.result(timeout_ms=int(TRY_S * 1_000))
                    if where.offset != ends[partition]:
                        seen.problems.append(f"{topic}-{partition} went on at {where.offset}")


def main() -> int:
    """Parse the command line, run, and return 0 if there were no problems."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=500, help="records a second at most")
    parser.add_argument("--pause-s", type=float, default=5.0, help="between two kills, about")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quorumlog-mirror-") as folder:
        seen = soak(
            Path(folder),
            seconds=60 * arguments.minutes,
            seed=arguments.seed,
            pause_s=arguments.pause_s,
            rate=arguments.rate,
        )
    read = sum(len(offsets) for offsets in seen.read.values())
    print(
        f"kills {seen.kills}, acknowledged {len(seen.acknowledged)}, copied {seen.records},"
        f" read as a group {read}"
    )
    print("\n".join(seen.problems) or "the copies are right")
    return 1 if seen.problems else 0


if __name__ == "__main__":
    sys.exit(main())
