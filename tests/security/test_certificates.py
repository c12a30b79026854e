"""Certificates of a running node: renewed ones, and an authority that is replaced."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import repeat
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc.experimental.session_cache import ssl_session_cache_lru
from tests.kit.certificates import Certificates, self_signed
from tests.kit.kafka_client import ConnectionEnded
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.secure_client import SecureClient, connect_tls
from tests.kit.waits import AMPLE_S, run_patiently

from quorumlog.errors import ConnectionFailed, OutcomeUnknown, TimedOut
from quorumlog.proto import admin_pb2
from quorumlog.runtime import ChannelSecurity, Runtime
from quorumlog.runtime.tls import TlsFiles
from quorumlog.server.certificates import issue
from quorumlog.services import ADMIN_DESCRIBE_CLUSTER

REFUSAL_MS = 1_500
VERSIONS = {"client_software_name": "test", "client_software_version": "1"}


async def connect(kafka: KafkaNode, files: TlsFiles) -> SecureClient:
    """A connection to the listener with TLS."""
    address = kafka.node.addresses.kafka_listeners["SSL"]
    return await connect_tls(kafka.runtime, address, files)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for the node to look at its files, which it does every second."""
    async with asyncio.timeout(AMPLE_S):
        for pause_s in repeat(0.1):
            if await condition():
                return
            await asyncio.sleep(pause_s)


def test_renewed_certificate_is_used_while_open_connections_stay(tmp_path: Path) -> None:
    certificates = Certificates.create(tmp_path / "ca")

    async def main(runtime: Runtime) -> None:
        listeners = ("PLAINTEXT://127.0.0.1:0", "SSL://127.0.0.1:0")
        async with serving_kafka(
            runtime,
            str(tmp_path / "node"),
            **certificates.settings(),
            listeners_kafka=listeners,
        ) as kafka:
            host, _, port = kafka.node.addresses.kafka_listeners["SSL"].rpartition(":")

            async def served() -> str:
                return await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))

            old = await connect(kafka, certificates.client())
            assert (await old.ask(18, 3, **VERSIONS)).error_code.value == 0
            before = await served()
            issue(certificates.folder, "server", name="server", hosts=("localhost",), replace=True)
            renewed = (certificates.folder / "server.pem").read_text().strip()

            async def is_renewed() -> bool:
                return (await served()).strip() == renewed

            await eventually(is_renewed)
            assert before.strip() != renewed
            assert (await old.ask(18, 3, **VERSIONS)).error_code.value == 0
            new = await connect(kafka, certificates.client())
            assert (await new.ask(18, 3, **VERSIONS)).error_code.value == 0
            for client in (old, new):
                client.connection.abort()

    run_patiently(main)


def test_authority_is_replaced_without_a_client_being_refused(tmp_path: Path) -> None:
    """First both authorities are trusted, then the certificates change, then the old one goes."""
    old = Certificates.create(tmp_path / "old")
    new = Certificates.create(tmp_path / "new")
    trusted = tmp_path / "ca.pem"
    authorities = [Path(each.ca).read_text() for each in (old, new)]
    trusted.write_text(authorities[0])

    async def main(runtime: Runtime) -> None:
        settings = {**old.settings(), "ssl_ca_file": str(trusted)}
        async with serving_kafka(
            runtime,
            str(tmp_path / "node"),
            **settings,
            ssl_client_auth="required",
            listeners_kafka=("PLAINTEXT://127.0.0.1:0", "SSL://127.0.0.1:0"),
        ) as kafka:

            async def accepts(files: TlsFiles) -> bool:
                client = await connect(kafka, files)
                client.send(18, 3, **VERSIONS)
                try:
                    await client.answer(18, 3)
                except Exception:
                    return False
                finally:
                    client.connection.abort()
                return True

            by_new = TlsFiles(
                certificate=new.client("alice").certificate, key=new.client("alice").key, ca=old.ca
            )
            assert await accepts(old.client("alice"))
            assert not await accepts(by_new)
            trusted.write_text(authorities[0] + authorities[1])
            await eventually(lambda: accepts(by_new))
            assert await accepts(old.client("alice"))
            trusted.write_text(authorities[1])

            async def is_refused() -> bool:
                return not await accepts(old.client("alice"))

            await eventually(is_refused)
            assert await accepts(by_new)

    run_patiently(main)


@pytest.mark.parametrize("kind", ["none", "self-signed", "another authority", "expired"])
def test_clients_without_a_valid_certificate_are_refused_by_both_front_ends(
    tmp_path: Path, kind: str
) -> None:
    certificates = Certificates.create(tmp_path / "ca")
    client = certificates.client("alice")
    if kind == "none":
        bad = certificates.client()
    elif kind == "self-signed":
        bad = replace(self_signed(tmp_path / "self"), ca=certificates.ca)
    elif kind == "another authority":
        bad = replace(Certificates.create(tmp_path / "other").client("alice"), ca=certificates.ca)
    else:
        bad = certificates.client("late")
        certificates.end("late", datetime.now(UTC) - timedelta(minutes=1))

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(
            runtime,
            str(tmp_path / "node"),
            **certificates.settings(),
            ssl_client_auth="required",
            grpc_security_protocol="SSL",
            super_users=("User:CN=alice",),
            listeners_kafka=("SSL://127.0.0.1:0",),
        ) as kafka:
            assert await is_served(kafka, client) == (True, True)
            assert await is_served(kafka, bad) == (False, False)
            assert await is_served(kafka, client) == (True, True)

    run_patiently(main)


@pytest.mark.slow
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_expired_certificate_of_a_resumed_session_is_refused(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """OpenSSL verifies a certificate in full handshakes only."""
    certificates = Certificates.create(tmp_path / "ca")
    files = certificates.client("alice")
    context = ssl.create_default_context(cafile=files.ca)
    context.maximum_version = version

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(
            runtime,
            str(tmp_path / "node"),
            **certificates.settings(),
            ssl_client_auth="required",
            grpc_security_protocol="SSL",
            super_users=("User:CN=alice",),
            listeners_kafka=("SSL://127.0.0.1:0",),
        ) as kafka:
            ends = datetime.now(UTC) + timedelta(seconds=3)
            certificates.end("alice", ends)
            context.load_cert_chain(files.certificate, files.key)
            calls = ResumingCalls(kafka.node.addresses.grpc, files)
            address = kafka.node.addresses.kafka_listeners["SSL"]
            answers, session = await asyncio.to_thread(api_versions, address, context, None)
            assert (answers, await asyncio.to_thread(calls.is_answered)) == (True, True)
            resumed = await asyncio.to_thread(api_versions, address, context, session)
            assert (resumed[0], await asyncio.to_thread(calls.is_answered)) == (True, True)

            async def has_expired() -> bool:
                return datetime.now(UTC) > ends + timedelta(seconds=1)

            await eventually(has_expired)
            answers, _ = await asyncio.to_thread(api_versions, address, context, resumed[1])
            assert (answers, await asyncio.to_thread(calls.is_answered)) == (False, False)

    run_patiently(main)


def api_versions(
    address: str, context: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[bool, ssl.SSLSession | None]:
    """Ask for the versions on a connection of its own, which resumes a session; return True if
    there is an answer, and the session for the next one."""
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), AMPLE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost", session=session) as connection,
    ):
        assert connection.session_reused is (session is not None)
        try:
            connection.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
            return len(connection.recv(4)) == 4, connection.session
        except (ConnectionError, ssl.SSLEOFError):
            return False, None


class ResumingCalls:
    """Calls, each on a connection of its own, which resumes the session of the one before."""

    def __init__(self, address: str, files: TlsFiles) -> None:
        self._target = address.replace("127.0.0.1", "localhost")
        pem = files.pem()
        self._credentials = grpc.ssl_channel_credentials(pem.ca, pem.key, pem.certificate)
        self._cache: Any = ssl_session_cache_lru(1)  # type: ignore[no-untyped-call]

    def is_answered(self) -> bool:
        """Describe the cluster; return True if there is an answer."""
        options = (
            ("grpc.ssl_session_cache", self._cache),
            ("grpc.use_local_subchannel_pool", 1),
        )
        with grpc.secure_channel(self._target, self._credentials, options) as channel:
            method: Any = channel.unary_unary(ADMIN_DESCRIBE_CLUSTER.path)
            try:
                method(b"", timeout=REFUSAL_MS / 1_000)
            except grpc.RpcError:
                return False
            return True


@pytest.mark.parametrize("kind", ["another name", "another authority", "expired"])
def test_clients_refuse_a_server_without_a_valid_certificate(tmp_path: Path, kind: str) -> None:
    certificates = Certificates.create(tmp_path / "ca")
    files = certificates.client()
    if kind == "another name":
        issue(certificates.folder, "server", name="server", hosts=("elsewhere",), replace=True)
    elif kind == "another authority":
        files = Certificates.create(tmp_path / "other").client()
    else:
        certificates.end("server", datetime.now(UTC) - timedelta(minutes=1))

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(
            runtime,
            str(tmp_path / "node"),
            **certificates.settings(),
            grpc_security_protocol="SSL",
            listeners_kafka=("SSL://127.0.0.1:0",),
        ) as kafka:
            assert await is_served(kafka, files) == (False, False)

    run_patiently(main)


@pytest.mark.slow
def test_certificate_that_expires_under_load_ends_no_connection_and_is_renewed(
    tmp_path: Path,
) -> None:
    certificates = Certificates.create(tmp_path / "ca")
    ends = (datetime.now(UTC) + timedelta(seconds=10)).replace(microsecond=0)
    certificates.end("server", ends)

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(
            runtime,
            str(tmp_path / "node"),
            **certificates.settings(),
            grpc_security_protocol="SSL",
            listeners_kafka=("SSL://127.0.0.1:0",),
        ) as kafka:
            files = certificates.client()
            old = await connect(kafka, files)
            is_over = asyncio.Event()

            async def load() -> int:
                count = 0
                while not is_over.is_set():
                    assert (await old.ask(18, 3, **VERSIONS)).error_code.value == 0
                    count += 1
                return count

            loading = asyncio.create_task(load())

            async def is_refused() -> bool:
                return await is_served(kafka, files) == (False, False)

            await eventually(is_refused)
            assert datetime.now(UTC) > ends
            issue(certificates.folder, "server", name="server", hosts=("localhost",), replace=True)

            async def is_accepted() -> bool:
                return await is_served(kafka, files) == (True, True)

            await eventually(is_accepted)
            is_over.set()
            assert await loading > 100
            old.connection.abort()

    run_patiently(main)


async def is_served(kafka: KafkaNode, files: TlsFiles) -> tuple[bool, bool]:
    """Return True for each front end that answers a client: Kafka, gRPC."""
    client = await connect(kafka, files)
    client.send(18, 3, **VERSIONS)
    try:
        await client.answer(18, 3)
        by_kafka = True
    except ConnectionEnded:
        by_kafka = False
    finally:
        client.connection.abort()
    address = kafka.node.addresses.grpc.replace("127.0.0.1", "localhost")
    channel = kafka.runtime.network.channel(address, ChannelSecurity(tls=files))
    try:
        await channel.call(
            ADMIN_DESCRIBE_CLUSTER, admin_pb2.DescribeClusterRequest(), timeout_ms=REFUSAL_MS
        )
        by_grpc = True
    except (ConnectionFailed, OutcomeUnknown, TimedOut):  # it connects again until then
        by_grpc = False
    finally:
        await channel.close()
    return by_kafka, by_grpc
