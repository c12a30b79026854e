"""The HTTP port: pages of a browser on loopback, and strangers beyond it."""

import asyncio
import json
import ssl
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final

import pytest
from tests.kit.certificates import Certificates
from tests.kit.issuer import TokenIssuer
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.users import add_acl, set_password
from tests.kit.waits import run_patiently

from quorumlog.metadata.acls import AclOperation, AclResourceType
from quorumlog.runtime import Runtime

PASSWORD: Final = "correct: horse é"
WAIT_S: Final = 60.0


class HttpPort:
    """The HTTP port of a node; each request has a connection of its own."""

    def __init__(self, kafka: KafkaNode, context: ssl.SSLContext | None = None) -> None:
        assert kafka.node.addresses.http is not None
        self._port = int(kafka.node.addresses.http.rpartition(":")[2])
        self._context = context

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Return the status and the body."""
        return await asyncio.to_thread(self._get, path, headers)

    async def log_in(self, user: str, password: str, path: str = "/metrics") -> tuple[int, str]:
        """Ask with a password."""
        given = b64encode(f"{user}:{password}".encode()).decode()
        return await self.get(path, Authorization=f"Basic {given}")

    def _get(self, path: str, headers: dict[str, str]) -> tuple[int, str]:
        connection = (
            HTTPConnection("localhost", self._port, timeout=WAIT_S)
            if self._context is None
            else HTTPSConnection("localhost", self._port, timeout=WAIT_S, context=self._context)
        )
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


@asynccontextmanager
async def exposed(
    runtime: Runtime, folder: Path, certificates: Certificates, **settings: Any
) -> AsyncIterator[tuple[KafkaNode, HttpPort]]:
    """A node with an HTTP port on every interface, ACLs, and alice."""
    async with serving_kafka(
        runtime,
        str(folder),
        **certificates.settings(),
        **settings,
        listeners_kafka=("SASL_SSL://127.0.0.1:0",),
        listeners_http="0.0.0.0:0",
    ) as kafka:
        await set_password(kafka.node, "alice", PASSWORD)
        yield kafka, HttpPort(kafka, certificates.client().client_context())


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """One authority for all tests."""
    return Certificates.create(tmp_path_factory.mktemp("ca"))


def test_page_whose_name_resolves_to_loopback_reads_nothing(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(
            runtime, str(tmp_path / "node"), listeners_http="127.0.0.1:0"
        ) as kafka:
            port = HttpPort(kafka)
            for host in ("localhost", "LOCALHOST:9095", "127.0.0.1:1", "127.9.9.9", "[::1]:9095"):
                assert (await port.get("/ready", Host=host))[0] == 200, host
            for host in ("evil.test", "localhost.evil.test:9095", "127.0.0.1.evil.test", "[", ""):
                for path in ("/ready", "/metrics", "/health", "/unknown"):
                    status, body = await port.get(path, Host=host)
                    assert status == 403, host
                    assert "another host" in body
            for origin in ("http://evil.test", "https://evil.test:9095", "null", "localhost"):
                assert (await port.get("/ready", Origin=origin))[0] == 403, origin
            assert (await port.get("/ready", Origin="http://localhost:3000"))[0] == 200

    run_patiently(main)


def test_strangers_beyond_loopback_learn_only_that_the_node_is_alive(
    certificates: Certificates, tmp_path: Path
) -> None:
    audit = tmp_path / "audit.log"

    async def main(runtime: Runtime) -> None:
        async with exposed(
            runtime,
            tmp_path / "node",
            certificates,
            ssl_client_auth="required",
            audit_log_file=str(audit),
        ) as (kafka, port):
            assert (await port.get("/health", Host="node.example.net"))[0] == 200
            for path in ("/metrics", "/ready", "/unknown", "/health/../metrics", "/Health"):
                status, body = await port.get(path)
                assert status == 401, path
                assert "Basic" in body
            unknown, wrong = await port.log_in("bob", "x"), await port.log_in("alice", "x")
            assert unknown == wrong
            assert wrong[0] == 401
            assert '"claimed_user": "bob"' in audit.read_text()
            for header in ("Basic", "Basic !", "Basic YWxpY2U=", "Digest a", "Bearer a.b.c", "é"):
                assert (await port.get("/metrics", Authorization=header))[0] == 401, header
            plain = HttpPort(kafka)
            with pytest.raises((OSError, HTTPException)):
                await plain.get("/health")

    run_patiently(main)


def test_password_of_a_user_is_one_line_a_second_of_the_audit_log(
    certificates: Certificates, tmp_path: Path
) -> None:
    audit = tmp_path / "audit.log"

    async def main(runtime: Runtime) -> None:
        async with exposed(runtime, tmp_path / "node", certificates, audit_log_file=str(audit)) as (
            _,
            port,
        ):
            for _ in range(5):
                assert (await port.log_in("alice", PASSWORD))[0] == 403

    began_s = time.monotonic()
    run_patiently(main)
    rows = [json.loads(line) for line in audit.read_text().splitlines()]
    logins = [row for row in rows if row["event"] == "authentication"]
    assert 1 <= len(logins) <= 1 + time.monotonic() - began_s
    for row in logins:
        found = tuple(row[name] for name in ("principal", "host", "listener", "outcome"))
        assert found == ("User:alice", "127.0.0.1", "HTTP", "ok")
    denials = [row for row in rows if row["event"] == "denial"]
    assert sum(row["count"] for row in denials) == 5  # the last ones are written by the stop


def test_user_reads_metrics_if_acls_let_it_describe_the_cluster(
    certificates: Certificates, tmp_path: Path
) -> None:
    async def main(runtime: Runtime) -> None:
        async with exposed(runtime, tmp_path / "node", certificates) as (kafka, port):
            status, body = await port.log_in("alice", PASSWORD)
            assert status == 403
            assert "User:alice" in body
            await add_acl(kafka.node, "User:alice", AclOperation.DESCRIBE, AclResourceType.CLUSTER)
            status, body = await port.log_in("alice", PASSWORD)
            assert status == 200
            assert "quorumlog_ready 1.0" in body
            assert (await port.log_in("alice", PASSWORD, "/ready"))[0] == 200
            assert (await port.log_in("alice", PASSWORD, "/unknown"))[0] == 404

    run_patiently(main)


def test_user_with_a_token_of_an_issuer_reads_metrics(
    certificates: Certificates, tmp_path: Path
) -> None:
    async def main(runtime: Runtime) -> None:
        with TokenIssuer(certificates.server()) as issuer:
            async with exposed(
                runtime,
                tmp_path / "node",
                certificates,
                **issuer.settings(certificates.ca),
                sasl_enabled_mechanisms=("OAUTHBEARER",),
                super_users=("User:prometheus",),
            ) as (_, port):

                async def status(token: str) -> int:
                    return (await port.get("/metrics", Authorization=f"Bearer {token}"))[0]

                assert await status(issuer.token("prometheus")) == 200
                assert await status(issuer.token("alice")) == 403
                old = issuer.token("prometheus", exp=int(time.time()) - 3_600)
                assert await status(old) == 401

    run_patiently(main)


def test_insecure_port_beyond_loopback_has_to_be_permitted(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(
            runtime,
            str(tmp_path / "node"),
            allow_insecure_listeners=True,
            listeners_http="0.0.0.0:0",
        ) as kafka:
            assert (await HttpPort(kafka).get("/metrics", Host="node.example.net"))[0] == 200

    run_patiently(main)
