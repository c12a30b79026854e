"""Clients of the Kafka protocol over TLS: each mechanism, and each client library."""

import asyncio
import time
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiokafka
import pytest
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tests.kit.certificates import Certificates
from tests.kit.issuer import TokenIssuer
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.users import SHA_256, SHA_512, add_acl, set_password
from tests.kit.waits import run_patiently

from quorumlog.clients.credentials import TLS, Token
from quorumlog.clients.mirror.kafka_source import KafkaSource
from quorumlog.metadata.acls import AclOperation, AclResourceType
from quorumlog.runtime import Runtime

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in an old way
    import kafka as kafka_python

PASSWORD: Final = "correct horse, battery=staple"
USER: Final = "User:alice"
TOPIC: Final = "allowed"
WAIT_S: Final = 60.0


async def permit(node: KafkaNode, principal: str) -> None:
    """Let a principal use every resource with the name of the topic."""
    for kind in (AclResourceType.TOPIC, AclResourceType.GROUP):
        await add_acl(node.node, principal, AclOperation.ALL, kind, TOPIC)


@asynccontextmanager
async def secure_node(
    runtime: Runtime, folder: Path, certificates: Certificates, **settings: Any
) -> AsyncIterator[KafkaNode]:
    """A node with a listener for each protocol, and alice with a password of either hash."""
    options: dict[str, Any] = {  # in this order: each state is checked
        **certificates.settings(),
        "super_users": ("User:ANONYMOUS",),
        **settings,
        "listeners_kafka": tuple(
            f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "SASL_SSL", "SSL")
        ),
    }
    options.setdefault("sasl_enabled_mechanisms", ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"))
    async with serving_kafka(runtime, str(folder), **options) as kafka:
        for mechanism in (SHA_256, SHA_512):
            await set_password(kafka.node, "alice", PASSWORD, mechanism)
        await permit(kafka, USER)
        yield kafka


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """One authority for all tests."""
    return Certificates.create(tmp_path_factory.mktemp("ca"))


def use_librdkafka(config: dict[str, Any]) -> None:
    """Produce and consume a record of the topic; another topic is denied."""
    producer = Producer({**config, "message.timeout.ms": 60_000})
    outcomes: list[KafkaError | None] = []
    producer.produce(TOPIC, b"value", on_delivery=lambda error, _: outcomes.append(error))
    producer.produce("denied", b"value", on_delivery=lambda error, _: outcomes.append(error))
    assert not producer.flush(WAIT_S)
    codes = [None if error is None else error.code() for error in outcomes]
    assert set(codes) == {None, KafkaError.TOPIC_AUTHORIZATION_FAILED}
    consumer = Consumer({**config, "group.id": TOPIC, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([TOPIC])
        deadline_s = time.monotonic() + WAIT_S
        message = None
        while message is None and time.monotonic() < deadline_s:
            message = consumer.poll(1.0)
        assert message is not None
        assert message.value() == b"value"
    finally:
        consumer.close()


def over(certificates: Certificates, address: str, protocol: str, **more: str) -> dict[str, Any]:
    """The configuration of librdkafka."""
    return {
        "bootstrap.servers": address.replace("127.0.0.1", "localhost"),
        "security.protocol": protocol,
        "ssl.ca.location": certificates.ca,
        "broker.address.family": "v4",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_librdkafka_logs_in_with_a_password(
    certificates: Certificates, tmp_path: Path, mechanism: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with secure_node(runtime, tmp_path / "node", certificates) as kafka:
            address = kafka.node.addresses.kafka_listeners["SASL_SSL"]
            config = over(
                certificates,
                address,
                "SASL_SSL",
                sasl_mechanism=mechanism,
                sasl_username="alice",
                sasl_password=PASSWORD,
            )
            await asyncio.to_thread(use_librdkafka, config)
            wrong = {**config, "sasl.password": "wrong"}
            with pytest.raises(KafkaException) as raised:
                await asyncio.to_thread(AdminClient(wrong).list_topics, timeout=3)
            assert raised.value.args[0].code() == KafkaError._TRANSPORT

    run_patiently(main)


def test_librdkafka_is_known_by_its_certificate(certificates: Certificates, tmp_path: Path) -> None:
    files = certificates.client("alice")

    async def main(runtime: Runtime) -> None:
        async with secure_node(
            runtime,
            tmp_path / "node",
            certificates,
            ssl_client_auth="required",
            ssl_principal_mapping_rules="RULE:^CN=([a-z]+)$/$1/,DEFAULT",
        ) as kafka:
            address = kafka.node.addresses.kafka_listeners["SSL"]
            config = over(
                certificates,
                address,
                "SSL",
                ssl_certificate_location=files.certificate,
                ssl_key_location=files.key,
            )
            await asyncio.to_thread(use_librdkafka, config)
            without = over(certificates, address, "SSL")
            with pytest.raises(KafkaException):
                await asyncio.to_thread(AdminClient(without).list_topics, timeout=3)

    run_patiently(main)


def test_librdkafka_sends_tokens_of_an_issuer(certificates: Certificates, tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        with TokenIssuer(certificates.server()) as issuer:
            async with secure_node(
                runtime,
                tmp_path / "node",
                certificates,
                **{
                    **issuer.settings(certificates.ca),
                    "sasl_enabled_mechanisms": ("OAUTHBEARER",),
                },
            ) as kafka:
                address = kafka.node.addresses.kafka_listeners["SASL_SSL"]
                config: dict[str, Any] = over(
                    certificates, address, "SASL_SSL", sasl_mechanism="OAUTHBEARER"
                )
                config["oauth_cb"] = lambda _: (issuer.token("alice"), time.time() + 600)
                await asyncio.to_thread(use_librdkafka, config)
                assert issuer.requests == 1
                config["oauth_cb"] = lambda _: (issuer.token("alice", aud="x"), time.time() + 600)
                with pytest.raises(KafkaException):
                    await asyncio.to_thread(AdminClient(config).list_topics, timeout=3)

    run_patiently(main)


def test_mirror_reads_with_a_token(certificates: Certificates, tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        with TokenIssuer(certificates.server()) as issuer:
            options = {
                **issuer.settings(certificates.ca),
                "sasl_enabled_mechanisms": ("OAUTHBEARER",),
            }
            folder = tmp_path / "node"
            async with secure_node(runtime, folder, certificates, **options) as kafka:
                source = KafkaSource(
                    runtime,
                    kafka.node.addresses.kafka_listeners["SASL_SSL"],
                    tls=TLS(ca=certificates.ca),
                    credentials=Token(lambda: issuer.token("alice")),
                )
                try:
                    assert await source.cluster_id()
                    assert await source.topics() == []
                finally:
                    await source.close()

    run_patiently(main)


def use_kafka_python(certificates: Certificates, address: str, mechanism: str) -> None:
    """Produce and consume a record of the topic."""
    config: dict[str, Any] = {
        "bootstrap_servers": address.replace("127.0.0.1", "localhost"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": certificates.ca,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }
    producer = kafka_python.KafkaProducer(**config)
    producer.send(TOPIC, b"value").get(timeout=WAIT_S)
    producer.close()
    consumer = kafka_python.KafkaConsumer(
        TOPIC, **config, auto_offset_reset="earliest", consumer_timeout_ms=int(WAIT_S * 1_000)
    )
    assert next(iter(consumer)).value == b"value"
    consumer.close()


async def use_aiokafka(certificates: Certificates, address: str, mechanism: str) -> None:
    """Produce and consume a record of the topic."""
    config: dict[str, Any] = {
        "bootstrap_servers": address.replace("127.0.0.1", "localhost"),
        "security_protocol": "SASL_SSL",
        "ssl_context": create_ssl_context(cafile=certificates.ca),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }
    async with aiokafka.AIOKafkaProducer(**config) as producer:
        await producer.send_and_wait(TOPIC, b"value")
    consumer = aiokafka.AIOKafkaConsumer(TOPIC, **config, auto_offset_reset="earliest")
    async with consumer:
        async with asyncio.timeout(WAIT_S):
            assert (await consumer.getone()).value == b"value"


@pytest.mark.parametrize("use", [use_kafka_python, use_aiokafka])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_python_clients_log_in_with_a_password(
    certificates: Certificates, tmp_path: Path, use: Callable[..., Any], mechanism: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with secure_node(runtime, tmp_path / "node", certificates) as kafka:
            address = kafka.node.addresses.kafka_listeners["SASL_SSL"]
            if asyncio.iscoroutinefunction(use):
                await use(certificates, address, mechanism)
            else:
                await asyncio.to_thread(use, certificates, address, mechanism)

    run_patiently(main)


def test_record_of_a_megabyte_and_many_small_ones_pass_through_tls(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Ranges of segment files are read, encrypted and sent in pieces."""
    large = bytes(range(256)) * 3_900
    small = [b"%06d" % number for number in range(20_000)]

    def use(config: dict[str, Any]) -> None:
        producer = Producer(config)
        for value in (large, *small):
            producer.produce(TOPIC, value)
            producer.poll(0)
        assert not producer.flush(WAIT_S)
        consumer = Consumer({**config, "group.id": TOPIC, "auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        found: list[bytes | None] = []
        deadline_s = time.monotonic() + WAIT_S
        while len(found) <= len(small) and time.monotonic() < deadline_s:
            found += [message.value() for message in consumer.consume(1_000, 1.0)]
        consumer.close()
        assert found == [large, *small]

    async def main(runtime: Runtime) -> None:
        async with secure_node(runtime, tmp_path / "node", certificates) as kafka:
            address = kafka.node.addresses.kafka_listeners["SASL_SSL"]
            config = over(
                certificates,
                address,
                "SASL_SSL",
                sasl_mechanism="SCRAM-SHA-256",
                sasl_username="alice",
                sasl_password=PASSWORD,
            )
            await asyncio.to_thread(use, config)

    run_patiently(main)
