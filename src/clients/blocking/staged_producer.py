"""The blocking producer of a task attempt; see `producer.staged_producer`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import ClientClosed
from ..producer.partitioner import Partitioner
from ..producer.producer import AsyncProducer, Threading
from ..producer.staged_producer import AsyncStagedProducer, TaskAttempt, make_task_attempt
from ..staged_commits import TaskResult
from .producer import Producer

if TYPE_CHECKING:
    from ..log import AsyncLog
    from .log import Log


class StagedProducer(Producer):
    """Sends the records of one task attempt; created by `Log.staged_producer()`.

    ```python
    with log.staged_producer(write, task=3) as producer:
        producer.send("out", b"...")
        result = producer.seal()
    ```
    See `AsyncStagedProducer`. Thread-safe. A fork ends the attempt. A producer without a record
    continues on both sides, with other attempt numbers.
    """

    def __init__(
        self,
        log: "Log",
        partitioner: str | Partitioner,
        settings: Mapping[str, Any],
        attempt: TaskAttempt,
    ) -> None:
        self._attempt = attempt
        self._opened: AsyncStagedProducer | None = None
        super().__init__(log, partitioner, {**settings, "transactional_id": attempt.write.name})

    def seal(self, *, timeout_ms: int | None = None) -> TaskResult:
        """Wait until all records are stored, and return the task's result; see
        `AsyncStagedProducer.seal`."""
        return self._wait(lambda producer: _staged(producer).seal(timeout_ms=timeout_ms))

    def __enter__(self) -> "StagedProducer":
        return self

    def _open(self, log: "AsyncLog", threading: Threading) -> AsyncProducer:
        if self._opened is not None:
            write, task, _ = self._attempt
            if self._opened.has_begun:
                raise ClientClosed(
                    f"staged commits {write.name}: a fork ended the attempt of task {task};"
                    " run the task again"
                )
            entropy = self._log.opened()[0].runtime.entropy
            # Parent and child differ.
            self._attempt = make_task_attempt(write, task, None, entropy)
        opened = log.add_producer(self._config, self._partitioner, threading, self._attempt)
        self._opened = _staged(opened)
        return opened


def _staged(producer: AsyncProducer) -> AsyncStagedProducer:
    assert isinstance(producer, AsyncStagedProducer), "made with an attempt"
    return producer
