"""The methods of the service `StagedCommits`: atomic batches of many writers.

Clients may send a request to any broker, which forwards it to the coordinator of the name.
AddPartitions is a method of `TransactionCalls`.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from ...api.authorizer import Authorizer
from ...api.request_context import RequestContext
from ...api.transactions import TransactionAdmin
from ...api.validation import ANSWER_MS, PARTITIONS_MAX, check_partition
from ...broker.transactions.requests import (
    VISIBLE_WAIT_MS,
    AbortStage,
    AttemptDescription,
    BeginAttempt,
    CommitStage,
    CommittedAttempt,
    CommittedBatch,
    DeleteStage,
    DescribedStage,
    DescribeStage,
    KeepAttemptAlive,
    ResetStage,
    SealAttempt,
    SealedPartition,
    StageDescription,
    TransactionRequest,
)
from ...broker.transactions.shell import TransactionCoordinator
from ...errors import InvalidRequest, TransactionalIdNotFound
from ...ids import NodeId, ProducerIdentity
from ...metadata.acls import AclOperation, AclResourceType
from ...metadata.shell.publisher import MetadataPublisher
from ...proto import groups_pb2
from ...proto import staged_commits_pb2 as pb
from ...runtime import CallContext, Method, Runtime
from ...services import (
    STAGED_COMMITS_ABORT,
    STAGED_COMMITS_BEGIN,
    STAGED_COMMITS_COMMIT,
    STAGED_COMMITS_DELETE,
    STAGED_COMMITS_DESCRIBE,
    STAGED_COMMITS_KEEP_ALIVE,
    STAGED_COMMITS_LIST,
    STAGED_COMMITS_RESET,
    STAGED_COMMITS_SEAL,
)
from ...staged_names import STAGE_TIMEOUT_MS_DEFAULT
from .call_forwarder import CallForwarder, check_text
from .translation import identity_message, read_identity

ATTEMPTS_MAX: Final = 100_000  # the upper bound of staged.attempts.max
RESERVE_MS: Final = 10 * ANSWER_MS
"""The time before the deadline at which a commit is answered without all of its markers."""

Q = TypeVar("Q", bound=Message)
M = TypeVar("M", bound=Message)
R = TypeVar("R")


class StagedCommitCalls:
    """The methods of the service `StagedCommits`."""

    def __init__(
        self,
        runtime: Runtime,
        transactions: TransactionAdmin,
        coordinator: TransactionCoordinator,
        metadata: MetadataPublisher,
        authorizer: Authorizer,
        *,
        node_id: NodeId,
    ) -> None:
        self._runtime = runtime
        self._transactions = transactions
        self._coordinator = coordinator
        self._authorizer = authorizer
        self._node_id = node_id

        async def coordinator_of(name: str, deadline_ms: int) -> NodeId:
            return await coordinator.coordinator_of(name, deadline_ms=deadline_ms)

        self._forwarder = CallForwarder(
            runtime, metadata, node_id=node_id, coordinator_of=coordinator_of
        )

    # --- drivers and tasks ------------------------------------------------------------------------

    async def open_write(
        self, request: pb.OpenWriteRequest, context: CallContext
    ) -> pb.OpenWriteResponse:
        """Return a write id of the controller."""
        deadline_ms = self._forwarder.deadline_ms(context)
        asked = RequestContext(deadline_ms, client=context.client)
        write_id = await self._transactions.open_write(asked)
        return pb.OpenWriteResponse(write_id=write_id)

    async def begin(
        self, request: pb.BeginAttemptRequest, context: CallContext
    ) -> pb.BeginAttemptResponse:
        """Return the producer of a task attempt, or the batch if its number is committed."""
        begin = BeginAttempt(
            transactional_id=request.name,
            number=request.number,
            write_id=request.write_id,
            task=request.task,
            attempt=request.attempt,
            timeout_ms=request.stage_timeout_ms or STAGE_TIMEOUT_MS_DEFAULT,
        )
        return await self._decide(STAGED_COMMITS_BEGIN, request, context, begin, _begun)

    async def keep_alive(
        self, request: pb.KeepAttemptAliveRequest, context: CallContext
    ) -> pb.KeepAttemptAliveResponse:
        """Extend the deadline of an attempt and of its write."""
        keep_alive = KeepAttemptAlive(
            transactional_id=request.name, producer=read_identity(request.producer)
        )
        return await self._decide(
            STAGED_COMMITS_KEEP_ALIVE,
            request,
            context,
            keep_alive,
            lambda _: pb.KeepAttemptAliveResponse(),
        )

    async def seal(
        self, request: pb.SealAttemptRequest, context: CallContext
    ) -> pb.SealAttemptResponse:
        """Seal an attempt with the records of its partitions."""
        if len(request.partitions) > PARTITIONS_MAX:
            raise InvalidRequest(
                f"partitions: {len(request.partitions)} entries; the limit is {PARTITIONS_MAX}"
            )
        for part in request.partitions:
            check_partition(part.topic, part.partition)
        seal = SealAttempt(
            transactional_id=request.name,
            producer=read_identity(request.producer),
            partitions=tuple(
                SealedPartition(
                    topic=part.topic,
                    partition=part.partition,
                    count=part.records,
                    last_sequence=part.last_sequence,
                )
                for part in request.partitions
            ),
        )
        return await self._decide(
            STAGED_COMMITS_SEAL, request, context, seal, lambda _: pb.SealAttemptResponse()
        )

    async def commit(
        self, request: pb.CommitStageRequest, context: CallContext
    ) -> pb.CommitStageResponse:
        """Commit one attempt of each task; wait for the markers until shortly before the
        deadline."""
        if len(request.attempts) > ATTEMPTS_MAX:
            raise InvalidRequest(
                f"attempts: {len(request.attempts)} entries; the limit is {ATTEMPTS_MAX}"
            )

        self._check(AclOperation.WRITE, request.name, context)

        async def here() -> pb.CommitStageResponse:
            left_ms = self._forwarder.deadline_ms(context) - self._runtime.clock.now_ms()
            committed = await self._ask(
                CommitStage(
                    transactional_id=request.name,
                    number=request.number,
                    write_id=request.write_id,
                    attempts=tuple(
                        CommittedAttempt(task=each.task, producer=read_identity(each.producer))
                        for each in request.attempts
                    ),
                    wait_ms=max(0, min(VISIBLE_WAIT_MS, left_ms - RESERVE_MS)),
                ),
                context,
            )
            return pb.CommitStageResponse(committed=_committed(committed))

        return await self._forward(STAGED_COMMITS_COMMIT, request, context, here)

    async def abort(
        self, request: pb.AbortStageRequest, context: CallContext
    ) -> pb.AbortStageResponse:
        """Abort a write or one attempt of it, unless the number is committed."""
        abort = AbortStage(
            transactional_id=request.name,
            number=request.number,
            write_id=request.write_id,
            producer=read_identity(request.producer) if request.HasField("producer") else None,
        )
        return await self._decide(STAGED_COMMITS_ABORT, request, context, abort, _aborted)

    # --- operators --------------------------------------------------------------------------------

    async def list_names(
        self, request: pb.ListStagesRequest, context: CallContext
    ) -> pb.ListStagesResponse:
        """Return the names of all brokers; the response names the brokers that failed."""
        if context.is_forwarded:
            return await self._listed_here(context)
        answers, errors = await self._forwarder.at_all_brokers(
            "staged commits",
            STAGED_COMMITS_LIST,
            request,
            context,
            lambda: self._listed_here(context),
        )
        found = sorted(
            (line for answer in answers for line in answer.stages), key=lambda line: line.name
        )
        return pb.ListStagesResponse(stages=found, errors=errors)

    async def describe(
        self, request: pb.DescribeStageRequest, context: CallContext
    ) -> pb.DescribeStageResponse:
        """Describe a name with its attempts."""
        self._check(AclOperation.DESCRIBE, request.name, context)
        self._check_topic(request.name)
        describe = DescribeStage(transactional_id=request.name)
        return await self._decide(
            STAGED_COMMITS_DESCRIBE,
            request,
            context,
            describe,
            lambda found: self._described(found, context),
        )

    async def reset(
        self, request: pb.ResetStageRequest, context: CallContext
    ) -> pb.ResetStageResponse:
        """Set the last committed number, and abort the current write."""
        self._check(AclOperation.WRITE, request.name, context)
        self._check_topic(request.name)
        reset = ResetStage(transactional_id=request.name, last_committed=request.last_committed)
        return await self._decide(
            STAGED_COMMITS_RESET, request, context, reset, lambda _: pb.ResetStageResponse()
        )

    async def delete(
        self, request: pb.DeleteStageRequest, context: CallContext
    ) -> pb.DeleteStageResponse:
        """Delete a name without attempts."""
        self._check(AclOperation.WRITE, request.name, context)
        self._check_topic(request.name)
        delete = DeleteStage(transactional_id=request.name)
        return await self._decide(
            STAGED_COMMITS_DELETE, request, context, delete, lambda _: pb.DeleteStageResponse()
        )

    # --- internals --------------------------------------------------------------------------------

    async def _decide(
        self,
        method: Method[Q, M],
        request: Q,
        context: CallContext,
        asked: TransactionRequest[R],
        encode: Callable[[R], M],
    ) -> M:
        """Decide a request at the coordinator of its name; `encode` returns the response. Needs
        Write on the name, or Describe to describe it."""
        is_read = isinstance(asked, DescribeStage)
        operation = AclOperation.DESCRIBE if is_read else AclOperation.WRITE
        self._check(operation, asked.transactional_id, context)

        async def here() -> M:
            return encode(await self._ask(asked, context))

        return await self._forward(method, request, context, here)

    async def _forward(
        self,
        method: Method[Q, M],
        request: Q,
        context: CallContext,
        here: Callable[[], Awaitable[M]],
    ) -> M:
        """Handle a request at the coordinator of its name."""
        asked: Any = request
        check_text("name", asked.name)
        return await self._forwarder.at_coordinator(method, request, context, asked.name, here)

    def _check_topic(self, name: str) -> None:
        """Raise TransactionalIdNotFound if there are no names: the look-up of a coordinator would
        create the topic."""
        if not self._coordinator.has_topic:
            raise TransactionalIdNotFound(f"staged commits {name}: no such name")

    async def _listed_here(self, context: CallContext) -> pb.ListStagesResponse:
        describe, kind = AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID
        may_describe = partial(self._authorizer.allows, context.client, describe, kind)
        found = await self._coordinator.staged_names(may_describe)
        return pb.ListStagesResponse(stages=[_listing(each, self._node_id) for each in found])

    def _check(self, operation: AclOperation, name: str, context: CallContext) -> None:
        self._authorizer.check(context.client, operation, AclResourceType.TRANSACTIONAL_ID, name)

    def _described(self, found: DescribedStage, context: CallContext) -> pb.DescribeStageResponse:
        """Return a description without the topics that the client may not describe."""
        describe, kind = AclOperation.DESCRIBE, AclResourceType.TOPIC
        held = {place for each in found.attempts for place in each.partitions}
        return pb.DescribeStageResponse(
            stage=_listing(found.stage, self._node_id),
            attempts=map(_attempt, found.attempts),
            partitions=[
                groups_pb2.GroupPartition(topic=topic, partition=partition)
                for topic, partition in sorted(held)
                if self._authorizer.allows(context.client, describe, kind, topic)
            ],
        )

    async def _ask(self, request: TransactionRequest[R], context: CallContext) -> R:
        deadline_ms = self._forwarder.deadline_ms(context)
        return await self._coordinator.ask(request, deadline_ms=deadline_ms)


def _begun(outcome: ProducerIdentity | CommittedBatch) -> pb.BeginAttemptResponse:
    if isinstance(outcome, CommittedBatch):
        return pb.BeginAttemptResponse(committed=_committed(outcome))
    return pb.BeginAttemptResponse(producer=identity_message(outcome))


def _aborted(found: CommittedBatch | None) -> pb.AbortStageResponse:
    return pb.AbortStageResponse(committed=None if found is None else _committed(found))


def _committed(batch: CommittedBatch) -> pb.CommittedBatch:
    return pb.CommittedBatch(
        number=batch.number,
        write_id=batch.write_id,
        records=batch.count,
        visible=batch.is_visible,
    )


def _listing(stage: StageDescription, coordinator: NodeId) -> pb.StageListing:
    return pb.StageListing(
        name=stage.name,
        last_committed=stage.last_committed,
        committed_write_id=stage.committed_write_id,
        committed_records=stage.committed_count,
        write_id=stage.write_id,
        number=stage.number,
        open=stage.open,
        sealed=stage.sealed,
        completing=stage.attempts - stage.open - stage.sealed,
        oldest_started_ms=stage.oldest_started_ms,
        updated_ms=stage.updated_ms,
        coordinator=coordinator,
    )


def _attempt(attempt: AttemptDescription) -> pb.StagedAttempt:
    return pb.StagedAttempt(
        task=attempt.task,
        attempt=attempt.attempt,
        write_id=attempt.write_id,
        producer=identity_message(attempt.producer),
        state=attempt.state.name.capitalize(),
        started_ms=attempt.started_ms,
        partitions=len(attempt.partitions),
        records=attempt.count,
    )
