"""Consumers fetch from the replica in their rack (KIP-392), on simulated clusters."""

from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, TypeVar

import pytest
from tests.kit.simulated_cluster import LONG_MS, Play, cluster

from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.proto import log_pb2
from quorumlog.runtime import Runtime
from quorumlog.runtime.error_detail import decode_error
from quorumlog.services import LOG_FETCH

T = TypeVar("T")
CLIENTS = count()  # one machine each
RACKS = "abc"
COUNT = 40


async def produced(log: AsyncLog, first: int = 0) -> None:
    async with log.producer() as producer:
        for number in range(first, first + COUNT):
            await producer.send("t", str(number), partition=0)


def fetched_bytes(play: Play) -> dict[int, int]:
    """Return the bytes that each node has sent to consumers."""
    found = {}
    for number, machine in play.machines.items():
        assert machine.node is not None
        assert machine.node.parts.replicas is not None
        found[number] = machine.node.parts.replicas.reader.figures.fetched_bytes
    return found


def ask(play: Play, main: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
    """Run one more client to its end, on its own machine."""
    task = play.world.node(f"client-{next(CLIENTS)}").spawn(main)
    play.until(task.done)
    result: T = task.result()
    return result


def roles(play: Play) -> tuple[int, int]:
    """Return the leader of t-0 and one follower."""
    topic = play[1].image.topic("t")
    assert topic is not None
    leader = topic.partitions[0].leader
    return leader, next(number for number in play.machines if number != leader)


def test_a_consumer_reads_from_the_replica_in_its_rack_and_from_the_leader_without_one() -> None:
    async def make(runtime: Runtime) -> None:
        async with make_log(runtime, "n1:9094") as log:
            await log.admin.create_topic("t", partitions=1, replication=3)
            await produced(log)

    with cluster(brokers=3, combined=True, racks=RACKS) as play:
        ask(play, make)
        leader, follower = roles(play)
        rack: str | None = None

        async def read(runtime: Runtime) -> list[int]:
            async with (
                make_log(runtime, f"n{leader}:9094") as log,
                log.consumer("t", until_end=True, rack=rack) as consumer,
            ):
                found = [int(record.value or b"") async for record in consumer]
            return found

        for rack, reader in (
            (RACKS[follower - 1], follower),
            (RACKS[leader - 1], leader),
            ("z", leader),
            (None, leader),
        ):
            before = fetched_bytes(play)
            assert ask(play, read) == [*range(COUNT)]
            after = fetched_bytes(play)
            assert [n for n in after if after[n] > before[n]] == [reader], rack


@pytest.mark.parametrize("how", ["killed", "paused"])
def test_consumer_continues_at_the_leader_when_the_replica_in_its_rack_fails(how: str) -> None:
    async def make(runtime: Runtime) -> None:
        async with make_log(runtime, "n1:9094") as log:
            await log.admin.create_topic("t", partitions=1, replication=3)
            await produced(log)

    with cluster(brokers=3, combined=True, racks=RACKS) as play:
        ask(play, make)
        leader, follower = roles(play)
        found: list[int] = []

        async def read(runtime: Runtime) -> None:
            async with (
                make_log(runtime, f"n{leader}:9094") as log,
                log.consumer("t", rack=RACKS[follower - 1]) as consumer,
            ):
                async for record in consumer:
                    found.append(int(record.value or b""))
                    if len(found) == 2 * COUNT:
                        return

        async def more(runtime: Runtime) -> None:
            async with make_log(runtime, f"n{leader}:9094") as log:
                await produced(log, COUNT)

        reading = play.world.node("reader").spawn(read)
        play.until(lambda: len(found) == COUNT)
        assert fetched_bytes(play)[leader] == 0
        machine = play[follower].sim
        machine.crash() if how == "killed" else machine.pause()
        ask(play, more)
        play.until(reading.done, within_ms=LONG_MS)
        reading.result()
        assert found == [*range(2 * COUNT)]


def test_follower_refuses_offsets_above_its_log_end_or_high_watermark() -> None:
    async def make(runtime: Runtime) -> None:
        async with make_log(runtime, "n1:9094") as log:
            await log.admin.create_topic("t", partitions=1, replication=3)
            await produced(log)

    with cluster(brokers=3, combined=True, racks=RACKS) as play:
        ask(play, make)
        play.world.run_for(1_000)
        _, follower = roles(play)
        parts = play[follower].node.parts  # type: ignore[union-attr]
        assert parts.replicas is not None
        partition = parts.replicas.hosted.local_replica("t", 0).partition
        assert partition.high_watermark == COUNT
        offset, rack = 0, ""

        async def fetch(runtime: Runtime) -> str:
            channel = runtime.network.channel(f"n{follower}:9094")
            try:
                part = log_pb2.FetchPartition(topic="t", partition=0, offset=offset, rack=rack)
                request = log_pb2.FetchRequest(partitions=[part])
                answer = await channel.call(LOG_FETCH, request, timeout_ms=LONG_MS)
            finally:
                await channel.close()
            (result,) = answer.results
            if result.HasField("error"):
                return type(decode_error(result.error)).__name__
            assert result.records
            return "records"

        assert ask(play, fetch) == "NotLeaderOrFollower", "a fetch without a rack needs the leader"
        rack = RACKS[follower - 1]
        assert ask(play, fetch) == "records"
        offset = COUNT + 1
        assert ask(play, fetch) == "OffsetOutOfRange"
        partition.high_watermark = type(partition.high_watermark)(COUNT - 2)
        offset = COUNT - 1
        assert ask(play, fetch) == "OffsetNotAvailable"
