"""Translation between AlterPartitions messages and commands."""

from collections.abc import Iterable

from ..errors import InvalidRequest, QuorumlogError
from ..ids import Epoch, NodeId, Offset, TopicId
from ..proto import controller_pb2 as pb
from ..runtime.error_detail import encode_error
from .commands import AlterPartitions, IsrChange, PartitionsAltered
from .image import PartitionImage

CHANGES_MAX = 10_000
"""The maximum number of partitions of one request; a broker that leads more sends several."""


def alter_partitions_of(request: pb.AlterPartitionsRequest) -> AlterPartitions:
    """Return the command of a request; raise InvalidRequest for repeated or too many partitions."""
    named = {(change.topic_id, change.partition) for change in request.partitions}
    if len(named) < len(request.partitions):
        raise InvalidRequest("a partition is given more than once; give each partition once")
    if len(named) > CHANGES_MAX:
        raise InvalidRequest(
            f"the request has {len(named)} partitions; the limit is {CHANGES_MAX}; send several"
        )
    return AlterPartitions(
        broker_id=NodeId(request.broker_id),
        broker_epoch=Offset(request.broker_epoch),
        changes=tuple(_change(change) for change in request.partitions),
    )


def altered_response(
    request: pb.AlterPartitionsRequest, reply: PartitionsAltered
) -> pb.AlterPartitionsResponse:
    """Return the response, with a result for each partition in the order of the request."""
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
    encoded = []
    for change, result in zip(changes, results, strict=True):
        message = pb.AlterPartitionResult(topic_id=change.topic_id, partition=change.partition)
        if isinstance(result, QuorumlogError):
            message.error.CopyFrom(encode_error(result))
        else:
            message.leader = result.leader
            message.leader_epoch = result.leader_epoch
            message.isr.extend(result.isr)
            message.partition_epoch = result.partition_epoch
        encoded.append(message)
    return encoded
