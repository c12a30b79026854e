"""A snapshot that is published during the deletion of older ones stays."""

import asyncio

import pytest

from quorumlog.ids import Epoch
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.shell.metadata_log import MetadataLog
from quorumlog.simulation import SimWorld

from .durable import ALONE, data, live, snapshot_id


@pytest.mark.parametrize("seed", range(20))
def test_a_snapshot_written_beside_a_cleaning_is_not_cleaned_away(seed: int) -> None:
    """Found by simulation (level quorum): the file had its name but was not listed as kept, so the
    cleaning removed it. The log was then cleaned up to it, and the node could not start."""
    first, second, third = snapshot_id(1), snapshot_id(2), snapshot_id(3)

    async def race(log: MetadataLog) -> None:
        await log.store_hard_state(HardState(Epoch(7), None))
        await log.append((data(0, b"a"), data(1, b"b"), data(2, b"c"), data(3, b"d")))
        for snapshot in (first, second):
            await log.write_snapshot(snapshot, ALONE, iter([[b"x"]]))
        await asyncio.gather(
            log.write_snapshot(third, ALONE, iter([[b"y"]])),
            log.clean_to(second),
        )
        await log.clean_to(third)

    async def look(log: MetadataLog) -> None:
        assert log.snapshots == (third,)
        assert log.view.start == third.log_end

    with SimWorld(seed) as world:
        node = world.node("one")
        live(world, node, race)
        live(world, node, look)
