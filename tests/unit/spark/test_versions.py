"""What Spark below 4.2 lacks: the position of a stream, its limits, and classes of the API."""

from typing import Any

import pytest
from tests.unit.spark.queries import STEPS, A, B, Ended, Engine, committed, positions, reader

from quorumlog.errors import InvalidConfig, OffsetOutOfRange
from quorumlog.spark import admission, source, stream_reader, versions
from quorumlog.spark.stream_reader import StreamReader, UnlimitedStreamReader
from quorumlog.spark.versions import parse_version

EARLIEST = {"startingOffsets": "earliest"}


@pytest.fixture
def _old_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources return the readers that they return on Spark 4.0."""
    monkeypatch.setattr(source, "HAS_ADMISSION_CONTROL", False)
    for module in (source, stream_reader):
        monkeypatch.setattr(module, "SPARK_VERSION", (4, 0))
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


@pytest.mark.usefixtures("_old_spark")
@pytest.mark.parametrize("start", ["latest", "earliest"])
@pytest.mark.parametrize("end_at", range(1, STEPS))
def test_a_query_without_limits_ended_at_any_step_loses_no_record_and_reads_none_twice(
    script: Any, start: str, end_at: int
) -> None:
    script.add(A, 5)
    engine = Engine(lambda step: script.add(A, 2))
    with pytest.raises(Ended):
        engine.run(reader(script, startingOffsets=start), end_at=end_at)
    script.add(A, 3)
    engine.run(reader(script, startingOffsets=start))
    rows = engine.rows()
    at_latest = 12 if end_at == 1 else 7  # the end when the start was first requested
    first = 0 if start == "earliest" else at_latest
    assert rows == [f"t-0@{offset}" for offset in range(first, first + len(rows))]
    assert first + len(rows) == engine.ends[engine.committed]["t"]["0"]


@pytest.mark.usefixtures("_old_spark")
def test_a_query_without_limits_commits_its_progress_and_deletes_its_stored_start(
    script: Any,
) -> None:
    script.add(A, 5)
    run = reader(script)
    start = run.initialOffset()
    assert len(script.groups) == 2, "its own group and the stored start"
    end = run.latestOffset()
    assert run.initialOffset() == start, "Spark calls it twice"
    run.partitions(start, end)
    script.add(A, 3)
    following = run.latestOffset()
    assert positions(following) == {"t": {"0": 8}}
    run.commit(end)
    assert committed(script) == {A: 5}
    assert list(script.groups) == ["q"]


@pytest.mark.usefixtures("_old_spark")
def test_available_now_reads_everything_in_one_micro_batch(script: Any) -> None:
    """Spark requests its end first."""
    script.add(A, 5)
    run = reader(script, **EARLIEST)
    end = run.latestOffset()
    script.add(A, 3)
    tasks = run.partitions(run.initialOffset(), end)
    assert [(task.value.range.start, task.value.range.end) for task in tasks] == [(0, 5)]


@pytest.mark.usefixtures("_old_spark")
def test_available_now_is_refused_at_latest(script: Any) -> None:
    script.add(A, 5)
    run = reader(script)
    run.latestOffset()
    with pytest.raises(InvalidConfig, match=r"4\.0 cannot begin .* Trigger.AvailableNow at 'lat"):
        run.initialOffset()


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
