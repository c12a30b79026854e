"""Records that gRPC and Kafka clients write and read are equal, byte for byte."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.kit.client_security import ClientSecurity
from tests.kit.secure_client import connect_with

from quorumlog.proto import log_pb2
from quorumlog.records import decode_all
from quorumlog.runtime import Runtime
from quorumlog.runtime.real import run
from quorumlog.services import LOG_FETCH

from ..unit.frontends.kafka.produce_fetch import fetched
from .clients.registry import CLIENTS, opened
from .cluster import Cluster, ThreeNodes
from .driving import CODECS, Codec, Driver, Found, Sent, read
from .records import T0, assert_same, contents, numbered, unusual

pytestmark = pytest.mark.slow

MakeTopic = Callable[..., str]
NAMED = (4, 7, 11, 12)  # versions with topic names; later ones have topic ids
BY_ID = (13, 16, 18)
WAIT_MS = 10_000


@pytest.fixture
def nodes(cluster: Cluster) -> ThreeNodes:
    if not isinstance(cluster, ThreeNodes):
        pytest.skip("excluded: it has no gRPC listener")
    return cluster


def by_our_client(nodes: ThreeNodes, topic: str) -> list[Found]:
    """Return the records of partition 0, read by the quorumlog consumer by gRPC."""
    with nodes.log() as log, log.consumer(topic, until_end=True) as consumer:
        return [
            Found(
                partition=record.partition,
                offset=record.offset,
                value=record.value,
                key=record.key,
                headers=tuple(record.headers),
                timestamp_ms=record.timestamp_ms,
            )
            for record in consumer
        ]


def test_both_protocols_serve_the_records_of_a_client(
    client: Driver, nodes: ThreeNodes, topic: MakeTopic
) -> None:
    name = topic()
    records = [*unusual(client), *numbered(50)]
    codecs = [codec for codec in CODECS if codec not in client.cannot]
    for codec in codecs:
        with client.writer(codec=codec) as writer:
            writer.send(name, records)
    found = by_our_client(nodes, name)
    assert contents(found) == contents(records * len(codecs))
    with client.reader(name, {0: "beginning"}) as reader:
        assert read(reader, len(found)) == found
    assert_both_protocols_return_the_stored_bytes(nodes, name)


def test_every_client_reads_the_records_of_our_producer(
    client: Driver, nodes: ThreeNodes, topic: MakeTopic
) -> None:
    name = topic()
    records = [
        Sent(key=b"key", value=b"value", timestamp_ms=T0),
        Sent(key=None, value=bytes(range(256)), timestamp_ms=T0 + 5),
        Sent(key=b"headers", value=b"v", headers=(("h", b"1"), ("h", b"2")), timestamp_ms=T0 - 7),
        Sent(key=b"tombstone", value=None, timestamp_ms=T0),
        *numbered(500),
    ]
    codecs = [codec for codec in CODECS if codec not in client.cannot]
    with nodes.log() as log:
        for codec in codecs:
            with log.producer(compression=codec) as producer:
                for record in records:
                    producer.send(
                        name,
                        record.value,
                        key=record.key,
                        headers=record.headers,
                        timestamp_ms=record.timestamp_ms,
                        partition=0,
                    )
    found = by_our_client(nodes, name)
    assert contents(found) == contents(records * len(codecs))
    with client.reader(name, {0: "beginning"}) as reader:
        assert read(reader, len(found)) == found
    assert_both_protocols_return_the_stored_bytes(nodes, name)


@pytest.fixture(scope="module")
def all_clients(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Driver]]:
    """Return the drivers of all clients that this machine has, by name."""
    with ExitStack() as stack:
        found = {}
        for name in CLIENTS:
            folder = tmp_path_factory.mktemp("client")
            with suppress(pytest.skip.Exception):
                found[name] = stack.enter_context(
                    opened(name, cluster.bootstrap, folder, cluster.security)
                )
        yield found


@pytest.mark.long
@pytest.mark.parametrize("codec", CODECS)
def test_all_clients_read_equal_records_of_one_client(
    client: Driver, all_clients: dict[str, Driver], topic: MakeTopic, codec: Codec
) -> None:
    if codec in client.cannot:
        pytest.skip(f"excluded: {client.name}, {codec}: {client.cannot[codec]}")
    name = topic()
    records = [*unusual(client), *numbered(100, size=2000)]
    with client.writer(codec=codec) as writer:
        writer.send(name, records)
    found = {}
    for driver in all_clients.values():
        if codec not in driver.cannot:
            with driver.reader(name, {0: "beginning"}) as reader:
                found[driver.name] = read(reader, len(records))
    assert_same(found[client.name], records)
    for other, seen in found.items():
        assert seen == found[client.name], other


def assert_both_protocols_return_the_stored_bytes(nodes: ThreeNodes, topic: str) -> None:
    """Check that every version of Fetch, and gRPC, returns the bytes of the leader's log."""
    leader = nodes.nodes[nodes.leader(topic, 0)]
    log = Path(leader.data_dir) / f"{topic}-0"
    stored = b"".join(path.read_bytes() for path in sorted(log.glob("*.log")))
    with nodes.log() as client:
        described = client.admin.describe_topic(topic)
    kafka = nodes.addresses[nodes.leader(topic, 0)]
    for version in (*NAMED, *BY_ID):
        which = {"topic": topic} if version in NAMED else {"topic_id": described.topic_id}
        read_all = partial(
            by_kafka, address=kafka, security=nodes.security, version=version, which=which
        )
        assert run(read_all) == stored, version
    assert run(partial(by_grpc, address=leader.address, topic=topic)) == stored


async def by_kafka(
    runtime: Runtime,
    address: str,
    security: ClientSecurity | None,
    version: int,
    which: dict[str, Any],
) -> bytes:
    """Fetch all of partition 0 with this version of Fetch."""
    found = b""
    offset = 0
    client = await connect_with(runtime, address, security)
    try:
        while True:
            part = {"partition_max_bytes": 10_000}
            (result,) = await fetched(client, (0, offset), version=version, part=part, **which)
            assert result.error_code == 0, result
            if not result.records:
                return found
            found += result.records
            offset = decode_all(result.records)[-1].offset + 1
    finally:
        client.connection.abort()


async def by_grpc(runtime: Runtime, address: str, topic: str) -> bytes:
    """Fetch all of partition 0 by gRPC."""
    channel = runtime.network.channel(address)
    found = b""
    offset = 0
    try:
        while True:
            part = log_pb2.FetchPartition(topic=topic, partition=0, offset=offset)
            answer = await channel.call(
                LOG_FETCH, log_pb2.FetchRequest(partitions=[part]), timeout_ms=WAIT_MS
            )
            (result,) = answer.results
            assert not result.HasField("error"), result
            if not result.records:
                return found
            found += result.records
            offset = decode_all(result.records)[-1].offset + 1
    finally:
        await channel.close()
