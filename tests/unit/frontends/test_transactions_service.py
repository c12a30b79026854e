"""The gRPC service `Transactions` of a whole node, by raw calls."""

import asyncio
from typing import Any

import pytest
from tests.kit.batches import values_of
from tests.kit.node import WAIT_MS, Run, serving
from tests.kit.replica_cluster import tried

from quorumlog import simulation
from quorumlog.errors import (
    InvalidRequest,
    InvalidTransactionTimeout,
    TransactionalIdNotFound,
)
from quorumlog.proto import staged_commits_pb2 as staged_pb2
from quorumlog.proto.log_pb2 import ProduceRequest
from quorumlog.proto.transactions_pb2 import (
    AbortTransactionRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducerIdentity,
)
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Channel, Method, Runtime
from quorumlog.runtime.error_detail import decode_error
from quorumlog.services import (
    STAGED_COMMITS_BEGIN,
    STAGED_COMMITS_COMMIT,
    STAGED_COMMITS_DELETE,
    STAGED_COMMITS_DESCRIBE,
    STAGED_COMMITS_OPEN_WRITE,
    STAGED_COMMITS_RESET,
    STAGED_COMMITS_SEAL,
    TRANSACTIONS_ABORT,
    TRANSACTIONS_DESCRIBE,
    TRANSACTIONS_INIT_PRODUCER_ID,
)

from .log_calls import create, fetch, produce, produce_request


async def ask(channel: Channel, **fields: Any) -> tuple[int, int]:
    answer: InitProducerIdResponse = await channel.call(
        TRANSACTIONS_INIT_PRODUCER_ID, InitProducerIdRequest(**fields), timeout_ms=WAIT_MS
    )
    return answer.producer.producer_id, answer.producer.producer_epoch


def identity(producer_id: int, producer_epoch: int) -> ProducerIdentity:
    return ProducerIdentity(producer_id=producer_id, producer_epoch=producer_epoch)


def test_every_producer_gets_an_id_of_its_own(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            answers = await asyncio.gather(*[ask(channel) for _ in range(20)])
            assert {epoch for _, epoch in answers} == {0}
            assert len({producer_id for producer_id, _ in answers}) == 20
            assert min(answers)[0] >= 0

    run(main)


def test_no_producer_id_repeats_after_a_restart() -> None:
    async def main(runtime: Runtime) -> None:
        seen: list[int] = []
        for _ in range(2):
            async with serving(runtime, "/data") as channel:
                seen += [(await ask(channel))[0] for _ in range(3)]
        assert len(set(seen)) == 6

    simulation.run(main)


def test_a_producer_with_an_id_gets_its_next_epoch_until_they_are_used_up() -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, "/data") as channel:
            producer_id, _ = await ask(channel)
            assert await ask(channel, current=identity(producer_id, 0)) == (producer_id, 1)
            assert await ask(channel, current=identity(producer_id, 32_766)) == (
                producer_id,
                32_767,
            )
            other, epoch = await ask(channel, current=identity(producer_id, 32_767))
            assert (other != producer_id, epoch) == (True, 0)
            new, epoch = await ask(channel, current=identity(-1, -1))
            assert (new in (producer_id, other), epoch) == (False, 0)

    simulation.run(main)


@pytest.mark.parametrize("current", [(-2, 0), (7, -1), (7, 32_768)], ids=str)
def test_unknown_identity_is_refused(current: tuple[int, int]) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, "/data") as channel:
            with pytest.raises(InvalidRequest, match=r"current\.producer_"):
                await ask(channel, current=identity(*current))

    simulation.run(main)


def test_staged_attempt_is_produced_by_stream_and_committed(run: Run, folder: str) -> None:
    name = "batch/nightly"

    async def staged(channel: Channel) -> None:
        write = await channel.call(
            STAGED_COMMITS_OPEN_WRITE, staged_pb2.OpenWriteRequest(), timeout_ms=WAIT_MS
        )
        begin = staged_pb2.BeginAttemptRequest(name=name, write_id=write.write_id)

        async def begun() -> staged_pb2.BeginAttemptResponse:
            return await channel.call(STAGED_COMMITS_BEGIN, begin, timeout_ms=WAIT_MS)

        producer = (await tried(begun)).producer  # the first request creates the topic
        for number, partition in enumerate((0, 1)):
            batch = encode_batch(
                [Record(0, 1, None, b"%d" % partition)],
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=0,
                is_transactional=True,
            )
            request = produce_request(batch, partition=partition, number=number)
            request.transactional_id = name

            async def stored(request: ProduceRequest = request) -> None:
                (answer,) = await produce(channel, [request])
                if answer.results[0].HasField("error"):
                    raise decode_error(answer.results[0].error)

            await tried(stored)
        seal = staged_pb2.SealAttemptRequest(name=name, producer=producer)
        for partition in (0, 1):
            seal.partitions.add(topic="t", partition=partition, records=1, last_sequence=0)
        for _ in range(2):
            await channel.call(STAGED_COMMITS_SEAL, seal, timeout_ms=WAIT_MS)
        commit = staged_pb2.CommitStageRequest(name=name, write_id=write.write_id)
        commit.attempts.add(task=0, producer=producer)
        for _ in range(2):
            answer = await channel.call(STAGED_COMMITS_COMMIT, commit, timeout_ms=WAIT_MS)
            assert (answer.committed.records, answer.committed.visible) == (2, True)
        assert (await begun()).committed == answer.committed

    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t", partitions=2)
            await staged(channel)
            results = await fetch(channel, ("t", 0, 0), ("t", 1, 0))
            assert [values_of(each.records)[0] for each in results] == [b"0", b"1"]

    run(main)


def test_transactional_id_gets_the_next_epoch_of_its_producer_id() -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, "/data") as channel:

            async def initialized() -> tuple[int, int]:
                return await ask(channel, transactional_id="a", timeout_ms=60_000)

            producer_id, epoch = await tried(initialized)  # the first request creates the topic
            assert await initialized() == (producer_id, epoch + 1)
            with pytest.raises(InvalidTransactionTimeout):
                await ask(channel, transactional_id="a", timeout_ms=0)

    simulation.run(main)


def test_operators_of_a_cluster_without_transactions_create_no_topic() -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, "/data") as channel:
            for _ in range(2):  # the second time, a topic would have been created
                asked = DescribeTransactionsRequest(transactional_ids=["a"])
                answer = await channel.call(TRANSACTIONS_DESCRIBE, asked, timeout_ms=WAIT_MS)
                assert "the cluster has no transactional ids" in answer.results[0].error.message
                with pytest.raises(TransactionalIdNotFound, match="no transactional ids"):
                    await channel.call(
                        TRANSACTIONS_ABORT,
                        AbortTransactionRequest(transactional_id="a"),
                        timeout_ms=WAIT_MS,
                    )
                calls: tuple[tuple[Method[Any, Any], Any], ...] = (
                    (STAGED_COMMITS_DESCRIBE, staged_pb2.DescribeStageRequest(name="a")),
                    (STAGED_COMMITS_RESET, staged_pb2.ResetStageRequest(name="a")),
                    (STAGED_COMMITS_DELETE, staged_pb2.DeleteStageRequest(name="a")),
                )
                for method, request in calls:
                    with pytest.raises(TransactionalIdNotFound, match="staged commits a"):
                        await channel.call(method, request, timeout_ms=WAIT_MS)

    simulation.run(main)
