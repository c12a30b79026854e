"""SASL on the server's side (RFC 4422): the exchanges of SCRAM, PLAIN and OAUTHBEARER.

An exchange takes the client's messages one after another and returns the server's. Its end is an
`AuthenticatedUser`; every failure is SaslAuthenticationFailed, with the same text for an unknown
user and a wrong password.
"""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from ...errors import (
    Overloaded,
    SaslAuthenticationFailed,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from ...metadata import MetadataImage
from ...metadata.scram_credentials import (
    USER_NAME_MAX,
    ScramCredential,
    ScramCredentials,
    ScramKey,
    ScramMechanism,
    credential_of_password,
)
from ...runtime import Entropy, Tasks
from ...runtime.client_bounds import address_block
from ...scram_keys import ITERATIONS_DEFAULT, SALT_BYTES
from .tokens import TokenVerifier

SCRAM_MESSAGE_MAX: Final = 2_000  # bytes: the preparation of a name takes quadratic time
NONCE_BYTES: Final = 24
MECHANISM_MAX: Final = 64  # characters of an unknown one in errors and logs
LOGINS_WAITING_MAX: Final = 1_000  # with PLAIN, of a user at an address; users of an address
_SCRAM: Final = {each.sasl_name: each for each in ScramMechanism}


class AuthenticatedUser(NamedTuple):
    """The end of an exchange."""

    user: str  # the name, without "User:"
    key: ScramKey | None = None  # of the SCRAM credential that decided
    credential: ScramCredential | None = None
    expires_ms: int | None = None  # Clock.now_ms() at which it ends; None: never

    def is_current(self, image: MetadataImage) -> bool:
        """Return False if the credential has changed or is gone."""
        return self.key is None or image.scram_credentials.get(self.key) == self.credential


class SaslStep(NamedTuple):
    """The server's next message, and the user if the exchange has ended."""

    message: bytes
    user: AuthenticatedUser | None = None
    # The login has failed, and the next step raises this error: the message informs the client.
    failure: SaslAuthenticationFailed | None = None


class SaslExchange(Protocol):
    """The exchange of one mechanism. After an error it is not used again."""

    claimed_user: str  # the name that the client has sent, not verified; "": none

    async def step(self, message: bytes) -> SaslStep:
        """Take the client's next message. Raises SaslAuthenticationFailed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslServer:
    """The mechanisms of one node."""

    tasks: Tasks
    nonces: Entropy
    secret: bytes  # for the salts of unknown users
    image: Callable[[], MetadataImage]  # the newest applied image
    tokens: TokenVerifier | None  # None: OAUTHBEARER is not enabled
    _shapes: "_CredentialShapes" = field(default_factory=lambda: _CredentialShapes(), init=False)
    _turns: "_Turns" = field(default_factory=lambda: _Turns(), init=False)

    def begin(self, mechanism: str, offered: tuple[str, ...], *, host: str) -> SaslExchange:
        """Begin an exchange. `offered` has the mechanisms of the listener, `host` is the client's
        address. Raises UnsupportedSaslMechanism."""
        if mechanism not in offered:
            raise UnsupportedSaslMechanism(
                f"SASL mechanism {mechanism[:MECHANISM_MAX]!r} is not offered here; use one of"
                f" {', '.join(offered)}"
            )
        if mechanism == "PLAIN":
            return _Plain(self, host)
        if mechanism == "OAUTHBEARER":
            assert self.tokens is not None, "OAUTHBEARER is enabled"
            return _OAuthBearer(self.tokens)
        return _Scram(self, _SCRAM[mechanism])

    async def digest(
        self, key: ScramKey, password: str, shape: ScramCredential, *, host: str
    ) -> ScramCredential:
        """Return the credential that a password makes, with the salt and iterations of another one.
        Raises UnacceptableCredential and Overloaded.

        The users of an address take turns, and so do the addresses: many logins of one of them
        delay those of another by one at a time.
        """
        is_wanted = True

        def job() -> ScramCredential | None:
            if not is_wanted:
                return None
            return credential_of_password(
                key[1], password, salt=shape.salt, iterations=shape.iterations
            )

        block = address_block(host)
        async with self._turns.turn(block, key[0]), self._turns.turn(block):
            try:
                made = await self.tasks.offload("login", job)
            finally:
                is_wanted = False  # a job in the lane is not cancelled with its caller
        assert made is not None, "the caller waits for it"
        return made

    def credential(self, key: ScramKey) -> tuple[ScramCredential, bool]:
        """Return a user's credential and True; for an unknown user one that no password fits, and
        False. The same user always gets the same salt, as a known one does, with a length and a
        number of iterations that known ones have."""
        found = self.image().scram_credentials.get(key)
        if found is not None:
            return found, True
        user, mechanism = key
        seed = hmac.digest(self.secret, f"{mechanism.name}:{user}".encode(), "sha512")
        shapes = self._shapes.of(self.image().scram_credentials, mechanism)
        iterations, salt_size = shapes[int.from_bytes(seed[:8], "big") % len(shapes)]
        size = hashlib.new(mechanism.hash_name).digest_size
        keys = self.nonces.token(2 * size)
        return (
            ScramCredential(
                salt=hashlib.shake_256(seed).digest(salt_size),
                iterations=iterations,
                stored_key=keys[:size],
                server_key=keys[size:],
            ),
            False,
        )


class _Turns:
    """Turns by key: one holder of a key at a time, in the order of arrival."""

    def __init__(self) -> None:
        # by key, with the number of its holder and of those that wait
        self._queues: dict[tuple[str, ...], tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def turn(self, *key: str) -> AsyncIterator[None]:
        """Wait for the turn of a key, and hold it. Raises Overloaded."""
        lock, count = self._queues.get(key) or (asyncio.Lock(), 0)
        if count >= LOGINS_WAITING_MAX:
            raise Overloaded(f"{count} logins are waiting; the limit is {LOGINS_WAITING_MAX}")
        self._queues[key] = lock, count + 1
        try:
            async with lock:
                yield
        finally:
            count = self._queues[key][1] - 1
            if count:
                self._queues[key] = lock, count
            else:
                del self._queues[key]


CredentialShape: TypeAlias = tuple[int, int]
"""Iterations, and the length of the salt in bytes."""


class _CredentialShapes:
    """The shapes of the known credentials, computed once for each version of them."""

    def __init__(self) -> None:
        self._credentials: ScramCredentials | None = None
        self._found: Mapping[ScramMechanism, Sequence[CredentialShape]] = {}

    def of(
        self, credentials: ScramCredentials, mechanism: ScramMechanism
    ) -> Sequence[CredentialShape]:
        """Return the different shapes of a mechanism in ascending order; the shape of new
        credentials if there are none."""
        if credentials is not self._credentials:
            found: dict[ScramMechanism, set[CredentialShape]] = {}
            for (_, each), known in credentials.items():
                found.setdefault(each, set()).add((known.iterations, len(known.salt)))
            self._found = {each: sorted(shapes) for each, shapes in found.items()}
            self._credentials = credentials
        return self._found.get(mechanism, ((ITERATIONS_DEFAULT, SALT_BYTES),))


def _failed(mechanism: str) -> SaslAuthenticationFailed:
    """Return the error of a wrong user, password or proof."""
    return SaslAuthenticationFailed(f"{mechanism}: the user or the password is wrong")


class _Scram:
    """SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677), without channel binding."""

    def __init__(self, server: SaslServer, mechanism: ScramMechanism) -> None:
        import scramp  # needed at the first login

        self._server = server
        self._mechanism = mechanism
        self._failure: type[Exception] = scramp.ScramException
        self._key: ScramKey | None = None
        self._credential: ScramCredential | None = None
        self._is_known = False
        nonce = server.nonces.token(NONCE_BYTES).hex()
        self._exchange: Any = scramp.ScramMechanism(mechanism.sasl_name).make_server(
            self._find, s_nonce=nonce
        )
        self._answers_first = True
        self.claimed_user = ""

    async def step(self, message: bytes) -> SaslStep:
        name = self._mechanism.sasl_name
        if len(message) > SCRAM_MESSAGE_MAX:
            raise SaslAuthenticationFailed(
                f"{name}: the message has {len(message)} bytes; the limit is {SCRAM_MESSAGE_MAX}"
            )
        try:
            text = message.decode()
            if self._answers_first:
                self._answers_first = False
                self._exchange.set_client_first(text)
                return SaslStep(self._exchange.get_server_first().encode())
            self._exchange.set_client_final(text)
            final = self._exchange.get_server_final().encode()
        except (self._failure, UnicodeDecodeError) as error:
            raise _failed(name) from error
        if not self._is_known or self._key is None:
            raise _failed(name)
        user = AuthenticatedUser(self._key[0], self._key, self._credential)
        return SaslStep(final, user)

    def _find(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        self.claimed_user = user
        self._key = (user, self._mechanism)
        found, self._is_known = self._server.credential(self._key)
        self._credential = found
        return found.salt, found.stored_key, found.server_key, found.iterations


class _Plain:
    """PLAIN (RFC 4616), checked against the user's SCRAM credential."""

    def __init__(self, server: SaslServer, host: str) -> None:
        self._server = server
        self._host = host
        self.claimed_user = ""

    async def step(self, message: bytes) -> SaslStep:
        try:
            authorized, user, password = message.decode().split("\0")
        except (UnicodeDecodeError, ValueError) as error:
            raise SaslAuthenticationFailed(
                "PLAIN: the message is not an empty text, the user and the password, separated by"
                " NUL"
            ) from error
        self.claimed_user = user
        if authorized not in ("", user) or not 1 <= len(user) <= USER_NAME_MAX:
            raise _failed("PLAIN")
        known = self._server.image().scram_credentials
        mechanism = next((each for each in ScramMechanism if (user, each) in known), None)
        key = (user, mechanism or ScramMechanism.SCRAM_SHA_256)
        credential, is_known = self._server.credential(key)
        try:
            offered = await self._server.digest(key, password, credential, host=self._host)
        except UnacceptableCredential as error:
            raise _failed("PLAIN") from error
        except Overloaded as error:
            raise SaslAuthenticationFailed("PLAIN: too many logins at once; retry") from error
        if not hmac.compare_digest(offered.stored_key, credential.stored_key) or not is_known:
            raise _failed("PLAIN")
        return SaslStep(b"", AuthenticatedUser(user, key, credential))


class _OAuthBearer:
    """OAUTHBEARER (RFC 7628)."""

    claimed_user = ""  # a token's is not read before its signature is verified

    def __init__(self, tokens: TokenVerifier) -> None:
        self._tokens = tokens
        self._failure: SaslAuthenticationFailed | None = None

    async def step(self, message: bytes) -> SaslStep:
        if self._failure is not None:  # the client has read the error
            raise self._failure
        token = _bearer_token(message)
        try:
            verified = await self._tokens.verify(token)
        except SaslAuthenticationFailed as error:
            self._failure = error
            return SaslStep(b'{"status":"invalid_token"}', failure=error)
        return SaslStep(b"", AuthenticatedUser(verified.user, expires_ms=verified.expires_ms))


def _bearer_token(message: bytes) -> str:
    """Return the token of the client's first message (RFC 7628 section 3.1)."""
    try:
        header, *pairs = message.decode("ascii").split("\x01")
    except UnicodeDecodeError as error:
        raise SaslAuthenticationFailed("OAUTHBEARER: the message is not ASCII") from error
    fields = dict(pair.partition("=")[::2] for pair in pairs if pair)
    scheme, _, token = fields.get("auth", "").partition(" ")
    if not header.startswith("n,") or scheme.lower() != "bearer" or not token:
        raise SaslAuthenticationFailed(
            "OAUTHBEARER: the message has no token; it begins with 'n,,' and has the field"
            " 'auth=Bearer TOKEN'"
        )
    authorized = header[2:].rstrip(",")
    if authorized:
        raise SaslAuthenticationFailed("OAUTHBEARER: an authorization id is not supported")
    return token.strip()
