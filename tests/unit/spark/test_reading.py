"""Plans and reads with a scripted broker: the records of a task, and its handling of faults."""

import math
import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from tests.unit.spark.queries import positions

from quorumlog.clients.topology import PartitionLeader
from quorumlog.errors import (
    ConnectionFailed,
    InvalidConfig,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    StreamBroken,
    TimedOut,
    UnknownTopicOrPartition,
)
from quorumlog.ids import NO_EPOCH, TopicPartition
from quorumlog.metadata.config import ControllerConfig
from quorumlog.runtime.grpc_network import SyncChannel
from quorumlog.spark import broker_calls, tasks
from quorumlog.spark.broker_calls import Cluster
from quorumlog.spark.cluster_access import ClusterAccess
from quorumlog.spark.options import Isolation
from quorumlog.spark.plan import Range
from quorumlog.spark.source import QuorumlogSource

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def source(script: Any, options: Mapping[str, str]) -> QuorumlogSource:
    return QuorumlogSource({"bootstrap": script.address, "subscribe": "t", **options})


def read(script: Any, **options: str) -> pa.Table:
    """Read as Spark does: plan, pickle the reader and each partition, read."""
    made = source(script, options)
    schema = made.schema()
    reader = made.reader(schema)
    tables = []
    for partition in pickle.loads(pickle.dumps(reader.partitions())):
        batches = list(pickle.loads(pickle.dumps(reader)).read(partition))
        tables += batches
    return (
        pa.Table.from_batches(tables) if tables else pa.table({"value": pa.array([], pa.binary())})
    )


def values(table: pa.Table) -> list[str]:
    return [value.decode() for value in table["value"].to_pylist()]


def expected(place: TopicPartition, start: int, end: int) -> list[str]:
    return [f"{place}@{offset}" for offset in range(start, end)]


def test_read_returns_every_record_once_in_order_with_all_columns(script: Any) -> None:
    script.add(A, 5, 7)
    script.add(B, 3)
    table = read(script)
    assert values(table) == expected(A, 0, 12) + expected(B, 0, 3)
    assert table.column_names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    ]  # fmt: skip
    row = table.slice(12, 1).to_pylist()[0]
    assert (row["topic"], row["partition"], row["offset"]) == ("t", 1, 0)
    assert row["timestamp"].timestamp() == 1.0


def test_transaction_markers_are_no_rows(script: Any) -> None:
    """One marker between records, and a range of markers only."""
    script.add(A, 3)
    script.mark(A)
    script.add(A, 2)
    script.mark(B)
    table = read(script)
    assert values(table) == expected(A, 0, 3) + expected(A, 4, 6)
    assert values(read(script, startingOffsets='{"t": {"0": 3, "1": 0}}')) == expected(A, 4, 6)


def test_bounds_inside_batches_are_exact(script: Any) -> None:
    script.add(A, 10, 10, 10)
    table = read(script, startingOffsets='{"t": {"0": 4}}', endingOffsets='{"t": {"0": 26}}')
    assert values(table) == expected(A, 4, 26)


def test_split_ranges_give_the_same_records(script: Any) -> None:
    script.add(A, *[10] * 10)
    script.add(B, 2)
    options = {"minPartitions": "7"}
    assert len(source(script, options).reader(source(script, options).schema()).partitions()) >= 7
    assert values(read(script, minPartitions="7")) == expected(A, 0, 100) + expected(B, 0, 2)
    assert values(read(script, maxRecordsPerPartition="9")) == values(read(script))


def test_large_batches_are_sliced_and_small_ones_joined(script: Any) -> None:
    script.add(A, 80_000, *[100] * 150)
    made = source(script, {})
    reader = made.reader(made.schema())
    (task,) = reader.partitions()
    sizes = [batch.num_rows for batch in reader.read(task)]
    assert sizes == [65_000, 15_000, 10_000, 5_000]


def test_times_become_offsets(script: Any) -> None:
    script.add(A, 10)
    assert values(read(script, startingTimestamp="1004", endingTimestamp="1008")) == expected(
        A, 4, 8
    )
    with pytest.raises(OffsetOutOfRange, match="no record is at or after 5000 ms"):
        read(script, startingTimestamp="5000")
    latest = {"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"}
    assert values(read(script, **latest)) == []


def test_starting_timestamp_waits_for_a_leader_that_has_not_committed_its_epochs_start(
    script: Any,
) -> None:
    """KIP-207: such a leader cannot exclude a record of that time."""
    script.add(A, 10)
    script.times_refused += [OffsetNotAvailable("not committed up to the epoch's start")] * 2
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert values(read(script, startingTimestamp="1009", **latest)) == expected(A, 9, 10)
    assert not script.times_refused


@pytest.mark.parametrize("calls", range(4))
def test_records_appended_between_two_lookups_do_not_invert_a_time_range(
    script: Any, calls: int
) -> None:
    """The start lookup finds no record; at the end lookup all records of the range exist."""
    script.add(A, 10)
    script.meanwhile += [lambda: None] * calls + [lambda: script.add(A, 2_100)]
    span = {"startingTimestamp": "2000", "endingTimestamp": "3000"}
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    found = values(read(script, **span, **latest))
    assert found in ([], expected(A, 1_000, 2_000))


def test_an_empty_plan_reads_nothing(script: Any) -> None:
    """Spark replaces an empty list of partitions by one without a value."""
    script.add(A)
    made = source(script, {})
    reader = made.reader(made.schema())
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_pattern_and_assignment_select_partitions(script: Any) -> None:
    script.add(A, 2)
    script.add(B, 3)
    script.add(TopicPartition("u", 0), 4)
    made = QuorumlogSource({"bootstrap": script.address, "subscribePattern": "[tu]"})
    assert len(made.reader(made.schema()).partitions()) == 3
    made = QuorumlogSource({"bootstrap": script.address, "subscribePattern": "nothing"})
    assert made.reader(made.schema()).partitions() == []
    made = QuorumlogSource({"bootstrap": script.address, "assign": '{"t": [1]}'})
    (task,) = made.reader(made.schema()).partitions()
    assert task.value.range.place == B


def test_unknown_topics_and_partitions_are_named(script: Any) -> None:
    script.add(A, 1)
    made = QuorumlogSource({"bootstrap": script.address, "subscribe": "t, nowhere"})
    with pytest.raises(UnknownTopicOrPartition, match="nowhere: the topic does not exist"):
        made.reader(made.schema()).partitions()
    made = QuorumlogSource({"bootstrap": script.address, "assign": '{"t": [0, 9]}'})
    with pytest.raises(UnknownTopicOrPartition, match="t-9: the partition in option 'assign'"):
        made.reader(made.schema()).partitions()


@pytest.mark.slow
def test_bootstrap_address_without_a_listener_is_named() -> None:
    made = QuorumlogSource({"bootstrap": "127.0.0.1:1, 127.0.0.1:2", "subscribe": "t"})
    with pytest.raises(
        ConnectionFailed, match=r": 127\.0\.0\.1:[12], 127\.0\.0\.1:[12]: connection ref"
    ):
        made.reader(made.schema()).partitions()


@pytest.mark.parametrize(
    "fault",
    [
        StreamBroken("reset"),
        NotLeaderOrFollower("moved"),
        "early end",
    ],
)
def test_a_task_resumes_where_a_stream_broke(script: Any, fault: Any) -> None:
    script.add(A, 10, 10, 10)
    script.faults += [fault, fault]
    assert values(read(script)) == expected(A, 0, 30)
    assert script.subscriptions == [0, 10, 20]


def test_permanent_fault_fails_the_task(script: Any) -> None:
    script.add(A, 10)
    script.log_starts[A] = 0
    script.faults += [InvalidConfig("no")]
    script.add(A, 10)
    with pytest.raises(InvalidConfig, match="no"):
        read(script)


def test_silent_broker_fails_the_task_in_time(script: Any) -> None:
    script.add(A, 10)
    script.faults += ["silence"]
    with pytest.raises(TimedOut, match="'pollTimeoutMs'"):
        read(script, pollTimeoutMs="300")


def test_records_removed_after_planning_fail_the_task_or_are_skipped(script: Any) -> None:
    script.add(A, 10, 10)
    for keep in ("true", "false"):
        made = source(script, {"failOnDataLoss": keep})
        reader = made.reader(made.schema())
        (task,) = reader.partitions()
        script.log_starts[A] = 10
        if keep == "true":
            with pytest.raises(OffsetOutOfRange, match="set failOnDataLoss to false"):
                list(reader.read(task))
        else:
            assert values(pa.Table.from_batches(reader.read(task))) == expected(A, 10, 20)
        script.log_starts[A] = 0


def test_topic_deleted_during_a_task_fails_it_or_ends_it(script: Any) -> None:
    for keep in ("true", "false"):
        script.add(A, 10, 10)
        made = source(script, {"failOnDataLoss": keep})
        reader = made.reader(made.schema())
        (task,) = reader.partitions()
        script.faults += ["deletion"]
        if keep == "true":
            with pytest.raises(UnknownTopicOrPartition, match="set failOnDataLoss to false"):
                list(reader.read(task))
        else:
            assert values(pa.Table.from_batches(reader.read(task))) == expected(A, 0, 10)


@pytest.mark.parametrize("keep", ["true", "false"])
def test_task_reads_nothing_of_a_topic_recreated_during_it(script: Any, keep: str) -> None:
    """The topic counts as deleted although the new one has the planned offsets."""
    script.add(A, 10, 10)
    made = source(script, {"failOnDataLoss": keep})
    reader = made.reader(made.schema())
    (task,) = reader.partitions()
    script.faults += ["recreation"]
    if keep == "true":
        with pytest.raises(UnknownTopicOrPartition, match="set failOnDataLoss to false"):
            list(reader.read(task))
    else:
        assert values(pa.Table.from_batches(reader.read(task))) == expected(A, 0, 10)


def test_plan_of_a_topic_recreated_since_fails(script: Any) -> None:
    """Spark keeps the plan of a DataFrame for its later actions."""
    script.add(A, 10)
    made = source(script, {})
    reader = made.reader(made.schema())
    (task,) = reader.partitions()
    assert len(pa.Table.from_batches(reader.read(task))) == 10
    script.make_anew(30)
    with pytest.raises(UnknownTopicOrPartition, match="the partition was deleted"):
        list(reader.read(task))


def test_infinite_wait_is_long_and_no_error(script: Any) -> None:
    script.add(A, 10)
    assert values(read(script, pollTimeoutMs=str(2**63 - 1))) == expected(A, 0, 10)


def test_cancellation_while_a_stream_opens_ends_the_read(script: Any) -> None:
    """The other thread cancels between the check of the flag and the first wait."""
    script.add(A, 10)
    script.faults += ["silence"]
    part = Range(place=A, start=0, end=10)

    class CancellingCluster(Cluster):
        def channel_to(self, address: str) -> SyncChannel:
            reading.cancel()
            return super().channel_to(address)

    reading = tasks.RangeFetcher(
        CancellingCluster(ClusterAccess(bootstrap=(script.address,))),
        part,
        leader=PartitionLeader(script.address, NO_EPOCH),
        isolation=Isolation.READ_COMMITTED,
        fail_on_data_loss=True,
    )

    thread = threading.Thread(target=lambda: list(reading.responses()), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


def test_a_process_ends_although_a_task_still_waits_for_a_broker(script: Any) -> None:
    """Spark may stop a worker with an unfinished reader: no thread of it may block the exit."""
    script.add(A, 20_000, 10)
    script.faults += ["stall"]
    program = """
import sys
from quorumlog.spark.source import QuorumlogSource
made = QuorumlogSource({"bootstrap": sys.argv[1], "subscribe": "t"})
reader = made.reader(made.schema())
batches = reader.read(reader.partitions()[0])
print(next(batches).num_rows)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, script.address],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("20000\n", "")


def test_a_task_left_early_leaves_no_thread(script: Any) -> None:
    script.add(A, 70_000, 70_000, 70_000)
    made = source(script, {})
    reader = made.reader(made.schema())
    (task,) = reader.partitions()
    batches = reader.read(task)
    assert next(batches).num_rows == 65_000
    batches.close()  # type: ignore[attr-defined]  # a generator, which Spark may drop early
    assert not [one for one in threading.enumerate() if one.name.startswith("quorumlog-ahead")]


# --- streams -----------------------------------------------------------------------------------


def stream(script: Any, **options: str) -> Any:
    made = source(script, {"startingOffsets": "earliest", **options})
    return made.streamReader(made.schema())


def test_stream_reads_from_earliest_to_latest(script: Any) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    script.add(A, 10)
    script.add(B, 3)
    reader = stream(script)
    start = reader.initialOffset()
    assert positions(start) == {"t": {"0": 0, "1": 0}}
    end = reader.latestOffset(start, ReadAllAvailable())
    assert positions(end) == {"t": {"0": 10, "1": 3}}
    assert [task.value.range.size for task in reader.partitions(start, end)] == [10, 3]
    assert reader.partitions(end, end) == []
    assert reader.reportLatestOffset() == positions(end)


def test_a_stream_is_limited_and_a_prepared_one_ends(script: Any) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    script.add(A, 10)
    reader = stream(script, maxOffsetsPerTrigger="4")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    reader.prepareForTriggerAvailableNow()
    script.add(A, 10)
    at = reader.initialOffset()
    seen = []
    while (following := reader.latestOffset(at, limit)) != at:
        seen.append(following["t"]["0"])
        at = following
    assert seen == [4, 8, 10]


def test_a_stream_beyond_the_end_raises(script: Any) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    script.add(A, 10)
    with pytest.raises(OffsetOutOfRange, match="offset 11, beyond the end of the log at 10"):
        stream(script, startingOffsets='{"t": {"0": 11}}').initialOffset()
    reader = stream(script)
    with pytest.raises(OffsetOutOfRange, match="offset 99, beyond the end of the log at 10"):
        reader.latestOffset({"t": {"0": 99}}, ReadAllAvailable())
    with pytest.raises(OffsetOutOfRange, match="beyond the end of this micro-batch at 13"):
        reader.partitions({"t": {"0": 20}}, {"t": {"0": 13}})


def test_a_partition_that_appears_is_read_from_its_start(script: Any) -> None:
    script.add(A, 10)
    reader = stream(script)
    script.add(B, 4)
    tasks = reader.partitions({"t": {"0": 10}}, {"t": {"0": 10, "1": 4}})
    assert [(task.value.range.start, task.value.range.end) for task in tasks] == [(0, 4)]


def test_partition_created_while_the_first_batch_failed_is_no_loss(script: Any) -> None:
    """Spark requests the initial offset again, then replays the end that it has logged."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    script.add(A, 10)
    reader = stream(script)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    script.add(B, 4)
    again = stream(script)
    start = again.initialOffset()
    assert positions(start) == {"t": {"0": 0, "1": 0}}
    (task,) = again.partitions(start, end)
    assert (task.value.range.place, task.value.range.size) == (A, 10)
    following = again.latestOffset(end, ReadAllAvailable())
    (task,) = again.partitions(end, following)
    assert (task.value.range.place, task.value.range.size) == (B, 4)


def test_a_new_partition_deleted_before_its_first_batch_is_limited_like_others(script: Any) -> None:
    """With Trigger.AvailableNow the end is older than the deletion."""
    from pyspark.sql.streaming.datasource import ReadMaxRows

    script.add(A, 10)
    script.add(TopicPartition("u", 0), 10)
    options = {"bootstrap": script.address, "subscribePattern": "[tu]"}
    limited = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    made = QuorumlogSource({**options, **limited})
    reader = made.streamReader(made.schema())
    reader.prepareForTriggerAvailableNow()
    del script.batches[TopicPartition("u", 0)]
    reader._leaders_until = 0.0
    end = reader.latestOffset({"t": {"0": 0}}, ReadMaxRows(10))
    assert positions(end) == {"t": {"0": 5}, "u": {"0": 5}}


def test_pattern_continues_without_a_topic_deleted_in_between(script: Any) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    script.add(A, 10)
    script.add(TopicPartition("u", 0), 10)
    script.ghosts.append("us")  # listed, and deleted before its description
    options = {"bootstrap": script.address, "subscribePattern": "[tu]s?"}
    made = QuorumlogSource({**options, "startingOffsets": "earliest"})
    reader = made.streamReader(made.schema())
    start = reader.initialOffset()
    assert positions(start) == {"t": {"0": 0}, "u": {"0": 0}}
    del script.batches[TopicPartition("u", 0)]  # the reader's metadata are a second old at most
    assert positions(reader.latestOffset(start, ReadAllAvailable())) == {"t": {"0": 10}}


def test_calls_and_tasks_are_retried_for_longer_than_a_failover() -> None:
    """The successor of a dead leader is elected after its session, and is visible a bit later."""
    pauses = [broker_calls.PAUSE_MS * 2**attempt for attempt in range(broker_calls.ATTEMPTS - 1)]
    waits_ms = sum(min(pause, broker_calls.PAUSE_MS_MAX) for pause in pauses)
    assert waits_ms > 2 * ControllerConfig().session_timeout_ms


AWAY = [NotLeaderOrFollower("the partition has no leader")] * 3 * broker_calls.ATTEMPTS


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses, and clear the brokers known to this process."""
    monkeypatch.setattr(broker_calls, "PAUSE_MS_MAX", 1)
    monkeypatch.setattr(broker_calls, "_responded", set())


@pytest.mark.usefixtures("short_pauses")
def test_stream_waits_for_brokers_during_a_long_outage(
    script: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As long as a task waits, before any of its requests."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    script.add(A, 10)
    reader = stream(script)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    for until in (None, 0.0):
        if until is not None:
            reader._leaders_until = until
        script.refusals += AWAY
        assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert "retrying for 120 s" in caplog.text
    script.refusals += AWAY
    (task,) = reader.partitions({"t": {"0": 0}}, end)
    script.refusals += AWAY
    assert [batch.num_rows for batch in reader.read(task)] == [10]


@pytest.mark.usefixtures("short_pauses")
def test_stream_that_never_connected_fails_soon(script: Any) -> None:
    """The address may be wrong."""
    script.add(A, 10)
    script.refusals += AWAY
    with pytest.raises(NotLeaderOrFollower):
        stream(script).initialOffset()
    assert len(script.refusals) == len(AWAY) - broker_calls.ATTEMPTS


@pytest.mark.usefixtures("short_pauses")
def test_missing_topic_is_not_awaited_like_missing_brokers() -> None:
    """A query whose pattern matches many topics continues soon after one of them is deleted."""
    attempts = []

    def ask(attempt: int) -> None:
        attempts.append(attempt)
        raise UnknownTopicOrPartition("it was deleted", topic="t", partition=0)

    brokers = Cluster(ClusterAccess(bootstrap=("127.0.0.1:1",)), patience_ms=1_000)
    brokers.record_response()
    with pytest.raises(UnknownTopicOrPartition):
        brokers.repeat("list_offsets", ask)
    assert len(attempts) == broker_calls.ATTEMPTS


@pytest.mark.usefixtures("short_pauses")
def test_stream_waits_no_longer_than_its_limit(script: Any) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    script.add(A, 10)
    reader = stream(script, pollTimeoutMs="1")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    script.refusals += AWAY
    with pytest.raises(NotLeaderOrFollower):
        reader.latestOffset(end, ReadAllAvailable())


@pytest.mark.usefixtures("short_pauses")
def test_leaders_that_moved_are_looked_up_in_one_call(script: Any) -> None:
    """Also those of a thousand partitions."""
    for index in range(20):
        script.add(TopicPartition("t", index), 1)
    reader = stream(script)
    start = reader.initialOffset()
    reader._leaders_until = math.inf
    asked = len(script.lookups)
    script.refusals += [NotLeaderOrFollower("moved")]
    reader.partitions(start, {"t": {str(index): 1 for index in range(20)}})
    assert len(script.lookups) == asked + 1


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("keep", ["true", "false"])
def test_stream_does_not_wait_for_a_topic_missing_from_a_lookup(script: Any, keep: str) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    script.add(A, 10)
    reader = stream(script, failOnDataLoss=keep)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader._leaders_until = math.inf
    asked = len(script.lookups)
    script.batches.clear()
    if keep == "true":
        with pytest.raises(UnknownTopicOrPartition):
            reader.latestOffset(end, ReadAllAvailable())
    else:
        assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert len(script.lookups) == asked + 2
