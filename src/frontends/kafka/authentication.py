"""Authentication of Kafka connections: by certificate in the TLS handshake, or with SASL (KIP-12,
KIP-43, KIP-152), which a client repeats before its session ends (KIP-368).

A connection of a listener with SASL accepts only ApiVersions, SaslHandshake and SaslAuthenticate
until the client is authenticated, and again after its session has ended. A failed authentication is
answered after a delay, then the connection ends.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...api.audit import NAME_MAX
from ...api.authentication.certificate_principals import PrincipalRule, user_of
from ...api.authentication.config import MESSAGE_BYTES_MAX, SecurityProtocol
from ...errors import (
    IllegalSaslState,
    QuorumlogError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from ...metadata import MetadataImage
from ...metadata.acls import host_of
from ...runtime import ANONYMOUS_CLIENT, ClientIdentity, PeerCertificate
from .api import Client, KafkaApi
from .request import API_VERSIONS

if TYPE_CHECKING:
    from ...api.audit import AuditLog
    from ...api.authentication.failures import FailureDelays
    from ...api.authentication.sasl import (
        AuthenticatedUser,
        SaslExchange,
        SaslServer,
        SaslStep,
    )
    from ...runtime.tls import TlsCredentials

CERTIFICATE: Final = "certificate"  # in the logs, in the place of a mechanism
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
_OPEN_KEYS: Final = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)

MECHANISM_CHARS_MAX: Final = 64
"""The length of an unknown mechanism in an error."""

REAUTHENTICATION_INTERVAL_MS: Final = 1_000
"""The minimum time between the begins of two authentications after the first one (KIP-368)."""

FRAME_BYTES_MAX: Final = MESSAGE_BYTES_MAX + (4 << 10)
"""The size limit of requests before the authentication."""

_LOG: Final = logging.getLogger("quorumlog.security")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """Encryption and authentication of one listener."""

    protocol: SecurityProtocol
    mechanisms: tuple[str, ...] = ()  # that it offers
    tls: "TlsCredentials | None" = None  # None: no TLS
    rules: tuple[PrincipalRule, ...] = ()  # for the users of certificates
    sasl: "SaslServer | None" = None  # None: no SASL
    failures: "FailureDelays | None" = None
    session_ms_max: int = 0  # 0: no limit
    audit: "AuditLog | None" = None  # records authentications

    @property
    def has_strangers(self) -> bool:
        """True if a connection is accepted before its user is known."""
        return self.tls is not None or self.sasl is not None


PLAINTEXT: Final = ListenerSecurity(protocol=SecurityProtocol.PLAINTEXT)
"""A listener that encrypts and authenticates nothing."""


def anonymous_from(peer: str) -> ClientIdentity:
    """Return the identity of a client at "host:port" before it is authenticated."""
    return ClientIdentity(ANONYMOUS_CLIENT.principal, host_of(peer.rpartition(":")[0]))


class Authentication:
    """The authentication of one connection."""

    __slots__ = (
        *("_apis", "_changed", "_client", "_exchange", "_expiry", "_failure", "_listener"),
        *("_may_log", "_mechanism", "_now_ms", "_open_apis", "_reauthenticated_ms", "_user"),
        *("apis", "is_secured"),
    )

    def __init__(
        self,
        listener: ListenerSecurity,
        client: Client,
        *,
        apis: Mapping[int, KafkaApi],
        now_ms: Callable[[], int],
        changed: Callable[[QuorumlogError | None], None],
        may_log: Callable[[], bool],
    ) -> None:
        """`apis` are those of an authenticated client. `changed` is called after each change of
        `apis`, and with the error that ends the connection. `may_log` limits log lines."""
        self._listener = listener
        self._client = client
        self._apis = apis
        self._now_ms = now_ms
        self._changed = changed
        self._may_log = may_log
        self._open_apis = {key: apis[key] for key in _OPEN_KEYS if key in apis}
        self._exchange: SaslExchange | None = None  # between handshake and authentication
        self._mechanism = ""  # of the exchange, or of the authentication
        self._failure: SaslAuthenticationFailed | None = None  # reported
        self._user: AuthenticatedUser | None = None
        self._reauthenticated_ms: int | None = None  # the last begin after the first one
        self._expiry: asyncio.TimerHandle | None = None
        self.is_secured = listener.tls is None  # the handshake of TLS has ended
        self.apis = apis if listener.sasl is None else self._open_apis  # that may be requested now

    @property
    def is_open(self) -> bool:
        """True until the client is authenticated as far as the listener asks for."""
        return not self.is_secured or self.apis is self._open_apis

    def request_bytes_max(self, limit: int) -> int:
        """Return the size limit of a request; `limit` is that of its key."""
        return min(limit, FRAME_BYTES_MAX) if self.apis is self._open_apis else limit

    def secured(self, certificate: PeerCertificate | None) -> QuorumlogError | None:
        """Continue after the handshake of TLS. Return the error that ends the connection."""
        self.is_secured = True
        listener, client = self._listener, self._client
        if certificate is None or listener.sasl is not None:
            return None
        self._mechanism = CERTIFICATE
        user = user_of(certificate.subject, listener.rules)
        if user is None:
            error = SaslAuthenticationFailed(
                f"certificate of {certificate.subject!r}: no rule of ssl.principal.mapping.rules"
                " matches"
            )
            self._report(error)
            return error
        client.identity = ClientIdentity(f"User:{user}", client.identity.host)
        self._report(None)
        return None

    def close(self) -> None:
        """Stop the timer of an ended connection."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def is_current(self, image: MetadataImage) -> bool:
        """Return False if the credential of the client has changed or is gone."""
        return self._user is None or self._user.is_current(image)

    def check_session(self) -> None:
        """Raise SaslAuthenticationFailed if the credential of the client has changed or is gone."""
        sasl = self._listener.sasl
        if sasl is not None and not self.is_current(sasl.image()):
            raise SaslAuthenticationFailed("the session has ended; log in again")

    # --- SASL ------------------------------------------------------------------------------------

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that the listener offers."""
        return self._listener.mechanisms

    async def begin(self, mechanism: str) -> None:
        """Begin an exchange. Raises IllegalSaslState and UnsupportedSaslMechanism, after which the
        connection of a listener with SASL ends."""
        sasl = self._listener.sasl
        if sasl is None:
            raise IllegalSaslState("SaslHandshake: this listener does not use SASL")
        if (failures := self._listener.failures) is not None:
            await failures.before_attempt(self._client.identity.host)
        try:
            if self._exchange is not None:
                raise _illegal("SaslHandshake")
            if self._user is not None and mechanism != self._mechanism:
                raise IllegalSaslState(
                    f"the client was authenticated with {self._mechanism}, and cannot continue"
                    f" with {mechanism[:MECHANISM_CHARS_MAX]!r}"
                )
            self._check_interval()
            self._exchange = sasl.begin(
                mechanism, self._listener.mechanisms, host=self._client.identity.host
            )
        except (IllegalSaslState, UnsupportedSaslMechanism) as error:
            self._changed(error)
            raise
        self._mechanism = mechanism

    def _check_interval(self) -> None:
        """Raise IllegalSaslState for an authentication too soon after the one before it; the first
        one after the login may follow at once, as in Apache Kafka."""
        if self._user is None:
            return
        now_ms, last_ms = self._now_ms(), self._reauthenticated_ms
        if last_ms is not None and now_ms - last_ms < REAUTHENTICATION_INTERVAL_MS:
            raise IllegalSaslState(
                f"the client authenticated again {now_ms - last_ms} ms ago; wait"
                f" {REAUTHENTICATION_INTERVAL_MS} ms between two authentications"
            )
        self._reauthenticated_ms = now_ms

    async def step(self, message: bytes) -> tuple[bytes, int]:
        """Take the next message of the exchange. Return the server's, and the duration of the
        session in ms, 0 without a limit or before the end. Raises SaslAuthenticationFailed and
        IllegalSaslState, after which the connection of a listener with SASL ends."""
        if self._listener.sasl is None:
            raise IllegalSaslState("SaslAuthenticate: this listener does not use SASL")
        try:
            if self._exchange is None:
                raise _illegal("SaslAuthenticate")
            if len(message) > MESSAGE_BYTES_MAX:
                raise SaslAuthenticationFailed(
                    f"the message has {len(message)} bytes; at most {MESSAGE_BYTES_MAX} are read"
                )
            step = await self._exchange.step(message)
            if step.failure is not None:
                await self._fail(step.failure)
            return step.message, self._finish(step)
        except IllegalSaslState as error:
            self._changed(error)
            raise
        except SaslAuthenticationFailed as error:
            claimed = "" if self._exchange is None else self._exchange.claimed_user
            self._exchange = None
            await self._fail(error, claimed)
            self._changed(error)
            raise

    async def _fail(self, error: SaslAuthenticationFailed, claimed_user: str = "") -> None:
        """Report a failed authentication, and delay its response, once."""
        if error is self._failure:
            return
        self._failure = error
        self._report(error, claimed_user)
        if (failures := self._listener.failures) is not None:
            await failures.after_failure(self._client.identity.host)

    def _finish(self, step: "SaslStep") -> int:
        """Apply the end of an exchange; return the duration of the session in ms."""
        user = step.user
        if user is None:
            return 0
        sasl = self._listener.sasl
        if sasl is None or not user.is_current(sasl.image()):
            raise SaslAuthenticationFailed("the password has changed since the login began")
        if self._user is not None and user.user != self._user.user:
            raise SaslAuthenticationFailed(
                f"the client was authenticated as {self._user.user!r}, and cannot change its user"
            )
        left = [self._listener.session_ms_max] if self._listener.session_ms_max else []
        if user.expires_ms is not None:
            left.append(user.expires_ms - self._now_ms())
        session_ms = max(1, min(left)) if left else 0
        self._exchange, self._user, self.apis = None, user, self._apis
        host = self._client.identity.host
        self._client.identity = ClientIdentity(f"User:{user.user}", host)
        self._report(None)
        self.close()
        if session_ms:
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(session_ms / 1_000, self._expire)
        self._changed(None)
        return session_ms

    def _report(self, error: SaslAuthenticationFailed | None, claimed_user: str = "") -> None:
        """Log the end of an authentication."""
        client, audit = self._client, self._listener.audit
        if error is not None and self._may_log():
            _LOG.warning(
                "security.not_authenticated peer=%s listener=%s mechanism=%s user=%a error=%s",
                client.peer,
                client.listener,
                self._mechanism,
                claimed_user[:NAME_MAX],
                error.message,
            )
        if audit is None:
            return
        if error is None:
            audit.authenticated(
                client.identity, listener=client.listener, mechanism=self._mechanism
            )
        else:
            audit.refused(
                client.identity,
                listener=client.listener,
                mechanism=self._mechanism,
                reason=error.message,
                claimed_user=claimed_user,
            )

    def _expire(self) -> None:
        """Accept only requests of authentication from now on."""
        self._expiry = None
        self.apis = self._open_apis
        self._changed(None)


def _illegal(name: str) -> IllegalSaslState:
    return IllegalSaslState(f"{name}: not in this state; send SaslHandshake, then SaslAuthenticate")
