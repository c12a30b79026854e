"""Small or fast appends are written on the loop, others in the lane."""

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
    """A clock on which work on the loop takes `step_us` longer."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self._moved_us = 0
        self.step_us = 0  # added by each reading of busy_us

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def busy_us(self) -> int:
        self._moved_us += self.step_us
        return self._clock.busy_us() + self._moved_us


Stored = Callable[[int], Coroutine[Any, Any, bool]]


def run_on_log(
    kit: Kit,
    batch: MakeBatch,
    config: LogConfig,
    main: Callable[[Stored, StallingClock], Coroutine[Any, Any, None]],
) -> None:
    """Run `main` with the clock and with a function that appends a batch of a size.

    The function returns True if the batch was in the log when the append call returned.
    """

    async def node(runtime: Runtime) -> None:
        clock = StallingClock(runtime)
        runtime = replace(runtime, clock=clock)
        async with kit.opened(runtime, "/data", config=DirectoryConfig()) as directory:
            log = await directory.open_log("t-0", config, topic_id=TOPIC)

            async def stored(size: int) -> bool:
                await asyncio.sleep(0.001)  # no append is gathered any more
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

            await stored(10)  # the clean marker is removed behind it
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
def test_append_to_the_page_cache_alone_is_written_on_the_loop(
    kit: Kit, batch: MakeBatch, config: LogConfig, size: int, *, is_on_loop: bool
) -> None:
    async def main(stored: Stored, _: StallingClock) -> None:
        assert await stored(size) is is_on_loop

    run_on_log(kit, batch, replace(config, message_bytes_max=8 << 20), main)


def test_slow_device_writes_large_batches_on_the_lane_for_a_while(
    kit: Kit, batch: MakeBatch
) -> None:
    async def main(stored: Stored, clock: StallingClock) -> None:
        clock.step_us = 10 * SLOW_US
        assert await stored(LARGE), "the device had no measurement before it"
        clock.step_us = 0
        assert not await stored(LARGE)
        assert await stored(SMALL_BYTES // 2), "small appends stay on the loop"
        await asyncio.sleep(9 * SLOW_US * SLOW_SHARE / 1e6)
        assert not await stored(LARGE)
        await asyncio.sleep(SLOW_US * SLOW_SHARE / 1e6)
        assert await stored(LARGE), "the loop is tried again"

    run_on_log(kit, batch, REPLICATED, main)
