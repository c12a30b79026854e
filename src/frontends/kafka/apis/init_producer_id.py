"""InitProducerId: return an id for an idempotent producer (KIP-98, KIP-360)."""

from typing import Final

from ....api.transactions import NO_PRODUCER_ID
from ....errors import InvalidRequest, QuorumlogError
from ....ids import ProducerIdentity
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..error_codes import COORDINATOR_LOAD_IN_PROGRESS, code_of

NO_PRODUCER_EPOCH: Final = -1


async def init_producer_id(broker: BrokerContext, call: Call) -> Answer:
    """Return a new id, or the next epoch of the producer's present id."""
    body = call.body
    if body.transactional_id == "":  # null means no id
        return _refusal(InvalidRequest("transactional_id: empty; give one, or null for none"))
    current = None
    if getattr(body, "producer_id", NO_PRODUCER_ID) != NO_PRODUCER_ID:
        current = ProducerIdentity(body.producer_id, body.producer_epoch)
    try:
        given = await broker.api.producers.init_producer_id(
            body.transactional_id or "", current, call.context
        )
    except QuorumlogError as error:
        return _refusal(error)
    return {
        "error_code": 0,
        "producer_id": given.producer_id,
        "producer_epoch": given.producer_epoch,
    }


def _refusal(error: QuorumlogError) -> Fields:
    """Return an error response. A retriable error has the code on which every client retries, since
    no coordinator is involved."""
    return {
        "error_code": COORDINATOR_LOAD_IN_PROGRESS if error.retriable else code_of(error),
        "producer_id": NO_PRODUCER_ID,
        "producer_epoch": NO_PRODUCER_EPOCH,
    }


API: Final = KafkaApi(
    key=22, name="InitProducerId", low=0, high=5, flexible=2, handle=init_producer_id
)
