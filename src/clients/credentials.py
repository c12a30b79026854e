"""Credentials of a client: a password, or a token of an issuer, with TLS.

A password never leaves the process: each channel runs a SCRAM exchange with its broker, and gets a
session token for its calls, which it renews before it expires.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from ..errors import InvalidConfig, SaslAuthenticationFailed
from ..proto import auth_pb2 as pb
from ..runtime import PLAIN_CHANNEL, Channel, ChannelLogin, ChannelSecurity
from ..runtime.tls import TlsFiles, secret_of
from ..services import AUTH_AUTHENTICATE

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
    files = None
    if tls is not None:
        files = TlsFiles(
            certificate=tls.certificate, key=tls.key, key_password=tls.key_password, ca=tls.ca
        )
    if credentials is None:
        return ChannelSecurity(tls=files)
    if isinstance(credentials, Token):
        return ChannelSecurity(tls=files, login=lambda: _TokenLogin(credentials))
    return ChannelSecurity(tls=files, login=lambda: _ScramLogin(credentials))


class _TokenLogin(ChannelLogin):
    """The calls of one channel with a token of an issuer."""

    def __init__(self, token: Token) -> None:
        self._token = token

    async def authorization(self, path: str, channel: Channel) -> str:
        return f"Bearer {self._token.value()}"

    def refused(self, authorization: str) -> bool:
        return callable(self._token.source) and authorization != f"Bearer {self._token.value()}"


class _ScramLogin(ChannelLogin):
    """The calls of one channel in a session with its broker."""

    def __init__(self, credentials: SCRAM) -> None:
        self._credentials = credentials
        self._authorization = ""
        self._renewed_s = 0.0  # of the loop's clock, after which it is renewed
        self._lock = asyncio.Lock()

    async def authorization(self, path: str, channel: Channel) -> str:
        if path == AUTH_AUTHENTICATE.path:
            return ""
        if not self._is_valid():
            async with self._lock:  # one login for all calls that wait
                if not self._is_valid():
                    await self._log_in(channel)
        return self._authorization

    def refused(self, authorization: str) -> bool:
        if authorization == self._authorization:
            self._authorization = ""
        return bool(authorization)

    def _is_valid(self) -> bool:
        return bool(self._authorization) and asyncio.get_running_loop().time() < self._renewed_s

    async def _log_in(self, channel: Channel) -> None:
        import scramp  # needed with a password only

        credentials = self._credentials
        client = scramp.ScramClient([credentials.mechanism], credentials.user, credentials.secret())
        began_s = asyncio.get_running_loop().time()
        stream = await channel.stream(AUTH_AUTHENTICATE, timeout_ms=LOGIN_TIMEOUT_MS)
        try:
            first = pb.AuthenticateRequest(
                mechanism=credentials.mechanism, message=client.get_client_first().encode()
            )
            await stream.send(first)
            answer = await _answer(stream.receive())
            client.set_server_first(answer.message.decode())
            await stream.send(pb.AuthenticateRequest(message=client.get_client_final().encode()))
            answer = await _answer(stream.receive())
            client.set_server_final(answer.message.decode())
        except (scramp.ScramException, UnicodeDecodeError) as error:
            raise SaslAuthenticationFailed(
                f"{credentials.mechanism}: the broker's messages are not valid: it does not know"
                " the password"
            ) from error
        finally:
            stream.abort("the login has ended")
        self._authorization = f"Bearer {answer.token}"
        self._renewed_s = began_s + answer.expires_ms / 1_000 * RENEWED


async def _answer(receiving: Awaitable[pb.AuthenticateResponse | None]) -> pb.AuthenticateResponse:
    answer = await receiving
    if answer is None:
        raise SaslAuthenticationFailed("the broker ended the login")
    return answer
