"""Faults of each kind under the sink: readers get each row exactly once, in order within a key."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from tests.kit.node_process import NodeProcess
from tests.spark.sink_faults import (
    DIE,
    DROP_SHUFFLE,
    END,
    FAIL,
    FORMAT,
    KILL,
    KILL_DRIVER,
    LEAVE,
    LOSE,
    ROWS,
    WAIT,
    Fault,
    Plan,
    read_rows,
    register_faulty,
    rows_of,
    start_query,
    wait_decided,
    wait_for,
    write_batch,
)

import quorumlog
from quorumlog.testing import Cluster, ForwardingProxy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]
PATIENCE_S = 300
STAGE_EXPIRES_S = 150  # after the stage timeout of 120 s and a tick of the coordinator
TASKS = 2
TOP = Path(__file__).parents[2]


class Rig:
    """A topic, a job that writes to it, and their folders."""

    def __init__(
        self, spark: "SparkSession", log: quorumlog.Log, address: str, topic: str, folder: Path
    ) -> None:
        self.spark = spark
        self.log = log
        self.topic = topic
        self.source = folder / "source"
        self.checkpoint = folder / "checkpoint"
        self.options = {"bootstrap": address, "topic": topic}
        self._folder = folder
        self._runs = 0

    def plan(self, *faults: Fault) -> Plan:
        """Register a plan for the next run."""
        self._runs += 1
        local = self.spark.sparkContext.getConf().get("spark.local.dir") or ""
        plan = Plan(str(self._folder / f"run-{self._runs}"), faults, shuffle_folder=local)
        register_faulty(self.spark, plan)
        return plan

    # --- a stream ----------------------------------------------------------------------------

    def fill(self, *batches: int) -> None:
        """Write the input of micro-batches."""
        for batch in batches:
            write_batch(self.source, batch)

    def start(self, *faults: Fault, **options: str) -> tuple[Any, Plan]:
        """Start the query."""
        plan = self.plan(*faults)
        return start_query(self.spark, self.source, self.checkpoint, self.options | options), plan

    def run(self, *faults: Fault, **options: str) -> Plan:
        """Run the query to the end of its input."""
        query, plan = self.start(*faults, **options)
        assert query.awaitTermination(PATIENCE_S), "the query does not end"
        return plan

    def fail(self, match: str, *faults: Fault, **options: str) -> Plan:
        """Run the query and expect its failure."""
        query, plan = self.start(*faults, **options)
        with pytest.raises(StreamingQueryException, match=match):
            query.awaitTermination(PATIENCE_S)
        assert all(plan.file(f"happened-{index}").exists() for index in range(len(faults)))
        return plan

    # --- a batch job ---------------------------------------------------------------------------

    def rows(self, first: int, end: int) -> "DataFrame":
        """Return rows of two tasks, with ascending numbers; each task has five keys."""
        numbers = self.spark.range(first, end, numPartitions=TASKS)
        key = "concat('k', spark_partition_id(), id % 5) as key"
        return numbers.selectExpr(key, "cast(id as string) as value")

    def save(self, rows: "DataFrame", **options: str) -> None:
        """Write rows by the plan that was registered last."""
        rows.write.format(FORMAT).options(**self.options, **options).mode("append").save()

    # --- readers -------------------------------------------------------------------------------

    def check(self, expected: dict[str, list[int]]) -> None:
        """Check that readers get each expected row once, in order within a key."""
        wait_decided(self.log, self.topic)
        assert read_rows(self.log, self.topic) == expected

    def staged_and_visible(self) -> int:
        """Return the number of rows that read_uncommitted readers get."""
        return sum(map(len, read_rows(self.log, self.topic, "read_uncommitted").values()))


def numbers_of(first: int, end: int) -> dict[str, list[int]]:
    """Return the rows of `Rig.rows` by key."""
    found: dict[str, list[int]] = {}
    for number in range(first, end):
        found.setdefault(f"k{(number - first) * TASKS // (end - first)}{number % 5}", []).append(
            number
        )
    return found


@pytest.fixture
def rig(
    spark: "SparkSession", broker: Any, log: quorumlog.Log, topic: MakeTopic, tmp_path: Path
) -> Rig:
    return Rig(spark, log, broker.address, topic(partitions=3), tmp_path)


class Program:
    """A driver in a separate process: `tests.spark.sink_program`."""

    def __init__(self, folder: Path, given: dict[str, Any], *faults: Fault) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        plan = {"folder": str(folder), "faults": [dataclasses.asdict(each) for each in faults]}
        with (folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.sink_program", json.dumps(given | plan)],
                cwd=TOP,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def file(self, name: str) -> Path:
        """Return a file of its plan."""
        return self._folder / name

    def output(self) -> str:
        """Return the end of its output."""
        return self.file("output").read_text(errors="replace")[-5_000:]

    def wait_until(self, name: str, *, is_running: bool = True) -> None:
        """Wait until a file of its plan exists."""
        end_s = time.monotonic() + PATIENCE_S
        while not self.file(name).exists():
            assert not is_running or self._process.poll() is None, self.output()
            assert time.monotonic() < end_s, f"{name} does not appear: {self.output()}"
            time.sleep(0.05)

    def end(self) -> int:
        """Wait for its end and return its exit code."""
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        """Kill it and its JVM, if it runs."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@pytest.fixture
def start(rig: Rig, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Start programs that write the rig's input with its checkpoint."""
    started: list[Program] = []

    def start(*faults: Fault, **given: Any) -> Program:
        folder = tmp_path / f"program-{len(started)}"
        own = {"source": str(rig.source), "checkpoint": str(rig.checkpoint)}
        started.append(Program(folder, rig.options | own | given, *faults))
        return started[-1]

    yield start
    for program in started:
        program.kill()


# --- tasks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["rows", "before Seal", "after Seal"])
def test_a_task_whose_process_ends_runs_again_and_its_rows_count_once(rig: Rig, at: str) -> None:
    rig.plan(Fault(at=at, actions=(END,), task=0, attempt=0))
    rig.save(rig.rows(0, 200))
    rig.check(numbers_of(0, 200))
    if at != "rows":  # then all rows of the first attempt were stored
        assert rig.staged_and_visible() == 300


def test_a_stage_that_runs_again_writes_each_row_once(rig: Rig) -> None:
    rig.plan(Fault(at="rows", actions=(DROP_SHUFFLE,), task=0))
    rig.save(rig.rows(0, 300).repartition(5))
    wait_decided(rig.log, rig.topic)
    found = read_rows(rig.log, rig.topic)
    assert {key: sorted(numbers) for key, numbers in found.items()} == numbers_of(0, 300)


def test_a_job_whose_task_always_fails_leaves_nothing(rig: Rig) -> None:
    rig.plan(*(Fault(at="rows", actions=(FAIL,), task=1, attempt=each) for each in range(3)))
    with pytest.raises(PySparkException, match="a planned error"):
        rig.save(rig.rows(0, 100))
    rig.check({})
    rig.plan()
    rig.save(rig.rows(0, 100))
    rig.check(numbers_of(0, 100))


# --- the driver ----------------------------------------------------------------------------------

STEPS = (
    Fault(at="before OpenWrite", actions=(DIE,)),
    Fault(at="after OpenWrite", actions=(DIE,)),
    Fault(at="before Begin", actions=(DIE,), task=0),
    Fault(at="after Begin", actions=(DIE,), task=0),
    Fault(at="rows", actions=(DIE,), task=1),
    Fault(at="before Seal", actions=(DIE,), task=0),
    Fault(at="after Seal", actions=(DIE,), task=1),
    Fault(at="before Commit", actions=(DIE,)),
    Fault(at="after Commit", actions=(DIE,)),
    Fault(at="committed", actions=(DIE,)),
    Fault(at="before OpenWrite", actions=(DIE,), nth=2),  # the commit log is written
)


def test_a_driver_that_ends_between_any_two_calls_writes_each_row_once(rig: Rig) -> None:
    """Each run ends in the first micro-batch that it runs. The next run repeats it, or finds it
    committed."""
    rig.fill(*range(len(STEPS) + 1))
    for fault in STEPS:
        rig.fail(".", fault)
    rig.run()
    rig.check(rows_of(rig.source, range(len(STEPS) + 1)))


def test_a_commit_whose_answer_is_lost_counts_once(rig: Rig) -> None:
    rig.fill(0, 1)
    rig.run(Fault(at="after Commit", actions=(LOSE,), batch=0))
    rig.check(rows_of(rig.source, (0, 1)))


def test_an_abort_after_a_commit_without_an_answer_has_no_effect(rig: Rig) -> None:
    """Spark aborts the batch, which is committed; the next run finds it so."""
    rig.fill(0)
    plan = rig.fail("a planned error", Fault(at="committed", actions=(FAIL,)))
    assert plan.file("aborted").exists()
    rig.check(rows_of(rig.source, (0,)))
    rig.fill(1)
    rig.run()
    rig.check(rows_of(rig.source, (0, 1)))


@pytest.mark.long
def test_the_later_of_two_drivers_on_one_checkpoint_wins(
    rig: Rig, start: Callable[..., Program]
) -> None:
    """The first one stops before its commit, as in a long pause of its machine; then it fails."""
    rig.fill(0, 1)
    first = start(Fault(at="before Commit", actions=(WAIT,)))
    first.wait_until("fault.waits")
    rig.run()
    rig.check(rows_of(rig.source, (0, 1)))
    first.file("fault.go").touch()
    assert first.end() != 0
    assert "NumberTooOld" in first.output(), first.output()
    rig.fill(2)
    rig.run()
    rig.check(rows_of(rig.source, (0, 1, 2)))


def test_an_operator_who_aborts_a_slow_batch_fails_the_query_and_nothing_is_lost(rig: Rig) -> None:
    rig.fill(0)
    query, plan = rig.start(Fault(at="before Commit", actions=(WAIT,)))
    wait_for(plan.file("fault.waits"))
    (name,) = (each.name for each in rig.log.admin.list_commits() if str(query.id) in each.name)
    rig.log.admin.abort_transaction(name)
    rig.check({})
    plan.file("fault.go").touch()
    with pytest.raises(StreamingQueryException, match=r"FencedWrite|StageLost"):
        query.awaitTermination(PATIENCE_S)
    rig.run()
    rig.check(rows_of(rig.source, (0,)))


# --- checkpoints and numbers ---------------------------------------------------------------------


def test_a_rewound_checkpoint_is_refused_and_so_is_another_batch_of_the_same_number(
    rig: Rig, tmp_path: Path
) -> None:
    rig.fill(0)
    rig.run()
    old = shutil.copytree(rig.checkpoint, tmp_path / "old")
    rig.fill(1)
    rig.run()
    middle = shutil.copytree(rig.checkpoint, tmp_path / "middle")
    rig.fill(2)
    rig.run()
    expected = rows_of(rig.source, (0, 1, 2))
    rig.checkpoint = old  # its batch 1 is older than the last one
    rig.fail("(?s)NumberTooOld.*commits reset")
    rig.check(expected)
    rig.checkpoint = middle
    rig.fill(3)
    write_batch(rig.source, 2, rows=7)
    rig.fail("(?s)CommittedBatchDiffers.*onDifferentBatch")
    rig.check(expected)
    rig.run(onDifferentBatch="warn")
    rig.check({key: rows + rows_of(rig.source, (3,))[key] for key, rows in expected.items()})


def test_a_batch_job_with_a_number_runs_once(rig: Rig) -> None:
    rig.plan()
    name = {"commitName": rig.topic}
    rig.save(rig.rows(0, 100), **name, commitNumber="1")
    rig.save(rig.rows(0, 100), **name, commitNumber="1")
    rig.check(numbers_of(0, 100))
    with pytest.raises(PySparkException, match=r"(?s)CommittedBatchDiffers.*100 records.*90"):
        rig.save(rig.rows(0, 90), **name, commitNumber="1")
    rig.save(rig.rows(0, 90), **name, commitNumber="1", onDifferentBatch="warn")
    with pytest.raises(PySparkException, match="NumberTooOld"):
        rig.save(rig.rows(0, 100), **name, commitNumber="0")
    rig.check(numbers_of(0, 100))
    rig.save(rig.rows(100, 150), **name, commitNumber="2")
    later = numbers_of(100, 150)
    rig.check({key: rows + later[key] for key, rows in numbers_of(0, 100).items()})


def test_the_later_of_two_writes_under_one_name_wins(rig: Rig) -> None:
    plan = rig.plan(Fault(at="before Commit", actions=(WAIT,)))
    name = {"commitName": rig.topic}
    failures: list[str] = []

    def save() -> None:
        rig.spark.createDataFrame([], "x int")  # the session becomes that of the thread
        try:
            rig.save(rig.rows(0, 100), **name, commitNumber="1")
        except PySparkException as error:
            failures.append(str(error))

    first = threading.Thread(target=save)
    first.start()
    wait_for(plan.file("fault.waits"))
    rig.save(rig.rows(100, 200), **name, commitNumber="2")
    plan.file("fault.go").touch()
    first.join(PATIENCE_S)
    assert len(failures) == 1
    assert "NumberTooOld" in failures[0]
    rig.check(numbers_of(100, 200))


def test_a_write_without_a_name_is_atomic_and_repeats_its_rows(rig: Rig) -> None:
    rig.plan(Fault(at="committed", actions=(FAIL,)))
    with pytest.raises(PySparkException, match="a planned error"):
        rig.save(rig.rows(0, 50))
    rig.check(numbers_of(0, 50))
    rig.save(rig.rows(0, 50))
    rig.check({key: rows * 2 for key, rows in numbers_of(0, 50).items()})


# --- topics --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_topic_deleted_before_the_commit_fails_the_batch(
    rig: Rig, is_created_again: bool
) -> None:
    rig.fill(0)
    query, plan = rig.start(Fault(at="before Commit", actions=(WAIT,)))
    wait_for(plan.file("fault.waits"))
    rig.log.admin.delete_topic(rig.topic)
    if is_created_again:
        rig.log.admin.create_topic(rig.topic, partitions=3)
    plan.file("fault.go").touch()
    with pytest.raises(StreamingQueryException, match=r"StageLost|UnknownTopic"):
        query.awaitTermination(PATIENCE_S)
    if not is_created_again:
        rig.log.admin.create_topic(rig.topic, partitions=3)
    rig.check({})
    rig.run()
    rig.check(rows_of(rig.source, (0,)))


def test_partitions_added_under_a_batch_change_nothing_in_it(rig: Rig) -> None:
    rig.fill(0)
    query, plan = rig.start(Fault(at="rows", actions=(WAIT,), task=0))
    wait_for(plan.file("fault.waits"))
    rig.log.admin.create_partitions(rig.topic, 5)
    plan.file("fault.go").touch()
    assert query.awaitTermination(PATIENCE_S)
    rig.fill(1)
    rig.run()
    wait_decided(rig.log, rig.topic)
    found = read_rows(rig.log, rig.topic)  # a key may be in two partitions
    expected = rows_of(rig.source, (0, 1))
    assert {key: sorted(rows) for key, rows in found.items()} == expected


# --- brokers -------------------------------------------------------------------------------------


def test_a_query_waits_for_a_broker_that_is_killed(
    spark: "SparkSession", own_broker: Any, tmp_path: Path
) -> None:
    faults = [
        Fault(at=at, actions=(WAIT,), batch=batch, name=f"fault-{batch}")
        for batch, at in enumerate(("rows", "before Seal", "before Commit"))
    ]
    with quorumlog.connect(own_broker.address) as log:
        log.admin.create_topic("out", partitions=2)
        rig = Rig(spark, log, own_broker.address, "out", tmp_path)
        rig.fill(0, 1, 2)
        query, plan = rig.start(*faults)
        for fault in faults:
            wait_for(plan.file(f"{fault.name}.waits"))
            own_broker.kill()
            plan.file(f"{fault.name}.go").touch()
            time.sleep(1)  # its calls fail
            own_broker.start()
        assert query.awaitTermination(PATIENCE_S), "the query does not end"
        rig.check(rows_of(rig.source, (0, 1, 2)))


# --- killed processes ---------------------------------------------------------------------------


@pytest.mark.long
def test_a_task_that_outlives_its_killed_driver_adds_no_row(
    rig: Rig, start: Callable[..., Program]
) -> None:
    """The driver and its JVM are killed while a task has staged half of its rows. The task
    continues after another driver has committed the batch."""
    rig.fill(0, 1)
    program = start(Fault(at="rows", actions=(LEAVE, KILL_DRIVER, WAIT), task=1))
    assert program.end() == -signal.SIGKILL, program.output()
    rig.run()
    expected = rows_of(rig.source, (0, 1))
    rig.check(expected)
    program.file("fault.go").touch()
    program.wait_until("task-0-1-0", is_running=False)
    refused = program.file("task-0-1-0").read_text().partition(":")[0]
    assert refused in ("StageLost", "FencedWrite", "NumberTooOld", "InvalidProducerEpoch")
    rig.check(expected)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_a_session_that_is_killed_between_any_two_calls_writes_each_row_once(
    rig: Rig, start: Callable[..., Program]
) -> None:
    rig.fill(*range(len(STEPS) + 1))
    for fault in STEPS:
        program = start(dataclasses.replace(fault, actions=(KILL,)))
        assert program.end() == -signal.SIGKILL, program.output()
    rig.run()
    rig.check(rows_of(rig.source, range(len(STEPS) + 1)))


# --- time ----------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_stage_that_expires_under_a_slow_job_fails_the_batch_and_nothing_is_lost(
    rig: Rig,
) -> None:
    rig.fill(0)
    query, plan = rig.start(Fault(at="before Commit", actions=(WAIT,)), stageTimeout="2min")
    wait_for(plan.file("fault.waits"))
    time.sleep(STAGE_EXPIRES_S)
    rig.check({})  # no transaction of its rows is open
    assert rig.staged_and_visible() == 2 * ROWS
    plan.file("fault.go").touch()
    with pytest.raises(StreamingQueryException, match="StageLost"):
        query.awaitTermination(PATIENCE_S)
    rig.run(stageTimeout="2min")
    rig.check(rows_of(rig.source, (0,)))


@pytest.mark.long
def test_a_minute_without_network_delays_the_query_and_nothing_else(
    spark: "SparkSession", tmp_path: Path
) -> None:
    with (
        ForwardingProxy("127.0.0.1:1") as proxy,
        NodeProcess(tmp_path / "node", advertised=proxy.address) as node,
        quorumlog.connect(node.address) as log,
    ):
        proxy.target = node.address
        log.admin.create_topic("out", partitions=2)
        rig = Rig(spark, log, proxy.address, "out", tmp_path)
        rig.fill(0, 1)
        query, plan = rig.start(Fault(at="rows", actions=(WAIT,), batch=1))
        wait_for(plan.file("fault.waits"))
        proxy.hold()
        plan.file("fault.go").touch()
        time.sleep(60)
        proxy.release()
        assert query.awaitTermination(PATIENCE_S), "the query does not end"
        rig.check(rows_of(rig.source, (0, 1)))


@pytest.mark.long
def test_a_query_continues_while_coordinators_and_leaders_are_killed(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Before each call of a micro-batch, a broker that the call needs is killed."""
    steps = ("before Begin", "rows", "before Seal", "before Commit")
    faults = [
        Fault(at=at, actions=(WAIT,), batch=batch, name=f"fault-{batch}")
        for batch, at in enumerate(steps)
    ]
    settings = {"transaction.state.log.num.partitions": 1}
    with Cluster(brokers=3, settings=settings) as cluster, cluster.connect() as log:
        cluster.create_topic("out", partitions=1)
        rig = Rig(spark, log, cluster.grpc, "out", tmp_path)
        rig.fill(*range(len(faults)))
        query, plan = rig.start(*faults)
        for index, fault in enumerate(faults):
            wait_for(plan.file(f"{fault.name}.waits"))
            topic = "__transaction_state" if index % 2 == 0 else "out"
            leader = cluster.leader(topic)
            cluster.kill(leader)
            plan.file(f"{fault.name}.go").touch()
            time.sleep(5)  # until another broker leads
            cluster.start(leader)
        assert query.awaitTermination(PATIENCE_S), "the query does not end"
        rig.check(rows_of(rig.source, range(len(faults))))
