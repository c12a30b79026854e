"""Quotas of clients on a whole node: responses at once with a throttle time, then a pause.

The tests use virtual time, so every wait is exact.
"""

import asyncio
from collections.abc import Callable, Coroutine
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.kit.batches import batch_of
from tests.kit.kafka_client import RawClient
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import WAIT_MS

from quorumlog import simulation
from quorumlog.proto import admin_pb2 as pb
from quorumlog.runtime import Runtime, real
from quorumlog.services import ADMIN_ALTER_CLIENT_QUOTAS

from .produce_fetch import FETCH, PRODUCE, create, fetch_fields, produce_fields

METADATA = 3
NO_TOPICS = {
    "topics": (),
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
RATE = 10_000  # bytes a second
BURST = 10 * RATE
NEARLY_MS = 100  # round trips, and the bytes of a request besides its records


def with_node(work: Callable[[KafkaNode, Runtime], Coroutine[Any, Any, None]]) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, "/data") as kafka:
            await create(kafka, "t")
            await work(kafka, runtime)

    simulation.run(main)


async def set_quota(
    kafka: KafkaNode, key: str = "producer_byte_rate", value: float | None = RATE, **entity: str
) -> None:
    """Set a quota for every client id, unless an entity is given."""
    parts = [{"type": kind.replace("_", "-"), "name": name} for kind, name in entity.items()]
    request = pb.AlterClientQuotasRequest(
        alterations=[
            pb.ClientQuotaAlteration(
                entity=parts or [{"type": "client-id"}], changes=[{"key": key, "value": value}]
            )
        ]
    )
    answer = await kafka.channel.call(ADMIN_ALTER_CLIENT_QUOTAS, request, timeout_ms=WAIT_MS)
    assert not answer.results[0].HasField("error")


async def ask(client: RawClient, key: int, version: int, client_id: str, **fields: Any) -> Any:
    client.send(key, version, client_id=client_id, **fields)
    return (await client.answer(key, version))[1]


async def produce(client: RawClient, size: int, *, client_id: str = "app", version: int = 9) -> int:
    """Produce a batch of about so many bytes. Return the throttle time."""
    fields = produce_fields(version, (0, batch_of(bytes(size))))
    answer = await ask(client, PRODUCE, version, client_id, **fields)
    (topic,) = answer.responses
    assert topic.partition_responses[0].error_code == 0
    return ms_of(answer)


def ms_of(answer: Any) -> int:
    told_ms: int = round(answer.throttle_time.total_seconds() * 1000)
    return told_ms


async def ask_metadata(client: RawClient, client_id: str = "app") -> Any:
    return await ask(client, METADATA, 9, client_id, **NO_TOPICS)


@pytest.mark.parametrize("version", [3, 5, 9, 12])
def test_throttled_producer_is_answered_at_once_and_paused_for_the_throttle_time(
    version: int,
) -> None:
    async def work(kafka: KafkaNode, runtime: Runtime) -> None:
        await set_quota(kafka)
        began_ms = runtime.clock.now_ms()
        assert await produce(kafka.client, BURST - 1_000, version=version) == 0
        told_ms = await produce(kafka.client, 3 * RATE, version=version)
        assert 2_900 <= told_ms <= 2_900 + NEARLY_MS
        assert runtime.clock.now_ms() - began_ms < 2 * NEARLY_MS
        await ask_metadata(kafka.client)
        waited_ms = runtime.clock.now_ms() - began_ms
        assert told_ms <= waited_ms <= told_ms + 2 * NEARLY_MS

    with_node(work)


def test_produce_request_without_acks_is_charged() -> None:
    async def work(kafka: KafkaNode, runtime: Runtime) -> None:
        await set_quota(kafka)
        began_ms = runtime.clock.now_ms()
        fields = produce_fields(9, (0, batch_of(bytes(BURST + 2 * RATE))), acks=0)
        kafka.client.send(PRODUCE, 9, client_id="app", **fields)
        await ask_metadata(kafka.client)
        assert 2_000 <= runtime.clock.now_ms() - began_ms <= 2_000 + 2 * NEARLY_MS

    with_node(work)


def test_throttled_consumer_gets_the_records_at_once_and_is_paused() -> None:
    async def work(kafka: KafkaNode, runtime: Runtime) -> None:
        for _ in range(4):
            await produce(kafka.client, 4 * RATE)
        await set_quota(kafka, "consumer_byte_rate")
        got, throttle_ms = [], []
        for offset in (0, 2, 4):
            answer = await ask(kafka.client, FETCH, 12, "app", **fetch_fields(12, (0, offset)))
            (topic,) = answer.responses
            got.append(len(topic.partitions[0].records or b""))
            throttle_ms.append(ms_of(answer))
        # No response is larger than the burst: two of the four batches fit.
        assert got[0] == got[1] > 2 * 4 * RATE
        assert got[1] <= BURST
        assert got[2] == 0
        assert throttle_ms[0] == 0
        assert 6_000 <= throttle_ms[1] <= 6_000 + NEARLY_MS
        assert throttle_ms[2] <= NEARLY_MS

    with_node(work)


def test_quota_of_one_direction_does_not_delay_the_other() -> None:
    async def work(kafka: KafkaNode, runtime: Runtime) -> None:
        await set_quota(kafka, "consumer_byte_rate", 1)
        assert await produce(kafka.client, 10 * BURST) == 0

    with_node(work)


def test_all_connections_of_a_client_share_its_quota() -> None:
    async def work(kafka: KafkaNode, runtime: Runtime) -> None:
        await set_quota(kafka)
        other = await kafka.connect()
        assert await produce(kafka.client, BURST) < NEARLY_MS
        told_ms = await produce(other, 5 * RATE)
        assert 5_000 <= told_ms <= 5_000 + NEARLY_MS
        # A new connection does not avoid the quota.
        again_ms = await produce(await kafka.connect(), 0)
        assert told_ms - 2 * NEARLY_MS <= again_ms <= told_ms + 2 * NEARLY_MS

    with_node(work)


def test_others_are_served_while_a_client_waits() -> None:
    async def work(kafka: KafkaNode, runtime: Runtime) -> None:
        await set_quota(kafka)
        other = await kafka.connect()
        assert await produce(kafka.client, 10 * BURST, client_id="greedy") > 60_000
        kafka.client.send(METADATA, 9, client_id="greedy", **NO_TOPICS)
        began_ms = runtime.clock.now_ms()
        for _ in range(5):
            assert await produce(other, 1_000, client_id="modest") == 0
        assert runtime.clock.now_ms() - began_ms < NEARLY_MS

    with_node(work)


def test_throttled_client_gets_its_rate_and_recovers_after_a_pause() -> None:
    """Twenty seconds of steady sends, then one second of pause for each second of debt."""

    async def work(kafka: KafkaNode, runtime: Runtime) -> None:
        await set_quota(kafka)
        began_ms = runtime.clock.now_ms()
        sent = 0
        while (passed_ms := runtime.clock.now_ms() - began_ms) < 20_000:
            told_ms = await produce(kafka.client, RATE)
            sent += RATE
            await asyncio.sleep(told_ms / 1000)
        assert BURST + RATE * passed_ms / 1000 - RATE <= sent
        assert sent <= BURST + RATE * passed_ms / 1000 + 2 * RATE
        await asyncio.sleep(10)
        assert await produce(kafka.client, BURST - RATE) == 0

    with_node(work)


def test_clients_with_equal_quotas_get_equal_shares_for_any_request_size() -> None:
    async def sending(client: RawClient, size: int, client_id: str, sent: dict[str, int]) -> None:
        while True:
            await produce(client, size, client_id=client_id)
            sent[client_id] += size

    async def work(kafka: KafkaNode, runtime: Runtime) -> None:
        await set_quota(kafka)
        sizes = {"small": RATE // 2, "large": 3 * RATE}
        sent = dict.fromkeys(sizes, 0)
        async with runtime.tasks.scope("clients") as scope:
            for client_id, size in sizes.items():
                client = await kafka.connect()
                scope.spawn(sending(client, size, client_id, sent), name=client_id)
            await asyncio.sleep(30)
            scope.cancel()
        for client_id, total in sent.items():
            assert 0.9 <= total / (40 * RATE) <= 1.1, (client_id, total)

    with_node(work)


def test_removed_quota_resumes_paused_clients() -> None:
    async def work(kafka: KafkaNode, runtime: Runtime) -> None:
        await set_quota(kafka)
        assert await produce(kafka.client, 10 * BURST) > 60_000
        began_ms = runtime.clock.now_ms()
        kafka.client.send(METADATA, 9, client_id="app", **NO_TOPICS)
        await asyncio.sleep(1)
        await set_quota(kafka, value=None)
        await kafka.client.answer(METADATA, 9)
        assert runtime.clock.now_ms() - began_ms < 1_000 + 2 * NEARLY_MS
        assert await produce(kafka.client, 10 * BURST) == 0

    with_node(work)


def test_responses_in_flight_are_sent_and_the_longest_throttle_time_counts() -> None:
    async def work(kafka: KafkaNode, runtime: Runtime) -> None:
        await set_quota(kafka)
        began_ms = runtime.clock.now_ms()
        for _ in range(3):
            fields = produce_fields(9, (0, batch_of(bytes(5 * RATE))))
            kafka.client.send(PRODUCE, 9, client_id="app", **fields)
        throttle_ms = [ms_of((await kafka.client.answer(PRODUCE, 9))[1]) for _ in range(3)]
        assert throttle_ms[0] == 0
        assert 4_900 <= throttle_ms[2] <= 5_000 + NEARLY_MS
        await ask_metadata(kafka.client)
        assert runtime.clock.now_ms() - began_ms <= throttle_ms[2] + 3 * NEARLY_MS

    with_node(work)


@pytest.mark.parametrize("kind", ["metadata", "produce", "fetch"])
def test_client_above_its_request_percentage_is_throttled(kind: str) -> None:
    """Simulated code takes no time, so this test runs on the real clock and skips the wait."""

    async def main(runtime: Runtime) -> None:
        with TemporaryDirectory() as folder:
            async with serving_kafka(runtime, f"{folder}/data") as kafka:
                await create(kafka, "t")
                # 10 microseconds a second allow a burst of 100.
                await set_quota(kafka, "request_percentage", 0.001)
                for _ in range(20):
                    if kind == "metadata":
                        told_ms = ms_of(await ask_metadata(kafka.client))
                    elif kind == "produce":
                        told_ms = await produce(kafka.client, 10)
                    else:
                        fields = fetch_fields(12, (0, 0))
                        told_ms = ms_of(await ask(kafka.client, FETCH, 12, "app", **fields))
                    if told_ms:
                        return
                raise AssertionError("twenty requests took no time")

    real.run(main)
