"""SaslAuthenticate: the messages of an authentication (KIP-152), which also extends a session
(KIP-368)."""

from ....errors import IllegalSaslState, SaslAuthenticationFailed
from ..api import Answer, BrokerContext, Call
from ..error_codes import error_fields


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Take the client's message, and return the server's."""
    try:
        message, session_ms = await call.client.authentication.step(bytes(call.body.auth_bytes))
    except (IllegalSaslState, SaslAuthenticationFailed) as error:
        return {**error_fields(error), "auth_bytes": b"", "session_lifetime": 0}
    return {**error_fields(None), "auth_bytes": message, "session_lifetime": session_ms}
