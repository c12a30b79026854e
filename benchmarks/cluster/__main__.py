"""Measures whole clusters: the cost of replicas, failures, restarts, many partitions.

Run: python -m benchmarks.cluster [--only PART] [--kills 30] [--rounds 5] [--seconds 4]
     [--dir FOLDER] [--quick]
"""

import argparse
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks import parts
from benchmarks.cluster import failover, replication, restart, scale
from benchmarks.raft.result import keep, machine

Part: TypeAlias = Callable[[argparse.Namespace, Path], Awaitable[Any]]


async def replicas(options: argparse.Namespace, folder: Path) -> Any:
    """Measure three replicas compared with one."""
    found = await replication.measure(folder, rounds=options.rounds, seconds=options.seconds)
    for each in found["ratios"]:
        print(f"{each['what']}: {each['ratio']:.2f} of one replica", flush=True)
    return found


async def kills(options: argparse.Namespace, folder: Path) -> Any:
    """Measure the distributions of failovers."""
    rows = []
    for case in failover.CASES:
        if options.case in case.name:
            place = folder / case.name.replace(" ", "-")
            found = await failover.measure(case, place, kills=options.kills)
            for row in found:
                failover.show(row)
            rows += found
    return {"rows": rows}


async def restarts(options: argparse.Namespace, folder: Path) -> Any:
    """Measure a rolling restart under load."""
    return await restart.measure(folder, settle_s=0.5 if options.quick else 5.0)


async def many(options: argparse.Namespace, folder: Path) -> Any:
    """Measure many partitions."""
    topics, idle_s = (5, 1.0) if options.quick else (1_000, 20.0)
    return await scale.measure(folder, topics=topics, idle_s=idle_s)


PARTS: dict[str, Part] = {
    "replication": replicas,
    "failover": kills,
    "restart": restarts,
    "scale": many,
}


def main() -> int:
    """Measure, print, and store each part separately."""
    parser = parts.parser(__doc__, PARTS, rounds=5, seconds=4.0)
    parser.add_argument("--case", default="", help="failovers whose name has this; not stored")
    parser.add_argument("--kills", type=int, default=30, help="of each kind")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.kills = 1, 0.3, 1
    plays = {name: partial(part, options) for name, part in PARTS.items()}
    for name, found in parts.play(plays, options, prefix="quorumlog-cluster-"):
        if not options.quick and not options.case:
            keep(f"cluster_{name}", {**machine(), **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
