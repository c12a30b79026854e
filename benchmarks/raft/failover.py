"""The time of three controllers without a leader, from the end of the active one to a committed
proposal.

A client tries the remaining members every 10 ms until one commits a proposal; the time is measured
from the signal to that response. The member is started again and has caught up before the next one
ends. kill -9 with the default timeouts and with half of them, and SIGTERM, after which it resigns
before it exits. etcd, for comparison, also has a heartbeat of 100 ms and elections after 1 to 2 s.

Run: python -m benchmarks.raft.failover [--kills 30] [--dir FOLDER] [--quick]
Goals for the median: under 2 s with default timeouts, under 1.2 s with halved ones, under 0.3 s
after SIGTERM.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import uvloop
from benchmarks.raft import etcd
from benchmarks.raft.controllers import Controllers
from benchmarks.raft.load import percentile
from benchmarks.raft.processes import Member, Refused
from benchmarks.raft.result import keep, machine

HALVED = {"controller.heartbeat.ms": 50, "controller.election.timeout.ms": 500}
ASK_S = 0.01  # interval of requests to each remaining member, independent of responses
ANSWER_S = 0.25  # a later response is ignored
FAILOVER_S = 120.0
SETTLE_S = (0.3, 0.6)  # between two ends, random: independent of heartbeats


class Cluster(Protocol):
    """A cluster that can lose its leader."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses for clients, by member."""

    @property
    def members(self) -> list[Member]:
        """The processes."""

    async def __aenter__(self) -> "Cluster":
        """Start it."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it."""

    async def find_leader(self) -> int:
        """Return the leader once all members agree."""

    def restart(self, number: int) -> None:
        """Start a member again."""

    async def commits(self, address: str, within_s: float) -> bool:
        """Return True if a proposal made there is committed in this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The end of the active voter."""

    name: str
    open: Callable[[Path], Cluster]
    is_graceful: bool
    goal_s: float | None  # for the median


OURS = (
    Case(name="kill -9, default time-outs", open=Controllers, is_graceful=False, goal_s=2.0),
    Case(
        name="kill -9, halved time-outs",
        open=lambda folder: Controllers(folder, settings=HALVED),
        is_graceful=False,
        goal_s=1.2,
    ),
    Case(name="SIGTERM, default time-outs", open=Controllers, is_graceful=True, goal_s=0.3),
)


def cases() -> tuple[list[Case], list[str]]:
    """Return all cases that can run here, and the requirements of the others."""
    found = list(OURS)
    if (program := etcd.program()) is None:
        return found, [etcd.MISSING]

    def open_(folder: Path) -> Cluster:
        return etcd.Etcd(folder, program)

    for way, is_graceful in (("kill -9", False), ("SIGTERM", True)):
        name = f"{way}, etcd with its defaults"
        found.append(Case(name=name, open=open_, is_graceful=is_graceful, goal_s=None))
    return found, []


async def until_committed(cluster: Cluster, addresses: Sequence[str]) -> None:
    """Propose at all addresses, again every ASK_S, until one proposal is committed."""
    asked: set[asyncio.Task[bool]] = set()
    deadline_s = time.monotonic() + FAILOVER_S
    try:
        while time.monotonic() < deadline_s:
            asked |= {asyncio.create_task(cluster.commits(each, ANSWER_S)) for each in addresses}
            due_s = time.monotonic() + ASK_S
            while asked and (left_s := due_s - time.monotonic()) > 0:
                done, asked = await asyncio.wait(
                    asked, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                if any(task.result() for task in done):
                    return
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    raise Refused(f"nothing was committed within {FAILOVER_S:.0f} s of the end of the leader")


async def ends(case: Case, folder: Path, kills: int) -> list[float]:
    """Return the seconds of each failover."""
    spent_s = []
    async with case.open(folder) as quorum:
        for _ in range(kills):
            leader = await quorum.find_leader()
            await until_committed(quorum, [quorum.addresses[leader]])
            await asyncio.sleep(random.uniform(*SETTLE_S))
            survivors = [
                address for number, address in enumerate(quorum.addresses) if number != leader
            ]
            began_s = time.perf_counter()
            end: Callable[[], None] = (
                quorum.members[leader].stop if case.is_graceful else quorum.members[leader].kill
            )
            end()
            await until_committed(quorum, survivors)
            spent_s.append(time.perf_counter() - began_s)
            if case.is_graceful and not quorum.members[leader].is_stopped(FAILOVER_S):
                raise Refused(f"no orderly stop: {quorum.members[leader].complaints()}")
            if len(spent_s) < kills:
                quorum.restart(leader)
    return spent_s


def distribution(case: Case, spent_s: list[float]) -> dict[str, Any]:
    """Return the row of a distribution."""
    ascending = sorted(spent_s)
    median_s = statistics.median(ascending)
    return {
        "case": case.name,
        "count": len(ascending),
        "min_s": round(ascending[0], 3),
        "median_s": round(median_s, 3),
        "p90_s": round(percentile(ascending, 0.9), 3),
        "max_s": round(ascending[-1], 3),
        "goal_median_s": case.goal_s,
        "met": case.goal_s is None or median_s < case.goal_s,
        "all_s": [round(each, 3) for each in spent_s],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30, help="of each case")
    parser.add_argument("--dir", type=Path, default=None, help="the disk; default: temporary")
    parser.add_argument("--quick", action="store_true", help="one kill each, not stored")
    parser.add_argument("--only", default="", help="cases whose name has this")
    options = parser.parse_args(arguments)
    rows = []
    chosen, missing = cases()
    for line in missing:
        print(f"skipped: {line}", file=sys.stderr)
    for case in chosen:
        if options.only not in case.name:
            continue
        with tempfile.TemporaryDirectory(prefix="quorumlog-failover-", dir=options.dir) as folder:
            work = ends(case, Path(folder), 1 if options.quick else options.kills)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                rows.append(distribution(case, runner.run(work)))
        row = rows[-1]
        print(
            f"{case.name:<28} min {row['min_s']:.3f}  median {row['median_s']:.3f}"
            f"  p90 {row['p90_s']:.3f}  max {row['max_s']:.3f} s  (goal {case.goal_s or 'none'})",
            flush=True,
        )
    if not options.quick and not options.only:
        keep("raft_failover", {**machine(), "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
