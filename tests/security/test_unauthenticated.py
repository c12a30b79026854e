"""Clients that have not logged in, over TLS: every request and method, and logins out of order."""

import asyncio
import resource
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import scramp
from tests.kit.certificates import Certificates
from tests.kit.kafka_client import ConnectionEnded, framed
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.secure_client import SecureClient, connect_tls
from tests.kit.users import set_password
from tests.kit.waits import AMPLE_MS, run_patiently, wait_until

from quorumlog import services
from quorumlog.clients.credentials import SCRAM, TLS, channel_security
from quorumlog.errors import (
    IllegalSaslState,
    NotImplementedHere,
    SaslAuthenticationFailed,
    TransportError,
)
from quorumlog.frontends.grpc.auth_service import OPEN_METHODS
from quorumlog.frontends.kafka.apis import APIS
from quorumlog.proto import auth_pb2
from quorumlog.runtime import (
    PLAIN_CALLS,
    CallContext,
    Channel,
    ChannelSecurity,
    Handler,
    Method,
    Runtime,
    Stream,
)
from quorumlog.services import AUTH_AUTHENTICATE, LOG_PRODUCE

PASSWORD: Final = "correct horse"
KEYS: Final = range(100)  # the keys of the protocol, those that are not offered too
OPEN_KEYS: Final = (17, 18, 36)
_VERSION: Final = {api.key: api.low for api in APIS}
METHODS: Final = [each for each in vars(services).values() if isinstance(each, Method)]
HALF_OPEN: Final = 2_000
VERSIONS: Final = {"client_software_name": "test", "client_software_version": "1"}
DESCRIBE_CLUSTER: Final = 60


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """One authority for all tests."""
    return Certificates.create(tmp_path_factory.mktemp("ca"))


class Secured:
    """A node whose listeners have TLS and passwords, and its user alice."""

    def __init__(self, kafka: KafkaNode, certificates: Certificates) -> None:
        self.kafka = kafka
        self._certificates = certificates

    async def connect(self) -> SecureClient:
        """Return a connection that is not logged in."""
        address = self.kafka.node.addresses.kafka_listeners["SASL_SSL"]
        return await connect_tls(self.kafka.runtime, address, self._certificates.client())

    def channel(self, security: ChannelSecurity) -> Channel:
        """Return a gRPC channel."""
        address = self.kafka.node.addresses.grpc.replace("127.0.0.1", "localhost")
        return self.kafka.runtime.network.channel(address, security)


@asynccontextmanager
async def secured(
    runtime: Runtime, folder: Path, certificates: Certificates, **settings: Any
) -> AsyncIterator[Secured]:
    async with serving_kafka(
        runtime,
        str(folder),
        **certificates.settings(),
        grpc_security_protocol="SASL_SSL",
        listeners_kafka=("SASL_SSL://127.0.0.1:0",),
        sasl_enabled_mechanisms=("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"),
        **settings,
    ) as kafka:
        await set_password(kafka.node, "alice", PASSWORD)
        yield Secured(kafka, certificates)


async def may_describe(client: SecureClient) -> bool:
    """Return True if the client is logged in."""
    answer = await client.ask(
        DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=False, endpoint_type=1
    )
    return not answer.error_code.value


def test_no_key_is_answered_before_the_login(certificates: Certificates, tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        async with secured(runtime, tmp_path / "node", certificates) as node:
            for key in KEYS:
                if key in OPEN_KEYS:
                    continue
                for has_begun in (False, True):
                    client = await node.connect()
                    if has_begun:
                        await client.begin("SCRAM-SHA-256")
                    header = struct.pack(">hhih", key, _VERSION.get(key, 0), 1, -1)
                    client.send_raw(framed(header + bytes(64)))
                    with pytest.raises(ConnectionEnded):
                        await client.frame()

    run_patiently(main)


def test_no_method_is_answered_without_credentials(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Methods between nodes neither, which this listener does not have."""

    async def main(runtime: Runtime) -> None:
        async with secured(
            runtime,
            tmp_path / "node",
            certificates,
            connection_failed_authentication_delay_ms=0,
        ) as node:
            tls = channel_security(TLS(ca=certificates.ca), None)
            assert len(METHODS) > 50
            for authorization in ("", "Bearer ql1.AAAA", "Bearer a.b.c", "Basic YWxpY2U6eA=="):
                login = None if not authorization else (lambda text=authorization: Header(text))
                channel = node.channel(ChannelSecurity(tls=tls.tls, login=login))
                for method in METHODS:
                    if method.path not in OPEN_METHODS:
                        with pytest.raises((SaslAuthenticationFailed, NotImplementedHere)):
                            await ask(channel, method)
                with pytest.raises(SaslAuthenticationFailed):
                    await ask(channel, LOG_PRODUCE)
                await channel.close()

    run_patiently(main)


class Header:
    """A `ChannelLogin` with a fixed header."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def authorization(self, path: str, channel: Channel) -> str:
        """Return the header."""
        return self._text

    def refused(self, authorization: str) -> bool:
        """There is no other one."""
        return False


async def ask(channel: Channel, method: Method[Any, Any]) -> None:
    """Call a method with an empty request."""
    if not method.streaming:
        await channel.call(method, method.request(), timeout_ms=AMPLE_MS)
        return
    stream = await channel.stream(method, timeout_ms=AMPLE_MS)
    try:
        await stream.receive()
    finally:
        stream.abort("the test has ended")


def test_login_has_one_order_and_one_mechanism(certificates: Certificates, tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        async with secured(runtime, tmp_path / "node", certificates) as node:
            client = await node.connect()
            answer = await client.step(b"\0alice\0" + PASSWORD.encode())  # without a handshake
            assert answer.error_code.value == IllegalSaslState.code
            await client.ended()
            client = await node.connect()
            await client.begin("SCRAM-SHA-256")
            answer = await client.begin("PLAIN")  # another mechanism within
            assert answer.error_code.value == IllegalSaslState.code
            await client.ended()
            client = await node.connect()
            assert not (await client.log_in("alice", PASSWORD)).error_code.value
            answer = await client.begin("PLAIN")  # another one for the next session
            assert answer.error_code.value == IllegalSaslState.code
            await client.ended()
            for message in (b"bob\0alice\0", b"\0alice\0x\0", b"\0\0", b"\0alice\0wrong"):
                client = await node.connect()
                await client.begin("PLAIN")
                answer = await client.step(message)
                assert answer.error_code.value == SaslAuthenticationFailed.code
                await client.ended()

    run_patiently(main)


def test_messages_of_another_login_are_refused(certificates: Certificates, tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        async with secured(runtime, tmp_path / "node", certificates) as node:
            exchange = scramp.ScramClient(["SCRAM-SHA-256"], "alice", PASSWORD)
            opening = exchange.get_client_first().encode()
            client = await node.connect()
            await client.begin("SCRAM-SHA-256")
            exchange.set_server_first((await client.step(opening)).auth_bytes.decode())
            final = exchange.get_client_final().encode()
            assert not (await client.step(final)).error_code.value
            assert await may_describe(client)
            for messages in ((opening, final), (final,), (opening, opening)):
                other = await node.connect()
                await other.begin("SCRAM-SHA-256")
                for message in messages:
                    answer = await other.step(message)
                assert answer.error_code.value == SaslAuthenticationFailed.code
                await other.ended()

    run_patiently(main)


@pytest.mark.parametrize("iterations", [1, 4_095, 1 << 30])
def test_client_gives_no_proof_for_few_rounds_and_does_not_compute_very_many(
    iterations: int,
) -> None:
    """A broker that has stolen an address could guess the password from a proof of one round."""
    proofs: list[bytes] = []

    async def authenticate(
        stream: Stream[auth_pb2.AuthenticateResponse, auth_pb2.AuthenticateRequest],
        context: CallContext,
    ) -> None:
        first = await stream.receive()
        assert first is not None
        nonce = first.message.decode().rpartition("r=")[2]
        text = f"r={nonce}more,s=c2FsdHNhbHRzYWx0,i={iterations}"
        await stream.send(auth_pb2.AuthenticateResponse(message=text.encode()))
        if (final := await stream.receive()) is not None:
            proofs.append(final.message)

    async def main(runtime: Runtime) -> None:
        handlers = {AUTH_AUTHENTICATE.path: Handler(AUTH_AUTHENTICATE, authenticate)}
        listener = await runtime.network.serve(
            "127.0.0.1:0", handlers, is_ready=True, security=PLAIN_CALLS
        )
        security = channel_security(None, SCRAM(user="alice", password=PASSWORD))
        channel = runtime.network.channel(listener.address, security)
        with pytest.raises(SaslAuthenticationFailed, match="not valid"):
            await ask(channel, LOG_PRODUCE)
        await channel.close()
        await listener.close(0)
        assert not proofs, "the password can be guessed from a proof"

    run_patiently(main)


def test_strangers_end_at_the_limit_of_connections_in_place_of_clients(
    certificates: Certificates, tmp_path: Path
) -> None:
    """The oldest one of the address with the most of them; an authenticated client never does."""

    async def open_from(source: str, address: str, stack: ExitStack) -> socket.socket:
        stranger = stack.enter_context(socket.socket())
        stranger.setblocking(False)
        stranger.bind((source, 0))
        host, _, port = address.rpartition(":")
        await asyncio.get_running_loop().sock_connect(stranger, (host, int(port)))
        return stranger

    async def main(runtime: Runtime) -> None:
        clients = []
        async with secured(
            runtime, tmp_path / "node", certificates, kafka_connections_max=7
        ) as node:
            address = node.kafka.node.addresses.kafka_listeners["SASL_SSL"]
            server = node.kafka.node.parts.kafka
            assert server is not None
            with ExitStack() as stack:
                alone = await open_from("127.0.0.2", address, stack)
                crowd = [await open_from("127.0.0.3", address, stack) for _ in range(5)]
                await wait_until(lambda: server.connection_count == 7)  # and the fixture's client
                for stranger in crowd:
                    clients.append(await node.connect())
                    assert not (await clients[-1].log_in("alice", PASSWORD)).error_code.value
                    with pytest.raises(ConnectionResetError):
                        await asyncio.get_running_loop().sock_recv(stranger, 1)
                with pytest.raises(BlockingIOError):
                    alone.recv(1)
                for _ in range(2):
                    clients.append(await node.connect())
                    assert not (await clients[-1].log_in("alice", PASSWORD)).error_code.value
                with pytest.raises((ConnectionEnded, TransportError)):
                    await (await node.connect()).log_in("alice", PASSWORD)
                for client in clients:
                    assert await may_describe(client)

    run_patiently(main)


def test_certificate_that_no_rule_accepts_ends_no_connection_of_a_user(
    certificates: Certificates, tmp_path: Path
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(
            runtime,
            str(tmp_path / "node"),
            **certificates.settings(),
            listeners_kafka=("127.0.0.1:0", "SSL://127.0.0.1:0"),
            ssl_client_auth="required",
            ssl_principal_mapping_rules="RULE:^CN=(alice)$/$1/",
            kafka_connections_max=3,
        ) as kafka:
            address = kafka.node.addresses.kafka_listeners["SSL"]
            server = kafka.node.parts.kafka
            assert server is not None
            alice = [
                await connect_tls(runtime, address, certificates.client("alice"))
                for _ in range(2)  # and the fixture's client
            ]
            for client in alice:
                await client.ask(18, 3, **VERSIONS)
            mallory = await connect_tls(runtime, address, certificates.client("mallory"))
            await mallory.ended()
            for client in alice:
                await client.ask(18, 3, **VERSIONS)
            assert server.figures.listeners["SSL"].ended == {"unauthenticated": 1}

    run_patiently(main)


@pytest.mark.slow
def test_client_is_served_beside_thousands_of_unfinished_handshakes(
    certificates: Certificates, tmp_path: Path
) -> None:
    hello = ssl.MemoryBIO()
    begun = (
        certificates.client()
        .client_context()
        .wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    )
    with pytest.raises(ssl.SSLWantReadError):
        begun.do_handshake()
    pieces = (b"", hello.read())

    async def main(runtime: Runtime) -> None:
        async with secured(
            runtime,
            tmp_path / "node",
            certificates,
            kafka_connections_max=2 * HALF_OPEN,
        ) as node:
            client = await node.connect()
            assert not (await client.log_in("alice", PASSWORD)).error_code.value
            host, _, port = node.kafka.node.addresses.kafka_listeners["SASL_SSL"].rpartition(":")
            opened: list[socket.socket] = []
            loop = asyncio.get_running_loop()
            for number in range(HALF_OPEN):
                stranger = socket.socket()
                stranger.setblocking(False)
                await loop.sock_connect(stranger, (host, int(port)))
                piece = pieces[number % 2]
                await loop.sock_sendall(stranger, piece[: len(piece) // 2])
                opened.append(stranger)
                if number % 100 == 0:
                    assert await may_describe(client)
            other = await node.connect()
            assert not (await other.log_in("alice", PASSWORD)).error_code.value
            assert node.kafka.node.parts.kafka is not None
            assert node.kafka.node.parts.kafka.memory.taken == 0
            for stranger in opened:
                stranger.close()
            assert await may_describe(client)

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8_000, limits[1]), limits[1]))
    try:
        run_patiently(main)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
