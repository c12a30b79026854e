"""Topic identity in checkpoints: recreated, missing and mirrored topics, and other versions."""

import contextlib
import itertools
import json
import logging
from typing import Any

import pyarrow as pa
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

from quorumlog.errors import InvalidConfig, OffsetOutOfRange, UnknownTopicOrPartition
from quorumlog.ids import TopicPartition
from quorumlog.spark import admission
from quorumlog.spark.offsets import IDS, StreamOffsets

EARLIEST = {"startingOffsets": "earliest"}
LOSING = EARLIEST | {"failOnDataLoss": "false"}
LOSING_AT_LATEST = {"startingOffsets": "latest", "failOnDataLoss": "false"}


@pytest.fixture(autouse=True)
def _without_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a query check again at once after an empty check; test_admission tests the pauses."""
    monkeypatch.setattr(admission, "PAUSE_MS_MAX", 0)


def read(run: Any, start: Any, end: Any) -> list[str]:
    """Return the values of a micro-batch."""
    values: list[str] = []
    for task in run.partitions(start, end):
        table = pa.Table.from_batches(list(run.read(task)))
        values += [value.decode() for value in table["value"].to_pylist()]
    return values


def first_batch(script: Any, **options: str) -> Any:
    """Return the end of the first micro-batch, which is committed."""
    run = reader(script, **options)
    end = run.latestOffset(run.initialOffset(), ALL)
    run.latestOffset(end, ALL)
    return end


def again_soon(run: Any) -> None:
    """Let a second pass, the maximum age of a run's cached topics."""
    run._leaders_until = 0.0


# --- recreated topics ----------------------------------------------------------------------------


@pytest.mark.parametrize("records", [3, 5, 30])
def test_topic_recreated_while_a_query_is_down_fails_it(script: Any, records: int) -> None:
    """Also if the new topic has the offsets of the checkpoint, so that only the id differs."""
    script.add(A, 5)
    end = json.loads(json.dumps(first_batch(script, **EARLIEST)))
    script.make_anew(records)
    with pytest.raises(OffsetOutOfRange, match=r"t: .*recreated.*failOnDataLoss to false"):
        reader(script, **EARLIEST).latestOffset(end, ALL)
    run = reader(script, **EARLIEST)
    run.prepareForTriggerAvailableNow()
    with pytest.raises(OffsetOutOfRange, match=r"t: .*recreated"):
        run.latestOffset(end, ALL)


@pytest.mark.parametrize("records", [3, 5, 30])
@pytest.mark.parametrize("limits", [{}, {"maxOffsetsPerTrigger": "1000"}])
def test_topic_recreated_while_a_query_is_down_is_read_from_its_start_if_loss_is_allowed(
    script: Any, caplog: pytest.LogCaptureFixture, limits: dict[str, str], records: int
) -> None:
    script.add(A, 5)
    start = first_batch(script, **LOSING)
    script.make_anew(records)
    run = reader(script, **LOSING, **limits)
    end = run.latestOffset(start, run.getDefaultReadLimit())
    with caplog.at_level(logging.WARNING, "quorumlog.spark"):
        assert read(run, start, end) == [f"t-0@{offset}" for offset in range(records)]
    assert "t-0: the topic was deleted and recreated after it was read up to offset 5" in (
        caplog.text
    )
    assert run.latestOffset(end, run.getDefaultReadLimit()) == end
    assert committed(script) == {A: records}, "the group has the query's position in the new topic"


@pytest.mark.parametrize("age", ["known", "looked up again"])
def test_topic_recreated_under_a_running_query_fails_it_or_is_read_from_its_start(
    script: Any, age: str
) -> None:
    script.add(A, 10)
    runs = [reader(script, **options) for options in (EARLIEST, LOSING)]
    ends = [run.latestOffset(run.initialOffset(), ALL) for run in runs]
    script.make_anew(30)
    for run in runs if age == "looked up again" else ():
        again_soon(run)
    strict, losing = runs
    with pytest.raises(OffsetOutOfRange, match="recreated"):
        strict.latestOffset(ends[0], ALL)
    end = losing.latestOffset(ends[1], ALL)
    assert read(losing, ends[1], end) == [f"t-0@{offset}" for offset in range(30)]


@pytest.mark.parametrize("is_running", [True, False])
def test_batch_planned_before_a_topic_was_recreated_fails_or_is_left_out(
    script: Any, caplog: pytest.LogCaptureFixture, is_running: bool
) -> None:
    script.add(A, 10)
    run = reader(script, **LOSING)
    start = run.initialOffset()
    end = run.latestOffset(start, ALL)
    script.make_anew(30)
    with pytest.raises(OffsetOutOfRange, match=r"t-0: records up to offset 10 are lost"):
        reader(script, **EARLIEST).partitions(start, end)
    run = run if is_running else reader(script, **LOSING)
    again_soon(run)
    with caplog.at_level(logging.WARNING, "quorumlog.spark"):
        assert run.partitions(start, end) == []
    assert "its new records are in the next micro-batch" in caplog.text
    following = run.latestOffset(end, ALL)
    assert len(read(run, end, following)) == 30


def test_batch_that_spans_a_recreation_is_planned_equally_again(
    script: Any,
) -> None:
    """The query ended after its plan."""
    script.add(A, 10)
    start = first_batch(script, **LOSING)
    script.make_anew(4)
    end = reader(script, **LOSING).latestOffset(start, ALL)
    script.add(A, 4)
    assert read(reader(script, **LOSING), start, end) == [f"t-0@{offset}" for offset in range(4)]
    with pytest.raises(OffsetOutOfRange, match="recreated after it was read up to offset 10"):
        reader(script, **EARLIEST).partitions(start, end)


def test_topic_recreated_with_fewer_partitions_is_read(script: Any) -> None:
    script.add(A, 5)
    script.add(B, 5)
    start = first_batch(script, **LOSING)
    del script.batches[B]
    script.make_anew(3)
    run = reader(script, **LOSING)
    end = run.latestOffset(start, ALL)
    assert positions(end) == {"t": {"0": 3}}
    assert len(read(run, start, end)) == 3


def test_topic_recreated_between_two_requests_of_the_initial_offset_is_detected(
    script: Any,
) -> None:
    """Spark requests the initial offset twice in a run."""
    script.add(A, 5)
    run = reader(script)
    run.initialOffset()
    script.make_anew(9)
    with pytest.raises(OffsetOutOfRange, match="recreated"):
        run.initialOffset()


@pytest.mark.parametrize("is_asked_again", [True, False])
def test_topic_recreated_before_the_first_batch_is_read_from_its_start_if_loss_is_allowed(
    script: Any, is_asked_again: bool
) -> None:
    """Also by a later run, which ends with its plan."""
    script.add(A, 5)
    run = reader(script, **LOSING_AT_LATEST)
    start = run.initialOffset()
    script.make_anew(3)
    again_soon(run)
    if is_asked_again:
        start = run.initialOffset()
        assert positions(start) == {"t": {"0": 0}}
    end = run.latestOffset(start, ALL)
    assert read(run, start, end) == ["t-0@0", "t-0@1", "t-0@2"]
    later = reader(script, **LOSING_AT_LATEST)
    assert read(later, later.initialOffset(), end) == ["t-0@0", "t-0@1", "t-0@2"]


@pytest.mark.long
@pytest.mark.parametrize("limits", [{}, {"maxOffsetsPerTrigger": "3"}])
@pytest.mark.parametrize("is_down", [True, False])
@pytest.mark.parametrize("end_at", range(1, STEPS))
def test_query_at_latest_continues_after_a_recreation_at_any_step(
    script: Any, limits: dict[str, str], is_down: bool, end_at: int
) -> None:
    script.add(A, 5)
    steps = itertools.count(1)

    def on_step(name: str) -> None:
        script.add(A, 2)
        if next(steps) == end_at and not is_down:
            script.make_anew(7)

    engine = Engine(on_step)
    options = LOSING_AT_LATEST | limits
    with contextlib.suppress(Ended):
        engine.run(reader(script, **options), end_at=end_at if is_down else None)
    has_batch = bool(engine.ends)
    if is_down:
        script.make_anew(7)
    engine.on_step = lambda name: None
    if end_at > 1 or not is_down:
        script.add(A, 4)
    engine.run(reader(script, **options), batches=3)
    script.add(A, 2)
    engine.run(reader(script, **options), batches=20)
    offsets = [int(row.removeprefix("t-0@")) for row in engine.rows()]
    falls = [at for at in range(1, len(offsets)) if offsets[at] <= offsets[at - 1]]
    assert len(falls) <= 1
    again = falls[0] if falls else 0
    for part in (offsets[:again], offsets[again:]):
        assert part == [*range(part[0], part[0] + len(part))] if part else True
    assert offsets[-1] == script.end(A) - 1
    is_new = end_at == 1 or (is_down and not has_batch)  # it starts at the end of that topic
    assert is_new or offsets[again] == 0


@pytest.mark.long
@pytest.mark.parametrize("limits", [{}, {"maxOffsetsPerTrigger": "3"}])
@pytest.mark.parametrize("is_down", [True, False])
@pytest.mark.parametrize("end_at", range(1, STEPS))
def test_topic_recreated_at_any_step_is_read_once_and_completely(
    script: Any, limits: dict[str, str], is_down: bool, end_at: int
) -> None:
    """Recreated while the query runs or after it ended there. Of the old topic, some records were
    read."""
    script.add(A, 5)
    steps = itertools.count(1)

    def on_step(name: str) -> None:
        script.add(A, 2)
        if next(steps) == end_at and not is_down:
            script.make_anew(7)

    engine = Engine(on_step)
    with contextlib.suppress(Ended):
        engine.run(reader(script, **LOSING, **limits), end_at=end_at if is_down else None)
    if is_down:
        script.make_anew(7)
    engine.on_step = lambda name: None
    engine.run(reader(script, **LOSING, **limits), batches=15)
    offsets = [int(row.removeprefix("t-0@")) for row in engine.rows()]
    again = next((at for at in range(1, len(offsets)) if not offsets[at]), 0)
    assert offsets[:again] == [*range(again)]
    assert offsets[again:] == [*range(script.end(A))]


# --- missing topics ------------------------------------------------------------------------------


@pytest.mark.parametrize("selection", [{}, {"assign": '{"t": [0]}'}])
def test_missing_topic_does_not_fail_a_query_that_may_lose_records(
    script: Any, caplog: pytest.LogCaptureFixture, selection: dict[str, str]
) -> None:
    script.add(A, 5)
    run = reader(script, **LOSING, **selection)
    end = run.latestOffset(run.initialOffset(), ALL)
    held, script.batches[A] = script.batches[A], []
    del script.batches[A]
    with caplog.at_level(logging.WARNING, "quorumlog.spark"):
        for _ in range(3):
            again_soon(run)
            assert run.latestOffset(end, ALL) == end
    assert caplog.text.count("t-0: does not exist now") == 1
    script.batches[A] = held
    script.add(A, 1)
    again_soon(run)
    following = run.latestOffset(end, ALL)
    assert read(run, end, following) == ["t-0@5"], (
        "it was the same topic: the metadata of a broker lagged"
    )


def test_missing_topic_that_returns_as_another_is_read_from_its_start(
    script: Any,
) -> None:
    script.add(A, 5)
    end = first_batch(script, **LOSING)
    script.make_anew(2)
    held = script.batches.pop(A)
    run = reader(script, **LOSING)
    assert run.latestOffset(end, ALL) == end
    script.batches[A] = held
    again_soon(run)
    assert read(run, end, run.latestOffset(end, ALL)) == ["t-0@0", "t-0@1"]


@pytest.mark.parametrize("options", [EARLIEST, LOSING])
def test_query_does_not_start_with_a_missing_topic(script: Any, options: dict[str, str]) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="t: the topic does not exist"):
        reader(script, **options).initialOffset()


def test_missing_topic_fails_a_query_that_may_lose_nothing(script: Any) -> None:
    script.add(A, 5)
    end = first_batch(script, **EARLIEST)
    script.batches.clear()
    with pytest.raises(UnknownTopicOrPartition, match="t: the topic does not exist"):
        reader(script, **EARLIEST).latestOffset(end, ALL)


def test_topic_removed_from_the_options_is_reported_as_such(script: Any) -> None:
    script.add(A, 5)
    script.add(TopicPartition("u", 0), 5)
    start = first_batch(script, subscribe="t,u", **EARLIEST)
    run = reader(script, **EARLIEST)
    with pytest.raises(OffsetOutOfRange, match=r"u-0: .*not among what the options read any more"):
        run.partitions(start, run.latestOffset(start, ALL))


# --- other checkpoints ---------------------------------------------------------------------------


def test_offsets_have_the_ids_beside_the_topics_in_sorted_order(script: Any) -> None:
    script.add(A, 5)
    script.add(B, 5)
    text = json.dumps(reader(script, **EARLIEST).initialOffset())
    ids = '"#ids": {"#cluster": "cluster-1", "t": "MTExMTExMTExMTExMTExMQ"}'
    assert text == "{" + ids + ', "t": {"0": 0, "1": 0}}'
    assert text == json.dumps(json.loads(text), sort_keys=True)
    assert StreamOffsets.from_json(json.loads(text)).id_of("t") == script.topic_id


def test_checkpoint_without_ids_continues_and_gets_them(script: Any) -> None:
    script.add(A, 5)
    run = reader(script, **EARLIEST)
    end = run.latestOffset({"t": {"0": 3}}, ALL)
    assert end == {IDS: {"#cluster": "cluster-1", "t": "MTExMTExMTExMTExMTExMQ"}, "t": {"0": 5}}
    assert read(run, {"t": {"0": 3}}, end) == ["t-0@3", "t-0@4"]
    assert read(run, {"t": {"0": 3}}, {"t": {"0": 5}}) == ["t-0@3", "t-0@4"], (
        "planned by the same run"
    )
    script.make_anew(9)
    with pytest.raises(OffsetOutOfRange, match="recreated"):
        reader(script, **EARLIEST).latestOffset(end, ALL)


def test_a_checkpoint_of_another_cluster_is_refused_unless_this_one_mirrors_it(script: Any) -> None:
    script.add(A, 5)
    start = first_batch(script, **EARLIEST)
    script.cluster_id, script.topic_id = "cluster-2", b"9" * 16
    script.add(A, 2)
    refusal = r"of cluster 'cluster-1'.*'mirrorOf' to"
    for options in (EARLIEST, LOSING, EARLIEST | {"mirrorOf": "cluster-3"}):
        with pytest.raises(InvalidConfig, match=refusal):
            reader(script, **options).latestOffset(start, ALL)
        with pytest.raises(InvalidConfig, match=refusal):
            reader(script, **options).partitions(start, start)
    run = reader(script, **EARLIEST, mirrorOf="cluster-1")
    end = run.latestOffset(start, ALL)
    assert end[IDS]["#cluster"] == "cluster-2"
    assert read(run, start, end) == ["t-0@5", "t-0@6"]
    assert read(run, start, first_batch(script, **EARLIEST)) == ["t-0@5", "t-0@6"]


def test_checkpoint_of_a_newer_version_is_refused_with_that_reason(script: Any) -> None:
    script.add(A, 5)
    with pytest.raises(InvalidConfig, match="'#more', which a newer release"):
        reader(script, **EARLIEST).latestOffset({"#more": {}, "t": {"0": 3}}, ALL)


# --- records deleted by retention ----------------------------------------------------------------


def test_gap_left_by_retention_is_skipped_at_once_under_any_limits(
    script: Any, caplog: pytest.LogCaptureFixture
) -> None:
    script.add(A, *[1_000] * 11)
    script.add(B, 10)
    script.log_starts[A] = 10_000
    run = reader(script, **LOSING, maxOffsetsPerTrigger="10")
    start = {"t": {"0": 5, "1": 0}}
    end = run.latestOffset(start, run.getDefaultReadLimit())
    assert positions(end) == {"t": {"0": 10_009, "1": 1}}
    with caplog.at_level(logging.WARNING, "quorumlog.spark"):
        assert len(read(run, start, end)) == 10
    assert "t-0: records from offset 5 are gone, the log starts at 10000" in caplog.text


def test_a_gap_counts_for_no_task_and_no_wait(script: Any) -> None:
    script.add(A, *[1_000] * 11)
    script.log_starts[A] = 10_995
    run = reader(
        script, **LOSING, minOffsetsPerTrigger="6", maxRecordsPerPartition="2", groupId="n"
    )
    limit = run.getDefaultReadLimit()
    run.latestOffset({"t": {"0": 5}}, limit)
    assert run.latestOffset({"t": {"0": 5}}, limit) == {"t": {"0": 5}}, "five wait for a sixth"
    assert [task.value.range.size for task in run.partitions({"t": {"0": 5}}, {"t": {"0": 11_000}})]
    script.add(A, 1)
    end = run.latestOffset({"t": {"0": 5}}, limit)
    sizes = [task.value.range.size for task in run.partitions({"t": {"0": 5}}, end)]
    assert sizes == [2, 2, 2]


def test_records_deleted_by_retention_fail_the_plan_and_not_its_tasks(script: Any) -> None:
    script.add(A, 10)
    run = reader(script, **EARLIEST)
    script.log_starts[A] = 4
    with pytest.raises(OffsetOutOfRange, match=r"t-0: records from offset 1 are gone, .* at 4"):
        run.partitions({"t": {"0": 1}}, {"t": {"0": 10}})


def test_query_continues_if_retention_passed_its_end(script: Any) -> None:
    """With Trigger.AvailableNow."""
    script.add(A, 10)
    run = reader(script, **LOSING, maxOffsetsPerTrigger="2")
    run.prepareForTriggerAvailableNow()
    script.add(A, 10)
    script.log_starts[A] = 15
    start: dict[str, Any] = {"t": {"0": 1}}
    end = run.latestOffset(start, run.getDefaultReadLimit())
    assert positions(end) == {"t": {"0": 10}}
    assert run.partitions(start, end) == []
    assert run.latestOffset(end, run.getDefaultReadLimit()) == end
