"""Authentication of calls: by certificate, by JSON Web Token, by session token, or, over HTTP, by
password."""

from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ...errors import SaslAuthenticationFailed
from ...metadata import MetadataImage
from ...metadata.acls import host_of
from ...runtime import ANONYMOUS_CLIENT, CallPeer, CallSession, ClientIdentity, Clock
from ..audit import AuditLog
from .certificate_principals import PrincipalRule, user_of
from .config import SecurityProtocol
from .failures import FailureDelays
from .sasl import AuthenticatedUser, SaslServer
from .sessions import PREFIX, SessionTokens
from .tokens import TokenVerifier

SESSIONS_MAX: Final = 10_000  # verified tokens that are kept
SESSION: Final = "session token"
KEPT_MS: Final = 60_000  # a key that the issuer withdraws counts for so long
RECORDED_MS: Final = 60_000  # without calls: then the next one of a connection is recorded again
RECORDED_HTTP_MS: Final = 1_000  # between the recorded requests of a user, as between equal denials


class AnonymousCalls:
    """A `runtime.CallAuthenticator` of a listener that accepts clients without credentials."""

    async def authenticate(self, path: str, peer: CallPeer) -> CallSession:
        """Return the anonymous user at the address of the client."""
        return CallSession(ClientIdentity(ANONYMOUS_CLIENT.principal, host_of(peer.host)))


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
    failures: FailureDelays
    audit: AuditLog | None
    passwords: SaslServer | None = None  # None: no passwords in headers (Basic, RFC 7617)
    listener: str = "gRPC"  # in the audit log
    # by token, with the time until which it is not verified again
    _users: dict[str, tuple[AuthenticatedUser, int]] = field(default_factory=dict)
    # by host, port and hash of the credentials, with the time of the last call that counts
    _recorded: dict[tuple[str, str, int], int] = field(default_factory=dict)

    async def authenticate(self, path: str, peer: CallPeer) -> CallSession:
        """Return the client of a call. Raises SaslAuthenticationFailed, also for a call without
        credentials on a listener with SASL."""
        host = host_of(peer.host)
        if path in self.open_paths:
            anonymous = ClientIdentity(ANONYMOUS_CLIENT.principal, host)
            return CallSession(anonymous, is_open=True)
        if peer.authorization:
            mechanism, claimed = _claim_of(peer.authorization)
            try:
                user = await self._user(peer.authorization, host)
            except SaslAuthenticationFailed as error:
                if mechanism != SESSION:  # refused after each restart; a login follows
                    self._report(host, mechanism, error, claimed)
                if mechanism == "PLAIN":  # the others cannot be guessed
                    await self.failures.after_failure(host)
                raise
            self._record(peer, user.user, mechanism)
            return CallSession(
                ClientIdentity(f"User:{user.user}", host), lambda: self._is_current(user)
            )
        if self.protocol.has_sasl:
            raise SaslAuthenticationFailed(
                "the call has no credentials; give credentials=quorumlog.SCRAM(...) in Python,"
                " security_protocol, sasl_user and sasl_password in a profile (QUORUMLOG_CONFIG),"
                " saslUser and saslPassword in Spark; other gRPC clients log in with"
                " Auth.Authenticate, or send a token"
            )
        if peer.certificate is None:
            return CallSession(ClientIdentity(ANONYMOUS_CLIENT.principal, host))
        name = user_of(peer.certificate.subject, self.rules)
        if name is None:
            unmapped = SaslAuthenticationFailed(
                f"certificate of {peer.certificate.subject!r}: no rule of"
                " ssl.principal.mapping.rules matches"
            )
            self._report(host, "certificate", unmapped)
            raise unmapped
        self._record(peer, name, "certificate")
        return CallSession(ClientIdentity(f"User:{name}", host))

    def _record(self, peer: CallPeer, user: str, mechanism: str) -> None:
        """Record a successful authentication in the audit log: of a connection once, and over HTTP,
        where each request authenticates, once a second. A session token was recorded by its
        login."""
        if self.audit is None or mechanism == SESSION:
            return
        credentials = peer.authorization or user
        place, now_ms = (peer.host, peer.port, hash(credentials)), self.clock.now_ms()
        recorded_ms = self._recorded.get(place)
        interval_ms = RECORDED_MS if peer.port else RECORDED_HTTP_MS
        is_recorded = recorded_ms is not None and now_ms - recorded_ms < interval_ms
        if peer.port or not is_recorded:
            if len(self._recorded) >= SESSIONS_MAX:
                self._recorded.clear()
            self._recorded[place] = now_ms
        if not is_recorded:
            client = ClientIdentity(f"User:{user}", host_of(peer.host))
            self.audit.authenticated(client, listener=self.listener, mechanism=mechanism)

    def _report(
        self, host: str, mechanism: str, error: SaslAuthenticationFailed, claimed_user: str = ""
    ) -> None:
        if self.audit is not None:
            client = ClientIdentity(ANONYMOUS_CLIENT.principal, host)
            self.audit.refused(
                client,
                listener=self.listener,
                mechanism=mechanism,
                reason=error.message,
                claimed_user=claimed_user,
            )

    async def _user(self, authorization: str, host: str) -> AuthenticatedUser:
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() == "basic" and self.passwords is not None:
            await self.failures.before_attempt(host)
            return await _user_with_password(self.passwords, given.strip(), host)
        if scheme.lower() != "bearer":
            raise SaslAuthenticationFailed("the authorization header is not 'Bearer TOKEN'")
        return await self._user_of_token(given.strip())

    async def _user_of_token(self, token: str) -> AuthenticatedUser:
        now_ms = self.clock.now_ms()
        known, kept_ms = self._users.get(token, (None, 0))
        if known is not None and now_ms < kept_ms and self._is_current(known):
            return known
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
        self._users[token] = (user, now_ms + KEPT_MS)
        return user

    def _is_current(self, user: AuthenticatedUser) -> bool:
        """Return False if the user's session has expired or the password has changed."""
        if user.expires_ms is not None and self.clock.now_ms() >= user.expires_ms:
            return False
        return user.is_current(self.image())


def _claim_of(authorization: str) -> tuple[str, str]:
    """Return the mechanism of a header, for the audit log, and the user name of Basic."""
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "basic":
        return SESSION if given.strip().startswith(PREFIX) else "token", ""
    try:
        user = b64decode(given.strip(), validate=True).partition(b":")[0]
    except ValueError:
        return "PLAIN", ""
    return "PLAIN", user.decode(errors="backslashreplace")


async def _user_with_password(sasl: SaslServer, encoded: str, host: str) -> AuthenticatedUser:
    """Return the user of "user:password" in base64."""
    try:
        user, colon, password = b64decode(encoded, validate=True).partition(b":")
    except ValueError as error:
        raise SaslAuthenticationFailed("the authorization header is not base64") from error
    if not colon:
        raise SaslAuthenticationFailed("the authorization header has no password")
    exchange = sasl.begin("PLAIN", ("PLAIN",), host=host)
    step = await exchange.step(b"\0" + user + b"\0" + password)
    assert step.user is not None, "PLAIN has one step"
    return step.user
