"""The Kafka listener compared with Apache Kafka, tansu, noida-db and a bare program: `throughput`
with one broker, `replicas` with three, `latency`, `clients` and `starts`, and with one broker
`tls`, `logins` and `authorization`.

Run: python -m benchmarks.kafka_wire [--only PART] [--systems NAME,...] [--rounds 5] [--seconds 2]
[--dir FOLDER] [--quick]
Before it: python -m benchmarks.kafka_wire.artifacts, which fetches the other systems. A missing
system is skipped with a line that says how to install it. `--rounds 1 --seconds 1 --warm-seconds 5`
with `--only throughput --systems quorumlog,Apache` takes less than two minutes. --quick is a smoke
test. Results with --quick, --systems (beginnings of names), --workload or --profile are not stored.
"""

import argparse
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks import parts
from benchmarks.groups.systems import allow_many_connections
from benchmarks.kafka_wire import (
    apache_kafka,
    authorization,
    clients,
    latency,
    logins,
    ours,
    pairs,
    profiling,
    starts,
    throughput,
)
from benchmarks.kafka_wire.cases import CEILING, FSYNC, kinds
from benchmarks.kafka_wire.systems import Kind, System
from benchmarks.raft.result import keep, machine

from quorumlog.server.certificates import create_authority, issue

Part: TypeAlias = Callable[[Sequence[Kind], argparse.Namespace, Path], Awaitable[dict[str, Any]]]
WARM_S = 20.0  # of each workload
LONGER = 30  # times the seconds of other rows: 60 s, because long latencies are rare


async def one_broker(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure bytes through one broker, acks=1."""
    return await loads(found, options, folder, brokers=1, acks="1")


async def three_brokers(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure bytes through three brokers that all store them, acks=all."""
    return await loads(found, options, folder, brokers=3, acks="all")


async def over_tls(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure bytes through one broker over TLS 1.3, acks=1: quorumlog and Kafka."""
    encrypted = with_tls(found, certified(folder), protocol="SSL", settings={})
    return await loads(encrypted, options, folder, brokers=1, acks="1", tls=True)


def certified(folder: Path) -> Path:
    """Create the certificates of a broker; return their folder."""
    certificates = folder / "certificates"
    create_authority(certificates, name="benchmark")
    issue(certificates, "server", name="server", hosts=("127.0.0.1", "localhost"))
    return certificates


def with_tls(
    found: Sequence[Kind],
    certificates: Path,
    *,
    protocol: str,
    settings: Mapping[str, Mapping[str, Any]],
) -> list[Kind]:
    """Return quorumlog and Kafka, each with a second listener of this protocol, and with the
    settings for its name."""
    openings: dict[str, Callable[..., AbstractAsyncContextManager[System]]] = {
        ours.NAME: ours.nodes,
        apache_kafka.NAME: apache_kafka.kafka,
    }
    return [
        replace(
            each,
            open=partial(
                openings[each.name],
                settings=settings.get(each.name),
                certificates=certificates,
                protocol=protocol,
            ),
        )
        for each in found
        if each.name in openings
    ]


async def new_connections(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure TLS handshakes and SCRAM logins per second, and a storm of clients: quorumlog and
    Kafka."""
    allow_many_connections()
    certificates = certified(folder)
    measured = await logins.measure(
        with_tls(found, certificates, protocol="SASL_SSL", settings=logins.SETTINGS),
        folder,
        certificates / "ca.pem",
        seconds=options.seconds,
        warm_s=options.warm_seconds,
        rounds=options.rounds,
        clients=logins.CLIENTS // 20 if options.quick else logins.CLIENTS,
    )
    result = logins.summary(measured, rounds=options.rounds, seconds=options.seconds)
    pairs.say(result["compared"])
    verdict = "met" if result["slowest_met"] else "missed"
    print(
        f"slowest client of a storm: {result['slowest_s']} s,"
        f" goal <= {result['slowest_goal_s']:g} s {verdict}"
    )
    return result


async def authorized(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure produce requests of quorumlog with and without the authorizer."""
    measured = await authorization.measure(folder, seconds=options.seconds, rounds=options.rounds)
    result = authorization.summary(measured, rounds=options.rounds, seconds=options.seconds)
    pairs.say(result["compared"])
    return result


async def loads(
    found: Sequence[Kind],
    options: argparse.Namespace,
    folder: Path,
    *,
    brokers: int,
    acks: str,
    tls: bool = False,
) -> dict[str, Any]:
    """Measure produce and fetch."""
    workloads = [each for each in throughput.WORKLOADS if options.workload in each.name]
    run = throughput.Run(
        brokers=brokers,
        acks=acks,
        seconds=options.seconds,
        rounds=options.rounds,
        warm_s=options.warm_seconds,
        workloads=workloads,
        profile=options.profile,
        tls=tls,
    )
    measured = await throughput.measure(found, folder, run)
    result = throughput.summary(measured, run)
    pairs.say(result["compared"])
    return result


async def at_rates(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure latency at fixed rates."""
    seconds = options.seconds * (1 if options.quick else LONGER)
    measured = await latency.measure(
        found, folder, seconds=seconds, rounds=options.rounds, warm_s=options.warm_seconds
    )
    result = latency.summary(measured, seconds=seconds, rounds=options.rounds)
    pairs.say(result["compared"])
    return result


async def beginnings(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure starts and idle brokers, without the bare program, which stores nothing."""
    rest_s = 0.2 if options.quick else starts.REST_S
    storing = [each for each in found if each != CEILING]
    measured = await starts.measure(storing, folder, rounds=options.rounds, rest_s=rest_s)
    result = starts.summary(measured, rounds=options.rounds)
    pairs.say(result["compared"])
    return result


async def real_clients(
    found: Sequence[Kind], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure librdkafka, the Java client, and systems with their own clients."""
    measured = await clients.measure(
        [each for each in found if each not in (FSYNC, CEILING)],  # the ceiling serves no client
        folder,
        rounds=options.rounds,
        seconds=options.seconds,
        volume_bytes=clients.VOLUME_BYTES // 100 if options.quick else clients.VOLUME_BYTES,
    )
    result = clients.summary(measured, rounds=options.rounds)
    pairs.say(result["compared"])
    return result


PARTS: dict[str, Part] = {
    "throughput": one_broker,
    "replicas": three_brokers,
    "latency": at_rates,
    "clients": real_clients,
    "starts": beginnings,
    "tls": over_tls,
    "logins": new_connections,
    "authorization": authorized,
}


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = parts.parser(__doc__, PARTS, rounds=5, seconds=2.0)
    parser.add_argument("--systems", default="", help="beginnings of names, with commas")
    parser.add_argument("--workload", default="", help="a part of their names")
    parser.add_argument(
        "--warm-seconds",
        type=float,
        default=WARM_S,
        help="of each workload, for systems that get faster",
    )
    parser.add_argument("--profile", action="store_true", help="profile ours by py-spy; not stored")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.warm_seconds, options.seconds = 1, 0.0, 0.2
    return options


def named(found: Sequence[Kind], beginnings: Sequence[str]) -> list[Kind]:
    """Return the systems with these names or beginnings of names; a whole name is one system."""
    names = {each.name for each in found}
    prefixes = tuple(each for each in beginnings if each not in names)
    return [each for each in found if each.name in beginnings or each.name.startswith(prefixes)]


def main() -> int:
    """Measure, print and store each part."""
    options = parsed()
    found, missing = kinds()
    for line in missing:
        print(f"skipped: {line}", file=sys.stderr)
    if options.profile and profiling.program() is None:
        print(f"skipped: {profiling.MISSING}", file=sys.stderr)
    found = named([*found, CEILING], options.systems.split(","))
    plays = {name: partial(part, found, options) for name, part in PARTS.items()}
    for name, result in parts.play(plays, options, prefix="quorumlog-wire-"):
        if not (options.quick or options.systems or options.workload or options.profile):
            keep(
                f"kafka_wire_{name}",
                {**machine(), "build": ours.build(), "rounds": options.rounds, **result},
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
