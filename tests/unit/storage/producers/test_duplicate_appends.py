"""Duplicate batches get the offsets of the original, once that is durable.

They are stored once through failed writes, restarts and power cuts.
"""

import asyncio
from dataclasses import dataclass, field

import pytest

from quorumlog import simulation
from quorumlog.errors import DiskFull
from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records import decode_all, iterate_batches
from quorumlog.runtime import Runtime
from quorumlog.simulation import CrashPoint, Faults, SimWorld
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, Log, LogConfig
from quorumlog.storage.shell import DataDirectory
from quorumlog.storage.shell.append_queue import PendingAppend

from ..conftest import Kit
from .producer_batches import data

SURE = LogConfig(flush_policy=FlushPolicy.FSYNC)
FAST = LogConfig(flush_policy=FlushPolicy.REPLICATED)


def submit(
    directory: DataDirectory, log: Log, batch: bytes, *, flush: bool = True
) -> PendingAppend:
    return directory.append_nowait(
        log, batch, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=flush
    )


@pytest.mark.parametrize("config", [SURE, FAST], ids=["fsync", "replicated"])
@pytest.mark.parametrize("size", [10, 100_000], ids=["inline", "in the lane"])
def test_concurrent_duplicates_are_stored_once(kit: Kit, config: LogConfig, size: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", config, topic_id=None)
            first, second = data(0, value=b"a" * size), data(1, value=b"b" * size)
            answers = [submit(directory, log, one) for one in (first, first, second, first, second)]
            offsets = [(await answer).base_offset for answer in answers]
            assert offsets == [0, 0, 1, 0, 1]
            assert log.log_end_offset == 2

    simulation.run(main)


def test_duplicate_is_acknowledged_after_the_original_is_durable(kit: Kit) -> None:
    async def main(runtime: Runtime) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", SURE, topic_id=None)
            original = submit(directory, log, data(0))
            copy = submit(directory, log, data(0))
            careless = submit(directory, log, data(0), flush=False)
            await careless
            assert log.log_end_offset == 1
            assert log.flushed_end_offset == 0
            assert original.outcome() is None
            assert copy.outcome() is None, "the original could still be lost"
            await copy
            assert log.flushed_end_offset == 1
            assert original.outcome() is not None

    simulation.run(main)


def test_duplicate_with_flush_flushes_an_unflushed_original(kit: Kit) -> None:
    async def main(runtime: Runtime) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=None)
            await submit(directory, log, data(0), flush=False)
            assert log.flushed_end_offset == 0
            await submit(directory, log, data(0))
            assert log.flushed_end_offset == 1

    simulation.run(main)


def test_duplicate_of_a_failed_write_is_stored(kit: Kit) -> None:
    """The disk is full for the original and has space again for its duplicate."""

    async def main(runtime: Runtime) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=None)
            await kit.append(directory, log, data(0))
            disk.capacity_bytes = disk.used_bytes() + 10
            with pytest.raises(DiskFull):
                await kit.append(directory, log, data(1))
            disk.capacity_bytes = None
            assert (await kit.append(directory, log, data(1))).base_offset == 1
            assert (await kit.append(directory, log, data(1))).base_offset == 1

    with SimWorld(0) as world:
        node = world.node("n")
        disk = node.device.disk
        node.spawn(main)
        world.run_until(lambda: not node.alive, virtual_ms=600_000)
        assert node.exit_error is None, node.exit_error


def test_duplicate_returns_the_append_time_of_the_original(kit: Kit) -> None:
    async def main(runtime: Runtime) -> None:
        async with kit.opened(runtime, "/data") as directory:
            config = LogConfig(log_append_time=True)
            log = await directory.open_log("t-0", config, topic_id=None)
            original = await kit.append(directory, log, data(0))
            await asyncio.sleep(5)
            copy = await kit.append(directory, log, data(0))
            assert copy == original
            assert original.log_append_time_ms > 0

    simulation.run(main)


def test_producer_expires_in_an_idle_log(kit: Kit) -> None:
    async def main(runtime: Runtime) -> None:
        config = DirectoryConfig(producer_expiration_ms=10_000, retention_check_interval_ms=1_000)
        async with kit.opened(runtime, "/data", config=config) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=None)
            await kit.append(directory, log, data(0))
            await asyncio.sleep(8)
            assert len(log.producers.states) == 1
            await asyncio.sleep(4)
            assert len(log.producers.states) == 0

    simulation.run(main)


# --- crashes -----------------------------------------------------------------------------------

DATA = "/data"
TOPIC = TopicId(b"t" * 16)
SMALL = DirectoryConfig(
    write_group_bytes_max=1_000, inline_write_bytes_max=300, checkpoint_interval_ms=5
)
SEGMENTS = LogConfig(flush_policy=FlushPolicy.FSYNC, segment_bytes=700, index_interval_bytes=200)
UNDER_WAY = 5


@dataclass
class Client:
    """A producer with five batches in flight that retries every batch without a response."""

    producer: int
    unanswered: list[int] = field(default_factory=list)  # sequences, oldest first
    stored: dict[int, int] = field(default_factory=dict)  # sequence -> offset, acknowledged
    following: int = 0

    def lose_answers(self) -> None:
        """Drop the responses of the newest batches that the producer may still retry."""
        first = min(self.unanswered, default=self.following)
        again = UNDER_WAY - len(self.unanswered)
        self.unanswered = [*range(max(0, first - again), first), *self.unanswered]

    async def send(self, directory: DataDirectory, log: Log) -> None:
        """Retry unanswered batches, send new ones up to five, and record the responses."""
        while len(self.unanswered) < UNDER_WAY:
            self.unanswered.append(self.following)
            self.following += 1
        answers = [(s, submit(directory, log, self.batch(s))) for s in self.unanswered]
        for sequence, answer in answers:
            appended = await answer
            known = self.stored.setdefault(sequence, appended.base_offset)
            assert known == appended.base_offset, f"{sequence} at {known} and at {appended}"
            self.unanswered.remove(sequence)

    def batch(self, sequence: int) -> bytes:
        value = b"%d/%d" % (self.producer, sequence)
        return data(sequence, producer=self.producer, value=value.ljust(60))


async def run_process(runtime: Runtime, clients: list[Client], rounds: int) -> None:
    if not runtime.files.exists(f"{DATA}/meta.properties"):
        await DataDirectory.format(runtime, DATA, cluster_id=ClusterId("c"), node_id=NodeId(1))
    async with runtime.tasks.scope("life") as scope:
        directory = await DataDirectory.open(runtime, scope, DATA, config=SMALL)
        log = await directory.open_log("t-0", SEGMENTS, topic_id=TOPIC)
        await check(directory, log, clients)
        for client in clients:
            client.lose_answers()
        for _ in range(rounds):
            await asyncio.sleep(0.01)  # a checkpoint and its fsync run in between
            await asyncio.gather(*(client.send(directory, log) for client in clients))
        await directory.close()


async def check(directory: DataDirectory, log: Log, clients: list[Client]) -> None:
    """Check that batches are in order without duplicates and that acknowledged ones are stored."""
    offset, found = 0, dict[tuple[int, int], int]()
    while offset < log.log_end_offset:
        taken = log.read(offset, max_bytes=1_000)
        assert taken is not None
        content = await directory.reader.read(taken)
        for _, header in iterate_batches(content):
            place = (header.producer_id, header.base_sequence)
            assert place not in found, f"{place} at {found[place]} and {header.base_offset}"
            assert place[1] == 0 or (place[0], place[1] - 1) in found, f"{place} leaves a gap"
            found[place] = header.base_offset
        assert all(record.value for record in decode_all(content))
        offset = taken.next_offset
    for client in clients:
        for sequence, at in client.stored.items():
            assert found.get((client.producer, sequence)) == at, f"{sequence} is not at {at}"


def crash_and_repeat(seed: int, point: CrashPoint, faults: Faults | None = None) -> None:
    with SimWorld(seed, faults=faults) as world:
        node, clients = world.node("n"), [Client(1), Client(2)]

        def run() -> None:
            node.spawn(lambda runtime: run_process(runtime, clients, rounds=3))
            world.run_until(lambda: not node.alive, virtual_ms=600_000)
            assert node.exit_error is None, f"seed {seed}, {point}: {node.exit_error!r}"

        run()
        for _ in range(2):
            node.crash_at(point)
            run()
        node.crash_at(None)
        run()
        run()


@pytest.mark.long
@pytest.mark.parametrize("power", [True, False], ids=["power", "process"])
def test_crash_at_any_file_operation_stores_no_duplicate(power: bool) -> None:
    for number in range(1, 110, 3):
        crash_and_repeat(number, CrashPoint(operations=number, power=power, moment="inside"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(15))
def test_duplicates_on_a_faulty_disk_are_stored_once(seed: int) -> None:
    faults = Faults(cache_miss=0.4, short_write=0.2, lane_stall=0.02)
    point = CrashPoint(operations=1 + seed * 7, power=True, moment="after")
    crash_and_repeat(seed, point, faults)
