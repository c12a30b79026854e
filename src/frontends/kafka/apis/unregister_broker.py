"""UnregisterBroker: remove the registration of a decommissioned broker (KIP-631)."""

from typing import Final

from ....errors import QuorumlogError
from ....proto import admin_pb2 as pb
from ..api import Answer, BrokerContext, Call, KafkaApi
from ..error_codes import error_fields
from ..per_item import outcome, wait_applied


async def unregister_broker(broker: BrokerContext, call: Call) -> Answer:
    """Forward the request to the controller."""
    request = pb.UnregisterBrokerRequest(broker=call.body.broker_id)
    answer = await outcome(broker.admin.unregister_broker(request, call.context))
    if isinstance(answer, QuorumlogError):
        return error_fields(answer)
    await wait_applied(broker, answer.metadata_offset, call.context)
    return error_fields(None)


API: Final = KafkaApi(
    key=64, name="UnregisterBroker", low=0, high=0, flexible=0, handle=unregister_broker
)
