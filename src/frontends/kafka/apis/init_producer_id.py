"""InitProducerId: return the id and epoch of an idempotent or transactional producer (KIP-98,
KIP-360).

With a transactional id, it is sent to the coordinator and fences earlier producers of the id.
"""

from typing import Final

from ....errors import InvalidRequest, QuorumlogError
from ....ids import ProducerIdentity
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..error_codes import COORDINATOR_LOAD_IN_PROGRESS
from ..transactions import NO_PRODUCER, milliseconds, producer_fields, producer_of, transaction_code

_KNOWS_FENCED: Final = 4  # the first version with PRODUCER_FENCED (KIP-588)
_CONTINUES: Final = 3  # the first version in which a producer names its present identity


async def init_producer_id(broker: BrokerContext, call: Call) -> Answer:
    """Return a new id, or the next epoch of the producer's present id."""
    body = call.body
    try:
        if body.transactional_id == "":  # null means no id
            raise InvalidRequest("transactional_id: empty; give one, or null for none")
        given = await broker.api.transactions.init_producer_id(
            body.transactional_id or "",
            milliseconds(body.transaction_timeout),
            _current(call),
            call.context,
        )
    except QuorumlogError as error:
        return _refusal(call, error)
    return {"error_code": 0, **producer_fields(given)}


def _current(call: Call) -> ProducerIdentity | None:
    """Return the identity that the producer has, None for a new one."""
    if call.version < _CONTINUES:
        return None
    current = producer_of(call.body)
    return None if current == (-1, -1) else current


def _refusal(call: Call, error: QuorumlogError) -> Fields:
    """Return an error response. Without a transactional id no coordinator is involved: a retriable
    error then has the code on which every client retries."""
    if call.body.transactional_id is None and error.retriable:
        return {"error_code": COORDINATOR_LOAD_IN_PROGRESS, **NO_PRODUCER}
    knows_fenced = call.version >= _KNOWS_FENCED
    return {"error_code": transaction_code(error, knows_fenced=knows_fenced), **NO_PRODUCER}


API: Final = KafkaApi(
    key=22, name="InitProducerId", low=0, high=5, flexible=2, handle=init_producer_id
)
