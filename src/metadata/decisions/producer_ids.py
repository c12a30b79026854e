"""Allocation of producer ids in blocks. Pure."""

from typing import Final

from ...errors import InvalidRequest, UnknownServerError
from ...ids import NO_NODE
from ...proto import metadata_records_pb2 as pb
from ..commands import AllocateProducerIds, ProducerIdsAllocated
from ..decision import Decision
from ..image import MetadataImage
from .brokers import registered

PRODUCER_IDS_IN_BLOCK: Final = 1_000
"""Ids per block, as in Kafka: one in a thousand new producers waits for the quorum."""
PRODUCER_ID_END: Final = 2**63 - 1
"""The exclusive upper bound: batches have 63 bits for the id."""


def allocate_producer_ids(image: MetadataImage, command: AllocateProducerIds) -> Decision:
    """Decide the allocation of the next block. A block whose response is lost is never reused."""
    if command.broker_id != NO_NODE:
        registered(image, command.broker_id, command.broker_epoch)
    count = command.count or PRODUCER_IDS_IN_BLOCK
    if not 1 <= count <= PRODUCER_IDS_IN_BLOCK:
        raise InvalidRequest(
            f"producer_id_len: {count}; give 1..{PRODUCER_IDS_IN_BLOCK}, or 0 for"
            f" {PRODUCER_IDS_IN_BLOCK}"
        )
    start, end = image.next_producer_id, image.next_producer_id + count
    if end > PRODUCER_ID_END:
        raise UnknownServerError(f"no producer ids left: all below {start} are allocated")
    record = pb.ProducerIdsRecord(
        broker_id=command.broker_id, broker_epoch=command.broker_epoch, next_producer_id=end
    )
    return Decision(
        records=(pb.MetadataRecord(producer_ids=record),),
        reply=ProducerIdsAllocated(start=start, count=count),
    )
