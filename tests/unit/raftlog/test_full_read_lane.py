"""A full read lane, which the raft log shares with consumers, is not a disk failure."""

import asyncio

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.shell.metadata_log import MetadataLog
from quorumlog.runtime.lanes import lane_limits
from quorumlog.simulation import Faults, SimWorld

from .durable import ALONE, data, live, snapshot_id


def test_reads_of_log_and_snapshots_wait_for_a_lane_that_is_full() -> None:
    entries = tuple(data(number, b"x" * 100) for number in range(4))
    snapshot = snapshot_id(2)

    with SimWorld(1, faults=Faults(cache_miss=1.0)) as world:
        node = world.node("one")

        async def read_in_a_crowd(log: MetadataLog) -> None:
            await log.store_hard_state(HardState(Epoch(7), None))
            await log.append(entries)
            await log.write_snapshot(snapshot, ALONE, iter([[b"x"]]))
            tasks = node.runtime().tasks

            async def crowd() -> None:
                jobs = range(lane_limits("read").waiting_jobs_max)
                await asyncio.gather(*(tasks.offload("read", lambda: None) for _ in jobs))

            for read in (
                lambda: log.read_entries(Offset(0), Offset(4)),
                lambda: log.read_snapshot_chunk(snapshot, 0, 1_000),
                lambda: log.open_snapshot(snapshot),
            ):
                crowding = asyncio.ensure_future(crowd())
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert await read()
                await crowding

        live(world, node, read_in_a_crowd)
