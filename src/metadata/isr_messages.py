"""Between the messages by which leaders ask for in-sync replicas and the command that decides."""

from collections.abc import Iterable

from ..errors import InvalidRequest, QuorumlogError
from ..ids import Epoch, NodeId, Offset, TopicId
from ..proto import controller_pb2 as pb
from ..runtime.error_detail import encode_error
from .commands import AlterPartitions, IsrChange, PartitionsAltered
from .image import PartitionImage

CHANGES_MAX = 10_000
"""Partitions of one request; a broker that leads more asks several times."""


def alter_partitions_of(request: pb.AlterPartitionsRequest) -> AlterPartitions:
    """Return the command of a request; raises InvalidRequest for one that names a partition twice
    or too many of them."""
    named = {(change.topic_id, change.partition) for change in request.partitions}
    if len(named) < len(request.partitions):
        raise InvalidRequest("a partition is named twice: ask for one change of each at a time")
    if len(named) > CHANGES_MAX:
        raise InvalidRequest(f"{len(named)} partitions in one request: ask for {CHANGES_MAX}")
    return AlterPartitions(
        broker_id=NodeId(request.broker_id),
        broker_epoch=Offset(request.broker_epoch),
        changes=tuple(_change(change) for change in request.partitions),
    )


def altered_response(
    request: pb.AlterPartitionsRequest, reply: PartitionsAltered
) -> pb.AlterPartitionsResponse:
    """Return the answer: a result for each partition of the request, in its order."""
    return pb.AlterPartitionsResponse(results=_results(request.partitions, reply.results))


def _change(change: pb.AlterPartition) -> IsrChange:
    return IsrChange(
        topic_id=TopicId(change.topic_id),
        partition=change.partition,
        leader_epoch=Epoch(change.leader_epoch),
        partition_epoch=change.partition_epoch,
        isr=tuple((NodeId(each.broker_id), Offset(each.broker_epoch)) for each in change.isr),
        recovered=change.recovered,
    )


def _results(
    changes: Iterable[pb.AlterPartition], results: Iterable[PartitionImage | QuorumlogError]
) -> list[pb.AlterPartitionResult]:
    answered = []
    for change, result in zip(changes, results, strict=True):
        answer = pb.AlterPartitionResult(topic_id=change.topic_id, partition=change.partition)
        if isinstance(result, QuorumlogError):
            answer.error.CopyFrom(encode_error(result))
        else:
            answer.leader = result.leader
            answer.leader_epoch = result.leader_epoch
            answer.isr.extend(result.isr)
            answer.partition_epoch = result.partition_epoch
        answered.append(answer)
    return answered
