"""Committed proposals of 256 bytes: quorumlog compared with etcd and PySyncObj, 1,000 in flight and
one.

Three members per system on this machine, each with its own folder on the same disk. quorumlog and
etcd sync before they respond; PySyncObj never does. Every round starts each cluster on new folders,
runs its loads one after the other and ends it; medians of the rounds. CPU seconds are those of
/proc for the three members together, and for the client separately, which has one core at most and
must not limit the result: its share of a core is in the result.

Then the failover, `python -m benchmarks.raft.failover`, unless --no-failover is given.

Run: python -m benchmarks.raft [--rounds 5] [--seconds 4] [--dir FOLDER] [--quick]
etcd is found on PATH or by ETCD=...; a missing system is skipped with a line that says how to
install it. --quick is a smoke test: one short round, not stored.
Goals: at least 1.0 of etcd's commits per second by a stream of proposals, at least 2 of
PySyncObj's, and at most 1.5 of etcd's median latency with one proposal at a time.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import uvloop
from benchmarks import parts
from benchmarks.raft import failover
from benchmarks.raft.cases import MANY, STREAMS, Case, cases
from benchmarks.raft.load import VALUE_BYTES, Outcome
from benchmarks.raft.processes import Refused
from benchmarks.raft.result import comparison, keep, machine, row, sync_ms

Key: TypeAlias = tuple[str, str, int]  # system, way, outstanding
QUICK_S = 0.2
TRIES = 3


@dataclass(slots=True)
class Measured:
    """Outcomes by row, in the order of the first round."""

    outcomes: dict[Key, list[Outcome]] = field(default_factory=dict)
    sync_ms: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # of repeated rounds


async def measure(
    subjects: Sequence[Case], folder: Path, *, rounds: int, seconds: float
) -> Measured:
    """Measure the rounds, all systems in turn within each."""
    measured = Measured()
    for _ in range(rounds):
        measured.sync_ms.append(sync_ms(folder))
        for case in subjects:
            for key, outcome in await take(case, folder, seconds, measured.failures):
                measured.outcomes.setdefault(key, []).append(outcome)
                show(key, outcome)
    return measured


async def take(
    case: Case, folder: Path, seconds: float, failures: list[str]
) -> list[tuple[Key, Outcome]]:
    """Run one system's loads of one round on a new cluster, and repeat them if it loses its
    leader."""
    for _ in range(TRIES):
        taken = []
        try:
            with tempfile.TemporaryDirectory(dir=folder) as home:
                async with case.open(Path(home)) as cluster:
                    for load in case.loads:
                        key = (case.system, load.way, load.outstanding)
                        taken.append((key, await load.run(cluster, seconds)))
            return taken
        except Refused as failure:
            failures.append(f"{case.system}: {failure}")
            print(f"again, since it failed: {failures[-1]}", file=sys.stderr)
    raise Refused(f"{case.system} failed {TRIES} times, see above")


def show(key: Key, outcome: Outcome) -> None:
    """Print one result."""
    system, way, outstanding = key
    print(
        f"{system:<24} {way:<24} {outstanding:>5}  {outcome.commits_per_s:>9,.0f}/s"
        f"  p50 {outcome.p50_ms:8.3f} ms  p99 {outcome.p99_ms:8.3f} ms",
        flush=True,
    )


def summary(measured: Measured) -> dict[str, Any]:
    """Return the rows and the comparisons."""
    rows = {key: row(*key, outcomes) for key, outcomes in measured.outcomes.items()}

    def best(system: str, outstanding: int, *ways: str) -> dict[str, Any] | None:
        found = [
            each
            for (name, way, count), each in rows.items()
            if name.startswith(system) and count == outstanding and (not ways or way in ways)
        ]
        return max(found, key=lambda each: float(each["commits_per_s"]), default=None)

    etcd, peer = best("etcd", MANY), best("PySyncObj", MANY)
    plain_peer = best("PySyncObj", MANY, "injected")
    stream, injected = best("quorumlog", MANY, *STREAMS), best("quorumlog", MANY, "injected")
    one = best("quorumlog", 1, *STREAMS)
    rate = "commits_per_s"
    compared = [
        comparison("by a stream, of etcd", stream, etcd, of=rate, goal=">= 1.0"),
        comparison("injected, of etcd", injected, etcd, of=rate, goal=">= 1.0"),
        comparison("injected, of PySyncObj", injected, plain_peer, of=rate, goal=">= 2.0"),
        comparison("injected, of PySyncObj tuned", injected, peer, of=rate, goal=">= 2.0"),
        comparison("p50 of one, of etcd's", one, best("etcd", 1), of="p50_ms", goal="<= 1.5"),
    ]
    return {
        "rows": list(rows.values()),
        "compared": [each for each in compared if each is not None],
        "failures": measured.failures,
        "sync_ms": round(sorted(measured.sync_ms)[len(measured.sync_ms) // 2], 3),
    }


def main() -> int:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each row and round")
    parser.add_argument("--dir", type=Path, default=None, help="the disk; default: temporary")
    parser.add_argument("--only", default="", help="systems whose name begins so")
    parser.add_argument("--no-failover", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one short round, not stored")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, QUICK_S
    subjects, missing = cases()
    subjects = [each for each in subjects if each.system.startswith(options.only)]
    for line in missing:
        print(f"skipped: {line}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="quorumlog-raft-", dir=options.dir) as folder:
        work = measure(subjects, Path(folder), rounds=options.rounds, seconds=options.seconds)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            measured = runner.run(work)
    result = {
        **machine(),
        "value_bytes": VALUE_BYTES,
        "rounds": options.rounds,
        "seconds": options.seconds,
        **summary(measured),
    }
    parts.say(result["compared"])
    if not options.quick and not options.only:
        keep("raft", result)
    if not options.no_failover:
        return failover.main(["--quick"] if options.quick else [])
    return 0


if __name__ == "__main__":
    sys.exit(main())
