"""Features missing from Spark below 4.2: the position of a stream, its limits, API classes."""

import contextlib
from typing import Any

import pytest
from tests.unit.spark.queries import STEPS, A, B, Ended, Engine, committed, positions, reader

from quorumlog.errors import InvalidConfig, OffsetOutOfRange
from quorumlog.spark import admission, source, versions
from quorumlog.spark.stream_reader import StreamReader, UnlimitedStreamReader
from quorumlog.spark.versions import parse_version

EARLIEST = {"startingOffsets": "earliest"}


@pytest.fixture
def _old_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sources return the readers of Spark 4.0."""
    monkeypatch.setattr(source, "HAS_ADMISSION_CONTROL", False)
    monkeypatch.setattr(source, "SPARK_VERSION", (4, 0))
    monkeypatch.setattr(admission, "PAUSE_MS_MAX", 0)


def test_versions_are_parsed_with_what_vendors_append() -> None:
    assert parse_version("4.0.1") == (4, 0)
    assert parse_version("4.10.0.dev1") == (4, 10)


def test_flags_are_those_of_the_installed_version() -> None:
    version = versions.SPARK_VERSION
    assert versions.HAS_STREAM_ARROW_WRITER is (version >= (4, 1))
    assert versions.HAS_PUSHDOWN is (version >= (4, 1))
    assert versions.HAS_ADMISSION_CONTROL is (version >= (4, 2))


def test_the_reader_has_the_interface_of_the_installed_version(script: Any) -> None:
    expected = StreamReader if versions.HAS_ADMISSION_CONTROL else UnlimitedStreamReader
    assert type(reader(script, **EARLIEST)) is expected


@pytest.mark.long
@pytest.mark.usefixtures("_old_spark")
@pytest.mark.parametrize("start", ["latest", "earliest", '{"t": {"0": -1}}'])
@pytest.mark.parametrize("end_at", range(1, STEPS))
def test_a_query_without_limits_ended_at_any_step_loses_no_record_and_reads_none_twice(
    script: Any, start: str, end_at: int
) -> None:
    script.add(A, 5)
    engine = Engine(lambda step: script.add(A, 2))
    with contextlib.suppress(Ended):
        engine.run(reader(script, startingOffsets=start), end_at=end_at)
    script.add(A, 3)
    engine.run(reader(script, startingOffsets=start))
    rows = engine.rows()
    first = 0 if start == "earliest" else engine.ends[0]["t"]["0"]
    assert rows == [f"t-0@{offset}" for offset in range(first, first + len(rows))]
    assert first + len(rows) == engine.ends[engine.committed]["t"]["0"]
    assert len(engine.sink) >= 3


@pytest.mark.usefixtures("_old_spark")
def test_a_query_without_limits_commits_its_progress_and_deletes_its_stored_start(
    script: Any,
) -> None:
    script.add(A, 5)
    run = reader(script)
    end = run.latestOffset()
    script.add(A, 2)
    assert run.partitions(run.initialOffset(), end) == []
    assert len(script.groups) == 2, "its own group and the stored start"
    script.add(A, 1)
    following = run.latestOffset()
    assert positions(following) == {"t": {"0": 8}}
    (task,) = run.partitions(end, following)
    assert (task.value.range.start, task.value.range.end) == (5, 8)
    run.commit(end)
    assert committed(script) == {A: 5}
    assert list(script.groups) == ["q"]


@pytest.mark.usefixtures("_old_spark")
def test_a_partition_added_between_the_first_end_and_the_start_is_read_from_its_start(
    script: Any,
) -> None:
    script.add(A, 5)
    run = reader(script)
    end = run.latestOffset()
    script.add(B, 4)
    run._leaders_until = 0.0
    start = run.initialOffset()
    assert positions(start) == {"t": {"0": 5, "1": 4}}
    assert run.partitions(start, end) == []
    (task,) = run.partitions(end, run.latestOffset())
    assert (task.value.range.place, task.value.range.start, task.value.range.end) == (B, 0, 4)


@pytest.mark.usefixtures("_old_spark")
def test_a_restarted_query_without_a_position_is_checked_when_it_is_planned(script: Any) -> None:
    script.add(A, 5)
    run = reader(script, **EARLIEST)
    end = run.latestOffset()
    script.make_anew(8)
    run = reader(script, **EARLIEST)
    following = run.latestOffset()
    with pytest.raises(OffsetOutOfRange, match="deleted and recreated"):
        run.partitions(end, following)
    run = reader(script, **EARLIEST)
    with pytest.raises(OffsetOutOfRange, match="beyond the end"):
        run.partitions({"t": {"0": 9}}, run.latestOffset())


@pytest.mark.usefixtures("_old_spark")
def test_a_partition_that_appears_is_read_from_its_start_without_limits(script: Any) -> None:
    script.add(A, 5)
    run = reader(script, **EARLIEST)
    start = run.initialOffset()
    run.partitions(start, run.latestOffset())
    script.add(B, 4)
    run._leaders_until = 0.0
    end = run.latestOffset()
    assert positions(end) == {"t": {"0": 5, "1": 4}}


@pytest.mark.usefixtures("_old_spark")
@pytest.mark.parametrize(
    "name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger"]
)
def test_limits_are_refused_with_the_version_that_has_them(script: Any, name: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"option '{name}' needs Spark 4\.2 .* Spark 4\.0"):
        reader(script, **EARLIEST, **{name: "5"})
