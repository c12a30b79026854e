"""The Kafka door beside Apache Kafka, tansu, noida-db and bare programs: `throughput` with one
broker, `replicas` with three.

Run: python -m benchmarks.kafka_wire [--only PART] [--systems NAME,...] [--rounds 3] [--seconds 3]
     [--dir FOLDER] [--quick]
Before it: python -m benchmarks.kafka_wire.artifacts, which fetches the others, and make compiled:
wheels have the hot modules so; PYTHONPATH=build/compiled measures that. One that is not here
is skipped with a line that says how to get it. --quick is a smoke test, stored nowhere; and with
--systems (beginnings of names) or --workload nothing is stored either.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import uvloop
from benchmarks.kafka_wire import clients, latency, ours, profiling, starts, throughput
from benchmarks.kafka_wire.cases import FSYNC, kinds
from benchmarks.kafka_wire.systems import Kind
from benchmarks.raft.result import keep, machine

Part: TypeAlias = Callable[[Sequence[Kind], Path, argparse.Namespace], Awaitable[dict[str, Any]]]
WARM_S = 20.0  # of each workload
LONGER = 3  # times the seconds of other rows: the longest waits are rare


async def one_broker(
    found: Sequence[Kind], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Bytes through one broker, acks=1."""
    return await loads(found, folder, options, brokers=1, acks="1")


async def three_brokers(
    found: Sequence[Kind], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Bytes through three brokers that all hold them, acks=all."""
    return await loads(found, folder, options, brokers=3, acks="all")


async def loads(
    found: Sequence[Kind], folder: Path, options: argparse.Namespace, *, brokers: int, acks: str
) -> dict[str, Any]:
    """Produce and fetch."""
    workloads = [each for each in throughput.WORKLOADS if options.workload in each.name]
    run = throughput.Run(
        brokers=brokers,
        acks=acks,
        seconds=options.seconds,
        workloads=workloads,
        profile=options.profile,
    )
    measured = await throughput.measure(
        found, folder, run, rounds=options.rounds, warm_s=options.warm_seconds
    )
    result = throughput.summary(measured, run)
    say(result["compared"])
    return result


async def at_rates(
    found: Sequence[Kind], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Waits at fixed rates."""
    measured = await latency.measure(
        found,
        folder,
        seconds=options.seconds * LONGER,
        rounds=options.rounds,
        warm_s=options.warm_seconds,
    )
    result = latency.summary(measured, seconds=options.seconds * LONGER)
    say(result["compared"])
    return result


async def beginnings(
    found: Sequence[Kind], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Starts and rest."""
    rest_s = 0.2 if options.quick else starts.REST_S
    measured = await starts.measure(found, folder, rounds=options.rounds, rest_s=rest_s)
    result = starts.summary(measured)
    say(result["compared"])
    return result


async def real_clients(
    found: Sequence[Kind], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """librdkafka, kcat, and systems with their own clients."""
    measured = await clients.measure(
        [each for each in found if each != FSYNC],
        folder,
        rounds=options.rounds,
        warm_rounds=int(options.warm_seconds > 0),
        volume_bytes=clients.VOLUME_BYTES // 100 if options.quick else clients.VOLUME_BYTES,
    )
    result = clients.summary(measured)
    say(result["compared"])
    return result


def say(compared: Sequence[dict[str, Any]]) -> None:
    """Ratios with their goals."""
    for each in compared:
        verdict = "reached" if each["met"] else "missed"
        print(f"{each['what']}: {each['ratio']:.2f}, goal {each['goal']} {verdict}")


PARTS: dict[str, Part] = {
    "throughput": one_broker,
    "replicas": three_brokers,
    "latency": at_rates,
    "clients": real_clients,
    "starts": beginnings,
}


def parsed() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, default=None, help="one part")
    parser.add_argument("--systems", default="", help="those whose names begin so, with commas")
    parser.add_argument("--workload", default="", help="those whose names have this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-seconds", type=float, default=WARM_S, help="of what gets faster")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each row and round")
    parser.add_argument("--dir", type=Path, default=None, help="the disk; default: temporary")
    parser.add_argument("--profile", action="store_true", help="ours by py-spy; not stored")
    parser.add_argument("--quick", action="store_true", help="a little of it, not stored")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.warm_seconds, options.seconds = 1, 0.0, 0.2
    return options


def main() -> int:
    """Measure, print, store each part by itself."""
    options = parsed()
    found, missing = kinds()
    for line in missing:
        print(f"skipped: {line}", file=sys.stderr)
    if options.profile and profiling.program() is None:
        print(f"skipped: {profiling.MISSING}", file=sys.stderr)
    found = [each for each in found if each.name.startswith(tuple(options.systems.split(",")))]
    for name, part in PARTS.items():
        if options.only not in (None, name):
            continue
        with (
            tempfile.TemporaryDirectory(prefix="quorumlog-wire-", dir=options.dir) as folder,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            result = runner.run(run(part, found, Path(folder), options))
        if not (options.quick or options.systems or options.workload or options.profile):
            keep(
                f"kafka_wire_{name}",
                {**machine(), "build": ours.build(), "rounds": options.rounds, **result},
            )
    return 0


async def run(
    part: Part, found: Sequence[Kind], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """One part on its own."""
    return await part(found, folder, options)


if __name__ == "__main__":
    sys.exit(main())
