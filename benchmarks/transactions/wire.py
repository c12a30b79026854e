"""The requests of a transactional producer, encoded here: one connection, one request at a time."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.groups.systems import TRANSACTION, coordinator
from benchmarks.groups.wire import Caller
from benchmarks.kafka_wire.systems import Subject
from benchmarks.raft.processes import Refused
from benchmarks.transactions.systems import TIMEOUT_MS

from quorumlog.records import Record, encode_batch

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = (0, 9), (22, 4), (24, 3), (26, 3)
"""Keys and versions of the older protocol, which every client and broker speaks."""

RETRIABLE: Final = frozenset({14, 15, 16, 51})  # loading, not available, not here, concurrent
READY_S: Final = 120.0
PAUSE_S: Final = 0.02
ACKS_ALL: Final = -1
REQUEST_MS: Final = 30_000
NO_SEQUENCE: Final = -1


@dataclass(slots=True, kw_only=True)
class Identity:
    """A producer id with its epoch, and the next sequence of each partition."""

    transactional_id: str
    producer_id: int
    epoch: int
    sequences: dict[int, int]


async def init_producer(caller: Caller, transactional_id: str) -> Identity:
    """Return the identity of a transactional id; repeat retriable errors. Raise Refused."""
    answer = await retried(
        caller,
        INIT_PRODUCER_ID,
        transactional_id=transactional_id,
        transaction_timeout=TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )
    return Identity(
        transactional_id=transactional_id,
        producer_id=int(answer.producer_id),
        epoch=int(answer.producer_epoch),
        sequences={},
    )


async def add_partitions(
    caller: Caller, identity: Identity, topic: str, partitions: Sequence[int]
) -> None:
    """Add partitions of a topic to the transaction. Raise Refused."""
    deadline_s = time.monotonic() + READY_S
    while True:
        answer = await caller.ask(
            ADD_PARTITIONS,
            v3_and_below_transactional_id=identity.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[{"name": topic, "partitions": list(partitions)}],
        )
        codes = {
            int(part.partition_error_code)
            for each in answer.results_by_topic_v3_and_below
            for part in each.results_by_partition
        } - {0}
        if not codes:
            return
        _check(codes, f"partitions of {topic} are not added", deadline_s)
        await asyncio.sleep(PAUSE_S)


async def produce(
    caller: Caller, identity: Identity, topic: str, partition: int, values: Sequence[bytes]
) -> None:
    """Write one transactional batch. Raise Refused."""
    sequence = identity.sequences.get(partition, 0)
    now_ms = time.time_ns() // 1_000_000
    batch = encode_batch(
        [Record(number, now_ms, None, value) for number, value in enumerate(values)],
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    answer = await caller.ask(
        PRODUCE,
        transactional_id=identity.transactional_id,
        acks=ACKS_ALL,
        timeout=REQUEST_MS,
        topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
    )
    (result,) = answer.responses[0].partition_responses
    if int(result.error_code):
        raise Refused(f"a batch of {topic}-{partition} is refused ({result.error_code!r})")
    identity.sequences[partition] = sequence + len(values)


async def end(caller: Caller, identity: Identity, *, commit: bool) -> None:
    """Commit or abort the transaction. Raise Refused."""
    await retried(
        caller,
        END_TXN,
        transactional_id=identity.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commit,
    )


async def retried(caller: Caller, kind: tuple[int, int], **fields: Any) -> Any:
    """Return the response without an error; repeat retriable errors. Raise Refused."""
    deadline_s = time.monotonic() + READY_S
    while True:
        answer = await caller.ask(kind, **fields)
        code = int(answer.error_code)
        if not code:
            return answer
        _check({code}, f"a request of key {kind[0]} is refused", deadline_s)
        await asyncio.sleep(PAUSE_S)


def _check(codes: set[int], what: str, deadline_s: float) -> None:
    if not codes <= RETRIABLE or time.monotonic() > deadline_s:
        raise Refused(f"{what}: error {min(codes)}")


@asynccontextmanager
async def calling(port: int) -> AsyncIterator[Caller]:
    """Connect to a broker during the block."""
    caller = await Caller.open(port)
    try:
        yield caller
    finally:
        caller.close()


async def coordinator_of(subject: Subject, transactional_id: str) -> tuple[int, int]:
    """Return the id and the port of the coordinator's broker. Raise Refused."""
    return await asyncio.to_thread(
        coordinator, subject.system.port, transactional_id, key_type=TRANSACTION
    )
