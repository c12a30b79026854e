"""Credentials of a client: a password, or a token of an issuer, with TLS.

A password never leaves the process: each channel runs a SCRAM exchange with its broker, and gets a
session token for its calls, which it renews before it expires.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidConfig, SaslAuthenticationFailed
from ..proto import auth_pb2 as pb
from ..runtime import PLAIN_CHANNEL, Channel, ChannelLogin, ChannelSecurity
from ..runtime.tls import TlsFiles, secret_of
from ..services import AUTH_AUTHENTICATE

if TYPE_CHECKING:
    from ..runtime.grpc_network import SyncChannel, SyncLogin

LOGIN_TIMEOUT_MS: Final = 30_000
RENEWED: Final = 0.8  # of a session's time
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True, kw_only=True)
class TLS:
    """Encryption of a client's connections. The broker's certificate must have the name or the
    address by which the client connects."""

    ca: str = ""  # PEM file with the brokers' authorities; "": those of the system
    certificate: str = ""  # PEM file with the client's certificate, for mutual TLS
    key: str = ""  # PEM file with its key
    key_password: str = ""  # file:PATH or env:NAME

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise InvalidConfig("tls: certificate and key are given together")

    def files(self) -> TlsFiles:
        """Return the files of a channel."""
        return TlsFiles(
            certificate=self.certificate, key=self.key, key_password=self.key_password, ca=self.ca
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SCRAM:
    """A user and the password. `password` is used as it is unless it begins with "file:" or "env:":
    then it is the place of the password, which is read at each login."""

    user: str
    password: str
    mechanism: str = "SCRAM-SHA-256"

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise InvalidConfig(f"mechanism: {self.mechanism!r}; give {' or '.join(MECHANISMS)}")
        if not self.user or not self.password:
            raise InvalidConfig("credentials: the user or the password is empty")

    def __repr__(self) -> str:
        return f"SCRAM(user={self.user!r}, password hidden, mechanism={self.mechanism!r})"

    def secret(self) -> str:
        """Return the password."""
        if self.password.startswith(("file:", "env:")):
            return secret_of(self.password)
        return self.password


@dataclass(frozen=True, slots=True)
class Token:
    """A JSON Web Token of an issuer: the token, file:PATH or env:NAME, or a function that returns
    the newest one. It is asked for at each call, so that it may be renewed."""

    source: str | Callable[[], str]

    def __repr__(self) -> str:
        return "Token(hidden)"

    def value(self) -> str:
        """Return the token."""
        if callable(self.source):
            return self.source()
        if self.source.startswith(("file:", "env:")):
            return secret_of(self.source)
        return self.source


def channel_security(tls: TLS | None, credentials: SCRAM | Token | None) -> ChannelSecurity:
    """Return the security of a client's channels. Raises InvalidConfig for a token without TLS."""
    if isinstance(credentials, Token) and tls is None:
        raise InvalidConfig("credentials: a token is sent over TLS only; give tls")
    if tls is None and credentials is None:
        return PLAIN_CHANNEL
    files = None if tls is None else tls.files()
    if credentials is None:
        return ChannelSecurity(tls=files)
    if isinstance(credentials, Token):
        return ChannelSecurity(tls=files, login=lambda: _TokenLogin(credentials))
    return ChannelSecurity(tls=files, login=lambda: _ScramLogin(credentials))


def sync_login(credentials: SCRAM | Token | None) -> "SyncLogin | None":
    """Return the login of one blocking channel."""
    if credentials is None:
        return None
    if isinstance(credentials, Token):
        return _SyncTokenLogin(credentials)
    return _SyncScramLogin(credentials)


# --- tokens of an issuer -------------------------------------------------------------------------


class _BearerToken:
    """The header of calls with a token of an issuer."""

    def __init__(self, token: Token) -> None:
        self._token = token

    def header(self) -> str:
        """Return the header with the newest token."""
        return f"Bearer {self._token.value()}"

    def refused(self, authorization: str) -> bool:
        """Return True if there is a newer token than the refused one."""
        return authorization != self.header()


class _TokenLogin(_BearerToken, ChannelLogin):
    async def authorization(self, path: str, channel: Channel) -> str:
        return self.header()


class _SyncTokenLogin(_BearerToken):
    def authorization(
        self, path: str, channel: "SyncChannel", *, now_s: float, timeout_ms: int
    ) -> str:
        return self.header()


# --- passwords -----------------------------------------------------------------------------------


class _ScramExchange:
    """The messages of one login. Raises SaslAuthenticationFailed for a broker that has no key of
    the password."""

    def __init__(self, credentials: SCRAM) -> None:
        import scramp  # needed with a password only

        self._mechanism = credentials.mechanism
        self._invalid: Final = (scramp.ScramException, UnicodeDecodeError)
        try:
            self._client: Any = scramp.ScramClient(
                [credentials.mechanism], credentials.user, credentials.secret()
            )
        except scramp.ScramException:
            raise InvalidConfig(
                "user or password: it has characters that SASLprep prohibits (RFC 4013), such as"
                " control characters"
            ) from None

    def first(self) -> pb.AuthenticateRequest:
        """Return the first message."""
        message = self._client.get_client_first().encode()
        return pb.AuthenticateRequest(mechanism=self._mechanism, message=message)

    def final(self, answer: pb.AuthenticateResponse | None) -> pb.AuthenticateRequest:
        """Return the last message, for the broker's first answer; None: the stream ended."""
        self._accept(answer, self._client.set_server_first)
        return pb.AuthenticateRequest(message=self._client.get_client_final().encode())

    def session(self, answer: pb.AuthenticateResponse | None) -> pb.AuthenticateResponse:
        """Return the broker's last answer, which has the session token, once it is verified."""
        return self._accept(answer, self._client.set_server_final)

    def _accept(
        self, answer: pb.AuthenticateResponse | None, set_message: Callable[[str], None]
    ) -> pb.AuthenticateResponse:
        if answer is None:
            raise SaslAuthenticationFailed("the broker ended the login")
        try:
            set_message(answer.message.decode())
        except self._invalid as error:
            raise SaslAuthenticationFailed(
                f"{self._mechanism}: the broker's messages are not valid: it does not know"
                " the password"
            ) from error
        return answer


class _ScramSession:
    """The session of one channel with its broker. Times are seconds of a monotonic clock."""

    def __init__(self, credentials: SCRAM) -> None:
        self._credentials = credentials
        self._authorization = ""
        self._renewed_s = 0.0  # after which it is renewed

    def refused(self, authorization: str) -> bool:
        """Drop a refused session; return True if a new login may help."""
        if authorization == self._authorization:
            self._authorization = ""
        return bool(authorization)

    def _is_valid(self, now_s: float) -> bool:
        return bool(self._authorization) and now_s < self._renewed_s

    def _begin(self, answer: pb.AuthenticateResponse, began_s: float) -> None:
        self._authorization = f"Bearer {answer.token}"
        self._renewed_s = began_s + answer.expires_ms / 1_000 * RENEWED


class _ScramLogin(_ScramSession, ChannelLogin):
    def __init__(self, credentials: SCRAM) -> None:
        super().__init__(credentials)
        self._lock = asyncio.Lock()

    async def authorization(self, path: str, channel: Channel) -> str:
        if path == AUTH_AUTHENTICATE.path:
            return ""
        now_s = asyncio.get_running_loop().time
        if not self._is_valid(now_s()):
            async with self._lock:  # one login for all calls that wait
                if not self._is_valid(now_s()):
                    began_s = now_s()
                    self._begin(await self._log_in(channel), began_s)
        return self._authorization

    async def _log_in(self, channel: Channel) -> pb.AuthenticateResponse:
        exchange = _ScramExchange(self._credentials)
        stream = await channel.stream(AUTH_AUTHENTICATE, timeout_ms=LOGIN_TIMEOUT_MS)
        try:
            await stream.send(exchange.first())
            await stream.send(exchange.final(await stream.receive()))
            return exchange.session(await stream.receive())
        finally:
            stream.abort("the login has ended")


class _SyncScramLogin(_ScramSession):
    def authorization(
        self, path: str, channel: "SyncChannel", *, now_s: float, timeout_ms: int
    ) -> str:
        if path == AUTH_AUTHENTICATE.path:
            return ""
        if not self._is_valid(now_s):
            self._begin(self._log_in(channel, timeout_ms), now_s)
        return self._authorization

    def _log_in(self, channel: "SyncChannel", timeout_ms: int) -> pb.AuthenticateResponse:
        exchange = _ScramExchange(self._credentials)
        requests: SimpleQueue[pb.AuthenticateRequest | None] = SimpleQueue()
        limit_ms = min(timeout_ms, LOGIN_TIMEOUT_MS) if timeout_ms else LOGIN_TIMEOUT_MS
        sent = iter(requests.get, None)
        stream = channel.stream(AUTH_AUTHENTICATE, sent, timeout_ms=limit_ms)
        try:
            requests.put(exchange.first())
            requests.put(exchange.final(next(stream, None)))
            return exchange.session(next(stream, None))
        finally:
            requests.put(None)  # ends the thread of grpc that sends
            stream.close()
