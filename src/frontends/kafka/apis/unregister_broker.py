"""UnregisterBroker: remove the registration of a decommissioned broker (KIP-631)."""

from typing import Final

from ....errors import QuorumlogError
from ....proto import admin_pb2 as pb
from ..api import Answer, Api, Call, Door
from ..messages import error_fields
from ..parts import applied, outcome


async def unregister_broker(door: Door, call: Call) -> Answer:
    """Forward the request to the controller."""
    request = pb.UnregisterBrokerRequest(broker=call.body.broker_id)
    answer = await outcome(door.admin.unregister_broker(request, call.context))
    if isinstance(answer, QuorumlogError):
        return error_fields(answer)
    await applied(door, answer.metadata_offset, call.context)
    return error_fields(None)


API: Final = Api(
    key=64, name="UnregisterBroker", low=0, high=0, flexible=0, handle=unregister_broker
)
