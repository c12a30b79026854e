"""Runs of a query, and the committed offsets of its group."""

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from quorumlog.ids import TopicPartition
from quorumlog.spark.offsets import IDS
from quorumlog.spark.source import QuorumlogSource
from quorumlog.spark.versions import ReadAllAvailable

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ALL = ReadAllAvailable()


def reader(script: Any, **options: str) -> Any:
    """Start a new run of the query `q`."""
    selection = {} if "assign" in options else {"subscribe": "t"}
    given = {"bootstrap": script.address, **selection, "groupId": "q", **options}
    made = QuorumlogSource(given)
    return made.streamReader(made.schema())


def committed(script: Any) -> dict[TopicPartition, int]:
    return {place: offset for place, (offset, _) in script.groups["q"].items()}


def positions(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Return offsets in Spark's form, without topic ids."""
    return {topic: ends for topic, ends in nested.items() if topic != IDS}


STEPS = 23
"""One more than three micro-batches have."""


class Ended(Exception):
    """The query's process has ended."""


class Engine:
    """Spark's calls of a source in order, a checkpoint, and a sink that applies each micro-batch
    once."""

    def __init__(self, on_step: Callable[[str], None] = lambda name: None) -> None:
        self.on_step = on_step
        self.ends: list[dict[str, Any]] = []  # the offset log: the end of each micro-batch
        self.committed = -1  # the commit log: the last micro-batch
        self.sink: dict[int, list[str]] = {}
        self._left: Iterator[int] = itertools.count(1)

    def rows(self) -> list[str]:
        return [row for _, rows in sorted(self.sink.items()) for row in rows]

    def run(self, source: Any, *, end_at: int | None = None, batches: int = 3) -> int:
        """Run some micro-batches from the checkpoint. Raise Ended at a step. Return the number of
        steps."""
        self._left = itertools.count(1)
        self._end_at = end_at
        self._step("started")
        limit = source.getDefaultReadLimit()
        # Spark decides in the same way. Below 4.2 it passes no position and requests the first
        # start last.
        is_limited = bool(inspect.signature(source.latestOffset).parameters)
        if len(self.ends) > self.committed + 1:
            self._batch(source, self._start(source))
        for _ in range(batches):
            if is_limited:
                start = self._start(source)
                self._step("before the plan")
                end = source.latestOffset(start, limit)
            else:
                end = source.latestOffset()
            if self.committed >= 0 and end == self.ends[self.committed]:
                continue
            self._step("planned")
            self.ends.append(end)
            self._step("logged")
            if self.committed >= 0:
                source.commit(self.ends[self.committed])
            self._batch(source, self._start(source))
        return next(self._left)

    def _start(self, source: Any) -> dict[str, Any]:
        if self.committed >= 0:
            return self.ends[self.committed]
        start: dict[str, Any] = source.initialOffset()
        return start

    def _batch(self, source: Any, start: dict[str, Any]) -> None:
        number = self.committed + 1
        tasks = source.partitions(start, self.ends[number])
        self._step("tasks are planned")
        rows = []
        for task in tasks:
            for batch in source.read(task):
                rows += [value.decode() for value in batch["value"].to_pylist()]
            self._step("in tasks")
        self.sink[number] = rows
        self._step("the sink has it")
        self.committed = number
        self._step("committed")

    def _step(self, name: str) -> None:
        self.on_step(name)
        if next(self._left) == self._end_at:
            raise Ended(name)
