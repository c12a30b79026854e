"""Fuzz targets before authentication, and files of keys: SASL, tokens, PEM.

An exchange gets messages in the client's order; a token is signed after its change, so that its
claims are checked.
"""

import base64
import json
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from immutables import Map
from jwt.algorithms import ECAlgorithm
from tests.kit.certificates import self_signed
from tests.kit.users import SALT, SHA_256

from quorumlog import simulation
from quorumlog.api.authentication.config import MECHANISMS, SecurityConfig
from quorumlog.api.authentication.sasl import AuthenticatedUser, SaslServer
from quorumlog.api.authentication.sessions import SessionTokens
from quorumlog.api.authentication.tokens import TokenVerifier, parse_keys
from quorumlog.metadata import EMPTY_IMAGE
from quorumlog.metadata.scram_credentials import credential_of_password
from quorumlog.runtime import Runtime
from quorumlog.runtime.tls import TlsFiles

_KEY: Final = ec.derive_private_key(0xC0FFEE, ec.SECP256R1())
_HEADER: Final = b'{"alg":"ES256","kid":"one","typ":"JWT"}'
_CLAIMS: Final = b'{"iss":"i","aud":["a"],"sub":"alice","exp":99999999999,"nbf":1}'
_CONFIG: Final = SecurityConfig(token_issuer="i", token_audience=("a",))
_JWK: Final = {**json.loads(ECAlgorithm.to_jwk(_KEY.public_key())), "kid": "one", "use": "sig"}
_KEY_SET: Final = json.dumps({"keys": [_JWK]}).encode()
_CREDENTIAL: Final = credential_of_password(SHA_256, "secret", salt=SALT, iterations=4_096)
_IMAGE: Final = replace(EMPTY_IMAGE, scram_credentials=Map({("alice", SHA_256): _CREDENTIAL}))


def _served(use: Callable[[SaslServer], Awaitable[object]]) -> object:
    """Run a function with the mechanisms of a simulated node."""

    async def main(runtime: Runtime) -> object:
        verifier = TokenVerifier(
            clock=runtime.clock, tasks=runtime.tasks, config=_CONFIG, fetch=lambda: _KEY_SET
        )
        return await use(
            SaslServer(
                tasks=runtime.tasks,
                nonces=runtime.entropy.stream("sasl"),
                secret=bytes(32),
                image=lambda: _IMAGE,
                tokens=verifier,
            )
        )

    return simulation.run(main)


# --- exchanges -----------------------------------------------------------------------------------


def exchange(mechanism: str) -> Callable[[bytes], object]:
    """Return a target for the messages of an exchange, separated by a byte that SCRAM does not
    use."""

    def run(content: bytes) -> object:
        async def use(sasl: SaslServer) -> object:
            begun = sasl.begin(mechanism, MECHANISMS, host="10.0.0.1")
            is_scram = mechanism.startswith("SCRAM")
            steps = [
                await begun.step(message)
                for message in (content.split(b"\0") if is_scram else (content,))
            ]
            return [step.message for step in steps]

        return _served(use)

    return run


def exchanges() -> dict[str, list[bytes]]:
    """Return messages by mechanism."""
    first = b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL"
    scram = [first, first + b"\0c=biws,r=fyko+d2lbbFgONRv9qkxdawL,p=dHzbZapWIk4jUhN+Ute9ytag9zg="]
    return {
        "SCRAM-SHA-256": scram,
        "SCRAM-SHA-512": scram,
        "PLAIN": [b"\0alice\0secret", b"alice\0alice\0wrong", b"\0alice\0\xd8\xa7\xd9\x84"],
        "OAUTHBEARER": [b"n,,\x01auth=Bearer " + _signed(_HEADER, _CLAIMS) + b"\x01\x01"],
    }


# --- tokens --------------------------------------------------------------------------------------


def token(content: bytes) -> object:
    """Verify a JSON Web Token."""

    async def use(sasl: SaslServer) -> object:
        assert sasl.tokens is not None
        return await sasl.tokens.verify(content.decode("latin-1"))

    return _served(use)


def signed_token(content: bytes) -> object:
    """Verify a token with this header and these claims, signed by the issuer."""
    header, _, claims = content.partition(b"\0")
    return token(_signed(header, claims))


def tokens() -> list[bytes]:
    return [_signed(_HEADER, _CLAIMS)]


def parts_of_tokens() -> list[bytes]:
    nested = b"[" * 5_000 + b"]" * 5_000
    return [
        _HEADER + b"\0" + _CLAIMS,
        _HEADER + b"\0" + _CLAIMS.replace(b'"alice"', nested),
        b'{"alg":"ES256","kid":' + nested + b"}\0" + _CLAIMS,
    ]


def _base64(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def _signed(header: bytes, claims: bytes) -> bytes:
    content = _base64(header) + b"." + _base64(claims)
    r, s = decode_dss_signature(_KEY.sign(content, ec.ECDSA(hashes.SHA256())))
    return content + b"." + _base64(r.to_bytes(32, "big") + s.to_bytes(32, "big"))


def session_token(content: bytes) -> object:
    return _sessions().verify(content.decode("latin-1"))


def session_tokens() -> list[bytes]:
    user = AuthenticatedUser("alice", ("alice", SHA_256), _CREDENTIAL)
    return [_sessions().issue(user)[0].encode()]


def _sessions() -> SessionTokens:
    return SessionTokens(b"k" * 32, lambda: 0, lambda: _IMAGE)


def key_set(content: bytes) -> object:
    """Parse a JSON Web Key Set; its caller expects ValueError."""
    with suppress(ValueError):
        return parse_keys(content)
    return None


def key_sets() -> list[bytes]:
    return [_KEY_SET, b'{"keys":' + b"[" * 5_000 + b"]" * 5_000 + b"}"]


# --- PEM -----------------------------------------------------------------------------------------


def pem(content: bytes) -> object:
    """Load a certificate, its key and its authorities from the same bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "all.pem"
        path.write_bytes(content)
        path.chmod(0o600)
        files = TlsFiles(certificate=str(path), key=str(path), ca=str(path))
        return files.server_context(), files.client_context(), files.pem()


def pems() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        files = self_signed(Path(folder))
        key, certificate = Path(files.key).read_bytes(), Path(files.certificate).read_bytes()
    return [key + certificate, certificate]
