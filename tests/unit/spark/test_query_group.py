"""A query's group: stored start, committed progress and lease, with a scripted broker.

The query is ended at every step of its micro-batches.
"""

import itertools
import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.spark.queries import (
    ALL,
    STEPS,
    A,
    B,
    Ended,
    Engine,
    committed,
    positions,
    reader,
)

from quorumlog.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidConfig,
    NonEmptyGroup,
    OffsetOutOfRange,
)
from quorumlog.ids import TopicPartition
from quorumlog.spark.options import Mode, ReadOptions, parse_options
from quorumlog.spark.query_group import (
    COMMIT_INTERVAL_S,
    COMPLETE,
    OFFSETS_A_CALL,
    PART,
    PLANNED,
    SHARED_CHECK_S,
    start_digest,
)
from quorumlog.spark.source import QuorumlogSource


def start_group(script: Any) -> str:
    (name,) = (name for name in script.groups if name.startswith("__query_start."))
    return str(name)


# --- runs ended at every step ------------------------------------------------------------------


def feeding(script: Any) -> Callable[[str], None]:
    """Append two records at every step."""

    def feed(name: str) -> None:
        script.add(A, 2)

    return feed


def run_and_restart(script: Any, options: dict[str, str], ends_at: list[int]) -> tuple[int, Engine]:
    """Run a query whose next runs end at these steps, then one that completes. Return the offset of
    its first record and the engine."""
    script.add(A, 5)
    engine = Engine(feeding(script))
    first: int | None = None
    for end_at in [*ends_at, None]:
        run = reader(script, **options)
        if first is None:
            resolve = run.initialOffset

            def initial(resolve: Callable[[], Any] = resolve) -> Any:
                nonlocal first
                found = resolve()
                first = found["t"]["0"] if first is None else first
                return found

            run.initialOffset = initial
        try:
            engine.run(run, end_at=end_at)
        except Ended:
            script.add(A, 3)
    assert first is not None
    return first, engine


@pytest.mark.long
@pytest.mark.parametrize("start", ["latest", "earliest", '{"t": {"0": -1}}'])
@pytest.mark.parametrize("end_at", range(1, STEPS))
def test_a_query_ended_at_any_step_loses_no_record_and_reads_none_twice(
    script: Any, start: str, end_at: int
) -> None:
    first, engine = run_and_restart(script, {"startingOffsets": start}, [end_at])
    rows = engine.rows()
    assert rows == [f"t-0@{offset}" for offset in range(first, first + len(rows))]
    assert first + len(rows) == engine.ends[engine.committed]["t"]["0"]
    at_latest = 12 if end_at == 1 else 7  # as when the start was first requested
    assert first == (0 if start == "earliest" else at_latest)


@pytest.mark.long
def test_a_query_ended_twice_at_any_steps_loses_no_record(script: Any) -> None:
    options = {"maxOffsetsPerTrigger": "3"}
    for ends_at in itertools.product(range(2, STEPS, 3), range(2, STEPS, 4)):
        script.batches.clear()
        script.groups.clear()
        first, engine = run_and_restart(script, options, list(ends_at))
        rows = engine.rows()
        assert rows == [f"t-0@{offset}" for offset in range(first, first + len(rows))], ends_at


# --- the start ---------------------------------------------------------------------------------


def test_start_at_latest_stays_until_the_first_batch_is_certainly_committed(
    script: Any,
) -> None:
    script.add(A, 5)
    start = reader(script).initialOffset()
    script.add(A, 5)
    run = reader(script)
    assert run.initialOffset() == start
    assert positions(start) == {"t": {"0": 5}}
    end = run.latestOffset(start, ALL)
    assert script.groups[start_group(script)] == {A: (5, PLANNED)}, "not before the proof"
    run.latestOffset(end, ALL)
    assert list(script.groups) == ["q"]
    script.add(A, 5)
    assert positions(reader(script).initialOffset()) == {"t": {"0": 15}}, (
        "another checkpoint starts again"
    )


@pytest.mark.parametrize("proof", ["commit", "latest"])
def test_restarted_query_deletes_the_stored_start(script: Any, proof: str) -> None:
    script.add(A, 5)
    reader(script).initialOffset()
    run = reader(script)
    if proof == "commit":
        run.commit({"t": {"0": 5}})  # an empty batch 0
    else:
        script.add(A, 1)
        run.latestOffset({"t": {"0": 6}}, ALL)
    assert list(script.groups) == ["q"]


def test_request_of_the_start_as_a_position_proves_no_commit(script: Any) -> None:
    script.add(A, 5)
    reader(script).initialOffset()
    run = reader(script)
    run.latestOffset({"t": {"0": 5}}, ALL)
    assert script.groups[start_group(script)] == {A: (5, COMPLETE)}


def test_a_start_that_was_stored_in_part_does_not_count(script: Any) -> None:
    script.add(A, 5)
    script.add(B, 5)
    reader(script).initialOffset()
    script.groups[start_group(script)] = {A: (2, PART)}
    assert positions(reader(script).initialOffset()) == {"t": {"0": 5, "1": 5}}


def test_a_start_of_many_partitions_counts_once_all_of_it_is_stored(script: Any) -> None:
    for index in range(OFFSETS_A_CALL + 1):
        script.add(TopicPartition("t", index), 1)
    run = reader(script)
    start = run.initialOffset()
    stored = [offsets for group, offsets in script.commits if group != "q"]
    assert [len(offsets) for offsets in stored] == [OFFSETS_A_CALL, 1, OFFSETS_A_CALL, 1]
    notes = {note for _, note in script.groups[start_group(script)].values()}
    assert notes == {COMPLETE}
    assert reader(script).initialOffset() == start


def test_a_start_is_stored_although_the_coordinator_moves(script: Any) -> None:
    script.add(A, 5)
    moving = CoordinatorNotAvailable("nobody leads the partition now")
    script.group_faults += [moving, None, moving]
    assert positions(reader(script).initialOffset()) == {"t": {"0": 5}}
    assert script.groups[start_group(script)] == {A: (5, COMPLETE)}


def test_start_that_the_coordinator_refuses_is_not_used(script: Any) -> None:
    """A broker that does not have the topic yet refuses its offsets, one by one."""
    script.add(A, 5)
    script.deleted.add(A)
    script.group_faults += [None] * 3 + [lambda: script.deleted.discard(A)]
    assert positions(reader(script).initialOffset()) == {"t": {"0": 5}}
    assert script.groups[start_group(script)] == {A: (5, COMPLETE)}


def test_run_keeps_its_start_if_another_client_deletes_it(script: Any) -> None:
    """Another query of the same group, or an administrator."""
    script.add(A, 5)
    run = reader(script)
    start = run.initialOffset()
    end = run.latestOffset(start, ALL)
    script.groups.clear()
    script.add(A, 5)
    assert run.initialOffset() == start
    assert run.partitions(start, end) == []


def test_batch_of_another_run_does_not_run_from_another_start(
    script: Any,
) -> None:
    """The stored start is missing: it expired, or the options differ. A new one would be at the end
    of the batch, and the records before it would be lost without an error."""
    script.add(A, 5)
    run = reader(script)
    run.initialOffset()
    script.add(A, 3)
    end = run.latestOffset(run.initialOffset(), ALL)
    for options in ({}, {"groupId": "another"}, {"startingOffsets": '{"t": {"0": -1}}'}):
        script.groups.clear()
        for _ in range(2):  # the first attempt's stored start is no start of that batch either
            again = reader(script, **options)
            assert again.initialOffset() == end
            assert positions(end) == {"t": {"0": 8}}
            with pytest.raises(InvalidConfig, match="start of the first micro-batch is unknown"):
                again.partitions(again.initialOffset(), end)


def test_batch_refused_under_other_options_runs_under_its_own(
    script: Any,
) -> None:
    script.add(A, 5)
    run = reader(script)
    start = run.initialOffset()
    script.add(A, 3)
    end = run.latestOffset(start, ALL)
    other = reader(script, startingOffsets='{"t": {"0": -1}}')
    other.initialOffset()
    with pytest.raises(InvalidConfig, match="is unknown"):
        other.partitions(end, end)
    again = reader(script)
    (task,) = again.partitions(again.initialOffset(), end)
    assert (task.value.range.start, task.value.range.end) == (5, 8)


def test_latest_without_partitions_is_refused_since_it_could_not_be_stored(script: Any) -> None:
    made = QuorumlogSource({"bootstrap": script.address, "subscribePattern": "x.*", "groupId": "q"})
    with pytest.raises(InvalidConfig, match="no topic matches yet; use 'earliest'"):
        made.streamReader(made.schema()).initialOffset()


def digest(**options: str) -> str:
    return start_digest(parsed(**options))


def parsed(**options: str) -> ReadOptions:
    given = {"bootstrap": "a:1", "subscribe": "t,u", "groupId": "g", **options}
    return parse_options(given, Mode.STREAM)


def test_start_belongs_to_the_selection_and_the_position_only() -> None:
    assert digest() == digest(subscribe="u,t") == digest(startingOffsets="latest")
    assert digest() == digest(maxOffsetsPerTrigger="5", bootstrap="b:2", failOnDataLoss="false")
    others = [
        digest(),
        digest(subscribe="t"),
        digest(startingOffsets='{"t": {"0": -1}}'),
        digest(startingOffsets='{"t": {"0": -2}}'),
        digest(startingTimestamp="5", startingOffsetsByTimestampStrategy="latest"),
    ]
    assert len(set(others)) == len(others)
    assert digest(startingOffsets='{"t": {"0": -1, "1": 2}}') == digest(
        startingOffsets='{"t": {"1": 2, "0": -1}}'
    )


def test_digests_are_the_same_in_every_version() -> None:
    """A package upgraded between a failed first batch and the next attempt finds it."""
    found = [
        digest(),
        digest(startingOffsets='{"t": {"0": -1}, "u": {"0": 5}}'),
        digest(startingTimestamp="5", startingOffsetsByTimestampStrategy="latest"),
    ]
    assert found == ["2c6bba0af651ac74", "054ae5144c6dda19", "86069a53076eea7f"]


def test_partitions_added_behind_a_start_at_latest_are_read_from_their_first_record(
    script: Any,
) -> None:
    script.add(A, 5)
    run = reader(script)
    start = run.initialOffset()
    script.add(B, 3)
    run._leaders_until = 0.0
    end = run.latestOffset(start, ALL)
    assert positions(end) == {"t": {"0": 5, "1": 3}}
    again = reader(script)
    assert again.initialOffset() == start, "the first batch has failed"
    (task,) = again.partitions(start, end)
    assert (task.value.range.place, task.value.range.start, task.value.range.end) == (B, 0, 3)


# --- progress ----------------------------------------------------------------------------------


def test_group_has_the_progress_of_the_query_after_every_batch(script: Any) -> None:
    script.add(A, 5)
    script.add(B, 5)
    run = reader(script, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    start = run.initialOffset()
    assert committed(script) == {A: 0, B: 0}, "before the first batch"
    limit = run.getDefaultReadLimit()
    first = run.latestOffset(start, limit)
    assert committed(script) == {A: 0, B: 0}, "a planned batch is not read yet"
    run.latestOffset(first, limit)
    assert committed(script) == {A: 2, B: 2}
    commits = len(script.commits)
    for _ in range(5):
        run.latestOffset(first, limit)
        run.commit(first)
    assert len(script.commits) == commits, "there is no progress to commit"


def test_refused_commit_does_not_fail_the_query_and_is_retried_after_a_pause(
    script: Any, caplog: pytest.LogCaptureFixture
) -> None:
    script.add(A, 5)
    run = reader(script, startingOffsets="earliest")
    script.group_faults += [NonEmptyGroup("it has members")]
    with caplog.at_level(logging.WARNING, "quorumlog.spark"):
        start = run.initialOffset()
    assert "cannot commit the progress" in caplog.text
    end = run.latestOffset(start, ALL)
    run.latestOffset(end, ALL)
    assert script.commits == [], "no commit for a while"
    run._group._paused_until_s = 0.0
    run.latestOffset(end, ALL)
    assert committed(script) == {A: 5}


def test_two_queries_of_one_group_log_a_warning(
    script: Any, caplog: pytest.LogCaptureFixture
) -> None:
    script.add(A, 5)
    one, other = (reader(script, startingOffsets="earliest") for _ in range(2))
    with caplog.at_level(logging.WARNING, "quorumlog.spark"):
        one.latestOffset({"t": {"0": 1}}, ALL)
        one.latestOffset({"t": {"0": 2}}, ALL)
        assert caplog.text == ""
        other.latestOffset({"t": {"0": 4}}, ALL)
        one._group._checked_s -= SHARED_CHECK_S
        one.latestOffset({"t": {"0": 3}}, ALL)
    assert "group=q: t-0 is committed at 4, this query is at 2" in caplog.text
    assert committed(script) == {A: 3}


def test_reader_with_a_group_and_a_lease_can_be_pickled(script: Any) -> None:
    script.add(A, 5)
    run = reader(script, startingOffsets="earliest", retentionHold="true")
    (task,) = run.partitions(run.initialOffset(), {"t": {"0": 5}})
    (batch,) = pickle.loads(pickle.dumps(run)).read(task)
    assert batch.num_rows == 5


def test_idle_query_commits_again_so_that_its_offsets_do_not_expire(
    script: Any,
) -> None:
    script.add(A, 5)
    run = reader(script, startingOffsets="earliest")
    start = run.initialOffset()
    end = run.latestOffset(start, ALL)
    run.latestOffset(end, ALL)
    script.groups.clear()
    run.latestOffset(end, ALL)
    assert script.groups == {}, "it was committed just now"
    run._group._committed_s -= COMMIT_INTERVAL_S
    run.latestOffset(end, ALL)
    assert committed(script) == {A: 5}


def test_first_commit_of_a_query_waits_for_the_offsets_topic(
    script: Any, caplog: pytest.LogCaptureFixture
) -> None:
    script.add(A, 5)
    loading = CoordinatorLoading("it reads what is stored of its groups")
    script.group_faults += [loading, loading]
    with caplog.at_level(logging.WARNING, "quorumlog.spark"):
        reader(script, startingOffsets="earliest").initialOffset()
    assert committed(script) == {A: 0}
    assert caplog.text == ""


def test_deleted_partition_does_not_prevent_commits_of_the_others(script: Any) -> None:
    script.add(A, 5)
    script.deleted.add(B)
    run = reader(script, startingOffsets="earliest")
    run.commit({"t": {"0": 5, "1": 5}})
    assert committed(script) == {A: 5}
    commits = len(script.commits)
    run.commit({"t": {"0": 5, "1": 5}})
    assert len(script.commits) == commits


# --- limits, and records deleted by retention ---------------------------------------------------


def test_limit_by_bytes_uses_the_size_of_the_logs_on_disk(script: Any) -> None:
    script.add(A, *[10] * 10)
    size = sum(map(len, script.batches[A]))
    run = reader(script, startingOffsets="earliest", maxBytesPerTrigger=str(size // 4))
    end = run.latestOffset(run.initialOffset(), run.getDefaultReadLimit())
    assert 20 <= end["t"]["0"] <= 26


def test_too_few_records_wait_and_spark_gets_no_new_offset(script: Any) -> None:
    script.add(A, 5)
    run = reader(script, startingOffsets="earliest", minOffsetsPerTrigger="4")
    limit = run.getDefaultReadLimit()
    end = run.latestOffset(run.initialOffset(), limit)
    script.add(A, 3)
    assert run.latestOffset(end, limit) == end
    script.add(A, 1)
    assert positions(run.latestOffset(end, limit)) == {"t": {"0": 9}}


def test_with_a_target_no_record_waits(script: Any) -> None:
    script.add(A, 5)
    run = reader(script, startingOffsets="earliest", minOffsetsPerTrigger="4")
    limit = run.getDefaultReadLimit()
    end = run.latestOffset(run.initialOffset(), limit)
    script.add(A, 1)
    run.prepareForTriggerAvailableNow()
    assert positions(run.latestOffset(end, limit)) == {"t": {"0": 6}}


def test_query_at_latest_may_start_after_its_end(script: Any) -> None:
    """With Trigger.AvailableNow Spark requests the end first."""
    script.add(A, 5)
    run = reader(script)
    run.prepareForTriggerAvailableNow()
    script.add(A, 2)
    start = run.initialOffset()
    assert run.latestOffset(start, run.getDefaultReadLimit()) == start
    assert positions(start) == {"t": {"0": 7}}
    with pytest.raises(OffsetOutOfRange, match="beyond the end of the log at 7"):
        run.latestOffset({"t": {"0": 8}}, ALL)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_first_batch_deleted_by_retention_is_a_loss(script: Any, fails: str) -> None:
    script.add(A, 5)
    options = {"startingOffsets": "earliest", "failOnDataLoss": fails}
    run = reader(script, **options)
    end = run.latestOffset(run.initialOffset(), ALL)
    script.add(A, 5)
    script.log_starts[A] = 8
    again = reader(script, **options)
    start = again.initialOffset()
    assert positions(start) == {"t": {"0": 8}}
    if fails == "true":
        with pytest.raises(OffsetOutOfRange, match=r"the log starts at 8.*failOnDataLoss to false"):
            again.partitions(start, end)
    else:
        assert again.partitions(start, end) == []
