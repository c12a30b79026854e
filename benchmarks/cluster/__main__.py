"""Measures whole clusters: what replicas cost, failures, restarts, many partitions.

Run: python -m benchmarks.cluster [--only PART] [--kills 30] [--rounds 5] [--seconds 4]
     [--dir FOLDER] [--quick]
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import uvloop
from benchmarks.cluster import failover, replication, restart, scale
from benchmarks.raft.result import keep, machine

Part: TypeAlias = Callable[[Path, argparse.Namespace], Awaitable[Any]]


async def replicas(folder: Path, options: argparse.Namespace) -> Any:
    """Three replicas beside one."""
    found = await replication.measure(folder, rounds=options.rounds, seconds=options.seconds)
    for each in found["ratios"]:
        print(f"{each['what']}: {each['ratio']:.2f} of one replica", flush=True)
    return found


async def kills(folder: Path, options: argparse.Namespace) -> Any:
    """The distributions of failovers."""
    rows = []
    for case in failover.CASES:
        if options.case in case.name:
            place = folder / case.name.replace(" ", "-")
            found = await failover.measure(case, place, kills=options.kills)
            for row in found:
                failover.show(row)
            rows += found
    return {"rows": rows}


async def restarts(folder: Path, options: argparse.Namespace) -> Any:
    """A rolling restart under load."""
    return await restart.measure(folder, settle_s=0.5 if options.quick else 5.0)


async def many(folder: Path, options: argparse.Namespace) -> Any:
    """Many partitions."""
    topics, idle_s = (5, 1.0) if options.quick else (1_000, 20.0)
    return await scale.measure(folder, topics=topics, idle_s=idle_s)


PARTS: dict[str, Part] = {
    "replication": replicas,
    "failover": kills,
    "restart": restarts,
    "scale": many,
}


def main() -> int:
    """Measure, print, store each part by itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, default=None, help="one part")
    parser.add_argument("--case", default="", help="failovers whose name has this; not stored")
    parser.add_argument("--kills", type=int, default=30, help="of each kind")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each row and round")
    parser.add_argument("--dir", type=Path, default=None, help="the disk; default: temporary")
    parser.add_argument("--quick", action="store_true", help="a little of it, not stored")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.kills = 1, 0.3, 1
    for name, part in PARTS.items():
        if options.only not in (None, name):
            continue
        with (
            tempfile.TemporaryDirectory(prefix="quorumlog-cluster-", dir=options.dir) as folder,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            found = runner.run(run(part, Path(folder), options))
        if not options.quick and not options.case:
            keep(f"cluster_{name}", {**machine(), **found})
    return 0


async def run(part: Part, folder: Path, options: argparse.Namespace) -> Any:
    """One part on its own."""
    return await part(folder, options)


if __name__ == "__main__":
    sys.exit(main())
