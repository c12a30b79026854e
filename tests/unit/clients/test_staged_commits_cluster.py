"""Staged writes in a cluster of three simulated nodes: any broker forwards, brokers fail."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.kit.replica_cluster import Cluster, world

from quorumlog.clients.log import AsyncLog
from quorumlog.clients.staged_commits import StagedWrite, TaskResult
from quorumlog.errors import FencedWrite, StageLost, TransactionalIdNotFound

NODES = (1, 2, 3)
TASKS = 4


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with world() as simulated:
        found = Cluster(simulated, NODES)
        found.start()
        yield found


async def create(log: AsyncLog) -> None:
    await log.admin.create_topic("out", partitions=3, replication=3)


async def run_task(log: AsyncLog, write: StagedWrite, task: int, *, count: int = 3) -> TaskResult:
    """A task that sends `count` records to each of three partitions."""
    async with log.staged_producer(write, task) as producer:
        for number in range(3 * count):
            await producer.send("out", f"{write.number}/{task}", partition=number % 3)
        return await producer.seal()


async def run_tasks(log: AsyncLog, write: StagedWrite, tasks: int = TASKS) -> list[TaskResult]:
    return list(await asyncio.gather(*(run_task(log, write, task) for task in range(tasks))))


async def read(log: AsyncLog) -> list[str]:
    """Return the values that a reader gets now, sorted."""
    async with log.consumer("out", until_end=True) as consumer:
        return sorted([str(record.text) async for record in consumer])


def expected(*numbers: int) -> list[str]:
    return sorted(
        f"{number}/{task}" for number in numbers for task in range(TASKS) for _ in "9" * 9
    )


def test_each_number_of_a_name_is_committed_once(cluster: Cluster) -> None:
    async def work(log: AsyncLog) -> None:
        await create(log)
        for number in range(3):
            write = await log.open_write("daily", number)
            results = await run_tasks(log, write)
            assert await read(log) == expected(*range(number))
            committed = await log.commit_write(write, results)
            assert committed is not None
            assert (committed.count, committed.is_mine, committed.is_visible) == (36, True, True)
            assert await read(log) == expected(*range(number + 1))
        again = await log.open_write("daily", 2)
        results = await run_tasks(log, again)
        assert not any(each.is_staged for each in results)
        committed = await log.commit_write(again, results)
        assert committed is not None
        assert not committed.is_mine
        assert await read(log) == expected(0, 1, 2)

    cluster.run(work)


def test_next_write_aborts_attempts_of_a_failed_driver(cluster: Cluster) -> None:
    async def work(log: AsyncLog) -> None:
        await create(log)
        dead = await log.open_write("daily", 0)
        staged = await run_tasks(log, dead)
        write = await log.open_write("daily", 0)
        results = await run_tasks(log, write)
        with pytest.raises(FencedWrite):
            await log.commit_write(dead, staged)
        await log.commit_write(write, results)
        assert await read(log) == expected(0)
        late = await log.commit_write(dead, staged)
        assert late is not None
        assert late.write_id == write.write_id

    cluster.run(work)


@pytest.mark.long
def test_commit_survives_the_failure_of_its_coordinator(cluster: Cluster) -> None:
    async def work(log: AsyncLog) -> None:
        await create(log)
        write = await log.open_write("daily", 0)
        results = await run_tasks(log, write, TASKS - 1)
        coordinator = (await log.admin.describe_commits("daily")).coordinator
        async with log.staged_producer(write, TASKS - 1) as producer:
            await producer.send_many("out", [f"0/{TASKS - 1}"] * 9, partition=0)
            cluster.crash(coordinator)
            results.append(await producer.seal())
        committed = await log.commit_write(write, results)
        assert committed is not None
        assert committed.count == 36
        await asyncio.sleep(60)  # the next leader writes the markers of its partitions
        assert await read(log) == expected(0)

    cluster.run(work, virtual_ms=400_000)


def test_operator_lists_aborts_resets_and_deletes(cluster: Cluster) -> None:
    async def work(log: AsyncLog) -> None:
        await create(log)
        write = await log.open_write("daily", 4)
        results = await run_tasks(log, write)
        other = log.staged_producer(write, 9)
        await other.send_and_wait("out", "x", partition=1)
        (listed,) = await log.admin.list_commits()
        assert (listed.name, listed.last_committed, listed.open, listed.sealed) == (
            "daily",
            -1,
            1,
            TASKS,
        )
        described = await log.admin.describe_commits("daily")
        assert [(each.task, each.state) for each in described.attempts] == [
            *((task, "Sealed") for task in range(TASKS)),
            (9, "Open"),
        ]
        assert {tuple(each) for each in described.partitions} == {("out", n) for n in range(3)}
        names = [each.name for each in await log.admin.list_transactions()]
        ids = [each.producer.producer_id for each in described.attempts]
        assert sorted(names) == sorted(f"daily#{producer_id}" for producer_id in ids)
        assert (await log.admin.describe_transaction(names[0])).is_open
        await log.admin.abort_transaction(f"daily#{described.attempts[-1].producer.producer_id}")
        await other.send("out", "y", partition=1)
        with pytest.raises(StageLost, match="run the task again"):
            await other.seal()
        await other.close()
        await log.admin.abort_transaction("daily")
        with pytest.raises((FencedWrite, StageLost)):
            await log.commit_write(write, results)
        await log.admin.reset_commits("daily", 4)
        again = await log.open_write("daily", 4)
        repeated = await log.commit_write(again, await run_tasks(log, again))
        assert repeated is not None
        assert repeated.count == -1
        assert await read(log) == []
        await log.admin.delete_commits("daily")
        with pytest.raises(TransactionalIdNotFound):
            await log.admin.describe_commits("daily")

    cluster.run(work)
