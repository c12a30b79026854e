"""JSON Web Tokens: each reason of a refusal, and the keys of the issuer."""

import asyncio
import base64
import hmac
import json
from collections.abc import Callable, Coroutine
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from quorumlog import simulation
from quorumlog.api.authentication.config import SecurityConfig
from quorumlog.api.authentication.tokens import REFETCH_MS, TokenVerifier, parse_keys
from quorumlog.errors import SaslAuthenticationFailed
from quorumlog.runtime import Runtime

CONFIG: Final = SecurityConfig(
    mechanisms=("OAUTHBEARER",),
    jwks_url="file:///keys",
    jwks_refresh_ms=60_000,
    token_issuer="https://issuer.example",
    token_audience=("broker", "other"),
)
RSA_KEY: Final = rsa.generate_private_key(65_537, 2_048)
EC_KEY: Final = ec.generate_private_key(ec.SECP256R1())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _encoded(part: dict[str, Any]) -> str:
    return _base64(json.dumps(part).encode())


def jwk(key: Any, key_id: str, **fields: Any) -> dict[str, Any]:
    """Return the public key as a JSON Web Key."""
    kind = jwt.algorithms.RSAAlgorithm if key is RSA_KEY else jwt.algorithms.ECAlgorithm
    found: dict[str, Any] = json.loads(kind.to_jwk(key.public_key()))
    return {**found, "kid": key_id, **fields}


class Issuer:
    """A key set that tests change."""

    def __init__(self, runtime: Runtime) -> None:
        self.keys = [jwk(RSA_KEY, "one"), jwk(EC_KEY, "two")]
        self.is_down = False
        self.fetches = 0
        self.runtime = runtime
        self.verifier = TokenVerifier(
            clock=runtime.clock, tasks=runtime.tasks, config=CONFIG, fetch=self._fetch
        )

    def _fetch(self) -> bytes:
        self.fetches += 1
        if self.is_down:
            raise OSError("connection refused")
        return json.dumps({"keys": self.keys}).encode()

    def token(
        self,
        key: Any = RSA_KEY,
        *,
        algorithm: str = "RS256",
        headers: dict[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """Return a token of alice that is valid for a minute."""
        now_s = self.runtime.clock.wall_ms() // 1_000
        content = {
            "iss": CONFIG.token_issuer,
            "aud": "broker",
            "sub": "alice",
            "exp": now_s + 60,
            **claims,
        }
        present = {name: value for name, value in content.items() if value is not None}
        return jwt.encode(present, key, algorithm, headers or {"kid": "one"})

    async def refuses(self, token: str) -> str:
        """Return the error of a token that is refused."""
        with pytest.raises(SaslAuthenticationFailed) as raised:
            await self.verifier.verify(token)
        assert token[:20] not in raised.value.message
        return raised.value.message


def run(main: Callable[[Issuer], Coroutine[Any, Any, None]]) -> None:
    """Run with an issuer in simulated time."""

    async def with_issuer(runtime: Runtime) -> None:
        await main(Issuer(runtime))

    simulation.run(with_issuer)


def test_token_has_the_user_and_the_time_of_its_end() -> None:
    async def main(issuer: Issuer) -> None:
        found = await issuer.verifier.verify(issuer.token())
        assert found.user == "alice"
        left_ms = found.expires_ms - issuer.runtime.clock.now_ms()
        assert 88_000 <= left_ms <= 90_000  # a minute, and the skew
        by_curve = issuer.token(EC_KEY, algorithm="ES256", headers={"kid": "two"}, aud=["other"])
        assert (await issuer.verifier.verify(by_curve)).user == "alice"
        assert issuer.fetches == 1

    run(main)


def test_each_wrong_claim_is_named() -> None:
    async def main(issuer: Issuer) -> None:
        now_s = issuer.runtime.clock.wall_ms() // 1_000
        for claims, words in (
            ({"exp": now_s - 31}, "expired"),
            ({"exp": None}, "exp is missing"),
            ({"exp": "soon"}, "not a number"),
            ({"nbf": now_s + 60}, "not valid yet"),
            ({"iss": "https://other.example"}, "issuer"),
            ({"iss": None}, "iss is missing"),
            ({"aud": "elsewhere"}, "audience"),
            ({"aud": None}, "aud is missing"),
            ({"sub": None}, "sub is not a name"),
            ({"sub": ""}, "sub is not a name"),
            ({"sub": "a\nb"}, "sub is not a name"),
            ({"sub": "a" * 256}, "sub is not a name"),
        ):
            assert words in await issuer.refuses(issuer.token(**claims)), claims
        within_skew = issuer.token(exp=now_s - 29, nbf=now_s + 29)
        assert (await issuer.verifier.verify(within_skew)).user == "alice"

    run(main)


def test_signatures_that_need_no_private_key_are_refused() -> None:
    async def main(issuer: Issuer) -> None:
        claims = issuer.token().split(".")[1]
        for header in ({"alg": "none", "kid": "one"}, {"alg": "None"}, {"kid": "one"}):
            await issuer.refuses(f"{_encoded(header)}.{claims}.")
        public = RSA_KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        head = _encoded({"alg": "HS256", "kid": "one"})
        mac = hmac.digest(public, f"{head}.{claims}".encode(), "sha256")
        assert "HS256" in await issuer.refuses(f"{head}.{claims}.{_base64(mac)}")
        other = rsa.generate_private_key(65_537, 2_048)
        assert "signature" in await issuer.refuses(issuer.token(other))
        head, body, signature = issuer.token().split(".")
        forged = json.loads(base64.urlsafe_b64decode(body + "=="))
        forged["sub"] = "admin"
        assert "signature" in await issuer.refuses(f"{head}.{_encoded(forged)}.{signature}")
        issuer.keys.append({"kty": "oct", "k": "c2VjcmV0", "kid": "shared", "alg": "HS256"})
        await asyncio.sleep(REFETCH_MS / 1_000)
        shared = issuer.token(b"secret" * 8, algorithm="HS256", headers={"kid": "shared"})
        assert "HS256" in await issuer.refuses(shared)

    run(main)


def test_unknown_keys_cause_few_fetches_and_a_new_key_is_found() -> None:
    async def main(issuer: Issuer) -> None:
        new = rsa.generate_private_key(65_537, 2_048)
        await issuer.verifier.verify(issuer.token())
        for _ in range(50):
            assert "unknown" in await issuer.refuses(issuer.token(new, headers={"kid": "new"}))
        assert issuer.fetches == 1
        issuer.keys.append(
            {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(new.public_key())), "kid": "new"}
        )
        await asyncio.sleep(REFETCH_MS / 1_000)
        token = issuer.token(new, headers={"kid": "new"})
        found = await asyncio.gather(*(issuer.verifier.verify(token) for _ in range(20)))
        assert {each.user for each in found} == {"alice"}
        assert issuer.fetches == 2

    run(main)


def test_last_good_keys_are_used_while_the_endpoint_is_down_and_a_removed_key_ends() -> None:
    async def main(issuer: Issuer) -> None:
        await issuer.verifier.verify(issuer.token())
        issuer.is_down = True
        await asyncio.sleep(CONFIG.jwks_refresh_ms / 1_000)
        assert (await issuer.verifier.verify(issuer.token())).user == "alice"
        await asyncio.sleep(1)
        assert issuer.fetches == 2
        issuer.is_down, issuer.keys = False, [jwk(EC_KEY, "two")]
        await asyncio.sleep(REFETCH_MS / 1_000)
        await issuer.verifier.verify(issuer.token())  # starts the fetch
        await asyncio.sleep(1)
        assert "unknown" in await issuer.refuses(issuer.token())

    run(main)


def test_key_of_another_kind_than_the_algorithm_is_refused() -> None:
    async def main(issuer: Issuer) -> None:
        head = _encoded({"alg": "RS256", "kid": "two"})  # the key of this id is on a curve
        _, claims, signature = issuer.token().split(".")
        await issuer.refuses(f"{head}.{claims}.{signature}")

    run(main)


@given(st.one_of(st.text(max_size=200), st.binary(max_size=200).map(lambda b: b.decode("latin1"))))
def test_no_text_is_accepted_or_breaks_the_check(text: str) -> None:
    async def main(issuer: Issuer) -> None:
        with pytest.raises(SaslAuthenticationFailed):
            await issuer.verifier.verify(text)

    run(main)


@given(
    st.one_of(
        st.binary(max_size=100),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["keys", "kid", "kty", "n", "x"]), inner, max_size=4
                )
            ),
            max_leaves=12,
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_other_contents_than_a_key_set_are_refused(content: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        parse_keys(content)
