"""Produce by gRPC with a producer id: duplicates are stored once, invalid batches refused by
name."""

from typing import Any

import pytest
from tests.kit.batches import values_of
from tests.kit.node import Run, serving

from quorumlog import simulation
from quorumlog.errors import InvalidRequest
from quorumlog.proto import log_pb2
from quorumlog.proto.transactions_pb2 import ProducerIdentity
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Channel, Runtime
from quorumlog.services import LOG_PUBLISH

from .log_calls import create, fetch, produce, produce_one, produce_request


def batch(value: bytes, sequence: int, *, epoch: int = 0, **envelope: Any) -> bytes:
    return encode_batch(
        [Record(0, 1_000, None, value)],
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
        **envelope,
    )


async def stored(channel: Channel) -> list[bytes | None]:
    (result,) = await fetch(channel, ("t", 0, 0))
    return values_of(result.records)


@pytest.mark.parametrize("policy", ["fsync", "replicated"])
def test_a_repeated_batch_is_answered_with_its_first_offsets(
    run: Run, folder: str, policy: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t", flush_policy=policy)
            for sequence, value in enumerate([b"a", b"b", b"c"]):
                assert (await produce_one(channel, batch(value, sequence))).base_offset == sequence
            again = await produce_one(channel, batch(b"b", 1))
            assert (again.base_offset, again.HasField("error")) == (1, False)
            assert await stored(channel) == [b"a", b"b", b"c"]

    run(main)


def test_batch_and_its_duplicate_in_flight_are_stored_once() -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, "/data") as channel:
            await create(channel, "t")
            copies = [produce_request(batch(b"a", 0), number=number) for number in range(8)]
            answers = await produce(channel, copies)
            assert [answer.results[0].base_offset for answer in answers] == [0] * 8
            assert await stored(channel) == [b"a"]

    simulation.run(main)


@pytest.mark.parametrize(
    ("batches", "error"),
    [
        ([batch(b"a", 0), batch(b"c", 2)], "OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ([batch(b"a", 0, epoch=3), batch(b"b", 0, epoch=2)], "INVALID_PRODUCER_EPOCH"),
        ([batch(b"a", 0), batch(b"b", 1, is_transactional=True)], "INVALID_TXN_STATE"),
        ([batch(b"a", 0), batch(b"b", 1) + batch(b"c", 2)], "INVALID_RECORD"),
    ],
    ids=["gap", "old epoch", "transactional", "two at once"],
)
def test_batch_that_contradicts_its_producer_state_is_refused_by_name(
    batches: list[bytes], error: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, "/data") as channel:
            await create(channel, "t")
            results: list[log_pb2.ProduceResult] = [
                await produce_one(channel, content) for content in batches
            ]
            assert [result.error.name for result in results] == ["", error]
            assert await stored(channel) == [b"a"]

    simulation.run(main)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"base_sequence": 1}, "given without producer"),
        ({"transactional_id": "a"}, "given without producer"),
        ({"producer": ProducerIdentity(producer_id=7)}, "partition: missing"),
        ({"producer": ProducerIdentity(producer_id=-1), "partition": 0}, "producer: id -1"),
        ({"producer": ProducerIdentity(producer_epoch=1 << 15), "partition": 0}, "epoch 32768"),
        (
            {"producer": ProducerIdentity(), "partition": 0, "base_sequence": -1},
            "base_sequence: -1",
        ),
    ],
)
def test_publish_refuses_fields_of_a_producer_that_do_not_fit(
    fields: dict[str, Any], message: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, "/data") as channel:
            await create(channel, "t")
            request = log_pb2.PublishRequest(
                topic="t", records=[log_pb2.Record(value=b"a")], **fields
            )
            with pytest.raises(InvalidRequest, match=message):
                await channel.call(LOG_PUBLISH, request, timeout_ms=10_000)

    simulation.run(main)


def test_repeated_publish_of_a_producer_is_stored_once() -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, "/data") as channel:
            await create(channel, "t")
            offsets = []
            for value, sequence in ((b"a", 0), (b"b", 1), (b"b", 1), (b"a", 0), (b"c", 2)):
                request = log_pb2.PublishRequest(
                    topic="t",
                    partition=0,
                    records=[log_pb2.Record(value=value)],
                    producer=ProducerIdentity(producer_id=7, producer_epoch=0),
                    base_sequence=sequence,
                )
                answer = await channel.call(LOG_PUBLISH, request, timeout_ms=10_000)
                offsets.append(answer.base_offset)
            assert offsets == [0, 1, 1, 0, 2]
            assert await stored(channel) == [b"a", b"b", b"c"]

    simulation.run(main)
