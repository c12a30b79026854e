"""The gRPC service that authenticates clients with a password."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from ...api.authentication.config import MESSAGE_BYTES_MAX
from ...api.authentication.failures import FailureDelays
from ...api.authentication.sasl import SaslServer
from ...api.authentication.sessions import SessionTokens
from ...errors import InvalidRequest, SaslAuthenticationFailed
from ...metadata.acls import host_of
from ...proto import auth_pb2 as pb
from ...runtime import CallContext, Handler, Stream
from ...services import AUTH_AUTHENTICATE

LOGIN_S: Final = 30.0  # of one exchange
OPEN_METHODS: Final = frozenset((AUTH_AUTHENTICATE.path,))
"""The methods that a client may call before it is authenticated."""

_LOG: Final = logging.getLogger("quorumlog.security")


class AuthService:
    """Handlers of `quorumlog.v1.Auth`."""

    def __init__(
        self,
        sasl: SaslServer,
        sessions: SessionTokens,
        failures: FailureDelays,
        *,
        mechanisms: tuple[str, ...],
    ) -> None:
        """`mechanisms` are those that the listener offers."""
        self._sasl = sasl
        self._sessions = sessions
        self._failures = failures
        self._mechanisms = tuple(each for each in mechanisms if each != "OAUTHBEARER")

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        return {AUTH_AUTHENTICATE.path: Handler(AUTH_AUTHENTICATE, self.authenticate)}

    async def authenticate(
        self,
        stream: Stream[pb.AuthenticateResponse, pb.AuthenticateRequest],
        context: CallContext,
    ) -> None:
        """Run one exchange, and end with a session token. Raises SaslAuthenticationFailed,
        UnsupportedSaslMechanism, InvalidRequest."""
        try:
            async with asyncio.timeout(LOGIN_S):
                await self._run(stream)
        except TimeoutError:
            raise SaslAuthenticationFailed(f"the exchange took longer than {LOGIN_S} s") from None
        except SaslAuthenticationFailed as error:
            host = host_of(context.peer.rpartition(":")[0])
            _LOG.warning("security.not_authenticated peer=%s error=%s", context.peer, error.message)
            await asyncio.sleep(self._failures.delay_ms(host) / 1_000)
            raise

    async def _run(self, stream: Stream[pb.AuthenticateResponse, pb.AuthenticateRequest]) -> None:
        request = await stream.receive()
        if request is None:
            raise InvalidRequest("the stream ended before the first message")
        exchange = self._sasl.begin(request.mechanism, self._mechanisms)
        while True:
            if len(request.message) > MESSAGE_BYTES_MAX:
                raise SaslAuthenticationFailed(
                    f"the message has {len(request.message)} bytes; at most {MESSAGE_BYTES_MAX} are"
                    " read"
                )
            step = await exchange.step(request.message)
            if step.user is not None:
                token, expires_ms = self._sessions.issue(step.user)
                await stream.send(
                    pb.AuthenticateResponse(
                        message=step.message, token=token, expires_ms=expires_ms
                    )
                )
                return
            await stream.send(pb.AuthenticateResponse(message=step.message))
            request = await stream.receive()
            if request is None:
                raise SaslAuthenticationFailed("the stream ended within the exchange")
