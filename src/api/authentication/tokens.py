"""JSON Web Tokens (RFC 7519): their check against the keys of an issuer (KIP-768, KIP-1139).

Only signatures with a private key are accepted, so that the public keys cannot be used to sign. The
keys come from a file or an HTTPS endpoint, and are fetched in the read lane: at the first token,
when they are old, and when a token names an unknown key, at most every `REFETCH_MS`. While a fetch
fails the last good keys remain valid.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ...errors import SaslAuthenticationFailed
from ...runtime import Clock, Tasks
from .config import SecurityConfig

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""The accepted algorithms, all with a public key."""

TOKEN_BYTES_MAX: Final = 31 << 10
KEYS_MAX: Final = 1_000  # of one set
KEY_SET_BYTES_MAX: Final = 1 << 20
REFETCH_MS: Final = 5_000  # between two fetches for unknown or missing keys
USER_MAX: Final = 255  # characters
TIME_S_MAX: Final = 1 << 50
LIFETIME_S_MAX: Final = 366 * 24 * 3_600  # a later expiry counts as this one

_LOG: Final = logging.getLogger("quorumlog.security")


class VerifiedToken(NamedTuple):
    """A valid token."""

    user: str
    expires_ms: int  # on Clock.now_ms()


@dataclass(slots=True)
class TokenVerifier:
    """The check of tokens of one issuer."""

    clock: Clock
    tasks: Tasks
    config: SecurityConfig
    fetch: Callable[[], bytes]  # reads the key set, in a lane; raises OSError
    _keys: Mapping[str, Any] = field(default_factory=dict)  # by key id
    _fetched_ms: int | None = None  # the last attempt
    _good_ms: int | None = None  # the last success
    _fetching: "asyncio.Task[None] | None" = None

    async def verify(self, token: str) -> VerifiedToken:
        """Check a token's signature, issuer, audience and times. Raises SaslAuthenticationFailed
        with the claim that is wrong, never with the token."""
        import jwt  # needed at the first token

        if len(token) > TOKEN_BYTES_MAX:
            raise _refused(f"it has {len(token)} characters; at most {TOKEN_BYTES_MAX} are read")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise _refused("it is malformed") from error
        algorithm, key_id = header.get("alg"), header.get("kid", "")
        if algorithm not in ALGORITHMS:
            raise _refused(f"its algorithm {_quoted(algorithm)} is not accepted")
        key = await self._key(key_id)
        if key is None:
            raise _refused(f"its key {_quoted(key_id)} is unknown")
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=self.config.token_issuer,
                audience=list(self.config.token_audience),
                # times are checked below, on the node's clock
                options={
                    "require": ["exp", "iss", "aud"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except jwt.InvalidIssuerError as error:
            raise _refused("its issuer is not the expected one") from error
        except jwt.InvalidAudienceError as error:
            raise _refused("its audience is not an expected one") from error
        except jwt.MissingRequiredClaimError as error:
            raise _refused(f"the claim {error.claim} is missing") from error
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise _refused("its signature or a claim is not valid") from error
        left_ms = self._check_times(claims)
        return VerifiedToken(self._user_of(claims), self.clock.now_ms() + left_ms)

    def _user_of(self, claims: Mapping[str, Any]) -> str:
        name = self.config.token_user_claim
        user = claims.get(name)
        if not isinstance(user, str) or not 0 < len(user) <= USER_MAX or not user.isprintable():
            raise _refused(f"the claim {name} is not a name of 1..{USER_MAX} printable characters")
        return user

    def _check_times(self, claims: Mapping[str, Any]) -> int:
        """Return the time until the token expires, in ms."""
        wall_s, skew_s = self.clock.wall_ms() / 1_000, self.config.token_skew_s
        expires, begins = claims["exp"], claims.get("nbf", 0)
        if not (_is_time(expires) and _is_time(begins)):
            raise _refused("the claim exp or nbf is not a number of seconds")
        if not wall_s < expires + skew_s:
            raise _refused("it has expired")
        if begins > wall_s + skew_s:
            raise _refused("it is not valid yet")
        return int(min(expires + skew_s - wall_s, LIFETIME_S_MAX) * 1_000)

    # --- keys ------------------------------------------------------------------------------------

    async def _key(self, key_id: object) -> Any:
        """Return the key of an id, after a fetch if it is unknown or the keys are old."""
        if not isinstance(key_id, str):
            return None
        now_ms = self.clock.now_ms()
        if self._good_ms is None:
            await self._fetch(now_ms)
        elif now_ms - self._good_ms >= self.config.jwks_refresh_ms or key_id not in self._keys:
            if key_id in self._keys:
                self._start(now_ms)  # until its end the known key is valid
            else:
                await self._fetch(now_ms)
        return self._keys.get(key_id)

    async def _fetch(self, now_ms: int) -> None:
        """Fetch the keys once for all tokens that wait for them."""
        self._start(now_ms)
        if self._fetching is not None:
            await asyncio.shield(self._fetching)

    def _start(self, now_ms: int) -> None:
        if self._fetching is not None:
            return
        if self._fetched_ms is not None and now_ms - self._fetched_ms < REFETCH_MS:
            return
        self._fetched_ms = now_ms
        self._fetching = asyncio.get_running_loop().create_task(self._replace_keys())

    async def _replace_keys(self) -> None:
        try:
            self._keys = await self.tasks.offload("read", lambda: parse_keys(self.fetch()))
            self._good_ms = self.clock.now_ms()
        except Exception as error:
            _LOG.warning(
                "security.keys_not_fetched url=%s keys=%d error=%s",
                self.config.jwks_url,
                len(self._keys),
                error,
            )
        finally:
            self._fetching = None


def parse_keys(content: bytes) -> dict[str, Any]:
    """Return the signature keys of a JSON Web Key Set (RFC 7517) by their ids; a single key without
    an id has the id "". Raises ValueError for another content."""
    import jwt

    try:
        document = json.loads(content)
    except RecursionError as error:
        raise ValueError("the JSON Web Key Set is nested too deeply") from error
    rows = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not 0 < len(rows) <= KEYS_MAX:
        raise ValueError(f"not a JSON Web Key Set with 1..{KEYS_MAX} keys")
    keys: dict[str, Any] = {}
    for row in rows:
        if not isinstance(row, dict) or row.get("use", "sig") != "sig" or row.get("kty") == "oct":
            continue
        try:
            key_id = row.get("kid", "")
            if isinstance(key_id, str):
                keys[key_id] = jwt.PyJWK(row)
        except jwt.PyJWTError:
            continue  # of a kind that is not supported; others may be
    if not keys:
        raise ValueError("the JSON Web Key Set has no key for signatures")
    return keys


def _is_time(value: object) -> bool:
    """Return True for seconds since 1970 that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= TIME_S_MAX


def _refused(why: str) -> SaslAuthenticationFailed:
    return SaslAuthenticationFailed(f"the token is not accepted: {why}")


def _quoted(value: object) -> str:
    """Quote a value of a token for a message, shortened."""
    return repr(value)[:64]
