"""Produce requests that arrive together have the same results as one at a time."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from tests.kit.batches import batch_of
from tests.kit.kafka_client import RawClient, body_of, framed, request_of
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.simulated_cluster import cluster

from quorumlog import simulation
from quorumlog.records import Codec, Record, encode_batch
from quorumlog.runtime import Runtime
from quorumlog.simulation.links import apart

from . import three_nodes
from .produce_fetch import PRODUCE, create, fetch, produce, produce_fields
from .three_nodes import ask

PARTITIONS = 2
PRODUCERS = (7, 8)

Step = tuple[str, int, int, int]
"""Kind of request, partition, producer, version."""


UNNUMBERED: dict[str, Callable[[int, bytes], tuple[int, bytes]]] = {
    "plain": lambda index, value: (index, batch_of(value)),
    "acks0": lambda index, value: (index, batch_of(value)),
    "damaged": lambda index, value: (index, batch_of(value)[:-1] + b"\xff"),
    "lz4": lambda index, value: (index, batch_of(value * 50, codec=Codec.LZ4)),
    "other": lambda _, value: (PARTITIONS, batch_of(value)),
}
KINDS = (*UNNUMBERED, "next", "next", "next", "retry", "gap", "two")


def batch(producer: int, sequence: int, value: bytes) -> bytes:
    return encode_batch(
        [Record(0, 1_000, None, value)],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
    )


def requests(steps: list[Step]) -> list[tuple[int, dict[str, Any]]]:
    """Return (version, fields) of the request of each step."""
    sequences = dict.fromkeys(
        [(index, producer) for index in range(PARTITIONS) for producer in PRODUCERS], 0
    )
    made = []
    for number, (kind, index, producer, version) in enumerate(steps):
        value, acks = b"%d" % number, 0 if kind == "acks0" else (1, -1)[number // 8 % 2]
        parts: list[tuple[int, bytes | None]]
        if kind in ("next", "retry", "gap"):
            sequence = sequences[index, producer] + {"next": 0, "retry": -1, "gap": 3}[kind]
            sequence = max(sequence, 0)
            parts = [(index, batch(producer, sequence, value))]
            if kind != "gap" or not sequences[index, producer]:  # unknown ones begin anywhere
                sequences[index, producer] = max(sequences[index, producer], sequence + 1)
        elif kind == "two":
            parts = [(0, batch_of(value)), (1, batch_of(value))]
        else:
            parts = [UNNUMBERED[kind](index, value)]
        made.append((version, produce_fields(version, *parts, acks=acks)))
    return made


def outcome(steps: list[Step], flush_policy: str, *, together: bool) -> list[Any]:
    """Return the results of all requests, the stored bytes of each partition, and the metrics."""
    found: list[Any] = []

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, "/data") as kafka:
            await create(kafka, "t", PARTITIONS, flush_policy=flush_policy)
            for index in range(PARTITIONS):
                await produce(kafka.client, batch_of(b"first"), index)
            asked = requests(steps)
            if together:
                raw = [
                    framed(
                        request_of(
                            PRODUCE,
                            version,
                            body_of(PRODUCE, version, fields),
                            correlation_id=number,
                        )
                    )
                    for number, (version, fields) in enumerate(asked)
                ]
                kafka.client.send_raw(b"".join(raw))
                for version, fields in asked:
                    await take(kafka, version, fields)
            else:
                for version, fields in asked:
                    kafka.client.send(PRODUCE, version, **fields)
                    await take(kafka, version, fields)
            for index in range(PARTITIONS):
                await produce(kafka.client, batch_of(b"last"), index)  # behind those with acks=0
                found.append(bytes(await fetch(kafka.client, 0, index)))
            replicas = kafka.node.parts.replicas
            assert replicas is not None
            figures = replicas.writer.figures
            found.append((figures.bytes, figures.records, figures.failures, figures.waiting))

    async def take(kafka: KafkaNode, version: int, fields: dict[str, Any]) -> None:
        if fields["acks"] == 0:
            return
        _, answer = await kafka.client.answer(PRODUCE, version)
        results = answer.responses[0].partition_responses
        found.extend((one.index, one.error_code, one.base_offset) for one in results)

    simulation.run(main)
    return found


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(KINDS),
            st.integers(0, PARTITIONS - 1),
            st.sampled_from(PRODUCERS),
            st.sampled_from([3, 9, 9, 9, 12]),
        ),
        min_size=1,
        max_size=25,
    ),
    st.sampled_from(["replicated", "fsync"]),
)
def test_requests_together_have_the_results_of_requests_one_at_a_time(
    steps: list[Step], flush_policy: str
) -> None:
    assert outcome(steps, flush_policy, together=True) == outcome(
        steps, flush_policy, together=False
    )


def test_requests_together_wait_for_the_in_sync_replicas() -> None:
    async def first(client: RawClient) -> None:
        assert await produce(client, batch_of(b"first")) == 0  # the log is open and idle after it

    async def together(client: RawClient) -> list[tuple[int, int]]:
        frames = []
        for number in range(5):
            fields = produce_fields(9, (0, batch_of(b"%d" % number)), timeout=500)
            body = body_of(PRODUCE, 9, fields)
            frames.append(framed(request_of(PRODUCE, 9, body, correlation_id=number)))
        client.send_raw(b"".join(frames))
        answers = [await client.answer(PRODUCE, 9) for _ in range(5)]
        assert [correlation_id for correlation_id, _ in answers] == list(range(5))
        results = [answer.responses[0].partition_responses[0] for _, answer in answers]
        return [(one.error_code, one.base_offset) for one in results]

    with cluster(brokers=3, combined=True, kafka=("{}:9092",)) as play:
        three_nodes.create(play, "t", (1, 2), flush_policy="replicated")
        ask(play, first)
        assert ask(play, together) == [(0, number) for number in range(1, 6)]
        play.world.fabric.barriers.close(list(apart(["n1"], ["n2"])))
        assert ask(play, together) == [(ErrorCode.request_timed_out, -1)] * 5


def test_a_topic_by_name_and_by_id_gets_the_batches_of_both() -> None:
    found: list[Any] = []

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, "/data") as kafka:
            topic_id = await create(kafka, "t")
            await produce(kafka.client, batch_of(b"first"))
            raw = []
            for number, version in enumerate((9, 13, 9)):
                part = (0, batch_of(b"%d" % number))
                fields = produce_fields(version, part, topic_id=topic_id)
                body = body_of(PRODUCE, version, fields)
                raw.append(framed(request_of(PRODUCE, version, body, correlation_id=number)))
            kafka.client.send_raw(b"".join(raw))
            for version in (9, 13, 9):
                _, answer = await kafka.client.answer(PRODUCE, version)
                found.append(answer.responses[0].partition_responses[0].base_offset)
            found.append(await produce(kafka.client, batch_of(b"last")))

    simulation.run(main)
    assert found == [1, 2, 3, 4]
