"""The consumer after deletions, leader changes, restarts and corruption."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from quorumlog import simulation
from quorumlog.clients.consumer.consumer import AsyncConsumer
from quorumlog.clients.log import make_log
from quorumlog.errors import (
    CorruptionError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    QuorumlogError,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompression,
)
from quorumlog.proto import log_pb2
from quorumlog.runtime import Runtime
from quorumlog.server.config import NodeConfig
from quorumlog.server.node import Node, format_directory

from .memory_brokers import Brokers, batch, offsets, run_with_brokers

Main: TypeAlias = Callable[[Brokers], Coroutine[Any, Any, None]]


async def errors_and_offsets(
    consumer: AsyncConsumer, *, polls: int = 10, timeout_ms: int = 1_000
) -> tuple[list[QuorumlogError], dict[tuple[str, int], list[int]]]:
    """Poll. Return the raised errors and the offsets by partition."""
    errors: list[QuorumlogError] = []
    read: dict[tuple[str, int], list[int]] = {}
    for _ in range(polls):
        try:
            for record in await consumer.poll(timeout_ms=timeout_ms):
                read.setdefault((record.topic, record.partition), []).append(record.offset)
        except QuorumlogError as error:
            errors.append(error)
    return errors, read


def rotten(data: bytes) -> bytes:
    """Return the batch with a flipped bit in its records."""
    return data[:-1] + bytes([data[-1] ^ 1])


# --- unreadable batches --------------------------------------------------------------------------


def test_records_before_a_corrupt_batch_are_delivered_and_the_error_has_its_offsets() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t", 2)
        brokers.append(("t", 0), 5)
        brokers.put(("t", 0), rotten(batch(5, 3)), 3)
        brokers.append(("t", 0), 4)
        brokers.append(("t", 1), 6)
        async with brokers.client() as log, log.consumer("t") as consumer:
            errors, read = await errors_and_offsets(consumer)
            assert read == {("t", 0): [0, 1, 2, 3, 4], ("t", 1): [0, 1, 2, 3, 4, 5]}
            assert len(errors) > 2  # raised repeatedly: nothing is skipped
            for error in errors:
                assert isinstance(error, CorruptionError)
                assert str(error).startswith("t-0: offsets 5 to 7 cannot be read")
            assert await consumer.position(("t", 0)) == 5
            await consumer.seek(("t", 0), 8)  # as the message explains
            assert await errors_and_offsets(consumer, polls=2) == ([], {("t", 0): [8, 9, 10, 11]})

    run_with_brokers(main)


def test_batch_corrupted_in_transit_is_read_at_the_next_fetch() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.append(("t", 0), 2)
        brokers.put(("t", 0), rotten(batch(2, 2)), 2)
        async with brokers.client() as log, log.consumer("t") as consumer:
            assert offsets(await consumer.poll()) == [0, 1]
            with pytest.raises(CorruptionError):
                await consumer.poll()
            stored = brokers.logs["t", 0].pop()
            brokers.put(("t", 0), batch(stored.first, 2), 2)
            assert offsets(await consumer.poll(timeout_ms=5_000)) == [2, 3]

    run_with_brokers(main)


def test_an_unknown_codec_is_raised_with_its_offsets() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.append(("t", 0), 2)
        strange = bytearray(batch(2, 1))
        strange[22] |= 7
        from crc32c import crc32c

        strange[17:21] = crc32c(bytes(strange[21:])).to_bytes(4, "big")
        brokers.put(("t", 0), bytes(strange), 1)
        async with brokers.client() as log, log.consumer("t") as consumer:
            assert offsets(await consumer.poll()) == [0, 1]
            with pytest.raises(UnsupportedCompression, match=r"t-0: offsets 2 to 2 cannot be read"):
                await consumer.poll()
            assert await consumer.position(("t", 0)) == 2

    run_with_brokers(main)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (batch(0, 3)[:-4], "99 remain"),
        (batch(4, 2) + batch(2, 2), "follows one that ends at 6"),
        (batch(0, 2), "ends at offset 2, before the requested offset 4"),
        (b"x" * 10, "from offset 4 cannot be read"),
    ],
)
def test_an_invalid_response_is_raised_and_not_used(data: bytes, sentence: str) -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.append(("t", 0), 4)
        brokers.put(("t", 0), data, 2)
        async with brokers.client() as log, log.consumer("t", start=4) as consumer:
            for _ in range(3):
                with pytest.raises(CorruptionError, match=sentence):
                    await consumer.poll(timeout_ms=5_000)
                assert await consumer.position(("t", 0)) == 4

    run_with_brokers(main)


def test_a_response_for_other_partitions_is_raised() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t", 2)
        brokers.append(("t", 0), 4)
        honest = brokers._answer

        def swapped(
            broker: int, request: log_pb2.FetchRequest
        ) -> tuple[log_pb2.FetchResponse, bool]:
            response, is_news = honest(broker, request)
            return log_pb2.FetchResponse(results=reversed(response.results)), is_news

        brokers._answer = swapped  # type: ignore[method-assign]
        async with brokers.client() as log, log.consumer("t") as consumer:
            with pytest.raises(UnknownServerError, match="is it a broker of this version"):
                await consumer.poll(timeout_ms=5_000)
            assert consumer.positions() == {("t", 0): 0, ("t", 1): 0}

    run_with_brokers(main)


# --- deleted topics, moved leaders and restarts --------------------------------------------------


def test_a_deleted_topic_is_raised_once_and_others_continue() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("gone", 3)
        brokers.create("kept")
        async with brokers.client() as log, log.consumer(["gone", "kept"]) as consumer:
            await asyncio.sleep(1)
            brokers.delete("gone")
            brokers.append(("kept", 0), 3)
            errors, read = await errors_and_offsets(consumer, polls=20)
            assert read == {("kept", 0): [0, 1, 2]}
            assert [(type(error), error.topic) for error in errors] == [
                (UnknownTopicOrPartition, "gone")
            ]
            brokers.append(("kept", 0), 1)
            assert (await errors_and_offsets(consumer, polls=2))[1] == {("kept", 0): [3]}

    run_with_brokers(main)


def test_prefetched_records_of_a_deleted_topic_are_delivered_before_the_error() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.append(("t", 0), 10)
        async with brokers.client() as log, log.consumer("t") as consumer:
            assert offsets(await consumer.poll(max_records=1)) == [0]
            brokers.delete("t")
            await asyncio.sleep(5)
            assert offsets(await consumer.poll()) == list(range(1, 10))
            with pytest.raises(UnknownTopicOrPartition):
                await consumer.poll()

    run_with_brokers(main)


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize("policy", ["raise", "earliest"])
def test_offsets_of_a_recreated_topic_are_out_of_range(policy: str, is_seen: bool) -> None:
    """Also if its absence went undetected, and although the new topic is longer."""

    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.append(("t", 0), 5)
        async with (
            brokers.client() as log,
            log.consumer("t", on_out_of_range=policy) as consumer,
        ):
            assert len(await consumer.poll()) == 5
            brokers.delete("t")
            if is_seen:
                with pytest.raises(UnknownTopicOrPartition):
                    await consumer.poll(timeout_ms=10_000)
            else:
                brokers.errors["t", 0] = NotLeaderOrFollower("it moves")
            brokers.create("t")
            brokers.append(("t", 0), 8)
            if not is_seen:
                await asyncio.sleep(1)
                brokers.errors.clear()
            errors, read = await errors_and_offsets(consumer, polls=10, timeout_ms=2_000)
            if policy == "raise":
                assert not read
                assert isinstance(errors[0], OffsetOutOfRange)
                assert "created again" in str(errors[0])
                await consumer.seek_to_beginning()
                errors, read = await errors_and_offsets(consumer, polls=2)
            elif not is_seen:
                assert isinstance(errors.pop(0), UnknownTopicId)
            assert (errors, read) == ([], {("t", 0): list(range(8))})

    run_with_brokers(main)


def test_fetches_to_a_broker_that_refuses_every_offset_are_paced() -> None:
    """It refuses the offset that it returns as the earliest one."""

    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.append(("t", 0), 5)
        async with (
            brokers.client(retry_backoff_max_ms=1_000) as log,
            log.consumer("t", on_out_of_range="earliest") as consumer,
        ):
            assert len(await consumer.poll()) == 5
            brokers.errors["t", 0] = OffsetOutOfRange("never")
            before = len(brokers.asked)
            assert await consumer.poll(timeout_ms=20_000) == []
            assert len(brokers.asked) - before < 60
            brokers.errors.clear()
            assert offsets(await consumer.poll(timeout_ms=5_000)) == list(range(5))

    run_with_brokers(main)


def test_an_iteration_continues_after_an_error_and_counts_only_records() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t")
        brokers.append(("t", 0), 5)
        async with brokers.client() as log, log.consumer("t") as consumer:
            records = consumer.records(max_records=7)
            read = [(await anext(records)).offset for _ in range(5)]
            brokers.errors["t", 0] = UnknownServerError("it fails")
            brokers.append(("t", 0), 5)
            with pytest.raises(UnknownServerError):
                await anext(records)
            brokers.errors.clear()
            read += [record.offset async for record in records]
            assert read == list(range(7))

    run_with_brokers(main)


def test_reading_follows_the_leader() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t", 4)
        async with brokers.client() as log, log.consumer("t") as consumer:
            read: dict[int, list[int]] = {partition: [] for partition in range(4)}
            for turn in range(12):
                for partition in range(4):
                    brokers.append(("t", partition), 2)
                    brokers.lead(("t", partition), 1 + (turn + partition) % 3)
                for record in await consumer.poll(timeout_ms=2_000):
                    read[record.partition].append(record.offset)
            for _ in range(8):
                for record in await consumer.poll(timeout_ms=500):
                    read[record.partition].append(record.offset)
        assert read == {partition: list(range(24)) for partition in range(4)}

    run_with_brokers(main, brokers=3)


def test_bounded_read_without_a_leader_times_out() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t", 2)
        brokers.append(("t", 0), 3)
        brokers.append(("t", 1), 3)
        async with (
            brokers.client(call_timeout_ms=4_000) as log,
            log.consumer("t", until_end=True) as consumer,
        ):
            brokers.errors["t", 1] = NotLeaderOrFollower("the partition has no leader")
            clock = brokers.runtime.clock
            began_ms = clock.now_ms()
            assert [(await anext(consumer)).partition for _ in range(3)] == [0, 0, 0]
            with pytest.raises(NotLeaderOrFollower, match="the partition has no leader"):
                await anext(consumer)
            assert 3_500 < clock.now_ms() - began_ms < 4_500
            brokers.errors.clear()
            assert [record.offset async for record in consumer] == [0, 1, 2]

    run_with_brokers(main)


def test_a_restart_of_the_node_changes_nothing_for_the_reader(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        config = NodeConfig(
            data_dir=str(tmp_path / "data"),
            grpc_listener="127.0.0.1:9094",
            controller_listener="127.0.0.1:9095",
        )
        await format_directory(runtime, config)
        seen: list[int] = []
        async with Restarting() as node:
            await node.begin(runtime, config)
            async with make_log(runtime, "127.0.0.1:9094") as log:
                await log.admin.create_topic("t")
                async with log.consumer("t") as consumer:
                    for life in range(3):
                        async with log.producer(linger_ms=0) as producer:
                            for number in range(5):
                                await producer.send_and_wait("t", b"%d" % (5 * life + number))
                        while len(seen) < 5 * life + 3:
                            seen += offsets(await consumer.poll(max_records=1, timeout_ms=30_000))
                        await node.end()
                        for _ in range(3):
                            seen += offsets(await consumer.poll(max_records=1, timeout_ms=500))
                        await node.begin(runtime, config)
                    while len(seen) < 15:
                        seen += offsets(await consumer.poll(timeout_ms=30_000))
        assert seen == list(range(15))

    simulation.run(main)


class Restarting:
    """A node that can be stopped and started again."""

    def __init__(self) -> None:
        self._node: Node | None = None

    async def begin(self, runtime: Runtime, config: NodeConfig) -> None:
        self._node = Node(runtime, config)
        await self._node.__aenter__()

    async def end(self) -> None:
        node, self._node = self._node, None
        if node is not None:
            await node.__aexit__(None, None, None)

    async def __aenter__(self) -> "Restarting":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()


def test_hanging_leader_is_left_once_another_leads() -> None:
    async def main(brokers: Brokers) -> None:
        brokers.create("t", 2)
        for partition in range(2):
            brokers.append(("t", partition), 5)
            brokers.lead(("t", partition), 2)
        brokers.silences[2] = asyncio.Event()
        clock = brokers.runtime.clock
        async with brokers.client() as log, log.consumer("t") as consumer:
            assert await consumer.poll(timeout_ms=500) == []
            for partition in range(2):
                brokers.lead(("t", partition), 1)
            began_ms = clock.now_ms()
            read = [*await consumer.poll(timeout_ms=10_000), *await consumer.poll(max_records=5)]
            assert len(read) == 10
            assert clock.now_ms() - began_ms < 3_000

    run_with_brokers(main, brokers=2)
