"""Where an append is written: on the loop as long as that returns at once, else in the lane."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from quorumlog import simulation
from quorumlog.ids import TopicId
from quorumlog.runtime import Runtime
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, LogConfig
from quorumlog.storage.shell.writer import SLOW_SHARE, SLOW_US, SMALL_BYTES

from .conftest import Kit

MakeBatch = Callable[..., bytes]
TOPIC = TopicId(b"t" * 16)
REPLICATED = LogConfig(flush_policy=FlushPolicy.REPLICATED)
FSYNC = LogConfig(flush_policy=FlushPolicy.FSYNC)
LARGE = 1_000_000


class StallingClock:
    """A clock by which everything that is done on the loop takes a while, if it is told so."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self._moved_us = 0
        self.step_us = 0  # a look at it

    def now_ms(self) -> int:
        """As it is."""
        return self._clock.now_ms()

    def wall_ms(self) -> int:
        """As it is."""
        return self._clock.wall_ms()

    def busy_us(self) -> int:
        """As it is, and a step a look."""
        self._moved_us += self.step_us
        return self._clock.busy_us() + self._moved_us


Stored = Callable[[int], Coroutine[Any, Any, bool]]


def played(
    kit: Kit,
    batch: MakeBatch,
    config: LogConfig,
    main: Callable[[Stored, StallingClock], Coroutine[Any, Any, None]],
) -> None:
    """Give `main` a way to append a batch of a size, which says whether it was in the log when the
    call returned, and the clock."""

    async def node(runtime: Runtime) -> None:
        clock = StallingClock(runtime)
        runtime = replace(runtime, clock=clock)
        async with kit.opened(runtime, "/data", config=DirectoryConfig()) as directory:
            log = await directory.open_log("t-0", config, topic_id=TOPIC)

            async def stored(size: int) -> bool:
                await asyncio.sleep(0.001)  # nothing gathers any more
                before = log.log_end_offset
                waiting = directory.append_nowait(
                    log,
                    batch(1, size=size),
                    leader_epoch=0,
                    origin=AppendOrigin.CLIENT,
                    flush=False,
                )
                is_stored = log.log_end_offset > before
                await waiting
                return is_stored

            await stored(10)  # the clean marker is gone behind it
            await main(stored, clock)

    simulation.run(node)


@pytest.mark.parametrize(
    ("config", "size", "is_on_loop"),
    [
        (REPLICATED, LARGE, True),
        (REPLICATED, DirectoryConfig().inline_write_bytes_max + 1, False),
        (FSYNC, SMALL_BYTES // 2, True),
        (FSYNC, LARGE, False),
    ],
    ids=["large", "too large", "small of an fsync log", "large of an fsync log"],
)
def test_what_only_enters_the_page_cache_is_written_at_once(
    kit: Kit, batch: MakeBatch, config: LogConfig, size: int, *, is_on_loop: bool
) -> None:
    async def main(stored: Stored, _: StallingClock) -> None:
        assert await stored(size) is is_on_loop

    played(kit, batch, replace(config, message_bytes_max=8 << 20), main)


def test_slow_device_writes_large_batches_on_the_lane_for_a_while(
    kit: Kit, batch: MakeBatch
) -> None:
    async def main(stored: Stored, clock: StallingClock) -> None:
        clock.step_us = 10 * SLOW_US
        assert await stored(LARGE), "nothing was known before it"
        clock.step_us = 0
        assert not await stored(LARGE)
        assert await stored(SMALL_BYTES // 2), "small ones go on"
        await asyncio.sleep(9 * SLOW_US * SLOW_SHARE / 1e6)
        assert not await stored(LARGE)
        await asyncio.sleep(SLOW_US * SLOW_SHARE / 1e6)
        assert await stored(LARGE), "it is tried again"

    played(kit, batch, REPLICATED, main)
