"""Tokens of an issuer on the listeners of both front ends: forged, expired, of rotated keys, and
while the issuer is down."""

import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.kit.certificates import Certificates
from tests.kit.issuer import TokenIssuer
from tests.kit.kafka_client import ConnectionEnded
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import WAIT_MS
from tests.kit.secure_client import SecureClient, connect_tls
from tests.kit.users import set_password
from tests.kit.waits import AMPLE_S, run_patiently, wait_until

from quorumlog.clients.credentials import SCRAM, TLS, Token, channel_security
from quorumlog.errors import SaslAuthenticationFailed
from quorumlog.proto import admin_pb2
from quorumlog.runtime import Runtime
from quorumlog.services import ADMIN_LIST_TOPICS

PASSWORD: Final = "correct horse"
HOUR_S: Final = 3_600
DELAY_MS: Final = 300
STRANGER_KEY: Final = rsa.generate_private_key(65_537, 2_048)


class Tokens:
    """A node that accepts tokens of an issuer and passwords."""

    def __init__(self, kafka: KafkaNode, certificates: Certificates) -> None:
        self.kafka = kafka
        self._certificates = certificates

    async def connect(self) -> SecureClient:
        """Return a connection that is not logged in."""
        address = self.kafka.node.addresses.kafka_listeners["SASL_SSL"]
        return await connect_tls(self.kafka.runtime, address, self._certificates.client())

    async def begin(self, token: str) -> tuple[SecureClient, Any]:
        """Send a token on a new Kafka connection; return the answer."""
        client = await self.connect()
        await client.begin("OAUTHBEARER")
        answer = await client.step(b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01")
        return client, answer

    async def log_in(self, token: str) -> tuple[SecureClient, Any]:
        """Log in on a Kafka connection; return the last answer."""
        client, answer = await self.begin(token)
        if answer.auth_bytes:  # the error, which a client confirms
            assert json.loads(answer.auth_bytes) == {"status": "invalid_token"}
            answer = await client.step(b"\x01")
        return client, answer

    async def is_accepted(self, token: str) -> bool:
        """Return True if both front ends accept a token, False if both refuse it."""
        by_kafka, by_grpc = await self.verdicts(token)
        assert by_kafka == by_grpc, "the front ends differ"
        return by_kafka

    async def verdicts(self, token: str) -> tuple[bool, bool]:
        """Return True for each front end that accepts a token: Kafka, gRPC."""
        client, answer = await self.log_in(token)
        client.connection.abort()
        assert answer.error_code.value in (0, SaslAuthenticationFailed.code)
        by_kafka = not answer.error_code.value
        security = channel_security(TLS(ca=self._certificates.ca), Token(token))
        address = self.kafka.node.addresses.grpc.replace("127.0.0.1", "localhost")
        channel = self.kafka.runtime.network.channel(address, security)
        try:
            await channel.call(ADMIN_LIST_TOPICS, admin_pb2.ListTopicsRequest(), timeout_ms=WAIT_MS)
        except SaslAuthenticationFailed:
            return by_kafka, False
        finally:
            await channel.close()
        return by_kafka, True

    async def until(self, token: str, *, accepted: bool) -> None:
        """Try a token until it is accepted, or refused."""
        async with asyncio.timeout(AMPLE_S):
            for pause_s in repeat(0.2):
                if await self.verdicts(token) == (accepted, accepted):
                    return  # they may differ while the keys are fetched
                await asyncio.sleep(pause_s)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """One authority for all tests."""
    return Certificates.create(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def issuer(certificates: Certificates) -> Iterator[TokenIssuer]:
    """An issuer that serves its keys."""
    with TokenIssuer(certificates.server()) as found:
        yield found


@asynccontextmanager
async def accepting(
    runtime: Runtime,
    folder: Path,
    certificates: Certificates,
    issuer: TokenIssuer,
    **settings: Any,
) -> AsyncIterator[Tokens]:
    async with serving_kafka(
        runtime,
        str(folder),
        **certificates.settings(),
        **issuer.settings(certificates.ca),
        sasl_enabled_mechanisms=("SCRAM-SHA-256", "OAUTHBEARER"),
        grpc_security_protocol="SASL_SSL",
        listeners_kafka=("SASL_SSL://127.0.0.1:0",),
        **{"connection_failed_authentication_delay_ms": 0, **settings},
    ) as kafka:
        await set_password(kafka.node, "alice", PASSWORD)
        yield Tokens(kafka, certificates)


def test_token_of_a_grpc_connection_is_one_line_of_the_audit_log(
    certificates: Certificates, issuer: TokenIssuer, tmp_path: Path
) -> None:
    """The password's line is that of its login: a session token adds none."""
    audit = tmp_path / "audit.log"

    async def main(runtime: Runtime) -> None:
        async with accepting(
            runtime, tmp_path / "node", certificates, issuer, audit_log_file=str(audit)
        ) as tokens:
            address = tokens.kafka.node.addresses.grpc.replace("127.0.0.1", "localhost")
            tls = TLS(ca=certificates.ca)
            await tokens.until(issuer.token("carol"), accepted=True)  # the keys are fetched
            for credentials in (Token(issuer.token("bob")), SCRAM(user="alice", password=PASSWORD)):
                channel = runtime.network.channel(address, channel_security(tls, credentials))
                for _ in range(2):
                    request = admin_pb2.ListTopicsRequest()
                    await channel.call(ADMIN_LIST_TOPICS, request, timeout_ms=WAIT_MS)
                await channel.close()

    run_patiently(main)
    rows = [json.loads(line) for line in audit.read_text().splitlines()]
    logins = [row for row in rows if row["principal"] in ("User:bob", "User:alice")]
    assert [(row["principal"], row["mechanism"], row["outcome"]) for row in logins] == [
        ("User:bob", "token", "ok"),
        ("User:alice", "SCRAM-SHA-256", "ok"),
    ]


def signed_by_public_key(issuer: TokenIssuer) -> str:
    """Return a token with a symmetric signature, whose key is the issuer's public one."""
    pem = issuer.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, claims, _ = issuer.token("alice").split(".")
    header = {**jwt.get_unverified_header(f"{head}.{claims}.AA"), "alg": "HS256"}
    content = f"{_base64(json.dumps(header).encode())}.{claims}"
    return f"{content}.{_base64(hmac.digest(pem, content.encode(), 'sha256'))}"


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def forged(issuer: TokenIssuer) -> dict[str, str]:
    """Return tokens that are not accepted, by what is wrong."""
    now_s = int(time.time())
    own = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(STRANGER_KEY.public_key()))
    good = issuer.token("alice")
    head, claims, signature = good.split(".")
    others = issuer.token("root").split(".")[1]
    deep = _base64(b'{"alg":"RS256","kid":' + b"[" * 3_000 + b"]" * 3_000 + b"}")
    return {
        "expired": issuer.token("alice", exp=now_s - HOUR_S),
        "expired beyond the skew": issuer.token("alice", exp=now_s - 60),
        "without an expiry": issuer.token("alice", exp=None),
        "not valid yet": issuer.token("alice", nbf=now_s + HOUR_S),
        "another issuer": issuer.token("alice", iss="https://evil.test"),
        "without an issuer": issuer.token("alice", iss=None),
        "another audience": issuer.token("alice", aud="other"),
        "without an audience": issuer.token("alice", aud=None),
        "algorithm none": issuer.token("alice", key="", algorithm="none"),
        "signed with the public key": signed_by_public_key(issuer),
        "another key": issuer.token("alice", key=STRANGER_KEY),
        "unknown key id": issuer.token("alice", headers={"kid": "other"}),
        "brings its key": issuer.token("alice", key=STRANGER_KEY, headers={"jwk": own}),
        "names its key": issuer.token(
            "alice", key=STRANGER_KEY, headers={"jku": "https://evil.test/keys"}
        ),
        "claims of another": f"{head}.{others}.{signature}",
        "without a signature": f"{head}.{claims}.",
        "with control characters": issuer.token("alice\nroot"),
        "without a user": issuer.token(""),
        "deeply nested": f"{deep}.{claims}.{signature}",
        "long": issuer.token("alice", key=STRANGER_KEY, groups=["g" * 10] * 1_600),
    }


def test_forged_tokens_are_refused_by_both_front_ends(
    certificates: Certificates, issuer: TokenIssuer, tmp_path: Path
) -> None:
    async def main(runtime: Runtime) -> None:
        async with accepting(runtime, tmp_path / "node", certificates, issuer) as node:
            for what, token in forged(issuer).items():
                assert not await node.is_accepted(token), what
            late = issuer.token("alice", exp=int(time.time()) - 5)  # within the skew of 30 s
            for token in (issuer.token("alice"), late):
                assert await node.is_accepted(token)
            assert issuer.requests <= 2, "unknown keys do not make the node ask again and again"

    run_patiently(main)


def test_forged_token_is_counted_also_if_the_client_leaves(
    certificates: Certificates, issuer: TokenIssuer, tmp_path: Path
) -> None:
    """The first answer tells a client that its token is refused; the client may not confirm it."""
    audit = tmp_path / "audit.log"

    def refused() -> int:
        rows = [json.loads(line) for line in audit.read_text().splitlines()]
        return sum(row["count"] for row in rows if row.get("outcome") == "refused")

    async def main(runtime: Runtime) -> None:
        async with accepting(
            runtime,
            tmp_path / "node",
            certificates,
            issuer,
            audit_log_file=str(audit),
            connection_failed_authentication_delay_ms=DELAY_MS,
        ) as node:
            token = issuer.token("alice", key=STRANGER_KEY)
            began_s = time.monotonic()
            client, answer = await node.begin(token)
            assert time.monotonic() - began_s >= DELAY_MS / 1_000
            assert answer.auth_bytes
            client.connection.abort()
            await wait_until(lambda: refused() == 1)
            client, answer = await node.log_in(token)  # which confirms it
            assert answer.error_code.value == SaslAuthenticationFailed.code
            client.connection.abort()
            await wait_until(lambda: refused() >= 2)
        assert refused() == 2

    run_patiently(main)


@pytest.mark.slow
def test_rotated_key_is_found_and_the_old_one_ends(
    certificates: Certificates, issuer: TokenIssuer, tmp_path: Path
) -> None:
    async def main(runtime: Runtime) -> None:
        async with accepting(runtime, tmp_path / "node", certificates, issuer) as node:
            old = issuer.token("alice")
            assert await node.is_accepted(old)
            issuer.rotate()
            await node.until(issuer.token("alice"), accepted=True)
            assert not await node.is_accepted(issuer.token("bob", headers={"kid": "key"}))
            client, answer = await node.log_in(old)
            assert answer.error_code.value == SaslAuthenticationFailed.code
            client.connection.abort()

    run_patiently(main)


def test_clients_are_served_while_the_issuer_is_down(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Tokens with keys that are known, and passwords also if none is known."""

    async def main(runtime: Runtime) -> None:
        with TokenIssuer(certificates.server()) as issuer:
            async with accepting(runtime, tmp_path / "known", certificates, issuer) as node:
                assert await node.is_accepted(issuer.token("alice"))
                await asyncio.to_thread(issuer.stop)
                assert await node.is_accepted(issuer.token("bob"))
                assert not await node.is_accepted(issuer.token("bob", headers={"kid": "other"}))
        async with accepting(runtime, tmp_path / "unknown", certificates, issuer) as node:
            assert not await node.is_accepted(issuer.token("alice"))
            client = await node.connect()
            assert not (await client.log_in("alice", PASSWORD)).error_code.value

    run_patiently(main)


def test_session_ends_with_its_token(
    certificates: Certificates, issuer: TokenIssuer, tmp_path: Path
) -> None:
    async def main(runtime: Runtime) -> None:
        async with accepting(
            runtime,
            tmp_path / "node",
            certificates,
            issuer,
            sasl_oauthbearer_clock_skew_seconds=0,
        ) as node:
            client, answer = await node.log_in(issuer.token("alice", exp=int(time.time()) + 3))
            assert not answer.error_code.value
            assert 0 < answer.session_lifetime.total_seconds() <= 3
            async with asyncio.timeout(AMPLE_S):
                with pytest.raises(ConnectionEnded):
                    await keep_asking(client)

    run_patiently(main)


async def keep_asking(client: SecureClient) -> None:
    """Send requests until the connection ends."""
    for pause_s in repeat(0.1):
        await client.ask(29, 3, **_EVERY_ACL)
        await asyncio.sleep(pause_s)


_EVERY_ACL: Final = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
