"""The writers without Spark: Arrow batches as input, records of a real broker as output."""

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import Row, StructType, _create_row
from tests.kit.node_process import free_port
from tests.kit.waits import AMPLE_MS

import quorumlog
from quorumlog.errors import (
    CommittedBatchDiffers,
    ConnectionFailed,
    FencedWrite,
    InvalidConfig,
    InvalidRecord,
    InvalidRequest,
    InvalidTimestamp,
    MessageTooLarge,
    NumberTooOld,
    StageLost,
    UnknownTopicOrPartition,
)
from quorumlog.spark import process_client, sink
from quorumlog.spark.cluster_access import ClusterAccess
from quorumlog.spark.options import Mode
from quorumlog.spark.sink import BATCH_ID, QUERY_ID, BatchWriter, StreamRowWriter, StreamWriter
from quorumlog.spark.source import QuorumlogSource
from quorumlog.spark.write_options import parse_write_options
from quorumlog.testing import Broker

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
KEYED = pa.schema([("key", pa.binary()), ("value", pa.binary())])
ATTEMPTS = count(1)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker() as broker:
        yield broker.grpc


@pytest.fixture
def log(address: str) -> Iterator[quorumlog.Log]:
    with quorumlog.connect(address, connect_timeout_ms=AMPLE_MS) as log:
        yield log


@pytest.fixture
def topic(request: pytest.FixtureRequest, log: quorumlog.Log) -> Callable[..., str]:
    """Return a function that creates topics named after the test."""
    numbers = count()

    def make(partitions: int = 1, **configs: str) -> str:
        test = "".join(sign if sign.isalnum() else "-" for sign in request.node.name)[:150]
        name = f"{test}-{next(numbers)}"
        log.admin.create_topic(name, partitions=partitions, configs=configs)
        return name

    return make


@pytest.fixture(autouse=True)
def _no_task() -> Iterator[None]:
    yield
    TaskContext._setTaskContext(None)


class Job:
    """Runs writers as Spark does: pickled, with a task context."""

    def __init__(self, address: str, schema: pa.Schema, **options: str) -> None:
        self._options = {"bootstrap": address} | options
        self._schema = from_arrow_schema(schema)
        self._arrow_schema = schema

    def source(self) -> QuorumlogSource:
        return QuorumlogSource(CaseInsensitiveDict(self._options))

    def writer(self) -> BatchWriter:
        return self.source().writer(self._schema, False)

    def stream_writer(self) -> StreamWriter:
        """Plan a micro-batch."""
        made = self.source().streamWriter(self._schema, False)
        assert isinstance(made, StreamWriter)
        return made

    def stream_committer(self) -> StreamWriter:
        """Return a writer that commits or aborts a micro-batch. Spark creates it from a source that
        it has pickled."""
        made = pickle.loads(pickle.dumps(self.source())).streamWriter(self._schema, False)
        assert isinstance(made, StreamWriter)
        return made

    def task(
        self,
        writer: BatchWriter | StreamWriter,
        number: int,
        *rows: Sequence[dict[str, Any]],
        query: str = "q",
        batch: int = 0,
    ) -> Any:
        """Run an attempt of a task with one Arrow batch for each list of rows. Return its message
        as the driver receives it."""
        TaskContext._setTaskContext(None)
        properties = {QUERY_ID: query, BATCH_ID: str(batch)}
        attempt = next(ATTEMPTS)
        TaskContext(partitionId=number, taskAttemptId=attempt, localProperties=properties)
        batches = [pa.RecordBatch.from_pylist(list(each), self._arrow_schema) for each in rows]
        message = pickle.loads(pickle.dumps(writer)).write(iter(batches))
        return pickle.loads(pickle.dumps(message))

    def run(self, *rows: Sequence[dict[str, Any]]) -> None:
        """Run a whole batch write with a task for each list of rows."""
        writer = self.writer()
        messages = [self.task(writer, number, each) for number, each in enumerate(rows)]
        pickle.loads(pickle.dumps(writer)).commit(messages)

    def run_stream(self, batch: int, *rows: Sequence[dict[str, Any]], query: str = "q") -> None:
        """Run a micro-batch with a task for each list of rows."""
        writer = self.stream_writer()
        messages = [
            self.task(writer, number, each, query=query, batch=batch)
            for number, each in enumerate(rows)
        ]
        self.stream_committer().commit(messages, batch)  # another one, as Spark does


def records(log: quorumlog.Log, topic: str) -> list[Any]:
    """Return all committed records by partition."""
    with log.consumer(topic, until_end=True) as consumer:
        found = sorted(consumer, key=lambda record: (record.partition, record.offset))
    return found


def values(log: quorumlog.Log, topic: str) -> list[str]:
    return sorted(str(record.text) for record in records(log, topic))


def rows(*values: str, **more: Any) -> list[dict[str, Any]]:
    return [{"value": value.encode(), **more} for value in values]


DELIVERIES = ["exactlyonce", "atleastonce"]


@pytest.mark.long
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_all_columns_arrive_and_keys_keep_their_order(
    address: str, log: quorumlog.Log, topic: Callable[..., str], delivery: str
) -> None:
    name, twin = topic(5), topic(5)
    schema = pa.schema(
        [
            ("Headers", HEADERS),
            ("value", pa.string()),
            ("KEY", pa.string()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
        ]
    )
    start = datetime(2020, 1, 1, tzinfo=UTC)
    lists = [None, [], [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]]
    data: list[dict[str, Any]] = [
        {
            "Headers": lists[i % 3],
            "value": None if i % 50 == 0 else f"value {i}",
            "KEY": f"key {i % 17}",
            "timestamp": start + timedelta(milliseconds=i),
        }
        for i in range(1_000)
    ]
    job = Job(address, schema, topic=name, delivery=delivery)
    writer = job.writer()
    message = job.task(writer, 0, data[:400], [], data[400:900], data[900:])
    assert message.count == 1_000
    writer.commit([message])
    with log.producer() as producer:  # the same by the Python producer
        for row in data:
            producer.send(
                twin,
                row["value"],
                key=row["KEY"],
                timestamp_ms=row["timestamp"],
                headers=[(each["key"], each["value"]) for each in row["Headers"] or ()],
            )

    def facts(topic: str) -> list[Any]:
        return [
            (each.partition, each.key, each.value, each.timestamp_ms, each.headers)
            for each in records(log, topic)
        ]

    assert len(facts(name)) == 1_000
    assert facts(name) == facts(twin)


def test_nothing_is_visible_before_the_commit_and_one_attempt_of_each_task_counts(
    address: str, log: quorumlog.Log, topic: Callable[..., str]
) -> None:
    name = topic(3)
    job = Job(address, KEYED, topic=name)
    writer = job.writer()
    job.task(writer, 0, rows("lost attempt"))
    messages = [
        job.task(writer, 0, rows("a", "b")),
        job.task(writer, 1),
        job.task(writer, 2, [], rows("c")),
    ]
    assert values(log, name) == []
    writer.commit(messages)
    writer.commit(messages)  # repeated
    assert values(log, name) == ["a", "b", "c"]


def test_failed_attempt_is_aborted_and_the_next_one_writes(
    address: str, log: quorumlog.Log, topic: Callable[..., str]
) -> None:
    name = topic()
    job = Job(address, KEYED, topic=name, commitName="failing-jobs", commitNumber="1")
    writer = job.writer()

    def failing() -> Iterator[pa.RecordBatch]:
        big = pa.RecordBatch.from_pylist(rows("x" * 1_000_000), KEYED)
        yield from [big] * 20
        raise OSError("the input broke")

    TaskContext(partitionId=0, taskAttemptId=next(ATTEMPTS), localProperties={})
    with pytest.raises(OSError, match="the input broke"):
        writer.write(failing())
    assert log.admin.describe_commits(f"batch/failing-jobs/{name}").open == 0
    writer.commit([job.task(writer, 0, rows("again"))])
    assert values(log, name) == ["again"]


def test_repeated_batch_job_writes_nothing(
    address: str, log: quorumlog.Log, topic: Callable[..., str]
) -> None:
    name = topic()

    def job(number: int, **options: str) -> Job:
        commit = {"commitName": "nightly", "commitNumber": str(number)}
        return Job(address, KEYED, topic=name, **commit, **options)

    job(1).run(rows("a"), rows("b"))
    job(1).run(rows("b"), rows("a"))
    job(2).run(rows("c"))
    job(2).run(rows("d"))  # of the same number of records: not detected
    assert values(log, name) == ["a", "b", "c"]
    with pytest.raises(
        CommittedBatchDiffers, match=r"with 1 records .* has 2.*onDifferentBatch=warn"
    ):
        job(2).run(rows("d", "e"))
    with pytest.raises(CommittedBatchDiffers, match=r"committed with 1 records .* has 0"):
        job(2).run([])
    job(2, onDifferentBatch="warn").run(rows("d", "e"))
    with pytest.raises(NumberTooOld):
        job(1).run(rows("f"))
    assert values(log, name) == ["a", "b", "c"]
    Job(address, KEYED, topic=name).run(rows("g"))  # without a name each run writes
    Job(address, KEYED, topic=name).run(rows("g"))
    assert values(log, name) == ["a", "b", "c", "g", "g"]


def test_one_commit_name_and_number_for_two_topics_are_two_batches(
    address: str, log: quorumlog.Log, topic: Callable[..., str]
) -> None:
    one, two = topic(), topic()

    def run(**options: str) -> None:
        Job(address, KEYED, commitName="shared", commitNumber="1", **options).run(rows("a"))

    for _ in range(2):  # the second time is a repetition
        run(topic=one)
        run(topic=two)
    assert values(log, one) == values(log, two) == ["a"]


def test_each_micro_batch_is_committed_once(
    address: str, log: quorumlog.Log, topic: Callable[..., str]
) -> None:
    name = topic(2)
    job = Job(address, KEYED, topic=name)
    job.run_stream(0, rows("a"), rows("b"), query="one")
    job.run_stream(0, rows("a"), rows("b"), query="one")  # after a lost commit of Spark
    job.run_stream(1, [], query="one")
    job.run_stream(2, rows("c"), query="one")
    job.run_stream(0, rows("d"), query="two")
    assert values(log, name) == ["a", "b", "c", "d"]
    with pytest.raises(CommittedBatchDiffers, match="batch 2 was committed with 1 records"):
        job.run_stream(2, rows("c"), rows("c"), query="one")
    with pytest.raises(NumberTooOld):
        job.run_stream(1, rows("e"), query="one")
    names = [commits.name for commits in log.admin.list_commits()]
    assert {"spark/one/", "spark/two/"} <= set(names)
    assert values(log, name) == ["a", "b", "c", "d"]


def test_later_run_of_a_micro_batch_fences_the_earlier(
    address: str, log: quorumlog.Log, topic: Callable[..., str]
) -> None:
    name = topic()
    job = Job(address, KEYED, topic=name)
    first = job.stream_writer()
    late = [job.task(first, 0, rows("first"), query="fenced")]
    second = job.stream_writer()
    messages = [job.task(second, 0, rows("second"), query="fenced")]
    with pytest.raises((FencedWrite, StageLost)):
        job.stream_committer().commit(late, 0)
    job.stream_committer().abort(late, 0)  # has no effect on the later run
    job.stream_committer().commit(messages, 0)
    job.stream_committer().abort(messages, 0)  # has no effect after the commit
    assert values(log, name) == ["second"]


def test_abort_with_failed_tasks_ends_what_is_staged(
    address: str, log: quorumlog.Log, topic: Callable[..., str]
) -> None:
    name = topic()
    job = Job(address, KEYED, topic=name, commitName="aborts")
    job.stream_committer().abort([None, None], 0)
    Job(address, KEYED, topic="absent").stream_committer().abort([None], 0)
    writer = job.stream_writer()
    message = job.task(writer, 1, rows("a"), query="aborted")
    assert log.admin.describe_commits("spark/aborted/aborts").sealed == 1
    job.stream_committer().abort([None, message], 0)
    assert log.admin.describe_commits("spark/aborted/aborts").sealed == 0
    job.run_stream(0, rows("b"), query="aborted")
    batch = Job(address, KEYED, topic=name, commitName="aborts", commitNumber="3")
    other = batch.writer()
    batch.task(other, 0, rows("c"))
    other.abort([None])  # the batch writer has its write without a message
    assert log.admin.describe_commits(f"batch/aborts/{name}").sealed == 0
    assert values(log, name) == ["b"]


def test_commit_of_another_batch_than_that_of_spark_is_refused(
    address: str, topic: Callable[..., str]
) -> None:
    job = Job(address, KEYED, topic=topic())
    message = job.task(job.stream_writer(), 0, rows("a"), batch=4)
    with pytest.raises(InvalidRequest, match="commits batch 5 with the results of batch 4"):
        job.stream_committer().commit([message], 5)


def test_topic_and_partition_columns_choose_and_nulls_leave_it_to_the_partitioner(
    address: str, log: quorumlog.Log, topic: Callable[..., str]
) -> None:
    one, two, twins = topic(3), topic(3), (topic(3), topic(3))
    schema = pa.schema(
        [("topic", pa.string()), ("partition", pa.int32()), *KEYED, ("offset", pa.int64())]
    )
    data: list[dict[str, Any]] = [
        {
            "topic": two if i % 3 == 0 else one,
            "partition": i % 7 if i % 7 < 3 else None,
            "key": f"key {i % 11}".encode(),
            "value": b"%d" % i,
            "offset": i,
        }
        for i in range(3_000)
    ]
    job = Job(address, schema)
    writer = job.writer()
    writer.commit([job.task(writer, 0, data[:1_000], data[1_000:])])
    with log.producer() as producer:
        for row in data:
            twin = twins[row["topic"] == two]
            producer.send(twin, row["value"], key=row["key"], partition=row["partition"])
    for name, twin in zip((one, two), twins, strict=True):
        wanted = [(each.partition, each.key, each.value) for each in records(log, twin)]
        assert [(each.partition, each.key, each.value) for each in records(log, name)] == wanted
    Job(address, schema, topic=twins[0]).run(data[:10])  # the option overrides the column
    assert len(records(log, twins[0])) == 2_000 + 10


def test_tasks_write_many_topics_in_order(
    address: str, log: quorumlog.Log, topic: Callable[..., str]
) -> None:
    names = [topic() for _ in range(20)]
    schema = pa.schema([("topic", pa.string()), ("value", pa.binary())])
    data = [{"topic": names[i * 7 % 20], "value": b"%d" % i} for i in range(2_000)]
    job = Job(address, schema)
    writer = job.writer()
    writer.commit([job.task(writer, 0, data[:3], data[3:1_000], [], data[1_000:])])
    for name in names:
        wanted = [row["value"] for row in data if row["topic"] == name]
        assert [record.value for record in records(log, name)] == wanted


FORKED = """
import os, sys
import pyarrow as pa
import quorumlog
from quorumlog.spark import process_client
from quorumlog.spark.cluster_access import ClusterAccess
address, topic = sys.argv[1:]
access = ClusterAccess(bootstrap=(address,))
def send(value):
    with process_client.client_of(access).producer() as producer:
        producer.send_arrow(topic, pa.table({"value": [value]}), value="value")
send("before")
child = os.fork()
if child == 0:
    send("child")
    assert len({pid for pid, _ in process_client._clients}) == 2
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
send("parent")
assert len(process_client._clients) == 1
"""


def test_forked_process_gets_its_own_connections(
    address: str, log: quorumlog.Log, topic: Callable[..., str]
) -> None:
    name = topic()
    subprocess.run([sys.executable, "-c", FORKED, address, name], check=True, timeout=120)
    assert values(log, name) == ["before", "child", "parent"]


def test_partition_column_alone_spreads_rows_without_a_key(
    address: str, log: quorumlog.Log, topic: Callable[..., str]
) -> None:
    name = topic(3)
    schema = pa.schema([("partition", pa.int32()), ("value", pa.binary())])
    data = [{"partition": None if i % 2 else 2, "value": b"%d" % i} for i in range(10)]
    Job(address, schema, topic=name).run(data)
    assert sorted(int(each.value) for each in records(log, name)) == list(range(10))
    placed = {int(each.value): each.partition for each in records(log, name)}
    assert {placed[i] for i in range(0, 10, 2)} == {2}


def test_partitions_added_since_are_written(
    address: str, log: quorumlog.Log, topic: Callable[..., str]
) -> None:
    name = topic(1)
    schema = pa.schema([("partition", pa.int32()), ("value", pa.binary())])
    job = Job(address, schema, topic=name)
    job.run([{"partition": 0, "value": b"a"}])
    log.admin.create_partitions(name, 3)
    job.run([{"partition": 2, "value": b"b"}])
    assert [(each.partition, each.value) for each in records(log, name)] == [(0, b"a"), (2, b"b")]


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.large_string(), pa.string_view()])
def test_arrow_types_with_long_offsets_are_written(
    address: str, log: quorumlog.Log, topic: Callable[..., str], kind: pa.DataType
) -> None:
    name = topic()
    job = Job(address, pa.schema([("topic", pa.string()), ("value", pa.binary())]))
    writer = job.writer()
    TaskContext(partitionId=0, taskAttemptId=next(ATTEMPTS), localProperties={})
    value = pa.array(["a", None], pa.string()).cast(pa.large_string()).cast(kind)
    topics = pa.array([name, name]).cast(pa.large_string())
    batch = pa.RecordBatch.from_arrays([topics, value], names=["topic", "value"])
    writer.commit([writer.write(iter([batch]))])
    assert [each.value for each in records(log, name)] == [b"a", None]


def test_null_timestamps_are_now(
    address: str, log: quorumlog.Log, topic: Callable[..., str]
) -> None:
    name = topic()
    schema = pa.schema([("value", pa.binary()), ("timestamp", pa.timestamp("us", tz="UTC"))])
    before = datetime.now(UTC)
    Job(address, schema, topic=name).run(
        [
            {"value": b"a", "timestamp": None},
            {"value": b"b", "timestamp": datetime(2001, 2, 3, tzinfo=UTC)},
        ]
    )
    first, second = records(log, name)
    assert first.timestamp >= before - timedelta(seconds=1)
    assert second.timestamp == datetime(2001, 2, 3, tzinfo=UTC)


WRONG_ROWS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"topic": None}, InvalidRecord, "column 'topic' is null in 1 rows; give each row a topic"),
    ({"topic": "absent"}, UnknownTopicOrPartition, "absent"),
    ({"partition": 3}, UnknownTopicOrPartition, "has 3, the topic has 2 partitions"),
    ({"partition": -1}, UnknownTopicOrPartition, "has -1, the topic has 2 partitions"),
    ({"timestamp": datetime(1960, 1, 1, tzinfo=UTC)}, InvalidTimestamp, "-315619200000 ms"),
    ({"value": b"x" * 9_000_000}, MessageTooLarge, "larger than max_request_size"),
    ({"headers": [{"key": None, "value": b""}]}, InvalidRequest, "header"),
]


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize(("wrong", "error", "saying"), WRONG_ROWS, ids=[w[2] for w in WRONG_ROWS])
def test_wrong_rows_are_refused_by_type_and_leave_nothing(
    address: str, log: quorumlog.Log, topic: Callable[..., str], delivery: str,
    wrong: dict[str, Any], error: type[Exception], saying: str,
) -> None:  # fmt: skip
    name = topic(2)
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("value", pa.binary()),
            ("headers", HEADERS),
            ("timestamp", pa.timestamp("us", tz="UTC")),
        ]
    )
    right = {"topic": name, "value": b"right"}
    with pytest.raises(error, match=saying):
        Job(address, schema, delivery=delivery).run([right | wrong])
    if delivery == "exactlyonce":
        with pytest.raises(error, match=saying):
            Job(address, schema).run([right, right | wrong, right])
        assert records(log, name) == []


def test_record_above_the_limit_of_the_topic_is_refused(
    address: str, log: quorumlog.Log, topic: Callable[..., str]
) -> None:
    name = topic(**{"max.message.bytes": "2000"})
    with pytest.raises(MessageTooLarge, match=r"max\.message\.bytes"):
        Job(address, KEYED, topic=name).run(rows("x" * 10, "x" * 5_000))
    assert records(log, name) == []


@pytest.mark.parametrize(
    ("schema", "options", "saying"),
    [
        ([("valu", pa.binary())], {}, "'valu' is unknown; a write takes topic, partition, key,"),
        ([("key", pa.binary())], {}, "column 'value' is missing; name what is written"),
        ([("value", pa.int64())], {}, "'value' is bigint, not binary or string; cast it"),
        ([*KEYED, ("KEY", pa.string())], {}, "'key' occurs more than once"),
        ([*KEYED, ("partition", pa.int64())], {}, "'partition' is bigint, not int; cast it"),
        ([*KEYED, ("topic", pa.binary())], {}, "'topic' is binary, not string"),
        ([*KEYED, ("timestamp", pa.int64())], {}, "'timestamp' is bigint, not timestamp"),
        ([*KEYED, ("headers", pa.list_(pa.string()))], {}, "not array<struct<key: string"),
    ],
)
def test_wrong_columns_are_refused_before_a_task_runs(
    address: str, schema: list[Any], options: dict[str, str], saying: str
) -> None:
    with pytest.raises(InvalidConfig, match=saying):
        Job(address, pa.schema(schema), topic="any", **options).writer()


def test_topic_is_required_and_must_exist(address: str) -> None:
    with pytest.raises(InvalidConfig, match="no topic is given; set option 'topic'"):
        Job(address, KEYED).writer()
    with pytest.raises(UnknownTopicOrPartition, match=r"create it \(quorumlog topics create away"):
        Job(address, KEYED, topic="away").stream_writer()


def test_plan_without_a_broker_fails_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "CONNECT_TIMEOUT_MS", 200)
    with pytest.raises(ConnectionFailed):
        Job(f"127.0.0.1:{free_port()}", KEYED, topic="any").writer()


def test_commit_of_a_new_process_has_one_time_limit(
    address: str, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It connects within the limit of the commit, not within that of other calls."""
    job = Job(address, KEYED, topic=topic())
    messages = [job.task(job.stream_writer(), 0, rows("a"), query="limit")]
    monkeypatch.setattr(sink, "COMMIT_TIMEOUT_MS", 200)
    away = Job(f"127.0.0.1:{free_port()}", KEYED, topic="any").stream_committer()
    with pytest.raises(ConnectionFailed):
        away.commit(messages, 0)
    monkeypatch.setattr(sink, "COMMIT_TIMEOUT_MS", AMPLE_MS)
    job.stream_committer().commit(messages, 0)


def test_overwrite_is_refused(address: str) -> None:
    source = Job(address, KEYED, topic="any").source()
    schema: StructType = from_arrow_schema(KEYED)
    with pytest.raises(InvalidConfig, match=r"use mode\('append'\)"):
        source.writer(schema, True)
    with pytest.raises(InvalidConfig, match=r"use outputMode\('append'\)"):
        source.streamWriter(schema, True)


def test_full_buffer_blocks_the_task(
    address: str, log: quorumlog.Log, topic: Callable[..., str]
) -> None:
    """1000 records of 15 KB through a buffer of two batches."""
    name = topic(2)
    data = rows(*(f"{i:015000}" for i in range(1_000)))
    Job(address, KEYED, topic=name, bufferSize="2MiB").run(data[:500], data[500:])
    assert values(log, name) == [row["value"].decode() for row in data]


def test_rows_of_older_sparks_are_written_like_arrow_batches(
    address: str, log: quorumlog.Log, topic: Callable[..., str]
) -> None:
    name, twin = topic(3), topic(3)
    lists = [None, [], [{"key": "h", "value": None}, {"key": "h", "value": b"1"}]]
    schema = pa.schema(
        [
            ("key", pa.string()),
            ("partition", pa.int32()),
            ("value", pa.binary()),
            ("headers", HEADERS),
            ("timestamp", pa.timestamp("us", tz="UTC")),
        ]
    )
    data: list[dict[str, Any]] = [
        {
            "key": None if i % 5 == 0 else f"{i % 7}",
            "partition": 1 if i % 5 == 0 else None,
            "value": None if i % 11 == 0 else b"%d" % i,
            "headers": lists[i % 3],
            "timestamp": datetime(2024, 10, 27, 0, 0, tzinfo=UTC) + timedelta(minutes=i),
        }
        for i in range(2_500)
    ]
    Job(address, schema, topic=twin).run(data)
    options = parse_write_options({"bootstrap": address, "topic": name}, Mode.STREAM)
    writer = StreamRowWriter(options, from_arrow_schema(schema), False)
    TaskContext(
        partitionId=0, taskAttemptId=next(ATTEMPTS), localProperties={QUERY_ID: "r", BATCH_ID: "0"}
    )
    fields = from_arrow_schema(schema).fieldNames()
    as_rows = [
        _create_row(
            fields,
            [
                row["key"],
                row["partition"],
                row["value"],
                row["headers"] and [Row(**each) for each in row["headers"]],
                row["timestamp"].astimezone().replace(tzinfo=None),  # as Spark converts
            ],
        )
        for row in data
    ]
    message = pickle.loads(pickle.dumps(writer)).write(iter(as_rows))
    assert message.count == 2_500
    writer.commit([message], 0)

    def facts(topic: str) -> list[Any]:
        return [
            (each.partition, each.key, each.value, each.headers, each.timestamp_ms)
            for each in records(log, topic)
        ]

    assert facts(name) == facts(twin)


def test_connection_is_kept_for_the_process(address: str, topic: Callable[..., str]) -> None:
    job = Job(address, KEYED, topic=topic())
    job.run(rows("a"))
    client = process_client.client_of(ClusterAccess(bootstrap=(address,)))
    job.run(rows("a"))
    assert process_client.client_of(ClusterAccess(bootstrap=(address,))) is client
