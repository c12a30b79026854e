"""A disk error in any phase of retention and compaction loses no record and stops no node."""

import asyncio
import errno
from dataclasses import replace

import pytest

from quorumlog.runtime import Runtime
from quorumlog.simulation import SimWorld
from quorumlog.storage import Log
from quorumlog.storage.shell import DataDirectory

from .maintained_directory import COMPACT, CONFIG, SMALL, TOPIC, fill, opened, values

OPERATIONS = 160
"""Changing operations of `work`, about."""

STRIDE = 7


async def work(directory: DataDirectory, keyed: Log, kept: Log) -> None:
    """Run deletions, compaction rounds, a roll and unlinks."""
    directory.configure(keyed, replace(COMPACT, file_delete_delay_ms=1_000))
    directory.configure(kept, replace(SMALL, retention_ms=3_000, file_delete_delay_ms=1_000))
    await asyncio.sleep(20)


def run_with_error(number: int, *, skipped: int) -> int:
    """Run the work with a disk error at one operation, then reopen. Return its operations."""
    took = 0
    with SimWorld(skipped) as world:
        node = world.node("n")

        async def main(runtime: Runtime) -> None:
            nonlocal took
            async with opened(runtime, replace(CONFIG, checkpoint_interval_ms=500)) as directory:
                keyed = await directory.open_log("k-0", SMALL, topic_id=TOPIC)
                kept = await directory.open_log("t-0", SMALL, topic_id=TOPIC)
                await fill(runtime, directory, keyed, 20)
                await fill(runtime, directory, kept, 12)
                before = await values(directory, keyed)
                began = node.device.operations
                node.device.faults_at[began + skipped + 1] = number
                await work(directory, keyed, kept)
                node.device.faults_at.clear()
                took = node.device.operations - began
            async with opened(runtime) as directory:
                keyed = await directory.open_log("k-0", COMPACT, topic_id=TOPIC)
                after = await values(directory, keyed)
                assert {18, 19} <= set(after), "the newest records of both keys"
                assert after.items() <= before.items()
                kept = await directory.open_log("t-0", SMALL, topic_id=TOPIC)
                assert kept.log_end_offset == 12
                left = await values(directory, kept)
                assert list(left) == list(range(kept.log_start_offset, 12))

        node.spawn(main)
        world.run_until(lambda: not node.alive, virtual_ms=600_000)
        assert node.exit_error is None, (skipped, node.exit_error)
    return took


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_error_in_any_phase_of_compaction_loses_no_record_and_stops_no_node(number: int) -> None:
    took = [
        run_with_error(number, skipped=skipped)
        for skipped in range(number % STRIDE, OPERATIONS, STRIDE)
    ]
    assert max(took) > 0.8 * OPERATIONS
