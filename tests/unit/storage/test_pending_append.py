"""A pending append: outcome, callback, await, cancellation."""

import asyncio

import pytest

from quorumlog import simulation
from quorumlog.errors import DiskFailed
from quorumlog.ids import Offset
from quorumlog.runtime import Runtime
from quorumlog.storage import AppendOrigin
from quorumlog.storage.shell.append_queue import (
    Appended,
    AppendOutcome,
    CompletedAppends,
    PendingAppend,
)

STORED = Appended(Offset(3), Offset(4), -1, Offset(0))


def pending(completed: CompletedAppends) -> PendingAppend:
    return PendingAppend(completed, b"", 0, AppendOrigin.CLIENT, False)


def test_callback_runs_once_and_in_the_next_iteration() -> None:
    async def main(runtime: Runtime) -> None:
        append, found = pending(CompletedAppends()), list[AppendOutcome]()
        append.call_when_done(found.append)
        append.resolve(STORED, None)
        assert (append.outcome(), found) == (STORED, [])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert found == [STORED]

    simulation.run(main)


def test_callback_runs_once_if_completed_appends_are_completed_at_once() -> None:
    async def main(runtime: Runtime) -> None:
        completed, found = CompletedAppends(), list[AppendOutcome]()
        append = pending(completed)
        append.call_when_done(found.append)
        append.resolve(STORED, None)
        completed.complete_all()
        assert found == [STORED]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert found == [STORED]

    simulation.run(main)


def test_callback_that_raises_does_not_affect_other_appends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(runtime: Runtime) -> None:
        completed = CompletedAppends()
        first, second = pending(completed), pending(completed)
        called = asyncio.Event()

        def fail(outcome: AppendOutcome) -> None:
            raise ZeroDivisionError(f"a bug: {outcome}")

        first.call_when_done(fail)
        second.call_when_done(lambda _: called.set())
        for append in (first, second):
            append.resolve(STORED, None)
        async with asyncio.timeout(10):
            await called.wait()

    simulation.run(main)
    assert [record.msg for record in caplog.records] == ["broker.append_not_told"]


def test_await_returns_the_offsets_or_raises_the_error() -> None:
    async def main(runtime: Runtime) -> None:
        completed = CompletedAppends()
        stored, failed = pending(completed), pending(completed)
        loop = asyncio.get_running_loop()
        loop.call_soon(stored.resolve, STORED, None)
        assert await stored == STORED
        assert await stored == STORED, "again, without a wait"
        loop.call_soon(failed.resolve, STORED, DiskFailed("the flush failed"))
        with pytest.raises(DiskFailed, match="the flush failed"):
            await failed

    simulation.run(main)


def test_cancelled_caller_does_not_cancel_the_append() -> None:
    async def main(runtime: Runtime) -> None:
        append = pending(CompletedAppends())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await append
        append.resolve(STORED, None)
        assert append.outcome() == STORED

    simulation.run(main)


def test_callback_does_not_run_after_cancel() -> None:
    async def main(runtime: Runtime) -> None:
        append, found = pending(CompletedAppends()), list[AppendOutcome]()
        append.call_when_done(found.append)
        append.resolve(STORED, None)
        append.cancel()
        await asyncio.sleep(1)
        assert found == []

    simulation.run(main)
