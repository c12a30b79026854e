"""Request of a producer id."""

from ...errors import NotImplementedHere
from ...proto import transactions_pb2
from ...services import TRANSACTIONS_INIT_PRODUCER_ID
from ..answers import senseless
from ..connection import Connection


async def ask_producer_id(connection: Connection) -> int:
    """Return a new producer id.

    Raises the errors of a call, UnknownServerError for an invalid response, NotImplementedHere if
    the cluster does not support producer ids.
    """
    try:
        answer = await connection.call_any(
            TRANSACTIONS_INIT_PRODUCER_ID,
            transactions_pb2.InitProducerIdRequest(),
            answers_soon=True,
        )
    except NotImplementedHere as error:
        raise NotImplementedHere(
            f"the cluster does not support producer ids ({error.message}): without "
            "enable_idempotence none is needed, but retries may be stored twice"
        ) from error
    producer = answer.producer
    if producer.producer_id < 0 or producer.producer_epoch != 0:
        raise senseless(
            f"returned producer id {producer.producer_id} with epoch {producer.producer_epoch}"
        )
    return producer.producer_id
