"""TLS over byte connections, on real sockets."""

import asyncio
import ctypes
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pytest
from tests.kit.certificates import Certificates, self_signed
from tests.kit.waits import run_patiently

from quorumlog.errors import InvalidConfig, StreamBroken
from quorumlog.runtime import ByteConnection, PeerCertificate, Runtime
from quorumlog.runtime.tls import TlsCredentials, TlsFiles, secret_of
from quorumlog.runtime.tls_connection import (
    UNSENT_MAX,
    ReceiveBuffer,
    TlsConnection,
)
from quorumlog.server.certificates import issue

from .byte_connection import Peer, filled_file

UPDATES = 200_000


class TlsPeer(Peer):
    """A peer that stores the certificate of the other side."""

    certificate: PeerCertificate | None = None
    is_secured = False

    def secured(self, certificate: PeerCertificate | None) -> None:
        """Store it."""
        self.certificate, self.is_secured = certificate, True
        self._changed.set()


def over_tls(
    runtime: Runtime,
    context: ssl.SSLContext,
    create: Callable[[ByteConnection], TlsPeer],
    *,
    server_name: str | None = None,
) -> Callable[[ByteConnection], TlsConnection]:
    """Return a factory for one side of connections."""

    def secured(connection: TlsConnection, certificate: PeerCertificate | None) -> None:
        assert isinstance(connection.protocol, TlsPeer)
        connection.protocol.secured(certificate)

    return lambda transport: TlsConnection(
        transport,
        create,
        context=context,
        tasks=runtime.tasks,
        received=ReceiveBuffer(),
        secured=secured,
        server_name=server_name,
    )


@asynccontextmanager
async def connected(
    runtime: Runtime,
    server: TlsFiles,
    client: TlsFiles,
    *,
    name: str = "localhost",
    buffer_size: int = 1000,
) -> AsyncIterator[tuple[TlsPeer, TlsPeer]]:
    """Return the client's and the server's side of a connection. The handshake may still fail."""
    callers: list[TlsPeer] = []
    accepted: asyncio.Future[TlsPeer] = asyncio.get_running_loop().create_future()

    def accept(connection: ByteConnection) -> TlsPeer:
        accepted.set_result(TlsPeer(connection, buffer_size=buffer_size))
        return accepted.result()

    def call(connection: ByteConnection) -> TlsPeer:
        callers.append(TlsPeer(connection, buffer_size=buffer_size))
        return callers[0]

    listener = await runtime.network.listen_bytes(
        "127.0.0.1:0", over_tls(runtime, server.server_context(), accept)
    )
    await runtime.network.connect_bytes(
        listener.address, over_tls(runtime, client.client_context(), call, server_name=name)
    )
    caller, other = callers[0], await accepted
    try:
        yield caller, other
    finally:
        caller.connection.abort()
        await listener.close(0)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """One authority for all tests."""
    return Certificates.create(tmp_path_factory.mktemp("ca"))


def run(main: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
    """Run on real sockets."""
    run_patiently(main)


def test_bytes_and_ranges_of_files_arrive_in_order(
    certificates: Certificates, tmp_path: Path
) -> None:
    data = bytes(range(256)) * 8_192  # 2 MiB: many pieces

    async def main(runtime: Runtime) -> None:
        file = filled_file(runtime, str(tmp_path / "data"), data)
        async with connected(runtime, certificates.server(), certificates.client()) as (me, other):
            me.connection.write([b"first", b"second"], more=True)
            me.connection.send_range(file, 100, len(data) - 100)
            me.connection.write([b"", b"last"], now=True)
            expected = b"firstsecond" + data[100:] + b"last"
            await other.wait(lambda: len(other.got) >= len(expected))
            assert other.got == expected
            assert other.certificate is None
            assert me.certificate is not None
            assert me.certificate.subject == "CN=server"
            await me.wait(lambda: not me.connection.unsent_bytes())
        file.close()

    run(main)


def test_both_sides_send_at_the_same_time(certificates: Certificates) -> None:
    data = b"x" * (3 << 20)

    async def main(runtime: Runtime) -> None:
        async with connected(
            runtime, certificates.server(), certificates.client(), buffer_size=70_000
        ) as (me, other):
            me.connection.write([data])
            other.connection.write([data])
            await me.wait(lambda: len(me.got) == len(data))
            await other.wait(lambda: len(other.got) == len(data))

    run(main)


def test_paused_reader_holds_the_sender_back_and_loses_nothing(certificates: Certificates) -> None:
    data = b"0123456789abcdef" * (1 << 20)  # 16 MiB

    async def main(runtime: Runtime) -> None:
        async with connected(runtime, certificates.server(), certificates.client()) as (me, other):
            await other.wait(lambda: other.is_secured)
            other.connection.pause_reading()
            got = len(other.got)
            me.connection.write([data])
            await me.wait(lambda: me.sent_calls > 0)
            assert me.connection.unsent_bytes() > len(data) // 2
            assert me.connection._transport.unsent_bytes() <= 2 * UNSENT_MAX  # type: ignore[attr-defined]
            assert len(other.got) == got
            other.connection.resume_reading()
            await other.wait(lambda: len(other.got) == len(data))
            assert other.got == data

    run(main)


def test_close_sends_what_is_queued_and_ends_cleanly_on_both_sides(
    certificates: Certificates,
) -> None:
    data = b"y" * (1 << 20)

    async def main(runtime: Runtime) -> None:
        async with connected(runtime, certificates.server(), certificates.client()) as (me, other):
            other.connection.write([b"go"])  # after the session ticket
            await me.wait(lambda: me.got == b"go")
            me.connection.write([data])
            me.connection.close()
            await other.wait(lambda: bool(other.errors))
            assert len(other.got) == len(data)
            assert other.errors == [None]
            await me.wait(lambda: bool(me.errors))
            assert me.errors == [None]

    run(main)


def test_peer_that_ends_tls_gets_the_end_and_what_is_queued(certificates: Certificates) -> None:
    """Some clients wait half a minute for the announced end before they close."""

    async def main(runtime: Runtime) -> None:
        made: list[TlsPeer] = []

        def create(connection: ByteConnection) -> TlsPeer:
            made.append(TlsPeer(connection))
            return made[-1]

        context = certificates.server().server_context()
        listener = await runtime.network.listen_bytes(
            "127.0.0.1:0", over_tls(runtime, context, create)
        )
        host, _, port = listener.address.rpartition(":")
        reader, writer = await asyncio.open_connection(
            host,
            int(port),
            ssl=certificates.client().client_context(),
            server_hostname="localhost",
            ssl_shutdown_timeout=600,
        )
        writer.write(b"hello")
        await made[0].wait(lambda: made[0].got == b"hello")
        made[0].connection.write([b"answer"])
        assert await reader.readexactly(6) == b"answer"
        writer.close()
        await writer.wait_closed()
        await made[0].wait(lambda: bool(made[0].errors))
        assert made[0].errors == [None]
        await listener.close(0)

    run(main)


def flood_with_key_updates(address: tuple[str, int]) -> int:
    """Send key update requests, which `ssl` cannot. Return their number at the end."""
    openssl = ctypes.CDLL("libssl.so.3")
    pointer = ctypes.c_void_p
    for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
        getattr(openssl, name).restype = pointer
    openssl.SSL_CTX_new.argtypes = openssl.SSL_new.argtypes = [pointer]
    openssl.SSL_set_fd.argtypes = openssl.SSL_key_update.argtypes = [pointer, ctypes.c_int]
    openssl.SSL_connect.argtypes = openssl.SSL_do_handshake.argtypes = [pointer]
    with socket.create_connection(address) as connection:
        tls = openssl.SSL_new(openssl.SSL_CTX_new(openssl.TLS_client_method()))
        openssl.SSL_set_fd(tls, connection.fileno())
        assert openssl.SSL_connect(tls) == 1
        for count in range(UPDATES):
            if openssl.SSL_key_update(tls, 1) != 1 or openssl.SSL_do_handshake(tls) != 1:
                return count
    return UPDATES


@pytest.mark.skipif(find_library("ssl") is None, reason="needs the library of OpenSSL 3")
def test_peer_that_only_updates_keys_is_disconnected(certificates: Certificates) -> None:
    """Each update costs this side more than the peer."""

    async def main(runtime: Runtime) -> None:
        made: list[TlsPeer] = []

        def create(connection: ByteConnection) -> TlsPeer:
            made.append(TlsPeer(connection))
            return made[-1]

        context = certificates.server().server_context()
        listener = await runtime.network.listen_bytes(
            "127.0.0.1:0", over_tls(runtime, context, create)
        )
        host, _, port = listener.address.rpartition(":")
        sent = await asyncio.to_thread(flood_with_key_updates, (host, int(port)))
        assert sent < UPDATES
        await made[0].wait(lambda: bool(made[0].errors))
        assert isinstance(made[0].errors[0], StreamBroken)
        await listener.close(0)

    run(main)


def test_abort_returns_leases(certificates: Certificates, tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        file = filled_file(runtime, str(tmp_path / "data"), b"z" * (8 << 20))
        async with connected(runtime, certificates.server(), certificates.client()) as (me, other):
            await other.wait(lambda: other.is_secured)
            other.connection.pause_reading()
            me.connection.send_range(file, 0, 8 << 20)
            await me.wait(lambda: me.sent_calls > 0)
            me.connection.abort()
            await me.wait(lambda: bool(me.errors))
            assert not me.connection.unsent_bytes()
        file.close()
        assert not getattr(file, "leases", 0)

    run(main)


def test_name_of_a_client_is_that_of_its_certificate(certificates: Certificates) -> None:
    async def main(runtime: Runtime) -> None:
        server = certificates.server(client_auth="required")
        async with connected(runtime, server, certificates.client("alice")) as (_, other):
            await other.wait(lambda: other.is_secured)
            assert other.certificate is not None
            assert other.certificate.subject == "CN=alice"

    run(main)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("no certificate", "peer did not return a certificate"),
        ("another authority", "not accepted"),
        ("expired", "not accepted: certificate has expired"),
    ],
)
def test_clients_that_are_not_accepted(
    certificates: Certificates, tmp_path: Path, case: str, reason: str
) -> None:
    client = certificates.client()
    server = certificates.server(client_auth="required")
    if case != "no certificate":
        bad = self_signed(tmp_path / "bad", is_expired=case == "expired")
        client = TlsFiles(certificate=bad.certificate, key=bad.key, ca=certificates.ca)
        if case == "expired":
            server = TlsFiles(
                certificate=server.certificate,
                key=server.key,
                ca=bad.certificate,
                client_auth="required",
            )

    async def main(runtime: Runtime) -> None:
        async with connected(runtime, server, client) as (_, other):
            await other.wait(lambda: bool(other.errors))
            assert isinstance(other.errors[0], StreamBroken)
            assert reason in other.errors[0].message
            assert not other.is_secured
            assert not other.got

    run(main)


@pytest.mark.parametrize("case", ["another authority", "another host", "expired"])
def test_servers_that_a_client_does_not_accept(
    certificates: Certificates, tmp_path: Path, case: str
) -> None:
    client, server, name = certificates.client(), certificates.server(), "localhost"
    if case == "another host":
        name = "elsewhere.example"
    else:
        server = self_signed(tmp_path / "bad", is_expired=case == "expired")
        if case == "expired":
            client = TlsFiles(ca=server.certificate)

    async def main(runtime: Runtime) -> None:
        async with connected(runtime, server, client, name=name) as (me, _):
            await me.wait(lambda: bool(me.errors))
            assert isinstance(me.errors[0], StreamBroken)
            assert "not accepted" in me.errors[0].message
            assert not me.is_secured

    run(main)


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", bytes(64), b"\x16\x03\x01\xff\xff" + bytes(70_000)]
)
def test_peer_without_tls_is_disconnected(certificates: Certificates, sent: bytes) -> None:
    async def main(runtime: Runtime) -> None:
        made: list[TlsPeer] = []

        def create(connection: ByteConnection) -> TlsPeer:
            made.append(TlsPeer(connection))
            return made[-1]

        context = certificates.server().server_context()
        listener = await runtime.network.listen_bytes(
            "127.0.0.1:0", over_tls(runtime, context, create)
        )
        host, _, port = listener.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        with suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        await made[0].wait(lambda: bool(made[0].errors))
        assert isinstance(made[0].errors[0], StreamBroken)
        await listener.close(0)

    run(main)


def test_old_versions_of_tls_are_refused(certificates: Certificates) -> None:
    files = certificates.server()
    context = files.server_context()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    names = {each["name"] for each in context.get_ciphers()}
    assert all("GCM" in name or "CHACHA20" in name or "TLS_AES" in name for name in names)


def test_changed_files_are_loaded_if_they_fit_together(
    certificates: Certificates, tmp_path: Path
) -> None:
    for name in ("ca.pem", "ca.key", "server.pem", "server.key"):
        target = tmp_path / name
        target.write_bytes((certificates.folder / name).read_bytes())
        target.chmod(0o600)
    mine = Certificates(tmp_path)
    credentials = TlsCredentials(mine.server())
    first = credentials.context
    assert not credentials.reload()
    certificate = (tmp_path / "server.pem").read_bytes()
    issue(tmp_path, "server", name="server", hosts=("localhost",), replace=True)
    renewed = (tmp_path / "server.pem").read_bytes()
    (tmp_path / "server.pem").write_bytes(certificate)  # the key is new, the certificate is not
    assert not credentials.reload()
    assert credentials.context is first
    (tmp_path / "server.pem").write_bytes(renewed)
    assert credentials.reload()
    assert credentials.context is not first


def test_bad_files_are_named(certificates: Certificates, tmp_path: Path) -> None:
    files = certificates.server()
    with pytest.raises(InvalidConfig, match="missing"):
        TlsFiles(certificate=str(tmp_path / "missing"), key=files.key).server_context()
    with pytest.raises(InvalidConfig, match="missing"):
        TlsFiles(certificate=files.certificate, key=str(tmp_path / "missing")).server_context()
    open_key = tmp_path / "open.key"
    open_key.write_bytes(Path(files.key).read_bytes())
    open_key.chmod(0o644)
    with pytest.raises(InvalidConfig, match="chmod o-rwx"):
        TlsFiles(certificate=files.certificate, key=str(open_key)).server_context()
    with pytest.raises(InvalidConfig, match="no certificates of authorities"):
        TlsFiles(ca=files.key).client_context()
    for read in (TlsFiles.client_context, TlsFiles.pem):
        with pytest.raises(InvalidConfig) as raised:
            read(TlsFiles(ca=str(tmp_path / "missing")))
        assert raised.value.message.count("missing") == 1


def test_secrets_are_given_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "secret"
    place.write_text("sesame\n")
    place.chmod(0o600)
    monkeypatch.setenv("QL_TEST_SECRET", "open")
    assert secret_of(f"file:{place}") == "sesame"
    assert secret_of("env:QL_TEST_SECRET") == "open"
    for wrong in ("sesame", "", "env:QL_TEST_MISSING", f"file:{tmp_path / 'none'}"):
        with pytest.raises(InvalidConfig) as raised:
            secret_of(wrong)
        assert "sesame" not in raised.value.message
    place.chmod(0o644)
    with pytest.raises(InvalidConfig, match="every user"):
        secret_of(f"file:{place}")
