"""Soak test: minutes of producing and consuming while the node is killed and stopped in turn.

`python -m tests.cluster.soak --minutes 10 [--restart-s 20] [--json FILE]` runs two client processes
(asyncio and blocking; see `soak_client`) against one node and prints a report. It fails if

- a record is not at its acknowledged position, or a value was never sent,
- a record is stored twice, despite retries,
- memory or file descriptors grow, as `growth` judges; of the node, the last sample before each
  restart counts,
- a thread, an asyncio task or a descriptor is left after the clients were closed,
- a client wrote a traceback.

On a slow machine it runs longer, until there is enough to judge.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit.node_process import NodeProcess

import quorumlog

from .growth import judge, sample_of
from .soak_client import CODES, OUTCOME, TOPIC, code_of

HERE = Path(__file__).parent
LEFT_FDS = 2  # tolerance between two counts: descriptors that the count itself opens
DRAIN_S = 180.0  # for pending records when the soak ends
MORE_S = 200.0  # extra time on a slow machine to reach the minimums below
RESTARTS_MIN = 4  # fewer samples of the node are not enough
ACKNOWLEDGED_MIN = 6_000
FACES = tuple(CODES)


@dataclass
class Soak:
    """The findings of a run."""

    downs: list[tuple[float, float]] = field(default_factory=list)  # (stop, start); monotonic s
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[str, dict[str, Any]] = field(default_factory=dict)  # by face: before and after
    complaints: dict[str, str] = field(default_factory=dict)  # by face: its stderr
    problems: list[str] = field(default_factory=list)


def run(folder: Path, *, seconds: float, restart_s: float) -> dict[str, Any]:
    """Run for `seconds` and return the report; its `problems` is empty if there was no failure."""
    soak = Soak()
    with NodeProcess(folder / "node") as node:
        with quorumlog.connect(node.address) as log:
            log.admin.create_topic(TOPIC, partitions=4)
        clients = {face: _start_client(node.address, face, folder) for face in FACES}
        readers = [
            threading.Thread(target=_collect, args=(soak, face, client))
            for face, client in clients.items()
        ]
        for reader in readers:
            reader.start()
        try:
            _restart_again_and_again(soak, node, clients, seconds=seconds, restart_s=restart_s)
            for client in clients.values():
                assert client.stdin is not None
                client.stdin.close()
            for face, client in clients.items():
                if client.wait(DRAIN_S):
                    soak.problems.append(f"the {face} client ended with {client.returncode}")
        finally:
            for client in clients.values():
                client.kill()
            for reader in readers:
                reader.join()
        for face in FACES:
            soak.complaints[face] = (folder / f"stderr-{face}").read_text()
        stored = _read_everything(node.address)
    return _report(soak, stored, folder, seconds)


def _start_client(address: str, face: str, folder: Path) -> "subprocess.Popen[str]":
    with (folder / f"stderr-{face}").open("w") as stderr:
        return subprocess.Popen(
            [sys.executable, str(HERE / "soak_client.py"), address, face, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )


def _collect(soak: Soak, face: str, client: "subprocess.Popen[str]") -> None:
    """Read a client's lines until it ends."""
    assert client.stdout is not None
    for line in client.stdout:
        row = json.loads(line)
        if "after" in row:
            soak.ends[face] = row
        else:
            soak.samples[face].append(row)
    client.stdout.close()


def _restart_again_and_again(
    soak: Soak,
    node: NodeProcess,
    clients: "dict[str, subprocess.Popen[str]]",
    *,
    seconds: float,
    restart_s: float,
) -> None:
    """Kill and stop the node in turn; sample it before each end. It runs for at least as long as it
    took to start, so that a slow machine makes progress."""
    end_s, start_s = time.monotonic() + seconds, 0.0
    while (left_s := end_s - time.monotonic()) > 0 or (left_s > -MORE_S and _is_little(soak)):
        time.sleep(max(min(restart_s, left_s), start_s))
        for face, client in clients.items():
            if client.poll() is not None:
                soak.problems.append(f"the {face} client ended too early")
                return
        soak.samples["node"].append(sample_of(node.pid))
        gone_s = time.monotonic()
        if len(soak.downs) % 2:
            if code := node.stop():
                soak.problems.append(f"an orderly stop ended with {code}")
        else:
            node.kill()
        begun_s = time.monotonic()
        node.start()
        start_s = time.monotonic() - begun_s
        soak.downs.append((gone_s, time.monotonic()))


def _is_little(soak: Soak) -> bool:
    """Return True if the run has not done enough to be judged."""
    newest = [soak.samples[face][-1] for face in FACES if soak.samples[face]]
    acknowledged = sum(sample["delivered"] for sample in newest)
    return len(soak.downs) < RESTARTS_MIN or acknowledged < ACKNOWLEDGED_MIN


def _read_everything(address: str) -> dict[int, list[int]]:
    """Return the codes of each partition, by offset."""
    stored: dict[int, list[int]] = defaultdict(list)
    with quorumlog.connect(address) as log, log.consumer(TOPIC, until_end=True) as consumer:
        for record in consumer:
            codes = stored[record.partition]
            assert record.offset == len(codes), f"offset {record.offset} follows {len(codes) - 1}"
            codes.append(code_of(record.value))
    return stored


# --- checks --------------------------------------------------------------------------------------


def _report(
    soak: Soak, stored: dict[int, list[int]], folder: Path, seconds: float
) -> dict[str, Any]:
    records = _judge_records(soak, stored, folder)
    growth = {name: judge(soak.problems, name, rows) for name, rows in soak.samples.items()}
    left = {face: _judge_end(soak, face) for face in FACES}
    for face, complaint in soak.complaints.items():
        if "Traceback" in complaint:
            soak.problems.append(f"the {face} client wrote a traceback:\n{complaint[-3_000:]}")
    return {
        "seconds": seconds,
        "restarts": len(soak.downs),
        "down_s": round(sum(back - gone for gone, back in soak.downs), 1),
        **records,
        "growth": growth,
        "left": left,
        "complaint_lines": {face: len(text.splitlines()) for face, text in soak.complaints.items()},
        "problems": soak.problems,
    }


def _judge_records(soak: Soak, stored: dict[int, list[int]], folder: Path) -> dict[str, int]:
    times = Counter(code for codes in stored.values() for code in codes)
    known: Counter[str] = Counter()
    lost = 0
    twice = sum(count > 1 for count in times.values())
    outcomes: set[int] = set()
    for face in FACES:
        content = (folder / f"outcomes-{face}").read_bytes()
        for code, partition, offset, _, _ in OUTCOME.iter_unpack(content):
            outcomes.add(code)
            known["acknowledged" if offset >= 0 else "unknown"] += 1
            if offset >= 0:
                codes = stored.get(partition, [])
                lost += not (offset < len(codes) and codes[offset] == code)
    silent = sum(code not in outcomes for code in times)
    for count, what in (
        (lost, "acknowledged records are not where they were acknowledged"),
        (twice, "records are stored twice"),
        (silent, "stored records never got an outcome"),
    ):
        if count:
            soak.problems.append(f"{count} {what}")
    if not known["acknowledged"]:
        soak.problems.append("nothing was acknowledged")
    return {
        "acknowledged": known["acknowledged"],
        "unknown": known["unknown"],
        "stored": times.total(),
        "stored_twice": sum(count - 1 for count in times.values() if count > 1),
        "lost": lost,
        "consumed": sum(rows[-1]["seen"] for face, rows in soak.samples.items() if face in FACES),
    }


def _judge_end(soak: Soak, face: str) -> dict[str, int]:
    """Compare the resources after the close with those before."""
    end = soak.ends.get(face)
    if end is None:
        soak.problems.append(f"the {face} client did not say how it ended")
        return {}
    left = {
        what: end["after"][what] - end["before"][what]
        for what in ("fds", "threads", "python_threads", "tasks")
    }
    if left["tasks"] > 0 or left["python_threads"] > 0 or left["fds"] > LEFT_FDS:
        soak.problems.append(f"left after the close of the {face} client: {left}")
    return left


def main() -> int:
    """Run, print the report, and return 1 if there are problems."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--restart-s", type=float, default=20.0)
    parser.add_argument("--json", default="", help="write the report here too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = run(Path(folder), seconds=options.minutes * 60, restart_s=options.restart_s)
    print(json.dumps(report, indent=2))
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=2) + "\n")
    print("all held" if not report["problems"] else f"{len(report['problems'])} PROBLEMS")
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
