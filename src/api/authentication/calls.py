"""Authentication of gRPC calls: by certificate, by JSON Web Token, or by session token."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ...errors import SaslAuthenticationFailed
from ...metadata import MetadataImage
from ...metadata.acls import host_of
from ...runtime import ANONYMOUS_CLIENT, CallPeer, CallSession, ClientIdentity, Clock
from .certificate_principals import PrincipalRule, user_of
from .config import SecurityProtocol
from .sasl import AuthenticatedUser
from .sessions import PREFIX, SessionTokens
from .tokens import TokenVerifier

SESSIONS_MAX: Final = 10_000  # verified tokens that are kept
_BEARER: Final = "bearer "


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAuthentication:
    """The authentication of the calls of one listener; a `runtime.CallAuthenticator`."""

    protocol: SecurityProtocol
    clock: Clock
    image: Callable[[], MetadataImage]  # the newest applied image
    rules: tuple[PrincipalRule, ...]  # for the users of certificates
    sessions: SessionTokens
    tokens: TokenVerifier | None  # None: JSON Web Tokens are not enabled
    open_paths: frozenset[str]  # methods that need no authentication
    _users: dict[str, AuthenticatedUser] = field(default_factory=dict)  # by header

    async def authenticate(self, path: str, peer: CallPeer) -> CallSession:
        """Return the client of a call. Raises SaslAuthenticationFailed, also for a call without
        credentials on a listener with SASL."""
        host = host_of(peer.host)
        if path in self.open_paths:
            return CallSession(ClientIdentity(ANONYMOUS_CLIENT.principal, host))
        if peer.authorization:
            user = await self._user(peer.authorization)
            return CallSession(
                ClientIdentity(f"User:{user.user}", host), lambda: self._is_current(user)
            )
        if self.protocol.has_sasl:
            raise SaslAuthenticationFailed(
                "the call has no credentials; log in with Auth.Authenticate, or give a token"
            )
        if peer.certificate is None:
            return CallSession(ClientIdentity(ANONYMOUS_CLIENT.principal, host))
        name = user_of(peer.certificate.subject, self.rules)
        if name is None:
            raise SaslAuthenticationFailed(
                f"certificate of {peer.certificate.subject!r}: no rule of"
                " ssl.principal.mapping.rules matches"
            )
        return CallSession(ClientIdentity(f"User:{name}", host))

    async def _user(self, authorization: str) -> AuthenticatedUser:
        known = self._users.get(authorization)
        if known is not None and self._is_current(known):
            return known
        if authorization[: len(_BEARER)].lower() != _BEARER:
            raise SaslAuthenticationFailed("the authorization header is not 'Bearer TOKEN'")
        token = authorization[len(_BEARER) :].strip()
        if token.startswith(PREFIX):
            user = self.sessions.verify(token)
        elif self.tokens is None or not self.protocol.is_encrypted:
            raise SaslAuthenticationFailed(
                "tokens of an issuer are not accepted here: they need the mechanism OAUTHBEARER"
                " and TLS"
            )
        else:
            verified = await self.tokens.verify(token)
            user = AuthenticatedUser(verified.user, expires_ms=verified.expires_ms)
        if len(self._users) >= SESSIONS_MAX:
            self._users.clear()
        self._users[authorization] = user
        return user

    def _is_current(self, user: AuthenticatedUser) -> bool:
        """Return False if the user's session has expired or the password has changed."""
        if user.expires_ms is not None and self.clock.now_ms() >= user.expires_ms:
            return False
        if user.key is None:
            return True
        return self.image().scram_credentials.get(user.key) == user.credential
