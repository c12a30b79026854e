"""The service `TransactionCoordination`: calls between brokers for transactions.

A broker calls `MarkerWriter` and `verify_all` directly for its own partitions and transactional
ids.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from ....errors import (
    CoordinatorNotAvailable,
    InconsistentClusterId,
    InvalidRequest,
    OperationNotAttempted,
    QuorumlogError,
    TimedOut,
)
from ....ids import NodeId, ProducerIdentity, TopicId
from ....proto import transaction_coordination_pb2 as pb
from ....records.control import TransactionMarker
from ....runtime import CallContext, Clock, Handler
from ....runtime.error_detail import encode_error
from ....runtime.node_identity import BROKER_ROLE, check_role
from ....services import (
    TRANSACTION_COORDINATION_VERIFY_TRANSACTIONS,
    TRANSACTION_COORDINATION_WRITE_MARKERS,
)
from ...shell.hosted_replicas import HostedReplicas
from ...shell.markers import PartitionMarkers
from ...verification import Verification
from ..requests import AddedPartitions, AddPartitions, MarkerPartition, VerifyPartitions
from .coordinator import TransactionCoordinator

WAIT_MS_MAX: Final = 60_000


class MarkerWriter:
    """Writes markers to partitions that this broker leads."""

    def __init__(self, clock: Clock, hosted: HostedReplicas, markers: PartitionMarkers) -> None:
        self._clock = clock
        self._hosted = hosted
        self._markers = markers

    async def write(
        self, markers: Sequence[tuple[TransactionMarker, MarkerPartition, int]], wait_ms: int
    ) -> list[QuorumlogError | None]:
        """Write markers concurrently; return the error of each, None: acknowledged."""
        return await asyncio.gather(*(self._write(*each, wait_ms) for each in markers))

    async def _write(
        self,
        marker: TransactionMarker,
        partition: MarkerPartition,
        leader_epoch: int,
        wait_ms: int,
    ) -> QuorumlogError | None:
        topic, index, topic_id, last_sequence = partition
        try:
            replica = self._hosted.replica_of(topic, index, topic_id)
            async with asyncio.timeout(wait_ms / 1000):
                await replica.opened()
            replica.partition.check_leader(leader_epoch)  # with no await before the append
            return await self._markers.write(
                topic,
                index,
                topic_id,
                marker,
                deadline_ms=self._clock.now_ms() + wait_ms,
                last_sequence=last_sequence,
            )
        except QuorumlogError as error:
            return error
        except TimeoutError:
            return TimedOut(f"{topic}-{index}: the log is not open yet; retry")


async def verify_all(
    transactions: TransactionCoordinator, questions: Sequence[Verification], deadline_ms: int
) -> list[QuorumlogError | None]:
    """Put questions of partition leaders to this broker's coordinator; return the error of each,
    None: the partition is in the transaction. Questions of one producer about one topic are one
    request: an unknown partition refuses all of a request."""
    found: dict[tuple[object, ...], list[int]] = {}
    for index, question in enumerate(questions):
        transactional_id, producer, _, _, topic_id, adds = question
        key = (transactional_id, producer, topic_id, adds)
        found.setdefault(key, []).append(index)
    asked = (
        _verify(transactions, [questions[index] for index in indexes], deadline_ms)
        for indexes in found.values()
    )
    errors: list[QuorumlogError | None] = [None] * len(questions)
    for indexes, outcome in zip(found.values(), await asyncio.gather(*asked), strict=True):
        for index, error in zip(indexes, outcome, strict=True):
            errors[index] = error
    return errors


async def _verify(
    transactions: TransactionCoordinator, questions: Sequence[Verification], deadline_ms: int
) -> Sequence[QuorumlogError | None]:
    """Put the questions of one producer about one topic."""
    first = questions[0]
    kind = AddPartitions if first.adds else VerifyPartitions
    request: AddPartitions | VerifyPartitions = kind(
        transactional_id=first.transactional_id,
        producer=first.producer,
        partitions=tuple((each.topic, each.partition) for each in questions),
        topic_ids={first.topic: first.topic_id},
    )
    try:
        transactions.leader_of(first.transactional_id)  # without a topic there are no transactions
        outcome: AddedPartitions = await transactions.ask(request, deadline_ms=deadline_ms)
    except QuorumlogError as error:
        return [error] * len(questions)
    return [
        CoordinatorNotAvailable("another partition of the transaction was refused; retry")
        if isinstance(error, OperationNotAttempted)
        else error
        for error in outcome.errors
    ]


class CoordinationService:
    """The handlers of `quorumlog.v1.TransactionCoordination`."""

    def __init__(
        self,
        writer: MarkerWriter,
        transactions: TransactionCoordinator,
        *,
        cluster_id: str,
        node_id: NodeId,
    ) -> None:
        self._writer = writer
        self._transactions = transactions
        self._cluster_id = cluster_id
        self._node_id = node_id

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (
            Handler(TRANSACTION_COORDINATION_WRITE_MARKERS, self.write_markers),
            Handler(TRANSACTION_COORDINATION_VERIFY_TRANSACTIONS, self.verify_transactions),
        )
        return {handler.method.path: handler for handler in table}

    async def write_markers(
        self, request: pb.WriteMarkersRequest, context: CallContext
    ) -> pb.WriteMarkersResponse:
        """Write markers; an error concerns one marker."""
        self._check_call(request.cluster_id, request.broker_id, context)
        markers = [
            (
                TransactionMarker(
                    ProducerIdentity(entry.producer_id, entry.producer_epoch),
                    entry.coordinator_epoch,
                    entry.is_commit,
                    entry.transaction_version,
                ),
                MarkerPartition(
                    target.topic,
                    target.partition,
                    TopicId(target.topic_id),
                    target.end_sequence - 1,
                ),
                target.leader_epoch,
            )
            for entry in request.entries
            for target in entry.targets
        ]
        errors = await self._writer.write(markers, min(max(1, request.wait_ms), WAIT_MS_MAX))
        response = pb.WriteMarkersResponse(markers=len(markers))
        for index, error in enumerate(errors):
            if error is not None:
                response.failed.add(marker=index, error=encode_error(error))
        return response

    async def verify_transactions(
        self, request: pb.VerifyTransactionsRequest, context: CallContext
    ) -> pb.VerifyTransactionsResponse:
        """Answer the questions of partition leaders; an error concerns one question."""
        self._check_call(request.cluster_id, request.broker_id, context)
        questions = [
            Verification(
                each.transactional_id,
                ProducerIdentity(each.producer_id, each.producer_epoch),
                each.target.topic,
                each.target.partition,
                TopicId(each.target.topic_id),
                each.adds,
            )
            for each in request.verifications
        ]
        errors = await verify_all(self._transactions, questions, context.deadline_ms)
        response = pb.VerifyTransactionsResponse()
        for error in errors:
            result = response.results.add()
            if error is not None:
                result.error.CopyFrom(encode_error(error))
        return response

    def _check_call(self, cluster_id: str, broker_id: int, context: CallContext) -> None:
        check_role(context.sender, BROKER_ROLE)
        if cluster_id != self._cluster_id:
            raise InconsistentClusterId(
                f"this node belongs to cluster {self._cluster_id!r}, the request is for"
                f" {cluster_id!r}; check the address"
            )
        if broker_id != self._node_id:
            raise InvalidRequest(
                f"the request is for node {broker_id}, this is node {self._node_id}; refresh the"
                " metadata"
            )
