"""The lease of a query that holds retention back is taken with the start and renewed in time."""

import logging
import time
from typing import Any

import pytest
from tests.unit.spark.queries import ALL, A, committed, reader

from quorumlog.errors import InvalidConfig
from quorumlog.ids import TopicPartition
from quorumlog.settings.query_groups import HOLD_GROUPS_MAX, HOLD_MS_MAX, Hold, parse_holds
from quorumlog.spark.broker_calls import Cluster
from quorumlog.spark.cluster_access import ClusterAccess
from quorumlog.spark.retention_lease import RENEW_MS, RetentionLease


def held(script: Any) -> tuple[Hold, ...]:
    return parse_holds(",".join(script.holds["t"]))


def test_a_lease_is_taken_once_the_group_has_a_start_and_lasts_seven_days(script: Any) -> None:
    script.add(A, 5)
    run = reader(script, startingOffsets="earliest", retentionHold="true", retentionHoldBytes="7")
    run.initialOffset()
    assert committed(script) == {A: 0}
    (hold,) = held(script)
    assert (hold.group, hold.bytes_max) == ("q", 7)
    assert abs(hold.end_ms - HOLD_MS_MAX - time.time() * 1000) < 60_000
    run.initialOffset()
    run.latestOffset({"t": {"0": 0}}, ALL)
    assert held(script) == (hold,), "not renewed with every batch"


def test_renewal_replaces_the_lease_and_long_expired_ones(script: Any) -> None:
    script.add(A, 5)
    now_ms = round(time.time() * 1000)
    other = Hold("other", now_ms + 100_000, 1)
    script.holds["t"] = [
        str(Hold("q", now_ms + 5, 7)),
        str(Hold("old", now_ms - HOLD_MS_MAX - 5, 7)),
        str(other),
    ]
    run = reader(script, startingOffsets="earliest", retentionHold="true")
    run.latestOffset({"t": {"0": 0}}, ALL)
    assert [hold.group for hold in held(script)] == ["other", "q"]
    assert held(script)[0] == other
    assert held(script)[1].end_ms > now_ms + HOLD_MS_MAX - 60_000


@pytest.mark.parametrize("is_new", [True, False])
def test_full_list_replaces_an_expired_lease(script: Any, is_new: bool) -> None:
    script.add(A, 5)
    now_ms = round(time.time() * 1000)
    live = [Hold(f"g{number}", now_ms + 100_000, 1) for number in range(HOLD_GROUPS_MAX - 1)]
    ended = Hold("old" if is_new else "q", now_ms - 5, 1)
    script.holds["t"] = [str(hold) for hold in (ended, *live)]
    reader(script, startingOffsets="earliest", retentionHold="true").initialOffset()
    assert held(script)[:-1] == tuple(live)
    assert held(script)[-1].group == "q"


def test_topic_that_refuses_a_lease_does_not_affect_others(
    script: Any, caplog: pytest.LogCaptureFixture
) -> None:
    now_ms = round(time.time() * 1000)
    for name in ("a", "b"):
        script.add(TopicPartition(name, 0), 1)
    script.holds["a"] = [
        str(Hold(f"g{number}", now_ms + 100_000, 1)) for number in range(HOLD_GROUPS_MAX)
    ]
    cluster = Cluster(ClusterAccess(bootstrap=(script.address,)))
    with caplog.at_level(logging.WARNING, "quorumlog.spark"):
        RetentionLease(cluster, "q", bytes_max=1).renew({"a": b"", "b": b""})
    assert "17 groups have holds, the limit is 16" in caplog.text
    assert [hold.group for hold in parse_holds(",".join(script.holds["b"]))] == ["q"]
    with pytest.raises(InvalidConfig, match="the limit is 16"):
        RetentionLease(cluster, "q", bytes_max=1).take({"a": b""})


def test_a_query_whose_batch_fails_again_and_again_keeps_its_lease(script: Any) -> None:
    """Spark requests no offsets in such a run, only the tasks of the planned batch."""
    script.add(A, 5)
    options = {"startingOffsets": "earliest", "retentionHold": "true"}
    reader(script, **options).partitions({"t": {"0": 0}}, {"t": {"0": 5}})
    assert [hold.group for hold in held(script)] == ["q"]


def test_suspended_query_renews_its_lease_by_wall_clock_time(script: Any) -> None:
    script.add(A, 5)
    wall_ms = 1_800_000_000_000
    lease = RetentionLease(
        Cluster(ClusterAccess(bootstrap=(script.address,))),
        "q",
        bytes_max=1,
        wall_ms=lambda: wall_ms,
    )
    lease.take({"t": b""})
    for later_ms in (RENEW_MS + 5, -3 * RENEW_MS):
        lease.renew({"t": b""})
        assert [hold.end_ms for hold in held(script)] == [wall_ms + HOLD_MS_MAX]
        wall_ms += later_ms
    lease.renew({"t": b""})
    assert [hold.end_ms for hold in held(script)] == [wall_ms + HOLD_MS_MAX], (
        "the clock was set back"
    )


def test_lease_without_a_response_does_not_fail_the_query(script: Any) -> None:
    script.add(A, 5)
    run = reader(script, startingOffsets="earliest", retentionHold="true")
    script.holds["t"] = ["unreadable"]
    run.latestOffset({"t": {"0": 0}}, ALL)
    assert [part.partition("@")[0] for part in script.holds["t"]] == ["unreadable", "q"]


def test_run_soon_after_another_keeps_its_lease(script: Any) -> None:
    script.add(A, 5)
    options = {"startingOffsets": "earliest", "retentionHold": "true"}
    reader(script, **options).initialOffset()
    before = list(script.holds["t"])
    reader(script, **options).latestOffset({"t": {"0": 0}}, ALL)
    assert script.holds["t"] == before
    reader(script, **options, retentionHoldBytes="5").latestOffset({"t": {"0": 0}}, ALL)
    assert [hold.bytes_max for hold in held(script)] == [5]


def test_topic_recreated_under_a_query_gets_its_own_lease(script: Any) -> None:
    """The config was deleted with the old topic."""
    script.add(A, 5)
    options = {"startingOffsets": "earliest", "retentionHold": "true", "failOnDataLoss": "false"}
    run = reader(script, **options)
    end = run.latestOffset(run.initialOffset(), ALL)
    script.make_anew(3)
    script.holds.clear()
    run._leaders_until = 0.0
    run.latestOffset(end, ALL)
    assert [hold.group for hold in held(script)] == ["q"]
