"""Sessions of gRPC clients that have authenticated with a password.

A session token is signed with a key that exists only in this process: it is valid at the broker
that issued it, and no longer than the process. A client logs in to each broker that it calls.
"""

import hmac
from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from hashlib import sha256
from typing import Final

import msgspec

from ...errors import SaslAuthenticationFailed
from ...metadata import MetadataImage
from ...metadata.scram_credentials import ScramCredential, ScramMechanism
from .sasl import AuthenticatedUser

PREFIX: Final = "ql1."
"""The beginning of every session token, which no JSON Web Token has."""

SESSION_MS: Final = 3_600_000
TOKEN_BYTES_MAX: Final = 2_048
_MAC_BYTES: Final = 32
_PRINT_BYTES: Final = 16


class _Claims(msgspec.Struct, array_like=True, frozen=True):
    user: str
    mechanism: int
    credential: bytes  # digest of the credential that decided
    expires_ms: int  # on the process's monotonic clock


class SessionTokens:
    """The session tokens of one process."""

    def __init__(
        self,
        key: bytes,
        now_ms: Callable[[], int],
        image: Callable[[], MetadataImage],
        *,
        session_ms: int = SESSION_MS,
    ) -> None:
        """`image` returns the newest applied image."""
        self._key = key
        self._now_ms = now_ms
        self._image = image
        self._session_ms = session_ms

    def issue(self, user: AuthenticatedUser) -> tuple[str, int]:
        """Return a token for a user with a password, and the time until it expires in ms."""
        assert user.key is not None, f"{user.user} has a password"
        assert user.credential is not None, f"{user.user} has a password"
        claims = _Claims(
            user.user,
            int(user.key[1]),
            _digest(user.credential),
            self._now_ms() + self._session_ms,
        )
        payload = msgspec.msgpack.encode(claims)
        token = urlsafe_b64encode(self._mac(payload) + payload).rstrip(b"=").decode()
        return PREFIX + token, self._session_ms

    def verify(self, token: str) -> AuthenticatedUser:
        """Return the user of a token. Raises SaslAuthenticationFailed for another process's token,
        an expired one, and after a change of the password."""
        if len(token) > TOKEN_BYTES_MAX:
            raise _refused("it is malformed")
        encoded = token.removeprefix(PREFIX)
        try:
            padded = encoded + "=" * (-len(encoded) % 4)
            raw = b64decode(padded, altchars=b"-_", validate=True)
        except (Base64Error, ValueError) as error:
            raise _refused("it is malformed") from error
        mac, payload = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(payload)):
            raise _refused("this broker process has not issued it")
        claims = msgspec.msgpack.decode(payload, type=_Claims)
        if self._now_ms() >= claims.expires_ms:
            raise _refused("it has expired")
        key = (claims.user, ScramMechanism(claims.mechanism))
        credential = self._image().scram_credentials.get(key)
        if credential is None or not hmac.compare_digest(_digest(credential), claims.credential):
            raise _refused("the password has changed")
        return AuthenticatedUser(claims.user, key, credential, claims.expires_ms)

    def _mac(self, payload: bytes) -> bytes:
        return hmac.digest(self._key, payload, "sha256")


def _digest(credential: ScramCredential) -> bytes:
    return sha256(credential.salt + credential.stored_key).digest()[:_PRINT_BYTES]


def _refused(why: str) -> SaslAuthenticationFailed:
    return SaslAuthenticationFailed(f"the session token is not accepted: {why}; log in again")
