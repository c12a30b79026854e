"""Asking the cluster for a producer id."""

from ...errors import NotImplementedHere
from ...proto import transactions_pb2
from ...services import TRANSACTIONS_INIT_PRODUCER_ID
from ..answers import senseless
from ..connection import Connection


async def ask_producer_id(connection: Connection) -> int:
    """Return an id that no producer had before; raises the errors of a call, UnknownServerError for
    an answer that makes no sense, and NotImplementedHere of a cluster that gives none."""
    try:
        answer = await connection.call_any(
            TRANSACTIONS_INIT_PRODUCER_ID,
            transactions_pb2.InitProducerIdRequest(),
            answers_soon=True,
        )
    except NotImplementedHere as error:
        raise NotImplementedHere(
            f"the cluster gives producers no ids ({error.message}): without enable_idempotence "
            "they need none, and what is repeated may be stored twice"
        ) from error
    producer = answer.producer
    if producer.producer_id < 0 or producer.producer_epoch != 0:
        raise senseless(
            f"gives the producer id {producer.producer_id} with epoch {producer.producer_epoch}"
        )
    return producer.producer_id
