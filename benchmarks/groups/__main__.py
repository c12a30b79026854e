"""Measures groups compared with Apache Kafka, and a mirror compared with loops that consume and
produce.

All parts take about 20 minutes; each is stored as soon as it is measured.

Run: python -m benchmarks.groups [--only PART] [--systems NAME,...] [--kills 20] [--rounds 3]
[--seconds 4] [--dir FOLDER] [--quick]
Before it: python -m benchmarks.kafka_wire.artifacts, which fetches Apache Kafka. Without it only
quorumlog is measured. Results with --quick, a smoke test, or --systems (beginnings of names) are
not stored.
"""

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks import parts
from benchmarks.groups import failover, idle, mirror, rates, rebalance
from benchmarks.groups.rebalance import Size
from benchmarks.groups.systems import FSYNC, allow_many_connections, kinds
from benchmarks.kafka_wire import ours
from benchmarks.kafka_wire.systems import Kind
from benchmarks.raft.result import keep, machine

Part: TypeAlias = Callable[[Sequence[Kind], argparse.Namespace, Path], Awaitable[dict[str, Any]]]
REBALANCED = Size(members=100, partitions=1_000)
IDLE = Size(members=1_000, partitions=1_000)
TINY = Size(members=3, partitions=6)
WARM_S = 3.0  # of each rate
IDLE_S = 20.0
IDLE_ROUNDS = 1  # a mean over this time varies little, and each round needs new brokers


async def shares(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure rebalances."""
    size = TINY if options.quick else REBALANCED
    measured = await rebalance.measure(found, folder, size=size, rounds=options.rounds)
    return rebalance.summary(measured, size=size)


async def in_a_second(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure joins and leaves, commits, heartbeats."""
    measured = await rates.measure(
        found,
        folder,
        seconds=options.seconds,
        warm_s=0.1 if options.quick else WARM_S,
        rounds=options.rounds,
    )
    return rates.summary(measured, seconds=options.seconds)


async def at_rest(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure idle members."""
    size = TINY if options.quick else IDLE
    seconds = 0.3 if options.quick else IDLE_S
    measured = await idle.measure(found, folder, size=size, seconds=seconds, rounds=IDLE_ROUNDS)
    return {**idle.summary(measured, size=size, seconds=seconds), "rounds": IDLE_ROUNDS}


async def kills(found: Sequence[Kind], options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure failovers of coordinators."""
    return failover.summary(await failover.measure(found, folder, kills=options.kills))


async def copies(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure a mirror and loops, between clusters of quorumlog."""
    volume = mirror.VOLUME_BYTES // 200 if options.quick else mirror.VOLUME_BYTES
    measured = await mirror.measure(folder, volume_bytes=volume, rounds=options.rounds)
    return mirror.summary(measured)


PARTS: dict[str, Part] = {
    "rebalance": shares,
    "rates": in_a_second,
    "idle": at_rest,
    "failover": kills,
    "mirror": copies,
}


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = parts.parser(__doc__, PARTS, rounds=3, seconds=4.0)
    parser.add_argument("--systems", default="", help="those whose names begin so, with commas")
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.kills, options.seconds = 1, 1, 0.2
    return options


def main() -> int:
    """Measure, print, and store each part separately."""
    options = parsed()
    allow_many_connections()
    found, missing = kinds()
    for line in missing:
        print(f"skipped: {line}", file=sys.stderr)
    found = [each for each in found if each.name.startswith(tuple(options.systems.split(",")))]
    plays = {
        name: partial(
            part,
            found if part is in_a_second else [each for each in found if each != FSYNC],
            options,
        )
        for name, part in PARTS.items()
    }
    for name, result in parts.play(plays, options, prefix="quorumlog-groups-"):
        parts.say(result.get("compared", ()))
        if not (options.quick or options.systems):
            keep(
                f"groups_{name}",
                {**machine(), "build": ours.build(), "rounds": options.rounds, **result},
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
