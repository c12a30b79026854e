"""Appends of many batches or partitions are made in steps, between which other tasks run."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.kit.batches import batch_of
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import WAIT_MS
from tests.kit.waits import run_patiently

from quorumlog.frontends.kafka.broker_context import PLACED_A_STEP
from quorumlog.proto import mirror_pb2
from quorumlog.records.batch import BATCHES_A_STEP, without_records
from quorumlog.runtime import Runtime
from quorumlog.services import MIRROR_APPEND
from quorumlog.storage import Log

from .kafka.produce_fetch import PRODUCE, create, listed, produce, produce_fields, produced
from .log_calls import produce as produce_grpc
from .log_calls import produce_request

SOURCE = "cluster/topic"
PARTITIONS = 8
BATCHES = BATCHES_A_STEP + 1  # of one append
RECORD = batch_of(b"a")


def logs_of(kafka: KafkaNode, partitions: int) -> list[Log]:
    """Return the open logs of topic `t`."""
    assert kafka.node.parts.replicas is not None
    found = [kafka.node.parts.replicas.hosted.find("t", index) for index in range(partitions)]
    logs = [replica.log for replica in found if replica is not None]
    assert len(logs) == partitions
    return logs


async def most_in_a_turn(kafka: KafkaNode, partitions: int, work: Awaitable[Any]) -> int:
    """Return the largest number of offsets that the logs of topic `t` grew by in one turn of the
    loop, while some work is done."""
    logs = logs_of(kafka, partitions)
    task = asyncio.ensure_future(work)
    most = 0
    while not task.done():
        before = sum(log.log_end_offset for log in logs)
        await asyncio.sleep(0)
        most = max(most, sum(log.log_end_offset for log in logs) - before)
    await task
    return most


def on_node(folder: Path, main: Callable[[KafkaNode], Awaitable[None]]) -> None:
    """Run `main` with a node in real time: simulated time stands still while a task is ready."""

    async def serve(runtime: Runtime) -> None:
        async with serving_kafka(runtime, str(folder / "node")) as kafka:
            await main(kafka)

    run_patiently(serve)


def test_appends_of_many_streams_share_the_steps(tmp_path: Path) -> None:
    async def main(kafka: KafkaNode) -> None:
        await create(kafka, "t", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            await produce_grpc(kafka.channel, [produce_request(RECORD, partition=partition)])
        streams = [
            produce_grpc(kafka.channel, [produce_request(BATCHES * RECORD, partition=partition)])
            for partition in range(PARTITIONS)
        ]
        most = await most_in_a_turn(kafka, PARTITIONS, asyncio.gather(*streams))
        assert most <= BATCHES

    on_node(tmp_path, main)


def test_partitions_of_a_mirror_share_the_steps(tmp_path: Path) -> None:
    async def main(kafka: KafkaNode) -> None:
        await create(kafka, "t", partitions=PARTITIONS, mirror_source=SOURCE)

        async def copy(begin: int, count: int) -> None:
            request = mirror_pb2.MirrorAppendRequest()
            batches = b"".join(without_records(at, at + 1) for at in range(begin, begin + count))
            for index in range(PARTITIONS):
                request.partitions.add(
                    topic="t",
                    partition=index,
                    source=SOURCE,
                    log_end_offset=begin,
                    records=batches,
                )
            response = await kafka.channel.call(MIRROR_APPEND, request, timeout_ms=WAIT_MS)
            ends = [result.log_end_offset for result in response.results]
            assert ends == PARTITIONS * [begin + count], response

        await copy(0, 1)
        assert await most_in_a_turn(kafka, PARTITIONS, copy(1, BATCHES)) <= BATCHES

    on_node(tmp_path, main)


def test_partitions_of_a_kafka_request_are_queued_in_steps_and_order(tmp_path: Path) -> None:
    """The second request of the connection follows the first one in every log."""
    partitions = 4 * PLACED_A_STEP

    async def main(kafka: KafkaNode) -> None:
        await create(kafka, "t", partitions=partitions)
        every = [(index, RECORD) for index in range(partitions)]
        results = await produced(kafka.client, *every)  # opens the logs
        assert {each.error_code for each in results} == {0}
        most = await most_in_a_turn(kafka, partitions, send_again(kafka, every))
        assert most <= 2 * PLACED_A_STEP
        ends = await listed(kafka.client, *((index, -1) for index in range(partitions)))
        assert [each.offset for each in ends] == [2] * (partitions - 1) + [3]

    on_node(tmp_path, main)


async def send_again(kafka: KafkaNode, every: list[tuple[int, bytes]]) -> None:
    """Send a request for every partition, then one for the last."""
    for parts in (every, every[-1:]):
        kafka.client.send(PRODUCE, 9, **produce_fields(9, *parts))
    _, answer = await kafka.client.answer(PRODUCE, 9)
    results = answer.responses[0].partition_responses
    assert [(each.error_code, each.base_offset) for each in results] == len(every) * [(0, 1)]
    _, answer = await kafka.client.answer(PRODUCE, 9)
    (result,) = answer.responses[0].partition_responses
    assert (result.error_code, result.base_offset) == (0, 2)


def test_disconnect_between_two_steps_stores_every_batch_once(tmp_path: Path) -> None:
    partitions = 4 * PLACED_A_STEP

    async def main(kafka: KafkaNode) -> None:
        await create(kafka, "t", partitions=partitions)
        every = [(index, RECORD) for index in range(partitions)]
        await produced(kafka.client, *every)  # opens the logs
        logs = logs_of(kafka, partitions)

        def count() -> int:
            return sum(log.log_end_offset for log in logs) - partitions

        leaving = await kafka.connect()
        leaving.send(PRODUCE, 9, **produce_fields(9, *every, acks=0))
        while not count():  # noqa: ASYNC110 (there is no event)
            await asyncio.sleep(0)
        assert count() < partitions, "all were queued in one step"
        leaving.connection.abort()
        while count() < partitions:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for index in range(partitions):  # after every append of the request
            assert await produce(kafka.client, RECORD, index) == 2

    on_node(tmp_path, main)
