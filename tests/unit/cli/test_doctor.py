"""`quorumlog doctor`: its diagnoses, and its exit code with real nodes."""

import json
import resource
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from quorumlog.cli.doctor import (
    EXIT_CRITICAL,
    EXIT_WARNING,
    Diagnosis,
    Urgency,
    certificates,
    clocks,
    descriptors,
    disk,
    exit_code,
    hanging,
    quorum,
    transactions,
)
from quorumlog.cli.main import app
from quorumlog.clients.admin.configs import LogDir, LogSize
from quorumlog.clients.admin.quorum import Quorum, QuorumReplica
from quorumlog.clients.admin.transactions import OpenTransaction, TransactionalId
from quorumlog.errors import ConnectionFailed, CorruptionError
from quorumlog.ids import ProducerIdentity
from quorumlog.testing import Broker, Cluster

CRITICAL, WARNING = Urgency.CRITICAL, Urgency.WARNING
GIB = 2**30
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE_MS = 60_000


def shown(found: Iterable[Diagnosis]) -> list[tuple[Urgency, str]]:
    return [(each.urgency, each.finding.text) for each in found]


def test_a_clock_that_differs_from_most_is_found_by_how_far() -> None:
    found = shown(clocks({1: 5, 2: -3, 3: 2_400, 4: -90_000, 5: ConnectionFailed("refused")}))
    assert [severity for severity, _ in found] == [WARNING, WARNING, CRITICAL]
    assert "Broker 5 is not fenced and does not answer this client: refused" in found[0][1]
    assert "clock of broker 3 is 2.4 s ahead of" in found[1][1]
    assert "clock of broker 4 is 90.0 s behind" in found[2][1]
    assert shown(clocks({1: 3_600_000, 2: 3_600_400})) == []  # this machine's own clock is wrong


def members(*heard_ms: int | None, leader: int | None = 1) -> Quorum:
    voters = tuple(
        QuorumReplica(
            id=number,
            directory_id=bytes(16),
            address="",
            log_end_offset=9,
            lag=0,
            heard_ms_ago=heard,
        )
        for number, heard in enumerate(heard_ms, 1)
    )
    return Quorum(
        cluster_id="c",
        leader=leader,
        epoch=1,
        high_watermark=9,
        voters=voters,
        observers=(),
        answered_by=1,
    )


@pytest.mark.parametrize(
    ("found", "severity", "words"),
    [
        (members(0, 9, 9, leader=None), CRITICAL, "no leader"),
        (members(0, 9, 11_000), WARNING, "3 of 3 voters did not fetch for 10 s: one more failure"),
        (members(0, 9, 9, 9, None), WARNING, "5 of 5 voters did not fetch for 10 s: 1 more may"),
        (members(0, 9), WARNING, "2 voters: it stops if either fails"),
    ],
)
def test_quorum_without_fault_tolerance_is_found(
    found: Quorum, severity: Urgency, words: str
) -> None:
    ((worst, text),) = shown(quorum(found))
    assert worst is severity
    assert words in text


def test_complete_quorum_of_one_or_three_is_healthy() -> None:
    assert shown(quorum(members(0))) == []
    assert shown(quorum(members(0, 9, 20))) == []


@pytest.mark.parametrize(
    ("free", "severity"), [(16, None), (14, WARNING), (6, WARNING), (4, CRITICAL)]
)
def test_a_disk_that_fills_up_is_found(free: int, severity: Urgency | None) -> None:
    directory = LogDir(
        broker=2, path="/data", logs=(), capacity_bytes=100 * GIB, free_bytes=free * GIB
    )
    found = shown(disk(directory))
    assert [each for each, _ in found] == ([] if severity is None else [severity])
    assert all(text.startswith("Broker 2 has ") and "at /data, " in text for _, text in found)


@pytest.mark.parametrize(
    ("count", "limit", "severity"),
    [(790, 1_000, None), (800, 1_000, WARNING), (950, 1_000, CRITICAL), (9_000, 0, None)],
)
def test_a_broker_that_runs_out_of_descriptors_is_found(
    count: int, limit: int, severity: Urgency | None
) -> None:
    directory = LogDir(
        broker=2,
        path="/data",
        logs=(),
        capacity_bytes=0,
        free_bytes=0,
        open_descriptors=count,
        descriptors_max=limit,
    )
    found = shown(descriptors(directory))
    assert [each for each, _ in found] == ([] if severity is None else [severity])
    assert all(f"has {count} of 1,000 descriptors open" in text for _, text in found)


@pytest.mark.slow
def test_a_broker_reports_its_descriptors_and_their_limit() -> None:
    with Broker() as broker, broker.connect() as log:
        (directory,) = log.admin.describe_log_dirs(broker=1)
        listed = len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))
        assert abs(directory.open_descriptors - listed) < 10
        limit = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)[0]
        assert directory.descriptors_max == limit


def test_a_log_that_cannot_be_used_is_critical() -> None:
    log = LogSize(
        topic="t",
        partition=3,
        size_bytes=9,
        log_start_offset=0,
        log_end_offset=1,
        error=CorruptionError("bad CRC at 7"),
    )
    directory = LogDir(broker=2, path="/data", logs=(log,), capacity_bytes=0, free_bytes=0)
    ((severity, text),) = shown(disk(directory))
    assert severity is CRITICAL
    assert "t-3: broker 2 cannot use its log: bad CRC at 7" in text


def transaction(state: str, age_ms: int) -> TransactionalId:
    return TransactionalId(
        name="billing",
        state=state,
        producer_id=7,
        producer_epoch=0,
        started_ms=1_000_000_000 - age_ms,
        timeout_ms=MINUTE_MS,
        partitions=(),
        coordinator=1,
    )


@pytest.mark.parametrize(
    ("state", "age_ms", "words"),
    [
        ("Ongoing", 14 * MINUTE_MS, None),
        ("Ongoing", 17 * MINUTE_MS, "open for 17 min"),
        ("PrepareCommit", 59_000, None),
        ("PrepareCommit", 61_000, "(PrepareCommit) began 61 s ago"),
        ("CompleteCommit", 17 * MINUTE_MS, None),
    ],
)
def test_a_transaction_that_takes_too_long_is_found(
    state: str, age_ms: int, words: str | None
) -> None:
    found = shown(transactions([transaction(state, age_ms)], now_ms=1_000_000_000))
    assert [severity for severity, _ in found] == ([] if words is None else [WARNING])
    assert all(words is not None and words in text for _, text in found)


def test_a_hanging_transaction_is_critical() -> None:
    held = OpenTransaction(
        topic="t",
        partition=1,
        first_offset=40,
        producer=ProducerIdentity(7, 0),
        coordinator_epoch=-1,
        last_timestamp_ms=-1,
    )
    ((severity, text),) = shown(hanging([held]))
    assert severity is CRITICAL
    assert "find-hanging t -p 1 --abort" in text


def test_a_certificate_that_ends_soon_is_found() -> None:
    ends = {
        "broker 1": NOW + timedelta(days=31),
        "broker 2": NOW + timedelta(days=12, hours=1),
        "broker 3": NOW + timedelta(days=2),
        "this client": NOW - timedelta(days=1),
    }
    found = shown(certificates(ends, now=NOW))
    assert [severity for severity, _ in found] == [WARNING, CRITICAL, CRITICAL]
    assert "The certificate of broker 2 ends in 12 days, at 2026-01-13" in found[0][1]
    assert "this client has expired" in found[2][1]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["doctor", *arguments])


@pytest.mark.slow
def test_a_healthy_broker_has_no_diagnosis() -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=3)
        done = run("--bootstrap", broker.grpc)
        assert done.exit_code == 0, done.output
        assert done.output.splitlines() == [
            "brokers: ok",
            "clocks: ok",
            "metadata quorum: ok",
            "partitions: ok",
            "disks and descriptors: ok",
            "groups: ok",
            "transactions: ok",
            "certificates: ok",
        ]


@pytest.mark.long
def test_a_killed_broker_and_its_replicas_are_diagnosed() -> None:
    with Cluster() as cluster:
        cluster.create_topic(partitions=1, configs={"min.insync.replicas": 2})
        cluster.kill(3)
        for _ in range(40):  # it is fenced within seconds, and a controller elected if it led
            done = run("--bootstrap", cluster.grpc, "--output", "json")
            found = json.loads(done.stdout)
            if found["brokers"] and done.exit_code == EXIT_WARNING:
                break
        assert "nothing listens at" in found["brokers"][0]["why"]
        assert [each["urgency"] for each in found["partitions"]] == ["warning"]
        assert done.exit_code == EXIT_WARNING, done.output


def test_the_exit_code_is_that_of_the_worst_diagnosis() -> None:
    silent, full = quorum(members(0, 9, None)), quorum(members(0, leader=None))
    assert exit_code([]) == 0
    assert exit_code(silent) == EXIT_WARNING
    assert exit_code([*quorum(members(0, 9, None)), *full]) == EXIT_CRITICAL
