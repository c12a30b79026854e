"""Measures transactions compared with Apache Kafka. All of it takes about 20 minutes.

Run: python -m benchmarks.transactions [--only PART] [--systems NAME,...] [--ids 100000] [--kills 3]
[--rounds 3] [--seconds 10] [--dir FOLDER] [--quick]
Before it: python -m benchmarks.kafka_wire.artifacts, which fetches Apache Kafka. Each part is
stored when it is measured; results with --quick, a smoke test, or --systems (beginnings of names)
are not stored.
"""

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks import parts
from benchmarks.groups.systems import allow_many_connections
from benchmarks.kafka_wire import ours
from benchmarks.kafka_wire.systems import Kind
from benchmarks.raft.result import keep, machine
from benchmarks.transactions import fetch, idle, rates, recovery
from benchmarks.transactions.systems import kinds

Part: TypeAlias = Callable[[Sequence[Kind], argparse.Namespace, Path], Awaitable[dict[str, Any]]]
WARM_S = 10.0  # of each producer
PRODUCERS = 1_000
IDLE_S = 20.0
IDLE_ROUNDS = 1
QUICK_IDS = 200
QUICK_PRODUCERS = 20


async def transactions(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure small transactions."""
    measured = await _rates(found, options, folder, rates.SMALL)
    return rates.rate_summary(measured, seconds=options.seconds)


async def sends(found: Sequence[Kind], options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure transactional and idempotent sends."""
    measured = await _rates(found, options, folder, rates.LARGE)
    return rates.throughput_summary(measured, seconds=options.seconds)


async def _rates(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path, works: Sequence[rates.Work]
) -> rates.Measured:
    return await rates.measure(
        found,
        folder,
        works,
        seconds=options.seconds,
        warm_s=0.1 if options.quick else WARM_S,
        rounds=options.rounds,
    )


async def at_rest(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure idle open transactions."""
    producers = QUICK_PRODUCERS if options.quick else PRODUCERS
    seconds = 0.3 if options.quick else IDLE_S
    measured = await idle.measure(
        found, folder, producers=producers, seconds=seconds, rounds=IDLE_ROUNDS
    )
    return {
        **idle.summary(measured, producers=producers, seconds=seconds),
        "rounds": IDLE_ROUNDS,
    }


async def levels(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure fetches with both isolation levels."""
    measured = await fetch.measure(
        found,
        folder,
        volume_bytes=fetch.VOLUME_BYTES // 100 if options.quick else fetch.VOLUME_BYTES,
        seconds=options.seconds,
        warm_s=0.0 if options.quick else WARM_S,
        rounds=options.rounds,
    )
    return fetch.summary(measured, seconds=options.seconds)


async def failovers(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure failovers of a coordinator."""
    measured = await recovery.measure(found, folder, ids=options.ids, kills=options.kills)
    return recovery.summary(measured, ids=options.ids)


PARTS: dict[str, Part] = {
    "rate": transactions,
    "throughput": sends,
    "idle": at_rest,
    "fetch": levels,
    "recovery": failovers,
}


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = parts.parser(__doc__, PARTS, rounds=3, seconds=10.0)
    parser.add_argument("--systems", default="", help="beginnings of names, with commas")
    parser.add_argument("--ids", type=int, default=100_000, help="of the recovery")
    parser.add_argument("--kills", type=int, default=3, help="of the recovery")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.5
        options.ids, options.kills = QUICK_IDS, 1
    return options


def main() -> int:
    """Measure, print, and store each part."""
    options = parsed()
    allow_many_connections()
    found, missing = kinds()
    for line in missing:
        print(f"skipped: {line}", file=sys.stderr)
    found = [each for each in found if each.name.startswith(tuple(options.systems.split(",")))]
    plays = {name: partial(part, found, options) for name, part in PARTS.items()}
    for name, result in parts.play(plays, options, prefix="quorumlog-transactions-"):
        parts.say(result.get("compared", ()))
        if not (options.quick or options.systems):
            keep(
                f"transactions_{name}",
                {**machine(), "build": ours.build(), "rounds": options.rounds, **result},
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
