"""Committed entries stay readable during a truncation above them."""

import asyncio

import pytest

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.shell.metadata_log import MetadataLog
from quorumlog.simulation import Faults, SimWorld

from .durable import data, live


@pytest.mark.parametrize("seed", range(20))
def test_a_truncation_does_not_disturb_reads_below_it(seed: int) -> None:
    """Found by simulation (level quorum, seed 107): the delivery reported a disk failure or damage
    for truncated or withheld bytes, and the node stopped."""
    entries = tuple(data(number, b"x" * 100) for number in range(20))

    async def race(log: MetadataLog) -> None:
        await log.store_hard_state(HardState(Epoch(7), None))
        await log.append(entries)
        cutting = asyncio.ensure_future(log.truncate_to(Offset(3)))
        while not cutting.done():
            assert await log.read_entries(Offset(0), Offset(2)) == entries[:2]
        await cutting

    async def first(log: MetadataLog) -> None:
        await log.store_hard_state(HardState(Epoch(7), None))
        await log.append(entries)
        reading = asyncio.ensure_future(log.read_entries(Offset(0), Offset(2)))
        await asyncio.sleep(0)
        await log.truncate_to(Offset(3))
        assert await reading == entries[:2]

    for work in (race, first):
        with SimWorld(seed, faults=Faults(cache_miss=0.5)) as world:
            live(world, world.node("one"), work)
