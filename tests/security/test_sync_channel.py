"""Blocking channels with TLS and logins, as Spark's processes use them, on real sockets."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from tests.kit.certificates import Certificates
from tests.kit.waits import AMPLE_MS, run_patiently

from quorumlog import SCRAM, TLS, Token
from quorumlog.clients.credentials import sync_login
from quorumlog.errors import (
    ConnectionFailed,
    InvalidConfig,
    OutcomeUnknown,
    SaslAuthenticationFailed,
    StreamBroken,
)
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.runtime import (
    ANONYMOUS_CLIENT,
    CallContext,
    CallPeer,
    CallSecurity,
    CallSession,
    Handler,
    Method,
    Runtime,
)
from quorumlog.runtime.grpc_network import SyncChannel, SyncStream
from quorumlog.runtime.tls import TlsCredentials
from quorumlog.services import (
    ADMIN_DESCRIBE_CLUSTER,
    AUTH_AUTHENTICATE,
    LOG_PUBLISH,
    LOG_SUBSCRIBE,
)
from quorumlog.testing import Broker

FAILED_CONNECTION = (ConnectionFailed, OutcomeUnknown, StreamBroken)


class CountingChannel(SyncChannel):
    """A channel that counts its logins."""

    logins = 0

    def stream(
        self, method: Method[Any, Any], requests: Iterable[Any], *, timeout_ms: int = 0
    ) -> SyncStream[Any]:
        self.logins += method.path == AUTH_AUTHENTICATE.path
        return super().stream(method, requests, timeout_ms=timeout_ms)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(secure=True) as started:
        yield started


def open_channel(broker: Broker, password: str) -> CountingChannel:
    credentials = SCRAM(user="admin", password=password)
    tls = TLS(ca=broker.ca_file).files()
    return CountingChannel(broker.grpc, tls=tls, login=sync_login(credentials))


@pytest.fixture
def channel(broker: Broker) -> Iterator[CountingChannel]:
    with open_channel(broker, broker.password) as opened:
        yield opened


def describe(channel: SyncChannel) -> str:
    request = admin_pb2.DescribeClusterRequest()
    return channel.call(ADMIN_DESCRIBE_CLUSTER, request, timeout_ms=AMPLE_MS).cluster_id


def once_connected(job: Callable[[], Any]) -> Any:
    """Return the result of a job, repeated while the connection is not open again."""
    while True:
        try:
            return job()
        except FAILED_CONNECTION:
            threading.Event().wait(0.1)


@pytest.mark.long
def test_threads_share_one_login(channel: CountingChannel) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(describe(channel))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(AMPLE_MS / 1000)
    assert len(set(found)) == 1
    assert len(found) == 8
    assert channel.logins == 1


def test_session_is_renewed_before_it_expires(channel: CountingChannel) -> None:
    describe(channel)
    login: Any = channel._login
    login._renewed_s = 0.0
    describe(channel)
    describe(channel)
    assert channel.logins == 2


@pytest.mark.long
def test_refused_session_is_followed_by_one_login(broker: Broker, channel: CountingChannel) -> None:
    """A restarted broker refuses the sessions of its predecessor."""
    topic = broker.create_topic()
    describe(channel)
    broker.restart()
    once_connected(lambda: describe(channel))
    assert channel.logins == 2

    def first_response() -> Any:
        request = log_pb2.SubscribeRequest(topic=topic, end_offset=1, max_bytes=1_000)
        stream = channel.stream(LOG_SUBSCRIBE, [request], timeout_ms=AMPLE_MS)
        try:
            return next(stream)
        finally:
            stream.close()

    with broker.connect() as admin, admin.producer() as producer:
        producer.send(topic, value=b"one").result()
    assert first_response().next_offset == 1
    assert channel.logins == 2
    broker.restart()
    assert once_connected(first_response).next_offset == 1
    assert channel.logins == 3


def test_wrong_password_is_refused_after_one_attempt(broker: Broker) -> None:
    with open_channel(broker, "hunter2-wrong") as channel:
        with pytest.raises(SaslAuthenticationFailed) as caught:
            describe(channel)
        assert "hunter2-wrong" not in f"{caught.value}{caught.value!r}"
        assert channel.logins == 1
        with pytest.raises(SaslAuthenticationFailed):
            channel.stream(LOG_SUBSCRIBE, [log_pb2.SubscribeRequest(topic="t")])


def test_file_that_is_absent_on_this_machine_is_named() -> None:
    with pytest.raises(InvalidConfig, match=r"^/absent/ca.pem: .*No such file"):
        SyncChannel("127.0.0.1:1", tls=TLS(ca="/absent/ca.pem").files())


class OneToken:
    """Accepts one bearer token; counts the refused calls."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.refusals = 0

    async def authenticate(self, path: str, peer: CallPeer) -> CallSession:
        if peer.authorization != f"Bearer {self._token}":
            self.refusals += 1
            raise SaslAuthenticationFailed("the token has expired")
        return CallSession(ANONYMOUS_CLIENT)


async def publish(request: log_pb2.PublishRequest, context: CallContext) -> log_pb2.PublishResponse:
    return log_pb2.PublishResponse(partition=1)


def with_server(security: CallSecurity, client: Callable[[str], None]) -> None:
    """Run a blocking client in a thread beside a server."""

    async def main(runtime: Runtime) -> None:
        listener = await runtime.network.serve(
            "127.0.0.1:0", {LOG_PUBLISH.path: Handler(LOG_PUBLISH, publish)}, security=security
        )
        await asyncio.to_thread(client, listener.address)

    run_patiently(main)


def partition_of(channel: SyncChannel) -> int:
    request = log_pb2.PublishRequest(topic="t")
    return channel.call(LOG_PUBLISH, request, timeout_ms=AMPLE_MS).partition


def test_newest_token_of_an_issuer_is_sent(tmp_path: Path) -> None:
    certificates = Certificates.create(tmp_path / "ca")
    accepted = OneToken("new")
    security = CallSecurity(tls=TlsCredentials(certificates.server()), authenticator=accepted)
    place = tmp_path / "token"
    place.touch(mode=0o600)

    def client(address: str) -> None:
        tokens = iter(["old", "new", "new"])
        renewed = sync_login(Token(lambda: next(tokens)))
        with SyncChannel(address, tls=certificates.client(), login=renewed) as channel:
            assert partition_of(channel) == 1
        assert accepted.refusals == 1
        stored = sync_login(Token(f"file:{place}"))
        with SyncChannel(address, tls=certificates.client(), login=stored) as channel:
            place.write_text("old\n")
            with pytest.raises(SaslAuthenticationFailed, match="has expired"):
                partition_of(channel)
            assert accepted.refusals == 2
            place.write_text("new\n")
            assert partition_of(channel) == 1
        assert accepted.refusals == 2

    with_server(security, client)


def test_certificate_and_encrypted_key_may_be_in_one_file(tmp_path: Path) -> None:
    """Kafka's keystore of type PEM is one file."""
    certificates = Certificates.create(tmp_path / "ca")
    own = certificates.client("alice")
    key = serialization.load_pem_private_key(Path(own.key).read_bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"of the key"),
    )
    keystore, password = tmp_path / "keystore.pem", tmp_path / "password"
    for path in (keystore, password):
        path.touch(mode=0o600)
    password.write_text("of the key\n")
    security = CallSecurity(tls=TlsCredentials(certificates.server(client_auth="required")))

    def client(address: str) -> None:
        tls = TLS(
            ca=certificates.ca,
            certificate=str(keystore),
            key=str(keystore),
            key_password=f"file:{password}",
        )
        for parts in ((encrypted, Path(own.certificate).read_bytes()),
                      (Path(own.certificate).read_bytes(), encrypted)):  # fmt: skip
            keystore.write_bytes(b"".join(parts))
            with SyncChannel(address, tls=tls.files()) as channel:
                assert partition_of(channel) == 1
        unnamed = SyncChannel(address, tls=certificates.client())
        with unnamed, pytest.raises(FAILED_CONNECTION):
            partition_of(unnamed)

    with_server(security, client)
