"""Idempotent producers store retried records once and in order.

This holds for every way of sending, over broken streams and leader changes.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from tests.kit.waits import wait_until

from quorumlog.clients.producer.producer import AsyncProducer
from quorumlog.errors import (
    InvalidConfig,
    InvalidRecord,
    NotEnoughReplicas,
    NotImplementedHere,
    NotLeaderOrFollower,
    QuorumlogError,
    TimedOut,
    UnknownServerError,
)
from quorumlog.ids import NodeId
from quorumlog.proto.transactions_pb2 import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducerIdentity,
)
from quorumlog.records import parse_header
from quorumlog.runtime import CallContext, Runtime
from quorumlog.simulation import run

from .producer_table import LeaderMemory
from .scripted_broker import BREAK, STORE, STORE_AND_BREAK, Script, scripted

Sending: TypeAlias = Callable[[AsyncProducer, int], Awaitable[Any]]


async def one_by_one(producer: AsyncProducer, count: int) -> None:
    deliveries = [await producer.send("t", b"%d" % number, partition=0) for number in range(count)]
    assert [(await delivery).offset for delivery in deliveries] == list(range(count))


async def many(producer: AsyncProducer, count: int) -> None:
    sent = await producer.send_many("t", [b"%d" % number for number in range(count)], partition=0)
    (found,) = await sent
    assert (found.first, found.end) == (0, count)


async def arrow(producer: AsyncProducer, count: int) -> None:
    table = pa.table({"v": [str(number) for number in range(count)]})
    (found,) = await producer.send_arrow("t", table, value="v", partition=0)
    assert (found.first, found.end) == (0, count)


@pytest.mark.parametrize("send", [one_by_one, many, arrow], ids=lambda send: send.__name__)
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_broken_streams_and_refusals_leave_each_record_once_in_order(
    send: Sending, compression: str
) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        script.produce.extend([STORE, STORE_AND_BREAK, STORE, BREAK, STORE])
        script.produce.extend([NotEnoughReplicas("wait"), STORE, STORE_AND_BREAK, STORE_AND_BREAK])
        script.produce.extend([STORE, STORE, STORE_AND_BREAK])
        async with (
            scripted(runtime, script) as log,
            log.producer(batch_size=200, linger_ms=0, compression=compression) as producer,
        ):
            await send(producer, 200)
            assert producer.statistics().retries > 0
        assert script.values() == list(range(200))
        assert script.memory.ids_given == 1

    run(main)


def test_one_producer_id_has_separate_sequences_for_each_partition() -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(partitions=3)
        async with scripted(runtime, script) as log, log.producer(linger_ms=0) as producer:
            for number in range(6):
                await producer.send_and_wait("t", b"%d" % number, partition=number % 3)
        headers = [
            parse_header(part.records) for request in script.requests for part in request.partitions
        ]
        assert {header.producer_id for header in headers} == {1}
        assert [header.base_sequence for header in headers] == [0, 0, 0, 1, 1, 1]

    run(main)


@pytest.mark.parametrize("acks", ["leader", "none"])
def test_lower_acks_disable_idempotence_unless_it_is_set(acks: str) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        async with scripted(runtime, script) as log:
            async with log.producer(acks=acks) as producer:
                await producer.send_and_wait("t", b"1")
            (request,) = script.requests
            assert parse_header(request.partitions[0].records).producer_id == -1
            assert script.memory.ids_given == 0
            with pytest.raises(InvalidConfig, match="enable_idempotence needs acks='all'"):
                log.producer(acks=acks, enable_idempotence=True)

    run(main)


def test_cluster_without_producer_ids_fails_records_with_an_explanation() -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(memory=NoProducerIds(NotImplementedHere("no such call")))
        async with scripted(runtime, script) as log:
            producer = log.producer()
            with pytest.raises(NotImplementedHere, match="without enable_idempotence"):
                await producer.send_and_wait("t", b"1")
            await producer.close()
            async with log.producer(enable_idempotence=False) as plain:
                assert (await plain.send_and_wait("t", b"1")).offset == 0

    run(main)


def test_producer_id_timeout_fails_the_records_with_the_reason() -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(memory=NoProducerIds(NotEnoughReplicas("no quorum")))
        async with scripted(runtime, script, call_timeout_ms=100) as log:
            producer = log.producer(delivery_timeout_ms=500)
            with pytest.raises(TimedOut, match="no quorum"):
                await producer.send_and_wait("t", b"1")
            await producer.close()

    run(main)


def test_an_invalid_producer_id_is_not_used() -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(memory=NoProducerIds(None))
        async with scripted(runtime, script) as log:
            producer = log.producer()
            with pytest.raises(UnknownServerError, match="producer id -5"):
                await producer.send_and_wait("t", b"1")
            await producer.close()

    run(main)


class NoProducerIds(LeaderMemory):
    """A broker that assigns no ids: it refuses, or sends an invalid response."""

    def __init__(self, refusal: QuorumlogError | None) -> None:
        super().__init__()
        self._refusal = refusal

    async def init_producer_id(
        self, request: InitProducerIdRequest, context: CallContext
    ) -> InitProducerIdResponse:
        if self._refusal is not None:
            raise self._refusal
        return InitProducerIdResponse(producer=ProducerIdentity(producer_id=-5))


def test_refused_batch_does_not_stop_the_batches_behind_it_in_flight() -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(hold=asyncio.Event())
        assert script.hold is not None
        script.hold.set()
        async with scripted(runtime, script) as log:
            producer = log.producer(linger_ms=0, batch_size=1)
            await producer.send_and_wait("t", b"0")
            script.hold.clear()
            values = [1, -1, 2, 3, -1, 4, 5, 6]
            deliveries = [await producer.send("t", b"%d" % value) for value in values]
            await wait_until(lambda: producer.statistics().in_flight_records == 5)
            script.hold.set()
            for value, delivery in zip(values, deliveries, strict=True):
                if value < 0:
                    with pytest.raises(InvalidRecord):
                        await delivery
                else:
                    assert (await delivery).offset == value
            await producer.close()
        assert script.values() == [0, 1, 2, 3, 4, 5, 6]

    run(main)


def test_leader_that_lost_its_producer_state_accepts_the_next_batches() -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        async with scripted(runtime, script) as log, log.producer(linger_ms=0) as producer:
            await one_by_one(producer, 3)
            script.logs[0].clear()  # an unclean election lost all but the first batch
            script.memory.forget()
            script.memory.note(0, parse_header(script.requests[0].partitions[0].records), 0)
            assert (await producer.send_and_wait("t", b"3")).offset == 0
        assert script.values() == [3]

    run(main)


# --- leader changes ------------------------------------------------------------------------------


def not_leader(script: Script, epoch: int) -> NotLeaderOrFollower:
    """Return the error of the previous leader with the name of the new one."""
    leader = NodeId(script.leaders[0])
    return NotLeaderOrFollower(
        "ask another",
        leader_id=leader,
        leader_address=script.addresses[leader],
        leader_epoch=epoch,
    )


def test_leader_named_in_a_refusal_is_used_without_a_lookup() -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        async with scripted(runtime, script, nodes=2) as log, log.producer() as producer:
            await producer.send_and_wait("t", b"0")
            looked_up, began_ms = script.lookups, runtime.clock.now_ms()
            script.leaders[0] = 2
            script.refusal = not_leader(script, 1)
            assert (await producer.send_and_wait("t", b"1")).offset == 1
            assert script.lookups == looked_up
            assert (
                runtime.clock.now_ms() - began_ms < 25
            )  # without a backoff, apart from the linger time

    run(main)


def test_an_error_that_names_an_older_leader_is_ignored() -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        async with scripted(runtime, script, nodes=2) as log, log.producer() as producer:
            await producer.send_and_wait("t", b"0")
            script.leaders[0] = 2
            script.refusal = not_leader(script, 0)  # the current epoch
            looked_up = script.lookups
            assert (await producer.send_and_wait("t", b"1")).offset == 1
            assert script.lookups > looked_up

    run(main)


def test_requests_in_flight_at_the_old_leader_delay_those_to_the_new_one() -> None:
    """The new leader may lack the batches in flight and would accept later ones first."""

    async def main(runtime: Runtime) -> None:
        script = Script(hold=asyncio.Event(), partitions=2)
        assert script.hold is not None
        script.hold.set()
        async with scripted(runtime, script, nodes=2) as log:
            producer = log.producer(linger_ms=0, batch_size=1)
            await producer.send_and_wait("t", b"0", partition=0)
            script.hold.clear()
            first = await producer.send("t", b"1", partition=0)
            await wait_until(lambda: producer.statistics().in_flight_records == 1)
            script.leaders[0] = 2
            await log._connection.refresh("t")
            second = await producer.send("t", b"2", partition=0)
            await asyncio.sleep(1)
            assert len(script.requests) == 2
            script.hold.set()
            assert [(await first).offset, (await second).offset] == [1, 2]
            await producer.close()
        assert script.values() == [0, 1, 2]

    run(main)


def test_records_without_a_key_avoid_a_partition_without_a_leader() -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(partitions=3, leaders={1: -1})
        async with scripted(runtime, script) as log:
            producer = log.producer(linger_ms=0, batch_size=1)
            for number in range(50):
                await producer.send_and_wait("t", b"%d" % number)
            assert set(script.logs) == {0, 2}
            script.leaders = {0: -1, 1: -1}
            await log._connection.refresh("t")
            producer._sender.admit(await log._connection.layout("t"))
            for number in range(10):
                assert (await producer.send_and_wait("t", b"%d" % number)).partition == 2
            await producer.close()

    run(main)


def test_running_producer_uses_added_partitions() -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(partitions=1)
        async with scripted(runtime, script, metadata_max_age_ms=1_000) as log:
            producer = log.producer(linger_ms=0, batch_size=1)
            await producer.send_and_wait("t", b"0")
            script.partitions = 4
            await asyncio.sleep(1.5)
            for number in range(30):
                await producer.send_and_wait("t", b"%d" % number)
            assert set(script.logs) == {0, 1, 2, 3}
            await producer.close()

    run(main)


def test_retries_of_many_batches_after_a_broken_stream_are_detected() -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(hold=asyncio.Event())
        assert script.hold is not None
        script.hold.set()
        async with scripted(runtime, script) as log:
            producer = log.producer(linger_ms=0, batch_size=1)
            await producer.send_and_wait("t", b"0")
            script.hold.clear()
            deliveries = [await producer.send("t", b"%d" % number) for number in range(1, 10)]
            await wait_until(lambda: producer.statistics().in_flight_records == 5)
            script.produce = deque([STORE, STORE, STORE_AND_BREAK])
            script.hold.set()
            assert [(await delivery).offset for delivery in deliveries] == list(range(1, 10))
            await producer.close()
        assert script.values() == list(range(10))

    run(main)


def test_hanging_leader_is_left_once_another_leads() -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(hold=asyncio.Event())
        assert script.hold is not None
        async with scripted(runtime, script, nodes=2) as log, log.producer() as producer:
            delivery = await producer.send("t", b"0")
            await wait_until(lambda: bool(script.requests))
            began_ms = runtime.clock.now_ms()
            script.leaders[0], script.hold = 2, None  # the other broker works
            assert (await delivery).offset == 0
            assert 1_000 < runtime.clock.now_ms() - began_ms < 3_000
        assert script.values() == [0]

    run(main)


def test_producer_without_sequences_waits_for_a_hanging_leader() -> None:
    async def main(runtime: Runtime) -> None:
        hold = asyncio.Event()
        script = Script(hold=hold)
        async with scripted(runtime, script, nodes=2) as log:
            producer = log.producer(enable_idempotence=False)
            delivery = await producer.send("t", b"0")
            await wait_until(lambda: bool(script.requests))
            script.leaders[0], script.hold = 2, None
            await asyncio.sleep(10)
            assert not delivery.done()
            script.leaders[0] = 1
            hold.set()
            assert (await delivery).offset == 0
            await producer.close()

    run(main)


def test_hanging_broker_does_not_block_a_lookup() -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(lookup=asyncio.Event())
        async with scripted(runtime, script, nodes=2) as log, log.producer() as producer:
            await log.admin.describe_cluster()  # the other broker is known now
            sending = asyncio.create_task(producer.send_and_wait("t", b"0"))
            await wait_until(lambda: script.lookups == 1)
            began_ms = runtime.clock.now_ms()
            script.lookup = None
            assert (await sending).offset == 0
            assert runtime.clock.now_ms() - began_ms < 3_000

    run(main)
