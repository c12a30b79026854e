"""UnregisterBroker: remove the registration of a decommissioned broker (KIP-631)."""

from typing import Final

from ....errors import QuorumlogError
from ....ids import NodeId
from ....metadata import UnregisterBroker
from ..api import Answer, BrokerContext, Call, KafkaApi
from ..error_codes import error_fields
from ..item_results import outcome, wait_applied


async def unregister_broker(broker: BrokerContext, call: Call) -> Answer:
    """Forward the request to the controller."""
    command = UnregisterBroker(broker_id=NodeId(call.body.broker_id))
    submitted = await outcome(broker.api.cluster.unregister_broker(command, call.context))
    if isinstance(submitted, QuorumlogError):
        return error_fields(submitted)
    await wait_applied(broker, submitted.offset, call.context)
    return error_fields(None)


API: Final = KafkaApi(
    key=64, name="UnregisterBroker", low=0, high=0, flexible=0, handle=unregister_broker
)
