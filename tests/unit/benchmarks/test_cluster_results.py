"""Results of the cluster benchmark, and their table on the page."""

from collections import Counter
from typing import Any

import pytest
from benchmarks.cluster import failover, replication, restart
from benchmarks.page import SECTIONS, page

MACHINE = {"cores": 2, "cpu": "a processor", "python": "3.11"}


def taken(rate: float, *, cpu_us: float, waits_ms: list[float]) -> replication.Taken:
    return replication.Taken(
        records_per_s=[rate, rate * 2, rate * 3],
        server_cpu_us=[cpu_us] * 3,
        client_cpu_us=[1.0] * 3,
        latency_ms=waits_ms,
    )


def replicas() -> dict[str, Any]:
    found = {}
    for size in replication.SIZES:
        waits = size == replication.SIZES[0]
        found[replication.ONE, size] = taken(100, cpu_us=2.0, waits_ms=[1.0] * waits)
        found[replication.THREE, size] = taken(50, cpu_us=5.0, waits_ms=[3.0] * waits)
    return MACHINE | replication.summary(found, rounds=3, seconds=1.0)


def restarted(**changes: Any) -> dict[str, Any]:
    sent = restart.Sent(acknowledged={1, 2, 3}, waits_s=[0.01, 0.02, 0.5])
    row = restart.summary(sent, Counter({1: 1, 2: 1, 3: 1}), reader_error="")
    return MACHINE | row | {"seconds": 1.0, "stops_s": [0.1]} | changes


SCALE = MACHINE | {
    "topics": 1_000,
    "partitions": 10_000,
    "create_s": 25.0,
    "create_stall_s": 0.01,
    "goal_create_s": 20.0,
    "met_create": False,
    "idle_partitions": 1_000,
    "idle_shares_empty": [0.01, 0.02],
    "idle_shares": [0.03, 0.04],
    "idle_shares_many": [0.1, 0.2],
    "goal_idle": 0.05,
    "met_idle": True,
    "node_mb_empty": 70.0,
    "bytes_unused_replica": 2_000,
    "bytes_used_replica": 20_000,
}


def test_replicas_are_compared_by_the_medians_of_the_same_run() -> None:
    ratios = {row["what"]: row["ratio"] for row in replicas()["ratios"]}
    assert ratios["rate, 100 bytes"] == 0.5
    assert ratios["servers' CPU a record, 1024 bytes"] == 2.5
    assert ratios["p99 of one at a time"] == 3.0


def test_a_failover_within_its_goal_meets_it() -> None:
    case = failover.CASES[0]
    row = failover.distribution(case, "served", [0.4, 0.9, 1.4])
    assert (row["case"], row["median_s"], row["met"]) == ("leader, served", 0.9, True)
    assert not failover.distribution(case, "client", [1.0, 1.1])["met"]


@pytest.mark.parametrize(
    ("acknowledged", "seen", "errors", "reader_error", "figures"),
    [
        ({1, 2}, {1: 1, 2: 1}, [], "", (0, 0, 0, True)),
        ({1, 2}, {1: 1}, [], "", (0, 1, 0, False)),
        ({1, 2}, {1: 1, 2: 2}, [], "", (0, 0, 1, False)),
        ({1}, {1: 1, 2: 1}, ["TimedOut: late"], "", (1, 0, 0, False)),
        ({1}, {1: 1}, [], "OutcomeUnknown: gone", (1, 0, 0, False)),
    ],
)
def test_restart_is_clean_only_without_client_errors(
    acknowledged: set[int],
    seen: dict[int, int],
    errors: list[str],
    reader_error: str,
    figures: tuple[int, int, int, bool],
) -> None:
    sent = restart.Sent(acknowledged=acknowledged, errors=errors, waits_s=[0.1])
    row = restart.summary(sent, Counter(seen), reader_error=reader_error)
    assert (row["errors"], row["missing"], row["twice"], row["met"]) == figures


def test_nothing_sent_meets_no_goal() -> None:
    assert not restart.summary(restart.Sent(), Counter(), reader_error="")["met"]


def test_page_shows_each_part_with_the_missed_goals() -> None:
    rows = [failover.distribution(case, "served", [9.0]) for case in failover.CASES]
    shown = page(
        {
            "cluster_replication": replicas(),
            "cluster_failover": MACHINE | {"rows": rows},
            "cluster_restart": restarted(),
            "cluster_scale": SCALE,
        }
    )
    assert "| rate, 100 bytes | 0.50 |" in shown
    assert "| both in one node, served | 1 | 9.00 | 9.00 | 9.00 | 9.00 | < 3.0 (missed) |" in shown
    assert "| 3 | 0 | 0 | 0 | 20.00 | 500.00 | 0.5 s |" in shown
    assert "| 25.0 s | < 20 s (missed) |" in shown
    assert "at rest with 1,000 partitions | 4.0% | < 5% |" in shown


def test_every_part_has_a_section_on_the_page() -> None:
    from benchmarks.cluster.__main__ import PARTS

    named = {section.name for section in SECTIONS}
    assert {f"cluster_{name}" for name in PARTS} <= named
