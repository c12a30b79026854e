"""Staged commits for parallel jobs: many processes write, and one call makes all records visible.

The driver opens a write and sends it to its tasks. Each task stages its records with a producer of
its own and returns a result; the driver commits the results. The values that processes exchange
are picklable, and their pickles have a version. `producer.staged_producer` has the task's side.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

from ..errors import (
    CommittedBatchDiffers,
    InvalidConfig,
    InvalidRequest,
    NumberTooOld,
    OutcomeUnknown,
    QuorumlogError,
)
from ..ids import ProducerIdentity
from ..proto import staged_commits_pb2 as pb
from ..services import STAGED_COMMITS_ABORT, STAGED_COMMITS_COMMIT, STAGED_COMMITS_OPEN_WRITE
from ..staged_names import (
    OPEN_TIMEOUT_MS,
    STAGE_TIMEOUT_MS_DEFAULT,
    STAGE_TIMEOUT_MS_MAX,
    has_unnamed_form,
    unnamed_write,
)
from .connection import Connection
from .producer_identity import identity_message
from .retry import is_retriable
from .topology import invalid_response

COMMIT_TIMEOUT_MS: Final = 300_000
"""Default time limit of a commit with its repetitions."""
ON_DIFFERENT: Final = ("raise", "warn")

_PICKLE_VERSION: Final = 1

_log = logging.getLogger(__name__)


class _Portable:
    """A dataclass with a versioned pickle format."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        own: Any = self
        return _restored, (
            _PICKLE_VERSION,
            type(self),
            {each.name: getattr(self, each.name) for each in fields(own)},
        )


def _restored(version: int, kind: type[Any], values: dict[str, Any]) -> Any:
    """Return an unpickled value; raise InvalidRequest if a later version of this library made
    it."""
    if version > _PICKLE_VERSION:
        raise InvalidRequest(
            f"{kind.__name__}: its pickle has version {version}, this process reads"
            f" {_PICKLE_VERSION}; install one version of quorumlog in the driver and its tasks"
        )
    return kind(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedWrite(_Portable):
    """One execution of one batch by one driver; returned by `open_write`. Picklable.

    The batches of a name have ascending numbers, and each number is committed once.
    """

    name: str
    number: int
    write_id: int  # greater than that of every write that was opened before
    stage_timeout_ms: int = STAGE_TIMEOUT_MS_DEFAULT
    """Time from the last Begin, KeepAlive or Seal to the commit."""

    def for_batch(self, name: str, number: int) -> "StagedWrite":
        """Return a copy for another name and number, for a job that learns them in its tasks."""
        return replace(self, name=_check_own_name(name), number=check_number("number", number))


class PartitionCount(NamedTuple):
    """The staged records of a task in one partition."""

    topic: str
    partition: int
    records: int
    last_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedWrite(_Portable):
    """The committed batch of a number. Picklable."""

    number: int
    write_id: int  # of the write that committed it; -1: unknown, the name was reset
    count: int  # records; -1: unknown
    is_mine: bool  # this write committed it
    is_visible: bool  # readers get all of it; False: the last partitions follow


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult(_Portable):
    """The result of one task attempt, for `commit_write`. Picklable.

    Without a record it is empty. If the number was committed before, the task's records were
    counted and dropped.
    """

    write: StagedWrite
    task: int
    count: int  # records
    producer: ProducerIdentity | None = None  # of the staged records; None: nothing is staged
    partitions: tuple[PartitionCount, ...] = ()  # with staged records, sorted
    committed: CommittedWrite | None = None  # the batch that was committed before

    @property
    def is_staged(self) -> bool:
        """True if a commit makes its records visible."""
        return self.producer is not None


# --- the driver -------------------------------------------------------------------------------


async def open_write(
    connection: Connection, name: str | None, number: int, *, stage_timeout_ms: int
) -> StagedWrite:
    """Return a write with an id of its own; see `AsyncLog.open_write`."""
    if name is not None:
        _check_own_name(name)
    check_number("number", number)
    if not OPEN_TIMEOUT_MS <= stage_timeout_ms <= STAGE_TIMEOUT_MS_MAX:
        raise InvalidConfig(
            f"stage_timeout_ms is {stage_timeout_ms}: give {OPEN_TIMEOUT_MS} to"
            f" {STAGE_TIMEOUT_MS_MAX}"
        )
    answer = await connection.call_any(STAGED_COMMITS_OPEN_WRITE, pb.OpenWriteRequest())
    if answer.write_id < 0:
        raise invalid_response(f"returned write id {answer.write_id}")
    return StagedWrite(
        name=unnamed_write(answer.write_id) if name is None else name,
        number=number,
        write_id=answer.write_id,
        stage_timeout_ms=stage_timeout_ms,
    )


async def commit_write(
    connection: Connection,
    write: StagedWrite,
    results: Sequence[TaskResult],
    *,
    timeout_ms: int,
    on_different: str,
) -> CommittedWrite | None:
    """Commit the results of a write; see `AsyncLog.commit_write`."""
    if on_different not in ON_DIFFERENT:
        raise InvalidConfig(
            f"on_different is {on_different!r}: give one of {', '.join(ON_DIFFERENT)}"
        )
    _check_results(write, results)
    committed = next((each.committed for each in results if each.committed is not None), None)
    if any(each.is_staged for each in results):
        committed = await _commit(connection, write, results, timeout_ms)
    elif committed is None:  # an earlier run of the batch may have had records
        committed = await _abort(connection, write)
    if committed is not None:
        _compare(write, committed, sum(each.count for each in results), on_different)
    return committed


async def _commit(
    connection: Connection, write: StagedWrite, results: Sequence[TaskResult], timeout_ms: int
) -> CommittedWrite:
    request = pb.CommitStageRequest(
        name=write.name,
        number=write.number,
        write_id=write.write_id,
        attempts=[
            pb.CommittedAttempt(task=each.task, producer=identity_message(each.producer))
            for each in results
            if each.producer is not None
        ],
    )
    deadline_ms = connection.runtime.clock.now_ms() + timeout_ms
    try:
        answer = await connection.call_any(STAGED_COMMITS_COMMIT, request, deadline_ms=deadline_ms)
    except QuorumlogError as error:
        if not is_retriable(error):
            raise
        raise OutcomeUnknown(
            f"staged commits {write.name}: the commit of batch {write.number} has no answer after"
            f" {timeout_ms} ms ({error.message}); commit the same results again"
        ) from error
    return committed_write(write, answer.committed)


async def abort_write(connection: Connection, write: StagedWrite) -> CommittedWrite | None:
    """Abort all attempts of a write; see `AsyncLog.abort_write`."""
    try:
        return await _abort(connection, write)
    except NumberTooOld:  # a later batch is committed: no attempt of this number is left
        return None


async def _abort(connection: Connection, write: StagedWrite) -> CommittedWrite | None:
    """Abort all attempts of a write; return the committed batch of its number, if any. Raises
    NumberTooOld."""
    request = pb.AbortStageRequest(name=write.name, number=write.number, write_id=write.write_id)
    answer = await connection.call_any(STAGED_COMMITS_ABORT, request)
    if not answer.HasField("committed"):
        return None
    return committed_write(write, answer.committed)


# --- checks and messages ----------------------------------------------------------------------


def check_name(name: object) -> str:
    """Return a name of staged commits; raise InvalidRequest unless it is a nonempty str."""
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"name is {name!r}: give the name of the commits as a str")
    return name


def _check_own_name(name: object) -> str:
    """Return a name that an application chose; raise InvalidRequest for the form of a write without
    one, `batch/<write id>`."""
    found = check_name(name)
    if has_unnamed_form(found):
        raise InvalidRequest(
            f"name is {name!r}: batch/ with a number is the form of a write without a name;"
            " give another name"
        )
    return found


def check_number(what: str, value: object) -> int:
    """Return an int >= 0; raise InvalidRequest for another value."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise InvalidRequest(f"{what} is {value!r}: give a whole number, 0 or more")
    return value


def _check_results(write: StagedWrite, results: Sequence[TaskResult]) -> None:
    """Raise InvalidRequest unless the results are of this write, one of each task."""
    tasks: set[int] = set()
    for each in results:
        if not isinstance(each, TaskResult):
            raise InvalidRequest(
                f"results has a {type(each).__name__}; give what `seal` of each task returned"
            )
        if each.write != write:
            raise InvalidRequest(
                f"staged commits {write.name}: the result of task {each.task} is of batch"
                f" {each.write.number} of {each.write.name}, write {each.write.write_id}; this"
                f" write is {write.write_id} of batch {write.number}: commit the results of one"
                " write"
            )
        if each.task in tasks:
            raise InvalidRequest(
                f"staged commits {write.name}: two results are of task {each.task}; give one"
                " result of each task"
            )
        tasks.add(each.task)


def _compare(write: StagedWrite, committed: CommittedWrite, count: int, on_different: str) -> None:
    """Raise CommittedBatchDiffers if another write committed another number of records."""
    if committed.is_mine or committed.count in (-1, count):
        return
    error = CommittedBatchDiffers(
        f"staged commits {write.name}: batch {write.number} was committed with {committed.count}"
        f" records by write {committed.write_id}, and this write has {count}; the input of the"
        " batch changed, or two jobs use one name: give each job a name of its own, or accept"
        " the committed records with on_different='warn'"
    )
    if on_different == "raise":
        raise error
    _log.warning("staged_commits.batch_differs error=%s", error.message)


def committed_write(write: StagedWrite, batch: pb.CommittedBatch) -> CommittedWrite:
    """Return the committed batch of a response; raise UnknownServerError for another number."""
    if batch.number != write.number:
        raise invalid_response(f"returned batch {batch.number} of {write.name}")
    return CommittedWrite(
        number=batch.number,
        write_id=batch.write_id,
        count=batch.records if batch.write_id >= 0 else -1,
        is_mine=batch.write_id == write.write_id,
        is_visible=batch.visible,
    )
