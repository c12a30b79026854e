"""Write groups of a replicated log: one is in the lane while the next one is prepared."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorumlog.errors import DiskFailed, DiskFull
from quorumlog.ids import TopicId
from quorumlog.runtime import Runtime
from quorumlog.simulation import Faults, SimNode, SimWorld
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, Log, LogConfig
from quorumlog.storage.shell import Appended, DataDirectory
from quorumlog.storage.shell.append_queue import PendingAppend

from .conftest import Kit
from .producers.producer_batches import data

MakeBatch = Callable[..., bytes]
TOPIC = TopicId(b"t" * 16)
FAST = LogConfig(flush_policy=FlushPolicy.REPLICATED)
GROUPED = DirectoryConfig(inline_write_bytes_max=100, write_bytes_max=900)
"""Two batches of 400 bytes a group, all in the lane."""

LOG_FILE = "t-0/00000000000000000000.log"


def simulated(
    main: Callable[[Runtime, SimNode], Coroutine[Any, Any, Any]],
    *,
    seed: int = 0,
    faults: Faults | None = None,
) -> None:
    with SimWorld(seed, faults=faults) as world:
        node = world.node("n")
        task = node.spawn(lambda runtime: main(runtime, node))
        world.run_until(task, virtual_ms=600_000)
        task.result()


def submit(directory: DataDirectory, log: Log, batch: bytes) -> PendingAppend:
    return directory.append_nowait(
        log, batch, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=False
    )


async def run_with_fault(
    kit: Kit,
    node: SimNode,
    directory: DataDirectory,
    log: Log,
    batch: MakeBatch,
    number: int,
    at: int,
) -> None:
    """Append twelve batches with a fault at disk operation `at`. Compare responses and stored
    batches."""
    first = await kit.append(directory, log, batch(1, value=b"first"), flush=False)
    assert first.base_offset == 0
    node.device.arm(None)
    node.device.faults_at = {at: number}
    node.device.short_at = at - 1  # the write before it is partial: its rest is not whole either
    waiting = [submit(directory, log, batch(1, size=340, value=b"%d" % i)) for i in range(12)]
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    node.device.faults_at = {}
    stored = [i for i, answer in enumerate(answers) if isinstance(answer, Appended)]
    refused = [answer for answer in answers if not isinstance(answer, Appended)]
    assert [answers[i].base_offset for i in stored] == list(range(1, len(stored) + 1))  # type: ignore[union-attr]
    values = await kit.values(directory, log)
    assert [(value or b"").split(b"-")[0] for value in values] == [
        b"first",
        *(b"%d" % i for i in stored),
    ]
    content = node.device.disk.file(f"/data/{LOG_FILE}").content
    assert len(content) == log.size_bytes, "unstored bytes were truncated"
    if number == errno.ENOSPC and log.failure is None:
        assert all(isinstance(answer, DiskFull) for answer in refused)
        again = await kit.append(directory, log, batch(1, value=b"more"), flush=False)
        assert again.base_offset == len(stored) + 1
        return
    assert stored == list(range(len(stored))), "nothing is stored behind a final failure"
    assert all(isinstance(answer, DiskFailed) for answer in refused)
    with pytest.raises(DiskFailed):
        await kit.append(directory, log, batch(1), flush=False)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("at", range(1, 8))
def test_failed_write_fails_the_groups_prepared_behind_it(
    kit: Kit, batch: MakeBatch, number: int, at: int
) -> None:
    """At each group in turn, also after a short write."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data", config=GROUPED) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await run_with_fault(kit, node, directory, log, batch, number, at)

    simulated(main)


@pytest.mark.parametrize("seed", range(6))
def test_groups_keep_the_order_of_calls_whatever_the_device_does(
    kit: Kit, batch: MakeBatch, seed: int
) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        config = LogConfig(flush_policy=FlushPolicy.REPLICATED, segment_bytes=3_000)
        async with kit.opened(runtime, "/data", config=GROUPED) as directory:
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            waiting = []
            for number in range(60):
                size = 20 if number % 7 == 0 else 300 + 31 * (number % 5)
                waiting.append(submit(directory, log, batch(1, size=size, value=b"%d" % number)))
                if number % 11 == 0:
                    await asyncio.sleep(0.000_3)
                if number % 17 == 0:
                    await directory.flush(log)
            answers = await asyncio.gather(*waiting)
            assert [answer.base_offset for answer in answers] == list(range(60))
            values = await kit.values(directory, log)
            assert [(value or b"").split(b"-")[0] for value in values] == [
                b"%d" % i for i in range(60)
            ]
            assert len(log.segment_bases) > 3, "groups end at the end of a segment"

    simulated(main, seed=seed, faults=Faults(short_write=0.3, lane_stall=0.2, lane_stall_ms=(1, 9)))


def test_duplicate_of_a_batch_in_the_lane_waits_for_its_outcome(kit: Kit) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data", config=GROUPED) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            batches = [data(number, value=b"v" * 800) for number in range(3)]
            order = [0, 1, 0, 1, 2, 2, 0]
            waiting = [submit(directory, log, batches[number]) for number in order]
            assert [(await answer).base_offset for answer in waiting] == order
            node.device.fail("write", errno.ENOSPC, path_part=LOG_FILE)
            both = [submit(directory, log, data(3, value=b"v" * 800)) for _ in range(2)]
            lost, kept = await asyncio.gather(*both, return_exceptions=True)
            assert isinstance(lost, DiskFull)
            assert isinstance(kept, Appended), (
                "the first one is not stored, so this is no duplicate"
            )
            assert kept.base_offset == 3

    simulated(main)


def test_log_with_many_writes_does_not_starve_others(kit: Kit, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data", config=GROUPED) as directory:
            busy = await directory.open_log("busy-0", FAST, topic_id=TOPIC)
            other = await directory.open_log("other-0", FAST, topic_id=TopicId(b"o" * 16))
            waiting = [submit(directory, busy, batch(1, size=340)) for _ in range(60)]
            await submit(directory, other, batch(1, size=340))
            assert waiting[30].outcome() is None
            await asyncio.gather(*waiting)

    simulated(main)


def test_small_appends_of_one_turn_form_one_group(kit: Kit, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await submit(directory, log, batch(1))
            await asyncio.sleep(0)
            node.device.arm(None)
            waiting = [submit(directory, log, batch(1)) for _ in range(5)]
            assert [answer.outcome() is None for answer in waiting] == [False] + [True] * 4
            await asyncio.sleep(0)
            assert all(answer.outcome() is not None for answer in waiting)
            assert node.device.operations == 2
            waiting = [submit(directory, log, batch(1)) for _ in range(3)]
            await directory.flush(log)
            assert log.flushed_end_offset == 9, "a flush includes the appends called before it"
            await asyncio.gather(*waiting)

    simulated(main)
