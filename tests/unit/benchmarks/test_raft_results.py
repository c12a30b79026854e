"""Counts of the raft benchmark, and their table on the page."""

import os
from typing import Any

import pytest
from benchmarks.page import SECTIONS, page
from benchmarks.raft.__main__ import Measured, summary
from benchmarks.raft.etcd import fields, put_request, varint
from benchmarks.raft.failover import OURS, distribution
from benchmarks.raft.load import WARM_SHARE, Meter, Outcome, Work, percentile
from benchmarks.raft.processes import cpu_s
from benchmarks.raft.result import comparison, machine


class ManualClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.s


def outcome(rate: float, *, p50_ms: float = 1.0, client: float | None = None) -> Outcome:
    return Outcome(
        commits=int(rate * 2),
        seconds=2.0,
        p50_ms=p50_ms,
        p99_ms=2 * p50_ms,
        server_cpu_s=2.0,
        client_cpu_s=client,
    )


def test_responses_before_the_measured_part_are_not_counted() -> None:
    clock = ManualClock()
    work = Work(outstanding=1, seconds=8.0, server_pids=(os.getpid(),), client_pid=os.getpid())
    meter = Meter(work, now_s=clock)
    asked_s = 0.0
    while not meter.is_over:
        clock.s += 0.5
        meter.answered(asked_s)
        asked_s = clock.s
    result = meter.outcome()
    assert clock.s == 8.0 * (1 + WARM_SHARE)
    assert result.commits_per_s == 2.0
    assert (result.p50_ms, result.p99_ms) == (500.0, 500.0)
    assert result.client_cpu_s is not None
    assert result.client_cpu_s >= 0.0


def test_responses_that_arrive_together_count_separately() -> None:
    clock = ManualClock()
    work = Work(outstanding=100, seconds=4.0, server_pids=(os.getpid(),), client_pid=None)
    meter = Meter(work, now_s=clock)
    while not meter.is_over:
        clock.s += 1.0
        meter.answered(clock.s - 1.0, 100)
    assert meter.outcome().commits_per_s == 100.0
    assert meter.outcome().client_cpu_s is None


def test_response_slower_than_the_measured_part_is_awaited() -> None:
    clock = ManualClock()
    work = Work(outstanding=1, seconds=4.0, server_pids=(os.getpid(),), client_pid=None)
    meter = Meter(work, now_s=clock)
    clock.s = 4.0 * WARM_SHARE + 10.0
    meter.answered(0.0)
    assert meter.is_over
    assert meter.outcome().commits_per_s == 0.1


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 5.0), (0.9, 9.0), (0.91, 10.0), (1.0, 10.0), (0.0, 1.0)]
)
def test_a_percentile_is_one_of_the_values(share: float, expected: float) -> None:
    assert percentile([float(n) for n in range(1, 11)], share) == expected


def test_cpu_time_of_a_busy_process_is_measured() -> None:
    before = cpu_s([os.getpid()])
    turns = 0
    while cpu_s([os.getpid()]) == before:
        turns += 1
        assert turns < 1_000_000, "no CPU time is measured"


@pytest.mark.parametrize(
    ("goal", "met"), [(">= 2.0", True), (">= 2.1", False), ("<= 2.0", True), ("<= 1.9", False)]
)
def test_a_goal_is_met_at_its_bound(goal: str, met: bool) -> None:
    figures = comparison("what", {"rate": 4.0}, {"rate": 2.0}, of="rate", goal=goal)
    assert figures == {"what": "what", "ratio": 2.0, "goal": goal, "met": met}


def test_row_without_a_peer_is_not_compared() -> None:
    assert comparison("what", {"rate": 4.0}, None, of="rate", goal=">= 1.0") is None


def test_put_round_trip() -> None:
    key_and_value = fields(put_request(7))
    assert key_and_value[1] == b"k0000007"
    assert len(bytes(key_and_value[2])) == 256
    assert fields(b"\x10" + varint(1 << 63) + b"\x20\x05") == {2: 1 << 63, 4: 5}


def test_page_has_all_systems_with_the_missed_goals() -> None:
    measured = Measured(sync_ms=[0.5], failures=["etcd: a put was refused"])
    measured.outcomes = {
        ("quorumlog", "stream, gathered", 1000): [outcome(8000, client=0.5)],
        ("quorumlog", "stream, one by one", 1000): [outcome(4000, client=0.5)],
        ("quorumlog", "stream, one by one", 1): [outcome(900, p50_ms=1.2, client=0.1)],
        ("quorumlog", "injected", 1000): [outcome(30_000), outcome(10_000), outcome(20_000)],
        ("etcd", "8 connections", 1000): [outcome(20_000, client=0.4)],
        ("etcd", "1 connection", 1): [outcome(800, client=0.1)],
        ("PySyncObj, in memory", "injected", 1000): [outcome(6000)],
        ("PySyncObj, journal file", "injected, tuned", 1000): [outcome(12_000)],
    }
    result = {**machine(), "value_bytes": 256, "rounds": 3, "seconds": 2.0, **summary(measured)}
    text = page({"raft": result})
    assert "| quorumlog | injected | 1,000 | 20,000 | 1.00 | 2.00 | 0.050 |  |" in text
    assert "| etcd | 8 connections | 1,000 | 20,000 | 1.00 | 2.00 | 0.050 | 0.010 |" in text
    assert "| by a stream, of etcd | 0.40 | >= 1.0 (missed) |" in text
    assert "| injected, of PySyncObj | 3.33 | >= 2.0 |" in text
    assert "| injected, of PySyncObj tuned | 1.67 | >= 2.0 (missed) |" in text
    assert "| p50 of one, of etcd's | 1.20 | <= 1.5 |" in text
    assert "at most 0.25 of a core" in text
    assert "1 clusters failed and were taken again: etcd." in text


def test_the_page_has_the_failovers_as_distributions() -> None:
    spent_s = [0.1 * n for n in range(1, 31)]
    rows: list[dict[str, Any]] = [distribution(case, spent_s) for case in OURS]
    text = page({"raft_failover": {**machine(), "rows": rows}})
    figures = "30 | 0.10 | 1.55 | 2.70 | 3.00"
    assert f"| kill -9, default time-outs | {figures} | < 2.0 |" in text
    assert f"| SIGTERM, default time-outs | {figures} | < 0.3 (missed) |" in text


def test_commands_on_the_page_exist() -> None:
    commands = {section.name: section.command for section in SECTIONS}
    assert commands["raft"] == "python -m benchmarks.raft"
    assert commands["raft_failover"] == "python -m benchmarks.raft.failover"
    assert commands["clients"] == "python benchmarks/clients.py"
