"""Faults of the sink at chosen calls, in the Spark processes that make these calls.

`register_faulty` registers the format `faulty`: the source `quorumlog`, with writers that cause the
faults of a plan. A fault is at a step: before or after a gRPC call of the client, or a step of
Spark's own. Spark's processes get the plan inside the pickled source; files in the plan's folder
make each fault happen once, and let a process wait for the test.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import functions as f

from quorumlog.errors import OutcomeUnknown
from quorumlog.runtime import grpc_network
from quorumlog.spark import sink_rows
from quorumlog.spark.source import QuorumlogSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    import quorumlog

FORMAT: Final = "faulty"
WAIT_S: Final = 300.0

KILL: Final = "kill the session"
KILL_DRIVER: Final = "kill the driver and its JVM"
DIE: Final = "end the driver"  # imitates KILL in a session that continues
END: Final = "end the process"
FAIL: Final = "raise an error"
LOSE: Final = "lose the answer"
WAIT: Final = "wait for the test"
LEAVE: Final = "leave the executor"  # the process outlives its executor
KILL_EXECUTOR: Final = "kill the executor"
DROP_SHUFFLE: Final = "delete a shuffle file"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault at a step, once. A condition that is None always matches."""

    at: str
    """`before CALL` or `after CALL` of a gRPC call; `rows`: a task has sent half of its rows;
    `committed`: the commit has returned."""
    actions: tuple[str, ...]
    name: str = "fault"  # of its files
    batch: int | None = None  # of a stream
    task: int | None = None
    attempt: int | None = None  # Spark's number: 0 is the first
    nth: int = 1  # of the matching steps


@dataclass(frozen=True)
class Plan:
    """The faults of one run, and the folder of their files."""

    folder: str
    faults: tuple[Fault, ...] = ()
    group: int = 0  # the process group of the driver, for KILL
    shuffle_folder: str = ""  # Spark's local folder, for DROP_SHUFFLE

    def file(self, name: str) -> Path:
        """Return a file of the plan."""
        return Path(self.folder) / name

    def is_first(self, name: str) -> bool:
        """Create a file; return False if it exists."""
        try:
            self.file(name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    @property
    def is_dead(self) -> bool:
        """Return True after DIE: no more work of this driver runs."""
        return self.file("dead").exists()

    def matches(self, index: int, step: str, place: "Place") -> bool:
        """Return True if a fault happens at this step of this process."""
        fault = self.faults[index]
        conditions = (
            (fault.batch, place.batch),
            (fault.task, place.task),
            (fault.attempt, place.attempt),
        )
        if fault.at != step or any(wanted not in (None, here) for wanted, here in conditions):
            return False
        number = next(n for n in range(1, 1_000) if self.is_first(f"seen-{index}-{n}"))
        return number == fault.nth


@dataclass(frozen=True)
class Place:
    """A place in a job: None is unknown, or the driver."""

    batch: int | None = None
    task: int | None = None
    attempt: int | None = None


def here() -> Place:
    """Return the place of a task."""
    context = TaskContext.get()
    assert context is not None, "a task"
    batch = context.getLocalProperty("streaming.sql.batchId")
    return Place(
        None if batch is None else int(batch), context.partitionId(), context.attemptNumber()
    )


class Current:
    """The plan and the place of this process. Spark uses a process for many jobs."""

    def __init__(self, plan: Plan, place: Place) -> None:
        self.plan = plan
        self.place = place

    def step(self, name: str) -> None:
        """Cause the faults of a step."""
        for index, fault in enumerate(self.plan.faults):
            if self.plan.matches(index, name, self.place):
                self.plan.file(f"happened-{index}").touch()
                for action in fault.actions:
                    ACTIONS[action](self.plan, fault)


# --- actions -------------------------------------------------------------------------------------


def kill_driver(plan: Plan, fault: Fault) -> None:
    """Kill the driver's Python and its JVM."""
    os.killpg(plan.group, signal.SIGKILL)


def kill_session(plan: Plan, fault: Fault) -> None:
    """Kill the driver and this process, as a power cut would."""
    kill_driver(plan, fault)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_executor(plan: Plan, fault: Fault) -> None:
    """Kill the JVM of this task."""
    os.kill(parent_of(os.getppid()), signal.SIGKILL)


def end_driver(plan: Plan, fault: Fault) -> None:
    """End this process, and have the rest of the driver do nothing more."""
    plan.file("dead").touch()
    os._exit(1)


def end_process(plan: Plan, fault: Fault) -> None:
    os._exit(1)


def raise_error(plan: Plan, fault: Fault) -> None:
    """Raise an error that is not one of quorumlog."""
    raise OSError(f"{fault.name}: a planned error")


def lose_answer(plan: Plan, fault: Fault) -> None:
    """Raise the error of a connection that breaks before the response arrives."""
    raise OutcomeUnknown(f"{fault.name}: the answer is lost")


def wait_for_test(plan: Plan, fault: Fault) -> None:
    """Create the file NAME.waits, and wait for NAME.go."""
    plan.file(f"{fault.name}.waits").touch()
    wait_for(plan.file(f"{fault.name}.go"))


def leave_group(plan: Plan, fault: Fault) -> None:
    """Leave the process group that a daemon ends with its executor."""
    os.setpgid(0, 0)


def drop_shuffle(plan: Plan, fault: Fault) -> None:
    """Delete the output of one map task of the newest shuffle."""
    found = Path(plan.shuffle_folder).glob("blockmgr-*/*/shuffle_*.data")
    max(found, key=lambda path: (int(path.name.split("_")[1]), path)).unlink()


ACTIONS: Final[dict[str, Callable[[Plan, Fault], None]]] = {
    KILL: kill_session,
    KILL_DRIVER: kill_driver,
    KILL_EXECUTOR: kill_executor,
    DIE: end_driver,
    END: end_process,
    FAIL: raise_error,
    LOSE: lose_answer,
    WAIT: wait_for_test,
    LEAVE: leave_group,
    DROP_SHUFFLE: drop_shuffle,
}


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_for(path: Path) -> None:
    """Wait until a file exists."""
    end_s = time.monotonic() + WAIT_S
    while not path.exists():
        assert time.monotonic() < end_s, f"{path.name} does not appear"
        time.sleep(0.02)


def install(plan: Plan, place: Place) -> Current:
    """Cause the faults of a plan in this process from now on."""
    channel: Any = grpc_network._GrpcChannel
    current = Current(plan, place)
    vars(sink_rows)["PIECE_BYTES"] = 1  # half of the rows are sent before the others
    if not hasattr(channel, "current_faults"):
        original = channel.call

        async def call(self: Any, method: Any, request: Any, *, timeout_ms: int) -> Any:
            name = method.path.rpartition("/")[2]
            channel.current_faults.step(f"before {name}")
            answer = await original(self, method, request, timeout_ms=timeout_ms)
            channel.current_faults.step(f"after {name}")
            return answer

        channel.call = call
    channel.current_faults = current
    return current


class FaultyWriter:
    """A writer of the sink with faults. Its other base is the class of the inner writer."""

    def __init__(self, inner: Any, plan: Plan) -> None:
        self.inner = inner
        self.plan = plan

    def write(self, rows: Iterator[Any]) -> Any:
        """Write the rows of a task; record the outcome."""
        place = here()
        current = install(self.plan, place)
        if self.plan.is_dead:
            raise OSError("the driver is dead")
        name = f"task-{place.batch}-{place.task}-{place.attempt}"
        try:
            message = self.inner.write(self._fed(rows, current))
        except Exception as error:
            self.plan.file(name).write_text(f"{type(error).__name__}: {error}")
            raise
        self.plan.file(name).write_text("sealed")
        return message

    def _fed(self, rows: Iterator[Any], current: Current) -> Iterator[Any]:
        """Yield half of the rows, and the others after the step `rows`."""
        if any(LEAVE in fault.actions for fault in self.plan.faults):
            rows = iter(list(rows))  # the executor that they come from is killed
        for index, each in enumerate(rows):
            if index > 0:
                yield each
            elif isinstance(each, pa.RecordBatch):
                middle = each.num_rows // 2
                yield each.slice(0, middle - 1)
                yield each.slice(middle - 1, 1)  # the rows before it are sent
                current.step("rows")
                yield each.slice(middle)
            else:
                yield each
                current.step("rows")

    def commit(self, messages: Sequence[Any], *batch: int) -> None:
        """Commit, with the faults of the driver."""
        current = install(self.plan, Place(*batch))
        self.inner.commit(messages, *batch)
        current.step("committed")

    def abort(self, messages: Sequence[Any], *batch: int) -> None:
        """Abort, unless the driver is dead."""
        install(self.plan, Place(*batch))
        if not self.plan.is_dead:
            self.inner.abort(messages, *batch)
            self.plan.file("aborted").touch()


def faulty(inner: Any, plan: Plan) -> Any:
    """Return a writer of the kind of `inner`."""
    base = next(each for each in type(inner).__mro__ if each.__module__.startswith("pyspark."))
    kind: Any = type("FaultyWriter", (FaultyWriter, base), {})
    return kind(inner, plan)


def faulty_source(plan: Plan) -> type[QuorumlogSource]:
    """Return the source with the faults of a plan."""

    class FaultySource(QuorumlogSource):
        """The source `quorumlog` under another name, with faults."""

        @classmethod
        def name(cls) -> str:
            return FORMAT

        def writer(self, schema: "StructType", overwrite: bool) -> Any:
            install(plan, Place())
            return faulty(super().writer(schema, overwrite), plan)

        def streamWriter(self, schema: "StructType", overwrite: bool) -> Any:
            install(plan, Place())
            return faulty(super().streamWriter(schema, overwrite), plan)

    return FaultySource


def register_faulty(spark: "SparkSession", plan: Plan) -> None:
    """Register the format `faulty` with the faults of a plan, in place of an earlier one."""
    register: Any = cloudpickle.register_pickle_by_value
    register(sys.modules[__name__])
    Path(plan.folder).mkdir(parents=True, exist_ok=True)
    spark.dataSource.register(faulty_source(plan))


# --- the input and its independent computation ---------------------------------------------------

KEYS: Final = 5  # of each file
ROWS: Final = 40  # of each file


def write_batch(folder: Path, batch: int, *, rows: int = ROWS) -> None:
    """Write the two input files of a batch, in order of time; each has keys of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for half in range(2):
        path = folder / f"input-{batch:03}-{half}.txt"
        lines = [f"k{half}{row % KEYS} {batch * 1_000_000 + row}" for row in range(rows)]
        new = path.with_suffix(".new")
        new.write_text("\n".join(lines) + "\n")
        os.utime(new, (1_000_000 + 10 * batch + half,) * 2)
        new.rename(path)


def rows_of(folder: Path, batches: Iterable[int]) -> dict[str, list[int]]:
    """Return the numbers of each key, in order."""
    found: dict[str, list[int]] = {}
    for batch in batches:
        for half in range(2):
            for line in (folder / f"input-{batch:03}-{half}.txt").read_text().splitlines():
                key, number = line.split()
                found.setdefault(key, []).append(int(number))
    return found


def start_query(
    spark: "SparkSession", source: Path, checkpoint: Path, options: dict[str, str]
) -> "StreamingQuery":
    """Start a query that writes the files of a folder, two in a micro-batch, and then ends."""
    reader = spark.readStream.format("text").option("pathGlobFilter", "*.txt")
    frame = reader.option("maxFilesPerTrigger", "2").load(str(source))
    parts = f.split("value", " ")
    rows = frame.select(parts[0].alias("key"), parts[1].alias("value"))
    writer = rows.writeStream.format(FORMAT).options(**options)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


# --- readers -------------------------------------------------------------------------------------


def read_rows(
    log: "quorumlog.Log", topic: str, isolation: str = "read_committed"
) -> dict[str, list[int]]:
    """Return the numbers of each key, in order of the partition."""
    found: dict[str, list[int]] = {}
    with log.consumer(topic, until_end=True, isolation_level=isolation) as consumer:
        for record in consumer:
            found.setdefault((record.key or b"").decode(), []).append(int(record.text or ""))
    return found


def wait_decided(log: "quorumlog.Log", topic: str) -> None:
    """Wait until each staged record of a topic is committed or aborted."""
    end_s = time.monotonic() + WAIT_S
    while True:
        stable = log.list_offsets(topic, isolation_level="read_committed")
        ends = log.list_offsets(topic)
        if stable == ends:
            return
        assert time.monotonic() < end_s, f"{topic}: undecided between {stable} and {ends}"
        time.sleep(0.1)
