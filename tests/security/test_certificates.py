"""Certificates of a running node: renewed ones, and an authority that is replaced."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from itertools import repeat
from pathlib import Path

from tests.kit.certificates import Certificates
from tests.kit.kafka_client import RawClient
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.tls_client import connect_tls
from tests.kit.waits import AMPLE_S, run_patiently

from quorumlog.runtime import Runtime
from quorumlog.runtime.tls import TlsFiles
from quorumlog.server.certificates import issue

VERSIONS = {"client_software_name": "test", "client_software_version": "1"}


async def connect(kafka: KafkaNode, files: TlsFiles) -> RawClient:
    """A connection to the listener with TLS; requests wait for the handshake."""
    return await connect_tls(kafka.runtime, kafka.node.addresses.kafka_listeners["SSL"], files)


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
