"""Requests of transactional producers with plain fields, in any version."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from tests.kit.kafka_client import RawClient

from quorumlog.ids import ProducerIdentity
from quorumlog.records import Record, encode_batch

from .produce_fetch import NO_ID, produced

INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN = 22, 24, 25, 26
WRITE_MARKERS, TXN_OFFSET_COMMIT, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 27, 28, 65, 66

NOT_READY: Final = (
    14,
    15,
    16,
    51,
)  # loading, none, another broker, or the last transaction is not complete
TRIES: Final = 200
ID: Final = "payments"
GROUP: Final = "g"


def transactional_batch(producer: ProducerIdentity, sequence: int, *values: bytes) -> bytes:
    """Return a batch of a transaction, without timestamps: the markers have those of the broker."""
    return encode_batch(
        [Record(0, -1, None, value) for value in values],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


async def initialised(
    client: RawClient, transactional_id: str | None = ID, *, version: int = 5, **fields: Any
) -> tuple[int, ProducerIdentity]:
    """Initialize a producer once its coordinator is ready. Return the error code and its
    identity."""
    for _ in range(TRIES):
        answer = await client.ask(
            INIT_PRODUCER_ID,
            version,
            **{
                "transactional_id": transactional_id,
                "transaction_timeout": 60_000,
                **fields,
            },
        )
        if int(answer.error_code) not in NOT_READY:
            given = ProducerIdentity(answer.producer_id, answer.producer_epoch)
            return int(answer.error_code), given
        await asyncio.sleep(0.05)
    raise AssertionError(f"{transactional_id}: error {answer.error_code} for too long")


async def new_producer(client: RawClient, transactional_id: str = ID) -> ProducerIdentity:
    """Return the identity of a new producer."""
    code, producer = await initialised(client, transactional_id)
    assert code == 0
    return producer


async def added(
    client: RawClient,
    producer: ProducerIdentity,
    *partitions: tuple[str, int],
    version: int = 3,
    transactional_id: str = ID,
    verify_only: bool = False,
) -> list[int]:
    """Add partitions. Return the code of each, by ascending topic and index of the response."""
    topics = [{"name": topic, "partitions": (index,)} for topic, index in partitions]
    if version >= 4:
        answer = await client.ask(
            ADD_PARTITIONS,
            version,
            transactions=[
                {
                    "transactional_id": transactional_id,
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.producer_epoch,
                    "verify_only": verify_only,
                    "topics": topics,
                }
            ],
        )
        assert answer.error_code == 0
        (transaction,) = answer.results_by_transaction
        assert transaction.transactional_id == transactional_id
        results = transaction.topic_results
    else:
        answer = await client.ask(
            ADD_PARTITIONS,
            version,
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=topics,
        )
        results = answer.results_by_topic_v3_and_below
    return [
        int(part.partition_error_code) for topic in results for part in topic.results_by_partition
    ]


async def add(client: RawClient, producer: ProducerIdentity, *partitions: tuple[str, int]) -> None:
    """Add partitions successfully once the previous transaction is complete."""
    for _ in range(TRIES):
        codes = await added(client, producer, *partitions)
        if not set(codes).intersection(NOT_READY):
            assert codes == [0] * len(codes)
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{partitions}: {codes} for too long")


async def group_added(client: RawClient, producer: ProducerIdentity, *, version: int = 4) -> int:
    """Add the offsets of the group. Return the error code."""
    answer = await client.ask(
        ADD_OFFSETS,
        version,
        transactional_id=ID,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id=GROUP,
    )
    return int(answer.error_code)


async def sent(
    client: RawClient,
    producer: ProducerIdentity,
    sequence: int,
    *values: bytes,
    version: int = 11,
    index: int = 0,
    topic_id: bytes = NO_ID,
    transactional_id: str | None = ID,
) -> int:
    """Produce a batch of the transaction to topic `t`. Return the error code."""
    for _ in range(TRIES):
        (result,) = await produced(
            client,
            (index, transactional_batch(producer, sequence, *values)),
            version=version,
            transactional_id=transactional_id,
            topic_id=topic_id,
        )
        if int(result.error_code) not in (19, 51):  # not verified yet, not complete yet
            return int(result.error_code)
        await asyncio.sleep(0.05)
    raise AssertionError(f"{values!r}: error {result.error_code} for too long")


async def ended(
    client: RawClient,
    producer: ProducerIdentity,
    *,
    commit: bool = True,
    version: int = 4,
    transactional_id: str = ID,
) -> Any:
    """End the transaction. Return the response once the coordinator is ready."""
    for _ in range(TRIES):
        answer = await client.ask(
            END_TXN,
            version,
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=commit,
        )
        if int(answer.error_code) not in NOT_READY:
            return answer
        await asyncio.sleep(0.05)
    raise AssertionError(f"{transactional_id}: error {answer.error_code} for too long")


async def offsets_sent(
    client: RawClient,
    producer: ProducerIdentity,
    *offsets: tuple[int, int],
    version: int = 4,
    topic: str = "t",
    **fields: Any,
) -> list[int]:
    """Commit offsets of partitions of a topic in the transaction. Return the code of each."""
    parts = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "note",
        }
        for index, offset in offsets
    ]
    member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
    answer = await client.ask(
        TXN_OFFSET_COMMIT,
        version,
        **{
            "transactional_id": ID,
            "group_id": GROUP,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            **(member if version >= 3 else {}),
            "topics": [{"name": topic, "partitions": parts}],
            **fields,
        },
    )
    return [int(part.error_code) for each in answer.topics for part in each.partitions]


async def described(client: RawClient, *ids: str) -> Sequence[Any]:
    """Describe transactional ids."""
    answer = await client.ask(DESCRIBE_TRANSACTIONS, 0, transactional_ids=ids)
    states: Sequence[Any] = answer.transaction_states
    return states


async def until_state(client: RawClient, state: str, transactional_id: str = ID) -> Any:
    """Describe a transactional id once it is in a state."""
    for _ in range(TRIES):
        (found,) = await described(client, transactional_id)
        if found.transaction_state == state:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"{transactional_id}: {found} for too long, not {state}")
