"""Measures groups beside Apache Kafka, and a mirror beside loops that consume and produce.

All of it takes about 20 minutes; each part is stored as soon as it is measured.

Run: python -m benchmarks.groups [--only PART] [--systems NAME,...] [--kills 20] [--rounds 3]
     [--seconds 4] [--dir FOLDER] [--quick]
Before it: python -m benchmarks.kafka_wire.artifacts, which fetches Apache Kafka. Without it ours is
measured alone. --quick is a smoke test, stored nowhere; and with --systems (beginnings of names)
nothing is stored either.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import uvloop
from benchmarks.groups import failover, idle, mirror, rates, rebalance
from benchmarks.groups.rebalance import Size
from benchmarks.groups.systems import FSYNC, allow_many_connections, kinds
from benchmarks.kafka_wire.systems import Kind
from benchmarks.raft.result import keep, machine

Part: TypeAlias = Callable[[Sequence[Kind], Path, argparse.Namespace], Awaitable[dict[str, Any]]]
REBALANCED = Size(members=100, partitions=1_000)
IDLE = Size(members=1_000, partitions=1_000)
TINY = Size(members=3, partitions=6)
WARM_S = 3.0  # of each rate
IDLE_S = 20.0
IDLE_ROUNDS = 1  # a mean over so long moves little, and each needs brokers of its own


async def shares(
    found: Sequence[Kind], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Groups that share out."""
    size = TINY if options.quick else REBALANCED
    measured = await rebalance.measure(found, folder, size=size, rounds=options.rounds)
    return rebalance.summary(measured, size=size)


async def in_a_second(
    found: Sequence[Kind], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Joins and leaves, commits, heartbeats."""
    measured = await rates.measure(
        found,
        folder,
        seconds=options.seconds,
        warm_s=0.1 if options.quick else WARM_S,
        rounds=options.rounds,
    )
    return rates.summary(measured, seconds=options.seconds)


async def at_rest(
    found: Sequence[Kind], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Members that only live."""
    size = TINY if options.quick else IDLE
    seconds = 0.3 if options.quick else IDLE_S
    measured = await idle.measure(found, folder, size=size, seconds=seconds, rounds=IDLE_ROUNDS)
    return {**idle.summary(measured, size=size, seconds=seconds), "rounds": IDLE_ROUNDS}


async def kills(found: Sequence[Kind], folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Coordinators that die."""
    return failover.summary(await failover.measure(found, folder, kills=options.kills))


async def copies(
    found: Sequence[Kind], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """A mirror and loops; between clusters of ours."""
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
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, default=None, help="one part")
    parser.add_argument("--systems", default="", help="those whose names begin so, with commas")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each rate and round")
    parser.add_argument("--dir", type=Path, default=None, help="the disk; default: temporary")
    parser.add_argument("--quick", action="store_true", help="a little of it, not stored")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.kills, options.seconds = 1, 1, 0.2
    return options


def main() -> int:
    """Measure, print, store each part by itself."""
    options = parsed()
    allow_many_connections()
    found, missing = kinds()
    for line in missing:
        print(f"skipped: {line}", file=sys.stderr)
    found = [each for each in found if each.name.startswith(tuple(options.systems.split(",")))]
    for name, part in PARTS.items():
        if options.only not in (None, name):
            continue
        with (
            tempfile.TemporaryDirectory(prefix="quorumlog-groups-", dir=options.dir) as folder,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            measured = found if part is in_a_second else [each for each in found if each != FSYNC]
            result = runner.run(run(part, measured, Path(folder), options))
        for each in result.get("compared", ()):
            verdict = "reached" if each["met"] else "missed"
            print(f"{each['what']}: {each['ratio']:.2f}, goal {each['goal']} {verdict}")
        if not (options.quick or options.systems):
            keep(f"groups_{name}", {**machine(), "rounds": options.rounds, **result})
    return 0


async def run(
    part: Part, found: Sequence[Kind], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """One part on its own."""
    return await part(found, folder, options)


if __name__ == "__main__":
    sys.exit(main())
