"""The cost of a request: its bytes, and the loop time of its steps."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from quorumlog.frontends.kafka.quota_charge import MeasuredAwaitable
from quorumlog.runtime import Runtime
from quorumlog.runtime.real import run


class Ticks:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.us = 0

    def now_us(self) -> int:
        return self.us


def measured(work: Awaitable[Any], ticks: Ticks) -> MeasuredAwaitable[Any]:
    return MeasuredAwaitable(work, ticks.now_us)


def test_steps_count_and_waits_do_not() -> None:
    async def main(runtime: Runtime) -> None:
        ticks = Ticks()
        gate = asyncio.Event()

        async def work() -> str:
            ticks.us += 3
            await gate.wait()
            ticks.us += 4
            await asyncio.sleep(0)
            ticks.us += 5
            return "done"

        meter = measured(work(), ticks)
        task = asyncio.get_running_loop().create_task(awaiting(meter))
        await asyncio.sleep(0)
        ticks.us += 1_000_000  # other tasks run in between
        gate.set()
        assert await task == "done"
        assert meter.work_us == 12

    run(main)


async def awaiting(meter: MeasuredAwaitable[Any]) -> Any:
    return await meter


def test_error_is_unchanged_and_its_step_counts() -> None:
    async def main(runtime: Runtime) -> None:
        ticks = Ticks()

        async def work() -> None:
            ticks.us += 7
            raise LookupError("nothing there")

        meter = measured(work(), ticks)
        with pytest.raises(LookupError, match="nothing there"):
            await meter
        assert meter.work_us == 7

    run(main)


def test_cancellation_reaches_the_awaited_future() -> None:
    async def main(runtime: Runtime) -> None:
        ticks = Ticks()
        seen: list[str] = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                ticks.us += 2
                raise

        meter = measured(work(), ticks)
        task = asyncio.get_running_loop().create_task(awaiting(meter))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["cancelled"]
        assert meter.work_us == 2

    run(main)


def test_work_after_a_cancellation_is_still_measured() -> None:
    async def main(runtime: Runtime) -> None:
        ticks = Ticks()

        async def work() -> str:
            try:
                async with asyncio.timeout(0.001):
                    await asyncio.Event().wait()
            except TimeoutError:
                ticks.us += 1
            await asyncio.sleep(0)
            ticks.us += 1
            return "late"

        meter = measured(work(), ticks)
        assert await meter == "late"
        assert meter.work_us == 2

    run(main)
