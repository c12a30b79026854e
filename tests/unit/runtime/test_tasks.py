"""Scopes and lanes, on both runtimes (the contract of `runtime.ports.Tasks`)."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

import pytest

from quorumlog.errors import Overloaded
from quorumlog.runtime import Runtime

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]

# --- scopes --------------------------------------------------------------------------------------


async def wait_cancelled(name: str, ends: list[str]) -> None:
    """Wait forever, and record the cancellation."""
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        ends.append(name)


def test_scope_waits_for_its_children(run: Run) -> None:
    ends: list[str] = []

    async def child(name: str) -> None:
        await asyncio.sleep(0.01)
        ends.append(name)

    async def main(runtime: Runtime) -> None:
        async with runtime.tasks.scope("test") as scope:
            scope.spawn(child("a"), name="a")
            task = scope.spawn(child("b"), name="b")
        assert task.done()

    run(main)
    assert ends == ["a", "b"]


def test_first_error_cancels_siblings_newest_first_and_the_body(run: Run) -> None:
    ends: list[str] = []

    async def fail() -> None:
        await asyncio.sleep(0.01)
        raise ValueError("broken child")

    async def main(runtime: Runtime) -> None:
        async def scoped() -> None:
            async with runtime.tasks.scope("test") as scope:
                for name in "abc":
                    scope.spawn(wait_cancelled(name, ends), name=name)
                scope.spawn(fail(), name="fail")
                scope.spawn(wait_cancelled("d", ends), name="d")
                await wait_cancelled("body", ends)

        with pytest.raises(ValueError, match="broken child"):
            await scoped()

    run(main)
    assert sorted(ends) == ["a", "b", "body", "c", "d"]
    assert [name for name in ends if name != "body"] == ["d", "c", "b", "a"]


def test_first_error_is_raised_itself_with_the_others_as_notes(run: Run) -> None:
    async def fail(first: bool) -> None:
        try:
            await asyncio.sleep(0 if first else 100)
        except asyncio.CancelledError:
            raise KeyError("while cleaning up") from None
        raise ValueError("first")

    async def main(runtime: Runtime) -> None:
        async def scoped() -> None:
            async with runtime.tasks.scope("test") as scope:
                scope.spawn(fail(False), name="second")
                scope.spawn(fail(True), name="first")

        with pytest.raises(ValueError, match="first") as caught:
            await scoped()
        assert len(caught.value.__notes__) == 1
        assert "test/second" in caught.value.__notes__[0]
        assert "while cleaning up" in caught.value.__notes__[0]

    run(main)


def test_leaving_by_an_error_cancels_the_children(run: Run) -> None:
    ends: list[str] = []

    async def main(runtime: Runtime) -> None:
        async def scoped() -> None:
            async with runtime.tasks.scope("test") as scope:
                for name in "abc":
                    scope.spawn(wait_cancelled(name, ends), name=name)
                await asyncio.sleep(0.01)
                raise ValueError("body")

        with pytest.raises(ValueError, match="body"):
            await scoped()

    run(main)
    assert ends == ["c", "b", "a"]


def test_scope_cancel_ends_all_children_newest_first_and_raises_nothing(run: Run) -> None:
    ends: list[str] = []

    async def main(runtime: Runtime) -> None:
        async with runtime.tasks.scope("test") as scope:
            for name in "abc":
                scope.spawn(wait_cancelled(name, ends), name=name)
            await asyncio.sleep(0.01)
            scope.cancel()
            ends.append("body goes on")

    run(main)
    assert ends == ["body goes on", "c", "b", "a"]


def test_cancellation_from_outside_reaches_the_children_and_is_raised(run: Run) -> None:
    ends: list[str] = []

    async def main(runtime: Runtime) -> None:
        async def scoped() -> None:
            async with asyncio.timeout(0.01), runtime.tasks.scope("test") as scope:
                scope.spawn(wait_cancelled("a", ends), name="a")
                scope.spawn(wait_cancelled("b", ends), name="b")

        with pytest.raises(TimeoutError):
            await scoped()

    run(main)
    assert ends == ["b", "a"]


def test_child_may_spawn_a_sibling_while_the_scope_waits(run: Run) -> None:
    ends: list[str] = []

    async def late() -> None:
        await asyncio.sleep(0.01)
        ends.append("late")

    async def main(runtime: Runtime) -> None:
        async with runtime.tasks.scope("test") as scope:

            async def early() -> None:
                await asyncio.sleep(0.01)
                scope.spawn(late(), name="late")

            scope.spawn(early(), name="early")

    run(main)
    assert ends == ["late"]


# --- lanes ---------------------------------------------------------------------------------------


def test_lane_of_one_thread_runs_jobs_in_order(run: Run) -> None:
    done: list[int] = []

    async def main(runtime: Runtime) -> None:
        async def give(number: int) -> None:
            def job() -> int:
                done.append(number)
                return -number

            assert await runtime.tasks.offload("cpu", job) == -number

        async with runtime.tasks.scope("test") as scope:
            for number in range(100):
                scope.spawn(give(number), name=str(number))

    run(main)
    assert done == list(range(100))


def test_full_lane_is_overloaded_and_runs_accepted_jobs(run: Run) -> None:
    done: list[int] = []
    refused: list[int] = []

    async def main(runtime: Runtime) -> None:
        async def give(number: int) -> None:
            try:
                await runtime.tasks.offload("write:/data", lambda: done.append(number))
            except Overloaded:
                refused.append(number)

        async with runtime.tasks.scope("test") as scope:
            for number in range(1100):
                scope.spawn(give(number), name=str(number))

    run(main)
    assert done == list(range(1024))
    assert refused == list(range(1024, 1100))


def test_lane_bounds_bytes_but_takes_a_large_job_alone(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        assert await runtime.tasks.offload("cpu", lambda: 7, cost_bytes=1 << 40) == 7
        async with runtime.tasks.scope("test") as scope:
            scope.spawn(runtime.tasks.offload("cpu", int, cost_bytes=1 << 40), name="large")
            await asyncio.sleep(0)
            with pytest.raises(Overloaded):
                await runtime.tasks.offload("cpu", int, cost_bytes=1)

    run(main)


def test_cancelling_the_awaiter_does_not_cancel_the_job(run: Run) -> None:
    done: list[int] = []

    async def main(runtime: Runtime) -> None:
        async with runtime.tasks.scope("test") as scope:
            for number in range(10):
                offload = runtime.tasks.offload("write:/data", partial(done.append, number))
                scope.spawn(offload, name=str(number))
            await asyncio.sleep(0)
            scope.cancel()
        await runtime.tasks.drain("write:/data")

    run(main)
    assert done == list(range(10))


def test_drain_waits_for_jobs_given_before_it(run: Run) -> None:
    done: list[int] = []

    async def main(runtime: Runtime) -> None:
        await runtime.tasks.drain("read")  # no job was given: returns at once
        async with runtime.tasks.scope("test") as scope:
            for number in range(8):
                offload = runtime.tasks.offload("read", partial(done.append, number))
                scope.spawn(offload, name=str(number))
            await asyncio.sleep(0)
            await runtime.tasks.drain("read")
            assert sorted(done) == list(range(8))

    run(main)


def test_failing_job_raises_to_its_awaiter_and_the_lane_continues(run: Run) -> None:
    def fail() -> None:
        raise OSError(5, "broken disk")

    async def main(runtime: Runtime) -> None:
        with pytest.raises(OSError, match="broken disk"):
            await runtime.tasks.offload("cpu", fail)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await runtime.tasks.offload("cpu", lambda: next(iter(())))
        assert await runtime.tasks.offload("cpu", lambda: 1) == 1

    run(main)


def test_unknown_lane_is_a_programmers_error(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        with pytest.raises(AssertionError, match="is not one of"):
            await runtime.tasks.offload("disk", int)

    run(main)
