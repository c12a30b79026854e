"""The gRPC service that authenticates clients with a password."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from ...api.audit import NAME_MAX, AuditLog
from ...api.authentication.config import MESSAGE_BYTES_MAX
from ...api.authentication.failures import FailureDelays
from ...api.authentication.sasl import MECHANISM_MAX, SaslExchange, SaslServer
from ...api.authentication.sessions import SessionTokens
from ...errors import InvalidRequest, SaslAuthenticationFailed
from ...metadata.acls import host_of
from ...proto import auth_pb2 as pb
from ...runtime import ANONYMOUS_CLIENT, CallContext, ClientIdentity, Handler, Stream
from ...runtime.client_bounds import ClientLines
from ...services import AUTH_AUTHENTICATE

LOGIN_S: Final = 30.0  # of one exchange
LISTENER: Final = "gRPC"  # in the logs
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
        audit: AuditLog | None,
        lines: ClientLines,
    ) -> None:
        """`mechanisms` are those that the listener offers, `lines` limits log lines."""
        self._audit = audit
        self._lines = lines
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
        client = ClientIdentity(
            ANONYMOUS_CLIENT.principal, host_of(context.peer.rpartition(":")[0])
        )
        mechanism = ""
        exchange: SaslExchange | None = None
        await self._failures.before_attempt(client.host)
        try:
            async with asyncio.timeout(LOGIN_S):
                request = await stream.receive()
                if request is None:
                    raise InvalidRequest("the stream ended before the first message")
                mechanism = request.mechanism[:MECHANISM_MAX]
                exchange = self._sasl.begin(request.mechanism, self._mechanisms, host=client.host)
                await self._run(exchange, stream, request, client, mechanism)
        except (SaslAuthenticationFailed, TimeoutError) as failure:
            error = failure
            if not isinstance(error, SaslAuthenticationFailed):
                error = SaslAuthenticationFailed(f"the exchange took longer than {LOGIN_S} s")
            claimed = "" if exchange is None else exchange.claimed_user
            if self._lines.may_log():
                _LOG.warning(
                    "security.not_authenticated peer=%s listener=%s mechanism=%s user=%a error=%s",
                    context.peer,
                    LISTENER,
                    mechanism,
                    claimed[:NAME_MAX],
                    error.message,
                )
            if self._audit is not None:
                self._audit.refused(
                    client,
                    listener=LISTENER,
                    mechanism=mechanism,
                    reason=error.message,
                    claimed_user=claimed,
                )
            await self._failures.after_failure(client.host)
            raise error from None

    async def _run(
        self,
        exchange: SaslExchange,
        stream: Stream[pb.AuthenticateResponse, pb.AuthenticateRequest],
        request: pb.AuthenticateRequest,
        client: ClientIdentity,
        mechanism: str,
    ) -> None:
        """Run the exchange that the request begins. A success is in the audit log before the token
        is sent: the client may take the token and never the end of the message."""
        while True:
            if len(request.message) > MESSAGE_BYTES_MAX:
                raise SaslAuthenticationFailed(
                    f"the message has {len(request.message)} bytes; at most {MESSAGE_BYTES_MAX} are"
                    " read"
                )
            step = await exchange.step(request.message)
            if step.user is not None:
                token, expires_ms = self._sessions.issue(step.user)
                if self._audit is not None:
                    known = client._replace(principal=f"User:{step.user.user}")
                    self._audit.authenticated(known, listener=LISTENER, mechanism=mechanism)
                await stream.send(
                    pb.AuthenticateResponse(
                        message=step.message, token=token, expires_ms=expires_ms
                    )
                )
                return
            await stream.send(pb.AuthenticateResponse(message=step.message))
            following = await stream.receive()
            if following is None:
                raise SaslAuthenticationFailed("the stream ended within the exchange")
            request = following
