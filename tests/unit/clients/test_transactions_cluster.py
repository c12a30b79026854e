"""Transactions in a cluster of three simulated nodes: any broker forwards, brokers fail."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.kit.replica_cluster import Cluster, tried, world

from quorumlog.broker.groups.config import GroupConfig
from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.clients.producer.transactional_producer import AsyncTransactionalProducer
from quorumlog.errors import QuorumlogError
from quorumlog.processing import AsyncProcessor
from quorumlog.runtime import Runtime

NODES = (1, 2, 3)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with world() as simulated:
        found = Cluster(simulated, NODES)
        found.start()
        yield found


async def create(log: AsyncLog, *topics: str) -> None:
    for topic in topics:
        await log.admin.create_topic(topic, partitions=3, replication=3)


async def read(log: AsyncLog, topic: str, count: int) -> list[bytes | None]:
    """Wait for this number of committed values."""
    async with log.consumer(topic) as consumer:
        return [record.value async for record in consumer.records(max_records=count)]


def test_every_broker_forwards_to_the_coordinators(cluster: Cluster) -> None:
    async def work(log: AsyncLog) -> None:
        await create(log, "in", "out")
        async with log.producer() as plain:
            for number in range(6):
                await plain.send("in", b"%d" % number)
        for name in ("a", "b", "c", "d"):  # of several coordinators
            async with log.producer(transactional_id=name) as producer, producer.transaction():
                await producer.send("out", name)
        async with AsyncProcessor(
            log, "loop", group="loop", topics="in", idle_ms=2_000
        ) as processor:
            async for batch in processor:
                for record in batch:
                    await batch.send("out", record.value)
                assert await batch.commit()
        found = await read(log, "out", 10)
        assert sorted(found, key=str) == [b"%d" % number for number in range(6)] + [
            b"a",
            b"b",
            b"c",
            b"d",
        ]
        listed = await log.admin.list_transactions()
        assert [each.name for each in listed] == ["a", "b", "c", "d", "loop"]
        assert len({each.coordinator for each in listed}) > 1
        described = await log.admin.describe_transaction("c")
        assert described.coordinator == listed[2].coordinator

    cluster.run(work)


def test_open_transactions_of_several_coordinators_are_not_hanging(cluster: Cluster) -> None:
    async def work(log: AsyncLog) -> None:
        await create(log, "out")
        producers = [log.producer(transactional_id=name) for name in "abcd"]
        for producer in producers:
            await producer.begin_transaction()
            await producer.send_and_wait("out", b"1", partition=0)
        assert len(await log.admin.open_transactions([("out", 0)])) == 4
        assert await log.admin.find_hanging_transactions([("out", 0)]) == []
        for producer in producers:
            await producer.close()

    cluster.run(work)


def test_group_is_described_while_a_transaction_with_its_offsets_is_open(cluster: Cluster) -> None:
    async def work(log: AsyncLog) -> None:
        await create(log, "in")
        async with log.producer() as plain:
            await plain.send("in", b"1", partition=0)
        producer = log.producer(transactional_id="a", transaction_timeout_ms=600_000)
        await producer.begin_transaction()
        async with log.group_consumer("g", "in", auto_commit=False) as consumer:
            async for _ in consumer.records(max_records=1):
                await producer.send_offsets(consumer)
            described = await asyncio.wait_for(log.admin.describe_group("g"), 5)
            assert [each.committed for each in described.offsets] == [None] * 3
        await producer.commit_transaction()
        await producer.close()

    cluster.run(work, virtual_ms=240_000)


def test_transaction_survives_the_failure_of_its_coordinator(cluster: Cluster) -> None:
    coordinators: list[int] = []

    async def begin(log: AsyncLog) -> None:
        await create(log, "out")
        producer = log.producer(transactional_id="a")
        await producer.begin_transaction()
        for partition in range(3):
            await producer.send_and_wait("out", b"1", partition=partition)
        coordinators.append((await log.admin.describe_transaction("a")).coordinator)
        cluster.crash(coordinators[0])
        await _commit(producer)
        await producer.begin_transaction()
        for partition in range(3):
            await producer.send("out", b"2", partition=partition)
        await _commit(producer)
        assert sorted(await read(log, "out", 6), key=str) == [b"1"] * 3 + [b"2"] * 3
        await producer.close()

    async def _commit(producer: AsyncTransactionalProducer) -> None:
        async def commit() -> None:
            await producer.commit_transaction(timeout_ms=5_000)

        await tried(commit)

    cluster.run(begin, virtual_ms=240_000)


@pytest.mark.long
def test_processors_count_each_record_once_while_brokers_restart(cluster: Cluster) -> None:
    count = 60

    async def fill(log: AsyncLog) -> None:
        await create(log, "in", "out")
        async with log.producer() as plain:
            for number in range(count):
                await plain.send("in", b"%d" % number, partition=number % 3)

    async def process(log: AsyncLog) -> None:
        done = 0
        while done < count:
            try:
                async with AsyncProcessor(
                    log,
                    "loop",
                    group="loop",
                    topics="in",
                    idle_ms=5_000,
                    consumer_settings={"max_poll_records": 4},
                ) as processor:
                    async for batch in processor:
                        for record in batch:
                            await batch.send("out", record.value)
                        await batch.commit()
            except QuorumlogError:
                continue  # restart
            group = await log.admin.describe_group("loop")
            done = sum(each.committed or 0 for each in group.offsets)

    async def main(runtime: Runtime) -> None:
        addresses = ",".join(f"n{number}:9094" for number in NODES)
        async with make_log(runtime, addresses) as log:
            await process(log)

    cluster.run(fill)
    task = cluster.world.node("app").spawn(main)
    for turn in range(4):
        number = NODES[turn % len(NODES)]
        cluster.world.run_for(virtual_ms=2_000)
        cluster.crash(number)
        cluster.world.run_for(virtual_ms=4_000)
        cluster.start(number)
    cluster.world.run_until(task, virtual_ms=600_000)
    task.result()
    found = cluster.run(lambda log: read(log, "out", count))
    assert sorted(found, key=str) == sorted((b"%d" % each for each in range(count)), key=str)


async def coordinators_of(log: AsyncLog, name: str) -> tuple[int, int]:
    """Return the coordinators of the group and of the transactional id with this name."""
    group = await log.admin.describe_group(name)
    return group.coordinator, (await log.admin.describe_transaction(name)).coordinator


@pytest.mark.long
@pytest.mark.parametrize("is_long", [False, True])
def test_abort_of_a_batch_survives_an_outage_of_the_group(is_long: bool) -> None:
    """After a short outage the abort is retried. During a long one the member loses its partitions,
    and the next assignment delivers the records again."""
    with world() as simulated:
        cluster = Cluster(simulated, NODES)
        groups = GroupConfig(offsets_replicas=1, consumer_session_ms=10_000)
        for number, config in cluster.configs.items():
            cluster.configs[number] = replace(config, groups=groups)
        cluster.start()
        call_ms = 120_000 if is_long else 2_000
        state = {"down": 0, "aborts": 0}

        async def process(runtime: Runtime) -> None:
            addresses = ",".join(f"n{number}:9094" for number in NODES)
            async with make_log(runtime, addresses, call_timeout_ms=call_ms) as log:
                await create(log, "in", "out")
                async with log.producer() as plain:
                    await plain.send_and_wait("in", b"1", partition=0)
                for name in "abcdefgh":
                    loop = AsyncProcessor(log, name, group=name, topics="in")
                    async with loop:
                        batch = await anext(loop)
                        delivery = await batch.send("out", name)
                        await delivery
                        group, transaction = await coordinators_of(log, name)
                        if group == transaction:
                            continue
                        cluster.crash(group)
                        state["down"] = group
                        while not batch.is_ended and state["aborts"] < 100:
                            try:
                                await batch.abort()
                            except QuorumlogError:
                                state["aborts"] += 1
                        again = await anext(loop)
                        assert [record.value for record in again] == [b"1"]
                        await again.send("out", b"again")
                        assert await again.commit()
                        assert await read(log, "out", 1) == [b"again"]
                        return
            raise AssertionError("each group shares its coordinator with its transactional id")

        task = simulated.node("app").spawn(process)
        cluster.until(lambda: state["down"] > 0 or task.done(), 120_000)
        simulated.run_for(virtual_ms=60_000 if is_long else 8_000)
        cluster.start(state["down"])
        simulated.run_until(task, virtual_ms=240_000)
        task.result()
        assert (state["aborts"] > 0) is not is_long
