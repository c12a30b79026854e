"""Metrics of Kafka clients and of the records that they produce."""

from tests.kit.batches import batch_of
from tests.kit.kafka_node import KafkaNode, serving_kafka

from quorumlog.metrics import Scrape
from quorumlog.metrics import table as rows
from quorumlog.runtime import Runtime
from quorumlog.server.observability.collectors import collect_kafka, collect_log
from quorumlog.simulation import run

from ...frontends.kafka.produce_fetch import create, produced


def looked(kafka: KafkaNode) -> Scrape:
    scrape, parts = Scrape(), kafka.node.parts
    assert parts.kafka is not None
    assert parts.log is not None
    assert parts.replicas is not None
    collect_kafka(scrape, parts.kafka)
    collect_log(scrape, parts.log, parts.replicas)
    return scrape


def test_connections_requests_errors_and_bytes_are_counted() -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, "/data") as kafka:
            (listener,) = kafka.node.addresses.kafka_listeners
            odd = await kafka.connect()
            odd.send_raw(b"GET / HTTP/1.1\r\n\r\n")
            assert await odd.ended() is None
            for _ in range(3):
                await kafka.client.ask(18, 0)
            topics = [{"name": name} for name in ("absent", "neither")]
            wants = ("include_cluster_authorized_operations", "include_topic_authorized_operations")
            plain = {"allow_auto_topic_creation": False, **dict.fromkeys(wants, False)}
            await kafka.client.ask(3, 9, topics=topics, **plain)
            scrape = looked(kafka)
            assert scrape.value(rows.KAFKA_CONNECTIONS, listener) == 1
            assert scrape.value(rows.KAFKA_ACCEPTED, listener) == 2
            assert scrape.value(rows.KAFKA_REFUSED, listener) == 0
            assert scrape.value(rows.KAFKA_ENDED, listener, "invalid") == 1
            assert scrape.value(rows.KAFKA_REQUESTS, "ApiVersions", "answered") == 3
            assert scrape.value(rows.KAFKA_REQUESTS, "ApiVersions", "unanswered") == 0
            assert scrape.value(rows.KAFKA_ERRORS, "Metadata", 3) == 2
            assert scrape.value(rows.KAFKA_OPEN) == scrape.value(rows.KAFKA_HELD) == 0
            received = scrape.value(rows.KAFKA_RECEIVED)
            sent = scrape.value(rows.KAFKA_SENT)
            assert received is not None
            assert sent is not None
            assert 100 < received < sent < 10_000

    run(main)


def test_what_kafka_clients_produce_counts_as_produced() -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, "/data") as kafka:
            await create(kafka, "t")
            good = batch_of(b"a", b"b")
            await produced(kafka.client, (0, good))
            await produced(kafka.client, (0, good[:-1]))
            scrape = looked(kafka)
            assert scrape.value(rows.PRODUCED_BYTES) == 2 * len(good) - 1
            assert scrape.value(rows.PRODUCED_RECORDS) == 2
            assert scrape.value(rows.PRODUCE_FAILURES) == 1
            assert scrape.value(rows.PRODUCES_WAITING) == 0
            took = scrape.found[rows.PRODUCE_SECONDS][("all",)]
            assert not isinstance(took, int | float)
            assert took.count == 2

    run(main)
