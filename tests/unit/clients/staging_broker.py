"""A broker with the state machine of staged commits, whose calls can fail as a test requires."""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from tests.unit.broker.transactions.shard_play import START_MS, ShardPlay, image_of

from quorumlog.broker.transactions.requests import (
    AbortStage,
    AddPartitions,
    BeginAttempt,
    CommitStage,
    CommittedAttempt,
    CommittedBatch,
    KeepAttemptAlive,
    MarkersWritten,
    SealAttempt,
    SealedPartition,
)
from quorumlog.errors import QuorumlogError, StreamBroken
from quorumlog.ids import ProducerIdentity, TopicId
from quorumlog.proto import log_pb2, transactions_pb2
from quorumlog.proto import staged_commits_pb2 as pb
from quorumlog.records import decode_all, parse_header
from quorumlog.records.batch import TRANSACTIONAL_BIT
from quorumlog.runtime import CallContext, Handler, Method, Runtime
from quorumlog.services import (
    STAGED_COMMITS_ABORT,
    STAGED_COMMITS_BEGIN,
    STAGED_COMMITS_COMMIT,
    STAGED_COMMITS_KEEP_ALIVE,
    STAGED_COMMITS_OPEN_WRITE,
    STAGED_COMMITS_SEAL,
)

from .storing_broker import Broker

TOPICS = {"t": TopicId(b"t" * 16)}


class StagingBroker(Broker):
    """The leader of topic "t" and the coordinator of every name. Markers are written at once."""

    def __init__(self, runtime: Runtime, *, partitions: int = 2) -> None:
        super().__init__(partitions=partitions)
        self.play = ShardPlay(image=image_of(TOPICS, partitions=partitions))
        self.calls: list[str] = []  # names of the methods
        self.errors: dict[str, list[QuorumlogError]] = defaultdict(list)  # of the next calls
        self.lost: dict[str, int] = defaultdict(int)  # number of responses to lose
        self.open: dict[ProducerIdentity, list[bytes]] = defaultdict(list)
        self.committed: list[bytes] = []
        self.seals: list[pb.SealAttemptRequest] = []
        self._clock = runtime.clock
        self._writes = 0

    def handlers(self) -> dict[str, Any]:
        table = [
            self._handler(STAGED_COMMITS_OPEN_WRITE, self._open_write),
            self._handler(STAGED_COMMITS_BEGIN, self._begin),
            self._handler(STAGED_COMMITS_KEEP_ALIVE, self._keep_alive),
            self._handler(STAGED_COMMITS_SEAL, self._seal),
            self._handler(STAGED_COMMITS_COMMIT, self._commit),
            self._handler(STAGED_COMMITS_ABORT, self._abort),
        ]
        return super().handlers() | {handler.method.path: handler for handler in table}

    def _handler(self, method: Method[Any, Any], call: Callable[[Any], Any]) -> Handler:
        name = method.path.rpartition("/")[2]

        async def handle(request: Any, context: CallContext) -> Any:
            self.calls.append(name)
            if self.errors[name]:
                raise self.errors[name].pop(0)
            answer = call(request)
            if self.lost[name]:
                self.lost[name] -= 1
                raise StreamBroken("the answer was lost")
            return answer

        handled: Callable[[Any, CallContext], Awaitable[Any]] = handle
        return Handler(method, handled)

    def ask(self, request: Any) -> Any:
        """Return the response of the coordinator, after its due timers."""
        self.play.now_ms = START_MS + self._clock.now_ms()
        self.play.expire()
        self._write_markers()
        ticket = self.play.submit(request)
        self._write_markers()
        return self.play.answer(ticket)

    def _write_markers(self) -> None:
        while self.play.effects:
            each = self.play.effects.pop(0)
            identity = each.producer._replace(producer_epoch=each.producer.producer_epoch - 1)
            values = self.open.pop(identity, [])
            if each.is_commit:
                self.committed += values
            self.play.ask(
                MarkersWritten(
                    transactional_id=each.transactional_id,
                    producer=each.producer,
                    partitions=each.partitions,
                )
            )

    def _open_write(self, request: pb.OpenWriteRequest) -> pb.OpenWriteResponse:
        self._writes += 1
        return pb.OpenWriteResponse(write_id=self._writes)

    def _begin(self, request: pb.BeginAttemptRequest) -> pb.BeginAttemptResponse:
        found = self.ask(
            BeginAttempt(
                transactional_id=request.name,
                number=request.number,
                write_id=request.write_id,
                task=request.task,
                attempt=request.attempt,
                timeout_ms=request.stage_timeout_ms,
            )
        )
        if isinstance(found, CommittedBatch):
            return pb.BeginAttemptResponse(committed=_batch(found))
        return pb.BeginAttemptResponse(
            producer=transactions_pb2.ProducerIdentity(
                producer_id=found.producer_id, producer_epoch=found.producer_epoch
            )
        )

    def _keep_alive(self, request: pb.KeepAttemptAliveRequest) -> pb.KeepAttemptAliveResponse:
        self.ask(
            KeepAttemptAlive(transactional_id=request.name, producer=_identity(request.producer))
        )
        return pb.KeepAttemptAliveResponse()

    def _seal(self, request: pb.SealAttemptRequest) -> pb.SealAttemptResponse:
        self.seals.append(request)
        self.ask(
            SealAttempt(
                transactional_id=request.name,
                producer=_identity(request.producer),
                partitions=tuple(
                    SealedPartition(
                        topic=each.topic,
                        partition=each.partition,
                        count=each.records,
                        last_sequence=each.last_sequence,
                    )
                    for each in request.partitions
                ),
            )
        )
        return pb.SealAttemptResponse()

    def _commit(self, request: pb.CommitStageRequest) -> pb.CommitStageResponse:
        batch = self.ask(
            CommitStage(
                transactional_id=request.name,
                number=request.number,
                write_id=request.write_id,
                attempts=tuple(
                    CommittedAttempt(task=each.task, producer=_identity(each.producer))
                    for each in request.attempts
                ),
            )
        )
        return pb.CommitStageResponse(committed=_batch(batch))

    def _abort(self, request: pb.AbortStageRequest) -> pb.AbortStageResponse:
        batch = self.ask(
            AbortStage(
                transactional_id=request.name,
                number=request.number,
                write_id=request.write_id,
                producer=_identity(request.producer) if request.HasField("producer") else None,
            )
        )
        return pb.AbortStageResponse(committed=None if batch is None else _batch(batch))

    def _store(
        self, part: log_pb2.PartitionRecords, result: log_pb2.ProduceResult
    ) -> QuorumlogError | None:
        header = parse_header(part.records)
        assert header.attributes & TRANSACTIONAL_BIT, "every batch is transactional"
        identity = ProducerIdentity(header.producer_id, header.producer_epoch)
        added = AddPartitions(
            transactional_id=self.transactional_ids[-1],
            producer=identity,
            partitions=((part.topic, part.partition),),
        )
        known = len(self.logs[part.partition])
        try:
            self.ask(added)
        except QuorumlogError as error:
            return error
        refused = super()._store(part, result)
        if refused is None and len(self.logs[part.partition]) > known:
            self.open[identity] += [record.value or b"" for record in decode_all(part.records)]
        return refused


def _identity(message: transactions_pb2.ProducerIdentity) -> ProducerIdentity:
    return ProducerIdentity(message.producer_id, message.producer_epoch)


def _batch(batch: CommittedBatch) -> pb.CommittedBatch:
    return pb.CommittedBatch(
        number=batch.number,
        write_id=batch.write_id,
        records=batch.count,
        visible=batch.is_visible,
    )
