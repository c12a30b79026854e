"""Staged commits for operators: the names, and the task attempts that hold partitions."""

from dataclasses import dataclass

from ...ids import ProducerIdentity, TopicPartition
from ...proto import staged_commits_pb2 as pb
from ...runtime.error_detail import decode_error
from ...services import (
    STAGED_COMMITS_DELETE,
    STAGED_COMMITS_DESCRIBE,
    STAGED_COMMITS_LIST,
    STAGED_COMMITS_RESET,
)
from ..connection import Connection
from ..staged_commits import check_name


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAttempt:
    """A task attempt that holds partitions: open, sealed, or decided without all of its markers."""

    task: int
    attempt: int
    write_id: int
    producer: ProducerIdentity
    state: str  # "Open", "Sealed", "Committing", "Aborting"
    started_ms: int  # milliseconds since 1970
    partitions: int  # without a marker
    records: int  # 0 until it is sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCommits:
    """The staged commits of a name at its coordinator."""

    name: str
    last_committed: int  # number of the batch, -1: none
    committed_write_id: int  # of the write that committed it, -1: none
    committed_records: int
    write_id: int  # the highest one that began, -1: none
    number: int  # of that write
    open: int  # attempts
    sealed: int  # attempts
    completing: int  # attempts that are decided, without all of their markers
    oldest_started_ms: int  # of these attempts, milliseconds since 1970; -1: there is none
    updated_ms: int  # of the last decision, milliseconds since 1970
    coordinator: int  # node id
    attempts: tuple[CommitAttempt, ...] = ()  # by task; empty in a list
    partitions: tuple[TopicPartition, ...] = ()  # that readers wait for; empty in a list


async def list_commits(connection: Connection) -> list[NamedCommits]:
    """Return all names, sorted; raise the error of a broker that did not list its names."""

    async def attempt(remaining_ms: int) -> pb.ListStagesResponse:
        answer = await connection.call_any(
            STAGED_COMMITS_LIST,
            pb.ListStagesRequest(),
            deadline_ms=connection.runtime.clock.now_ms() + remaining_ms,
        )
        if answer.errors:
            raise decode_error(answer.errors[0])
        return answer

    return [_named_commits(each) for each in (await connection.repeat(attempt)).stages]


async def describe_commits(connection: Connection, name: str) -> NamedCommits:
    """Return a name with its attempts; raise TransactionalIdNotFound."""
    request = pb.DescribeStageRequest(name=check_name(name))
    answer = await connection.call_any(STAGED_COMMITS_DESCRIBE, request)
    return _named_commits(answer.stage, answer)


async def reset_commits(connection: Connection, name: str, last_committed: int) -> None:
    """Set the number of the last committed batch, and abort the current write."""
    request = pb.ResetStageRequest(name=check_name(name), last_committed=last_committed)
    await connection.call_any(STAGED_COMMITS_RESET, request)


async def delete_commits(connection: Connection, name: str) -> None:
    """Delete a name without attempts."""
    request = pb.DeleteStageRequest(name=check_name(name))
    await connection.call_any(STAGED_COMMITS_DELETE, request)


def _named_commits(
    stage: pb.StageListing, described: pb.DescribeStageResponse | None = None
) -> NamedCommits:
    return NamedCommits(
        name=stage.name,
        last_committed=stage.last_committed,
        committed_write_id=stage.committed_write_id,
        committed_records=stage.committed_records,
        write_id=stage.write_id,
        number=stage.number,
        open=stage.open,
        sealed=stage.sealed,
        completing=stage.completing,
        oldest_started_ms=stage.oldest_started_ms,
        updated_ms=stage.updated_ms,
        coordinator=stage.coordinator,
        attempts=() if described is None else tuple(map(_attempt, described.attempts)),
        partitions=()
        if described is None
        else tuple(TopicPartition(each.topic, each.partition) for each in described.partitions),
    )


def _attempt(attempt: pb.StagedAttempt) -> CommitAttempt:
    return CommitAttempt(
        task=attempt.task,
        attempt=attempt.attempt,
        write_id=attempt.write_id,
        producer=ProducerIdentity(attempt.producer.producer_id, attempt.producer.producer_epoch),
        state=attempt.state,
        started_ms=attempt.started_ms,
        partitions=attempt.partitions,
        records=attempt.records,
    )
