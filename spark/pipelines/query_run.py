"""The run of a pipeline's streaming query: its micro-batches, progress and end.

A pipeline writes each micro-batch by a function on the driver (`foreachBatch`). Ctrl-C and SIGTERM
end the query after the current micro-batch; a second one cancels it, which is safe, since every
pipeline writes exactly once.
"""

import json
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from quorumlog.errors import InvalidConfig, TransactionalIdNotFound
from quorumlog.spark.pipelines.report import OnProgress, PipelineProgress
from quorumlog.spark.sessions import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from quorumlog.spark.cluster_access import ClusterAccess

POLL_S: Final = 0.25
BATCH_BYTES: Final = 4 << 30
"""Default limit of the source's bytes in a micro-batch."""

_RESERVED: Final = frozenset({"bootstrap", "topic", "commitname", "commitnumber"})
"""Options of the sink that `NumberedWrites` sets itself, in lower case."""

WriteBatch: TypeAlias = Callable[["DataFrame", int, str], int | None]
"""Writes a micro-batch exactly once: its rows, its number and the query's id. Returns the number of
records that it wrote, 0 for a micro-batch that was written before; None stands for the number of
rows that Spark read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRun:
    """The outcome of a query's run."""

    records: int
    batches: int
    seconds: float
    is_interrupted: bool
    lag: int | None  # records that the last micro-batch left unread; None: unknown


class _Interrupted(Exception):
    """Ends a micro-batch that begins after the run was interrupted."""


class _Batches:
    """Runs the micro-batches of one query, and counts their records."""

    # `record_count` is called by the main thread, `write` by a thread of Spark's.

    def __init__(self, write: WriteBatch) -> None:
        self._write = write
        self._is_started = threading.Event()
        self._query_id = ""
        self._is_stopping = False
        self._lock = threading.Lock()  # held while a micro-batch is written
        self._records: dict[int, int | None] = {}  # by micro-batch; None: not counted by `write`
        self._rows: dict[int, int] = {}  # that Spark read, by micro-batch
        self.number: int | None = None  # of the latest micro-batch
        self.error: Exception | None = None

    def start(self, query_id: str) -> None:
        """Begin to write; the first micro-batch waits for this."""
        self._query_id = query_id
        self._is_started.set()

    def stop(self) -> None:
        """Wait for the current micro-batch; refuse later ones."""
        self._is_stopping = True
        self._is_started.set()
        with self._lock:
            pass

    def write(self, frame: "DataFrame", number: int) -> None:
        """Write a micro-batch."""
        self._is_started.wait()
        with self._lock:
            if self._is_stopping:
                raise _Interrupted
            self.number = number
            try:
                self._records[number] = self._write(frame, number, self._query_id)
            except Exception as error:
                self.error = error
                raise

    def take_progress(self, query: "StreamingQuery") -> None:
        """Take the numbers of rows from the progress of recent micro-batches."""
        for each in query.recentProgress:
            self._rows[each["batchId"]] = each["numInputRows"]

    @property
    def count(self) -> int:
        """The number of micro-batches that were written."""
        return len(self._records)

    @property
    def records(self) -> int:
        """The number of records in them."""
        return sum(
            self._rows.get(number, 0) if count is None else count
            for number, count in self._records.copy().items()
        )


def run_batches(
    frame: "DataFrame",
    write: WriteBatch,
    *,
    checkpoint: str,
    interval: float | None = None,
    on_progress: OnProgress | None = None,
) -> QueryRun:
    """Run a streaming query until all records that exist now are written, or Ctrl-C.

    With an `interval` in seconds the query does not end by itself and starts a micro-batch per
    interval. Raises the errors of `write` and of Spark, and KeyboardInterrupt for a second Ctrl-C.
    No micro-batch runs after that, unless further signals end the wait for it.
    """
    batches = _Batches(write)
    writer = frame.writeStream.foreachBatch(batches.write).option("checkpointLocation", checkpoint)
    if interval is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(interval * 1000)} milliseconds")
    begun = time.monotonic()
    with catch_interrupts() as interrupted:
        query = writer.start()
        try:
            batches.start(query.id)
            _follow(query, batches, interrupted, on_progress)
            batches.stop()
        finally:
            try:
                query.stop()  # after an error or a second signal this cancels the micro-batch
            finally:
                batches.stop()
        batches.take_progress(query)
    if batches.error is not None:
        raise batches.error
    failure = query.exception()
    if failure is not None and not interrupted.is_set():
        raise failure
    return QueryRun(
        records=batches.records,
        batches=batches.count,
        seconds=time.monotonic() - begun,
        is_interrupted=interrupted.is_set(),
        lag=_lag(query.lastProgress),
    )


def _follow(
    query: "StreamingQuery",
    batches: _Batches,
    interrupted: threading.Event,
    on_progress: OnProgress | None,
) -> None:
    """Report progress until the query ends or is interrupted."""
    while query.isActive and not interrupted.wait(POLL_S):
        batches.take_progress(query)
        if on_progress is None:
            continue
        lag = _lag(query.lastProgress)
        on_progress(
            PipelineProgress(
                records=batches.records,
                total=None if lag is None else batches.records + lag,
                step="" if batches.number is None else f"batch {batches.number}",
            )
        )


def _lag(progress: Any) -> int | None:
    """Return the records that are not read, from a query's progress."""
    try:
        pairs = [(each["endOffset"], each["latestOffset"]) for each in progress["sources"]]
        return sum(_distance(json.loads(end), json.loads(latest)) for end, latest in pairs)
    except (TypeError, KeyError, ValueError, AttributeError):  # no progress, or another source
        return None


def _distance(end: Mapping[str, Any], latest: Mapping[str, Any]) -> int:
    """Return the number of offsets between two offsets of the source `quorumlog`."""
    return sum(
        max(0, offset - end.get(topic, {}).get(partition, 0))
        for topic, partitions in latest.items()
        if not topic.startswith("#")
        for partition, offset in partitions.items()
    )


class NumberedWrites:
    """Writes the micro-batches of a query by the sink, under the query's name and their numbers."""

    def __init__(
        self,
        pipeline: str,
        bootstrap: str,
        topic: str | None = None,
        options: Mapping[str, str] | None = None,
        *,
        reserved: Collection[str] = (),
    ) -> None:
        """Raise InvalidConfig for a wrong option. `reserved` are options that the pipeline has no
        use for, in lower case. Calls no broker."""
        from quorumlog.spark.options import Mode
        from quorumlog.spark.write_options import DeliveryGuarantee, parse_write_options

        for name in options or {}:
            if name.lower() in _RESERVED or name.lower() in reserved:
                raise InvalidConfig(
                    f"option {name!r} of the sink is fixed by {pipeline}; remove it"
                )
        self._pipeline = pipeline
        self._given = {"bootstrap": bootstrap, **(options or {})}
        if topic is not None:
            self._given["topic"] = topic
        self._options = parse_write_options(self._given, Mode.BATCH)
        self._is_exactly_once = self._options.delivery is DeliveryGuarantee.EXACTLY_ONCE
        self._is_first = True

    @property
    def access(self) -> "ClusterAccess":
        """The access to the cluster of the sink."""
        return self._options.access

    def write(self, records: "DataFrame", number: int, query_id: str) -> int | None:
        """Write a micro-batch. Return 0 if it was written before, else None."""
        writer = records.write.format("quorumlog").options(**self._given)
        was_written = False
        if self._is_exactly_once:
            name = f"{self._pipeline}/{query_id}"
            writer = writer.option("commitName", name).option("commitNumber", str(number))
            # Spark repeats only the first micro-batch of a run. The sink compares its size again.
            was_written = self._is_first and number <= self._last_committed(name)
        self._is_first = False
        writer.mode("append").save()
        return 0 if was_written else None

    def _last_committed(self, commit_name: str) -> int:
        """Return the number of the last committed micro-batch, -1 if there is none."""
        from quorumlog.spark.process_client import client_of

        commits = replace(self._options, commit_name=commit_name).batch_name()
        assert commits is not None, "a commit name gives the commits a name"
        try:
            return client_of(self._options.access).admin.describe_commits(commits).last_committed
        except TransactionalIdNotFound:
            return -1


@contextmanager
def catch_interrupts() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set; a second signal raises KeyboardInterrupt.

    Signals reach only the main thread; in another thread the event stays unset.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, interrupt)
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def pipeline_session(spark: "SparkSession | None") -> Iterator["SparkSession"]:
    """Yield the given session, else the active one, else one of this machine that ends with the
    block."""
    from pyspark.sql import SparkSession

    spark = spark or SparkSession.getActiveSession()
    if spark is not None:
        yield spark
        return
    own = session("quorumlog pipeline")
    try:
        yield own
    finally:
        own.stop()


def local_path(name: str, value: str) -> Path:
    """Return a path of this machine; raise InvalidConfig for a URL."""
    text = value.removeprefix("file://")
    if "://" in text or not text:
        raise InvalidConfig(
            f"{name} is {value!r}; give a path of a file system of this machine, which the "
            "executors share"
        )
    return Path(text).resolve()


def read_stream(spark: "SparkSession", options: Mapping[str, str]) -> "DataFrame":
    """Return a stream of the source, which begins at the earliest records by default."""
    return spark.readStream.format("quorumlog").options(**with_start(options)).load()


def with_limit(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with `maxBytesPerTrigger=4GiB` unless they have a limit, or Spark passes none
    to a Python source."""
    from quorumlog.spark.versions import HAS_ADMISSION_CONTROL

    limits = ("maxoffsetspertrigger", "maxbytespertrigger")
    if not HAS_ADMISSION_CONTROL or any(name.lower() in limits for name in options):
        return dict(options)
    return {**options, "maxBytesPerTrigger": str(BATCH_BYTES)}


def with_start(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with `startingOffsets=earliest` unless they have a start."""
    starts = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")
    if any(name.lower() in starts for name in options):
        return dict(options)
    return {**options, "startingOffsets": "earliest"}
