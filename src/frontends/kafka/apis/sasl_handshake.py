"""SaslHandshake: begin an authentication with a mechanism (KIP-43)."""

from ....errors import IllegalSaslState, UnsupportedSaslMechanism
from ..api import Answer, BrokerContext, Call


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Begin the exchange, and list the mechanisms of the listener."""
    authentication = call.client.authentication
    try:
        await authentication.begin(call.body.mechanism)
    except (IllegalSaslState, UnsupportedSaslMechanism) as error:
        return {"error_code": error.code, "mechanisms": authentication.mechanisms}
    return {"error_code": 0, "mechanisms": authentication.mechanisms}
