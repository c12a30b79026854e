"""Streaming reads through Spark from a broker: the content of each micro-batch, and restarts."""

import ast
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

import quorumlog
from quorumlog.spark.versions import HAS_ADMISSION_CONTROL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MakeTopic = Callable[..., str]
PATIENCE_S = 300


def fill(log: quorumlog.Log, topic: str, rows: range, partition: int = 0) -> None:
    with log.producer() as producer:
        for row in rows:
            producer.send(topic, value=f"{row}".encode(), partition=partition)


class Stream:
    """A query that keeps the numbers of every micro-batch."""

    def __init__(self, spark: "SparkSession", broker: Any, checkpoint: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._checkpoint = str(checkpoint)
        self.batches: list[list[int]] = []
        self.by_number: dict[int, list[int]] = {}
        self.fails_after: int | None = None  # the number of a micro-batch that is kept

    def start(self, options: dict[str, str], *, available_now: bool = True) -> "StreamingQuery":
        reader = self._spark.readStream.format("quorumlog")
        reader = reader.option("bootstrap", self._broker.address).options(**options)
        writer = reader.load().writeStream.foreachBatch(self._keep)
        writer = writer.option("checkpointLocation", self._checkpoint)
        if available_now:
            writer = writer.trigger(availableNow=True)
        return writer.start()

    def run(self, **options: str) -> list[list[int]]:
        """Read what is available; return the numbers of this run's micro-batches."""
        before = len(self.batches)
        query = self.start({"startingOffsets": "earliest", **options})
        assert query.awaitTermination(PATIENCE_S), "the query does not end"
        return self.batches[before:]

    def _keep(self, frame: "DataFrame", number: int) -> None:
        rows = frame.orderBy("topic", "partition", "offset")
        numbers = rows.select(f.col("value").cast("string").cast("int")).collect()
        self.batches.append([row[0] for row in numbers])
        self.by_number[number] = self.batches[-1]
        if number == self.fails_after:
            raise OSError("the sink is broken")


@pytest.fixture
def stream(spark: "SparkSession", broker: Any, tmp_path: Path) -> Stream:
    return Stream(spark, broker, tmp_path / "checkpoint")


@pytest.mark.oldest
def test_a_stream_reads_transactions_once_they_are_committed(
    log: quorumlog.Log, topic: MakeTopic, stream: Stream
) -> None:
    name = topic()
    with log.producer(transactional_id=name) as producer:
        producer.begin_transaction()
        producer.send_many(name, ["1", "2"]).result()
        assert stream.run(subscribe=name) in ([], [[]])
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(name, "3").result()
        producer.abort_transaction()
        fill(log, name, range(4, 5))
        with log.consumer(name) as consumer:  # until the markers are written
            assert len(list(consumer.records(max_records=3))) == 3
        assert stream.run(subscribe=name) == [[1, 2, 4]]


@pytest.mark.oldest
def test_a_stream_reads_from_earliest_and_a_restart_reads_only_new_records(
    log: quorumlog.Log, topic: MakeTopic, stream: Stream
) -> None:
    name = topic(partitions=2)
    fill(log, name, range(10), partition=0)
    fill(log, name, range(100, 105), partition=1)
    assert stream.run(subscribe=name) == [[*range(10), *range(100, 105)]]
    fill(log, name, range(10, 13), partition=0)
    assert stream.run(subscribe=name) == [[10, 11, 12]]
    assert stream.run(subscribe=name) == []


def test_available_now_honours_the_limit_of_each_trigger(
    log: quorumlog.Log, topic: MakeTopic, stream: Stream
) -> None:
    """15 records, five for each trigger: exactly three micro-batches."""
    name = topic()
    fill(log, name, range(15))
    batches = stream.run(subscribe=name, maxOffsetsPerTrigger="5")
    assert batches == [[*range(5)], [*range(5, 10)], [*range(10, 15)]]


@pytest.mark.oldest
def test_a_stream_starts_at_explicit_offsets_and_at_a_time(
    log: quorumlog.Log, topic: MakeTopic, stream: Stream, spark: "SparkSession", broker: Any,
    tmp_path: Path,
) -> None:  # fmt: skip
    name = topic(partitions=2)
    fill(log, name, range(10), partition=0)
    fill(log, name, range(100, 110), partition=1)
    starts = json.dumps({name: {"0": 8, "1": -2}})
    assert stream.run(subscribe=name, startingOffsets=starts) == [[8, 9, *range(100, 110)]]
    timed = Stream(spark, broker, tmp_path / "timed")
    soon_ms = int(time.time() * 1000) + 30 * 60 * 1000  # a topic rejects timestamps an hour ahead
    with log.producer() as producer:
        for partition in range(2):
            producer.send(name, value=b"7", timestamp_ms=soon_ms, partition=partition)
    assert timed.run(subscribe=name, startingTimestamp=str(soon_ms - 1)) == [[7, 7]]


@pytest.mark.oldest
def test_a_running_stream_reads_new_records(
    log: quorumlog.Log, topic: MakeTopic, stream: Stream
) -> None:
    name = topic()
    fill(log, name, range(3))
    query = stream.start({"subscribe": name, "startingOffsets": "earliest"}, available_now=False)
    try:
        query.processAllAvailable()
        fill(log, name, range(3, 6))
        query.processAllAvailable()
        assert [row for batch in stream.batches for row in batch] == list(range(6))
        progress = query.lastProgress
        assert progress is not None
        end = ast.literal_eval(progress["sources"][0]["endOffset"])  # Spark 4.0: no JSON
        assert end[name] == {"0": 6}
        if HAS_ADMISSION_CONTROL:
            assert json.loads(progress["sources"][0]["latestOffset"]) == {name: {"0": 6}}
    finally:
        query.stop()


@pytest.mark.oldest
def test_a_failed_continuous_query_at_latest_restarts_at_its_first_offset(
    log: quorumlog.Log, topic: MakeTopic, stream: Stream
) -> None:
    name = topic()
    options = {"subscribe": name, "startingOffsets": "latest", "groupId": name}
    fill(log, name, range(5))
    stream.fails_after = 0
    with pytest.raises(StreamingQueryException, match="the sink is broken"):
        stream.start(options, available_now=False).awaitTermination(PATIENCE_S)
    fill(log, name, range(5, 15))
    assert len(starts_of(log, name)) == 1
    stream.fails_after = None
    query = stream.start(options, available_now=False)
    try:
        query.processAllAvailable()
        assert [row for batch in stream.batches for row in batch] == [*range(5, 15)]
        deadline = time.monotonic() + PATIENCE_S
        while log.admin.describe_group(name).lag or starts_of(log, name):
            assert time.monotonic() < deadline, "the progress is not committed"
    finally:
        query.stop()


@pytest.mark.oldest
@pytest.mark.skipif(HAS_ADMISSION_CONTROL, reason="this version of Spark has limits")
def test_without_admission_control_a_limit_is_refused_and_available_now_is_one_batch(
    log: quorumlog.Log, topic: MakeTopic, stream: Stream
) -> None:
    name = topic()
    fill(log, name, range(15))
    with pytest.raises(StreamingQueryException, match=r"'maxOffsetsPerTrigger' needs Spark 4\.2"):
        stream.run(subscribe=name, maxOffsetsPerTrigger="5")
    assert stream.run(subscribe=name) == [[*range(15)]]


def test_a_topic_that_begins_to_match_a_pattern_is_read_from_its_start(
    log: quorumlog.Log, topic: MakeTopic, stream: Stream
) -> None:
    first = topic()
    fill(log, first, range(3))
    pattern = first.replace("-0-", "-[0-9]-")
    assert stream.run(subscribePattern=pattern) == [[0, 1, 2]]
    second = topic()
    fill(log, second, range(50, 52))
    assert stream.run(subscribePattern=pattern) == [[50, 51]]


def test_a_stream_without_a_group_cannot_start_at_latest(topic: MakeTopic, stream: Stream) -> None:
    query = stream.start({"subscribe": topic()})
    with pytest.raises(StreamingQueryException, match=r"needs the option 'groupId'"):
        query.awaitTermination(PATIENCE_S)


def test_a_failed_query_at_latest_restarts_at_its_first_offset_with_a_lag(
    log: quorumlog.Log, topic: MakeTopic, stream: Stream
) -> None:
    name = topic()
    options = {"subscribe": name, "startingOffsets": "latest", "groupId": name}
    options |= {"retentionHold": "true"}
    fill(log, name, range(5))
    stream.fails_after = 0  # in the first batch, which has no records
    with pytest.raises(StreamingQueryException, match="the sink is broken"):
        stream.start(options).awaitTermination(PATIENCE_S)
    fill(log, name, range(5, 15))
    group = log.admin.describe_group(name)
    assert (group.lag, [hold.topic for hold in group.holds]) == (10, [name])
    assert len(starts_of(log, name)) == 1
    stream.fails_after = None
    assert [row for batch in stream.run(**options) for row in batch] == [*range(5, 15)]
    assert log.admin.describe_group(name).lag == 0
    assert starts_of(log, name) == [], "batch 0 is committed"
    fill(log, name, range(15, 18))
    assert stream.run(**options) == [[15, 16, 17]]


def starts_of(log: quorumlog.Log, group: str) -> list[str]:
    names = [each.name for each in log.admin.list_groups()]
    return [name for name in names if name.startswith("__query_start.") and group in name]


def test_a_query_that_fails_after_its_sink_repeats_every_batch_unchanged(
    log: quorumlog.Log, topic: MakeTopic, stream: Stream
) -> None:
    name = topic()
    fill(log, name, range(15))
    limited = {"subscribe": name, "maxOffsetsPerTrigger": "5"}
    stream.fails_after = 1
    with pytest.raises(StreamingQueryException, match="the sink is broken"):
        stream.run(**limited)
    assert stream.by_number == {0: [*range(5)], 1: [*range(5, 10)]}
    stream.fails_after = None
    stream.run(**limited)
    assert stream.by_number == {0: [*range(5)], 1: [*range(5, 10)], 2: [*range(10, 15)]}


def test_available_now_honours_a_limit_by_bytes_and_does_not_wait(
    log: quorumlog.Log, topic: MakeTopic, stream: Stream
) -> None:
    name = topic()
    with log.producer() as producer:
        for row in range(40):
            producer.send(name, value=f"{row:05}".encode(), partition=0)
    limits = {"maxBytesPerTrigger": "200", "minOffsetsPerTrigger": "1000"}
    batches = stream.run(subscribe=name, **limits)
    assert len(batches) > 1
    assert [row for batch in batches for row in batch] == [*range(40)]


@pytest.mark.oldest
def test_a_stream_that_starts_beyond_the_end_raises(
    log: quorumlog.Log, topic: MakeTopic, stream: Stream
) -> None:
    name = topic()
    fill(log, name, range(3))
    beyond = json.dumps({name: {"0": 4}})
    with pytest.raises(StreamingQueryException, match="offset 4, beyond the end of the log at 3"):
        stream.run(subscribe=name, startingOffsets=beyond)


@pytest.mark.oldest
def test_a_recreated_topic_stops_the_stream_unless_records_may_be_lost(
    log: quorumlog.Log, topic: MakeTopic, stream: Stream
) -> None:
    name = topic()
    fill(log, name, range(5))
    assert stream.run(subscribe=name) == [[*range(5)]]
    log.admin.delete_topic(name)
    log.admin.create_topic(name)
    fill(log, name, range(20, 28))  # more than there were: the offset of the checkpoint is there
    with pytest.raises(StreamingQueryException, match="recreated"):
        stream.run(subscribe=name)
    assert stream.run(subscribe=name, failOnDataLoss="false") == [[*range(20, 28)]]
