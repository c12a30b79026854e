"""A minimal broker with a transaction coordinator of KIP-890 and configurable errors."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from quorumlog.errors import InvalidProducerEpoch, ProducerFenced, QuorumlogError, StreamBroken
from quorumlog.ids import ProducerIdentity
from quorumlog.proto import groups_pb2, log_pb2
from quorumlog.proto import transactions_pb2 as pb
from quorumlog.records import decode_all, parse_header
from quorumlog.records.batch import TRANSACTIONAL_BIT
from quorumlog.runtime import CallContext, Handler
from quorumlog.services import (
    TRANSACTIONS_ADD_OFFSETS,
    TRANSACTIONS_END,
    TRANSACTIONS_INIT_PRODUCER_ID,
)

from .storing_broker import Broker

NEW = ProducerIdentity(7, -1)


@dataclass
class Ended:
    """An end of a transaction, or an attempt at it."""

    producer: ProducerIdentity
    commit: bool


@dataclass
class Coordinator:
    """The state of a transactional id."""

    identity: ProducerIdentity = NEW
    timeout_ms: int = 0
    inits: int = 0
    last_end: tuple[ProducerIdentity, bool] | None = None  # to repeat its response


class TransactionBroker(Broker):
    """A broker of one partition and all transactional ids."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: dict[str, Coordinator] = {}
        self.ended: list[Ended] = []
        self.open: dict[ProducerIdentity, list[bytes]] = defaultdict(list)  # values by producer
        self.committed: list[bytes] = []
        self.offsets: dict[ProducerIdentity, list[groups_pb2.CommitOffsetsRequest]] = defaultdict(
            list
        )
        self.committed_offsets: list[groups_pb2.CommitOffsetsRequest] = []
        self.init_errors: list[QuorumlogError] = []
        self.end_errors: list[QuorumlogError] = []  # of the next requests
        self.lose_end_answers = 0  # number of ends that are executed and then fail
        self.sequences: list[tuple[ProducerIdentity, int]] = []

    def handlers(self) -> dict[str, Any]:
        table = [
            Handler(TRANSACTIONS_INIT_PRODUCER_ID, self._init),
            Handler(TRANSACTIONS_ADD_OFFSETS, self._add_offsets),
            Handler(TRANSACTIONS_END, self._end),
        ]
        return super().handlers() | {handler.method.path: handler for handler in table}

    async def _init(
        self, request: pb.InitProducerIdRequest, context: CallContext
    ) -> pb.InitProducerIdResponse:
        if self.init_errors:
            raise self.init_errors.pop(0)
        known = self.ids.setdefault(request.transactional_id, Coordinator())
        known.inits += 1
        known.timeout_ms = request.timeout_ms
        known.last_end = None
        self._drop(known.identity)
        known.identity = known.identity._replace(producer_epoch=known.identity.producer_epoch + 1)
        return pb.InitProducerIdResponse(producer=message(known.identity))

    def _drop(self, identity: ProducerIdentity) -> None:
        self.open.pop(identity, None)
        self.offsets.pop(identity, None)

    async def _add_offsets(
        self, request: pb.AddOffsetsRequest, context: CallContext
    ) -> pb.AddOffsetsResponse:
        identity = ProducerIdentity(request.producer.producer_id, request.producer.producer_epoch)
        if identity != self.ids[request.transactional_id].identity:
            raise ProducerFenced("fenced")
        self.offsets[identity].append(request.commit)
        return pb.AddOffsetsResponse(
            results=[groups_pb2.OffsetResult(offset=offset) for offset in request.commit.offsets]
        )

    async def _end(
        self, request: pb.EndTransactionRequest, context: CallContext
    ) -> pb.EndTransactionResponse:
        if self.end_errors:
            raise self.end_errors.pop(0)
        known = self.ids[request.transactional_id]
        identity = ProducerIdentity(request.producer.producer_id, request.producer.producer_epoch)
        if known.last_end != (identity, request.commit):
            if identity != known.identity:
                raise ProducerFenced("fenced")
            self.ended.append(Ended(identity, request.commit))
            if request.commit:
                self.committed += self.open[identity]
                self.committed_offsets += self.offsets[identity]
            self._drop(identity)
            known.last_end = (identity, request.commit)
            known.identity = identity._replace(producer_epoch=identity.producer_epoch + 1)
        if self.lose_end_answers:
            self.lose_end_answers -= 1
            raise StreamBroken("the answer was lost")
        return pb.EndTransactionResponse(producer=message(known.identity))

    def _store(
        self, part: log_pb2.PartitionRecords, result: log_pb2.ProduceResult
    ) -> QuorumlogError | None:
        header = parse_header(part.records)
        if not header.attributes & TRANSACTIONAL_BIT:
            return super()._store(part, result)
        identity = ProducerIdentity(header.producer_id, header.producer_epoch)
        if identity not in [each.identity for each in self.ids.values()]:
            return InvalidProducerEpoch("an older epoch")
        error = super()._store(part, result)
        if error is None and (identity, header.base_sequence) not in self.sequences:
            self.sequences.append((identity, header.base_sequence))
            self.open[identity] += [record.value or b"" for record in decode_all(part.records)]
        return error


def message(identity: ProducerIdentity) -> pb.ProducerIdentity:
    return pb.ProducerIdentity(
        producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
    )
