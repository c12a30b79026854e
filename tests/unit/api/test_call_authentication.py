"""Authentication of gRPC calls: session tokens, certificates, and refusals."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

import pytest
from immutables import Map

from quorumlog import simulation
from quorumlog.api.audit import AuditLog
from quorumlog.api.authentication.calls import RECORDED_MS, CallAuthentication
from quorumlog.api.authentication.certificate_principals import parse_rules
from quorumlog.api.authentication.config import SecurityProtocol
from quorumlog.api.authentication.failures import FailureDelays
from quorumlog.api.authentication.sasl import AuthenticatedUser
from quorumlog.api.authentication.sessions import PREFIX, SESSION_MS, SessionTokens
from quorumlog.errors import InvalidConfig, SaslAuthenticationFailed
from quorumlog.metadata import EMPTY_IMAGE, MetadataImage
from quorumlog.metadata.scram_credentials import ScramCredential, ScramKey, ScramMechanism
from quorumlog.runtime import CallPeer, ClientIdentity, PeerCertificate, Runtime

KEY: Final[ScramKey] = ("alice", ScramMechanism.SCRAM_SHA_256)
CREDENTIAL: Final = ScramCredential(
    salt=b"salt of bytes", iterations=4_096, stored_key=bytes(32), server_key=bytes(32)
)
ALICE: Final = AuthenticatedUser("alice", KEY, CREDENTIAL)
STRANGER: Final = CallPeer("10.0.0.1", None, "")


class Listener:
    """A listener with SASL and its metadata image."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.image: MetadataImage = replace(EMPTY_IMAGE, scram_credentials=Map({KEY: CREDENTIAL}))
        self.sessions = SessionTokens(b"k" * 32, runtime.clock.now_ms, lambda: self.image)
        self.audited: list[str] = []
        self.authentication = self.of(SecurityProtocol.SASL_PLAINTEXT)

    def of(
        self, protocol: SecurityProtocol, rules: str = "DEFAULT", audit: AuditLog | None = None
    ) -> CallAuthentication:
        """Return the authentication of a protocol."""
        return CallAuthentication(
            protocol=protocol,
            clock=self.runtime.clock,
            image=lambda: self.image,
            rules=parse_rules(rules),
            sessions=self.sessions,
            tokens=None,
            open_paths=frozenset({"/open"}),
            failures=FailureDelays(self.runtime.clock.now_ms, 100),
            audit=audit or AuditLog(self.audited.append, self.runtime.clock.wall_ms),
        )

    async def refuses(self, authorization: str) -> str:
        """Return the error of a header that is not accepted."""
        with pytest.raises(SaslAuthenticationFailed) as raised:
            await self.authentication.authenticate(
                "/call", STRANGER._replace(authorization=authorization)
            )
        return raised.value.message


def run(main: Callable[[Listener], Coroutine[Any, Any, None]]) -> None:
    """Run with a listener in simulated time."""

    async def with_listener(runtime: Runtime) -> None:
        await main(Listener(runtime))

    simulation.run(with_listener)


def test_session_token_is_valid_until_it_expires_or_the_password_changes() -> None:
    async def main(listener: Listener) -> None:
        token, _ = listener.sessions.issue(ALICE)
        peer = STRANGER._replace(authorization=f"Bearer {token}")
        session = await listener.authentication.authenticate("/call", peer)
        assert session.identity == ClientIdentity("User:alice", "10.0.0.1")
        assert session.is_current is not None
        assert session.is_current()
        other = ScramCredential(
            salt=b"salt of bytes", iterations=4_096, stored_key=b"x" * 32, server_key=bytes(32)
        )
        listener.image = replace(EMPTY_IMAGE, scram_credentials=Map({KEY: other}))
        assert not session.is_current()
        assert "password has changed" in await listener.refuses(peer.authorization)
        listener.image = replace(EMPTY_IMAGE, scram_credentials=Map({KEY: CREDENTIAL}))
        await listener.authentication.authenticate("/call", peer)
        await asyncio.sleep(SESSION_MS / 1_000 - 10)
        assert "expired" not in await listener.refuses("Bearer x")
        await asyncio.sleep(10)
        assert "expired" in await listener.refuses(peer.authorization)

    simulation_limit_ms = 2 * SESSION_MS

    async def with_listener(runtime: Runtime) -> None:
        await main(Listener(runtime))

    simulation.run(with_listener, virtual_ms=simulation_limit_ms)


def test_forged_and_foreign_tokens_are_refused() -> None:
    async def main(listener: Listener) -> None:
        token, _ = listener.sessions.issue(ALICE)
        another = SessionTokens(
            b"o" * 32, listener.runtime.clock.now_ms, lambda: listener.image
        ).issue(ALICE)[0]
        changed = token[:-2] + ("AA" if token[-2:] != "AA" else "BB")
        broken = (token + "!", token + "\n" * 9 + "x")
        for wrong in (another, changed, PREFIX, PREFIX + "A" * 43, *broken):
            assert "log in again" in await listener.refuses(f"Bearer {wrong}"), wrong
        for header in ("Basic YWxpY2U6c2VjcmV0", "Bearer a.b.c", "Bearer", token):
            await listener.refuses(header)
        assert listener.authentication.audit is not None
        listener.authentication.audit.close()  # which writes the last counts
        assert sum(json.loads(line)["count"] for line in listener.audited) == 4  # of the headers
        assert "session token" not in "".join(listener.audited)

    run(main)


def test_call_without_credentials_is_refused_unless_its_method_is_open() -> None:
    async def main(listener: Listener) -> None:
        assert "no credentials" in await listener.refuses("")
        session = await listener.authentication.authenticate("/open", STRANGER)
        assert session.identity.principal == "User:ANONYMOUS"

    run(main)


def test_client_is_known_by_its_certificate() -> None:
    certificate = PeerCertificate(subject="CN=alice,O=Example", uris=(), hosts=())

    async def main(listener: Listener) -> None:
        peer = STRANGER._replace(certificate=certificate)
        for rules, user in (
            ("DEFAULT", "CN=alice,O=Example"),
            ("RULE:^CN=([a-z]+),.*$/$1/U,DEFAULT", "ALICE"),
            ("RULE:^OU=(.*)$/$1/, RULE:^CN=(.*?),O=(.*)$/$2-$1/", "Example-alice"),
        ):
            session = await listener.of(SecurityProtocol.SSL, rules).authenticate("/call", peer)
            assert session.identity.principal == f"User:{user}"
        with pytest.raises(SaslAuthenticationFailed, match="no rule"):
            await listener.of(SecurityProtocol.SSL, "RULE:^OU=(.*)$/$1/").authenticate(
                "/call", peer
            )

    run(main)


def test_certificate_of_a_connection_is_recorded_once() -> None:
    certificate = PeerCertificate(subject="CN=alice", uris=(), hosts=())
    lines: list[str] = []

    async def main(listener: Listener) -> None:
        audit = AuditLog(lines.append, listener.runtime.clock.wall_ms)
        authentication = listener.of(SecurityProtocol.SSL, audit=audit)
        for port in ("1", "1", "2", "1"):
            peer = STRANGER._replace(certificate=certificate, port=port)
            await authentication.authenticate("/call", peer)
        await asyncio.sleep(RECORDED_MS / 1_000)
        await authentication.authenticate("/call", peer)
        rows = [json.loads(line) for line in lines]
        assert [row["count"] for row in rows] == [1, 1, 1]  # the connections were equal
        assert {row["mechanism"] for row in rows} == {"certificate"}
        assert rows[0]["principal"] == "User:CN=alice"

    run(main)


@pytest.mark.parametrize("rules", ["", "RULE:a", "RULE:(/x/", "DEFAULT RULE:a/b/", "NONE"])
def test_malformed_rules_are_named(rules: str) -> None:
    with pytest.raises(InvalidConfig, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(rules)
