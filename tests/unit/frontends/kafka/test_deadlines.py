"""Deadlines that share timers."""

import asyncio

import pytest

from quorumlog import simulation
from quorumlog.frontends.kafka.deadlines import STEP_MS, RequestDeadlines
from quorumlog.runtime import Runtime


def test_each_deadline_runs_once_soon_after_its_time_unless_removed() -> None:
    async def main(runtime: Runtime) -> None:
        clock, deadlines = runtime.clock, RequestDeadlines()
        expired: list[tuple[int, int]] = []

        def expire_of(deadline_ms: int) -> int:
            def expire() -> None:
                expired.append((deadline_ms, clock.now_ms()))

            return deadlines.add(expire, deadline_ms, clock)

        began_ms = clock.now_ms()
        for after_ms in (0, 1, 40, 45, 500):
            expire_of(began_ms + after_ms)

        def never() -> None:
            expired.append((-1, -1))

        deadlines.remove(never, deadlines.add(never, began_ms + 41, clock))
        await asyncio.sleep(1)
        assert [deadline - began_ms for deadline, _ in expired] == [0, 1, 40, 45, 500]
        assert all(deadline <= at <= deadline + STEP_MS + 1 for deadline, at in expired)

    simulation.run(main)


def test_failing_callback_affects_no_other_deadline(caplog: pytest.LogCaptureFixture) -> None:
    """They share a timer. A request whose deadline is lost would never be answered."""

    async def main(runtime: Runtime) -> None:
        deadlines, expired = RequestDeadlines(), asyncio.Event()

        def broken() -> None:
            raise ZeroDivisionError("one of ours")

        for expire in (broken, expired.set):
            deadlines.add(expire, runtime.clock.now_ms() + 5, runtime.clock)
        async with asyncio.timeout(60):
            await expired.wait()

    simulation.run(main)
    assert [record.msg for record in caplog.records] == ["kafka.deadline_failed"]
