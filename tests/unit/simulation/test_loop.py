"""The simulated loop: order, virtual time, and refused operations."""

import asyncio
import gc
import itertools

import pytest

from quorumlog.runtime import Runtime
from quorumlog.simulation import Deadlock, Livelock, NotReached, SimWorld, loop, run


def test_ready_handles_run_in_the_order_in_which_they_became_ready() -> None:
    order: list[str] = []

    async def step(name: str) -> None:
        for round_ in range(3):
            order.append(f"{name}{round_}")
            await asyncio.sleep(0)

    async def main(runtime: Runtime) -> None:
        async with runtime.tasks.scope("steps") as scope:
            for name in "abc":
                scope.spawn(step(name), name=name)

    run(main)
    assert order == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]


def test_an_hour_of_sleep_takes_no_wall_time_and_an_hour_of_virtual_time() -> None:
    async def main(runtime: Runtime) -> int:
        before_ms = runtime.clock.now_ms()
        await asyncio.sleep(3_599)
        return runtime.clock.now_ms() - before_ms

    assert run(main) == 3_599_000


def test_time_does_not_advance_while_a_handle_is_ready() -> None:
    async def main(runtime: Runtime) -> None:
        before = asyncio.get_running_loop().time()
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert asyncio.get_running_loop().time() == before

    run(main)


def test_timers_fire_by_time_and_then_in_the_order_in_which_they_were_set() -> None:
    order: list[str] = []

    async def main(runtime: Runtime) -> None:
        running = asyncio.get_running_loop()
        at = running.time() + 1
        running.call_at(at + 1, order.append, "late")
        running.call_at(at, order.append, "first")
        running.call_at(at, order.append, "second")
        running.call_at(at, order.append, "cancelled").cancel()
        await asyncio.sleep(3)

    run(main)
    assert order == ["first", "second", "late"]


def test_a_node_with_a_fast_clock_waits_less_virtual_time() -> None:
    """`loop.time()` and `call_at` convert by the node's own drift."""
    with SimWorld(0) as world:
        node = world.node("fast")
        node.machine.rate_ppm = 2_000_000

        async def main(runtime: Runtime) -> None:
            before_ms = runtime.clock.now_ms()
            await asyncio.sleep(10)
            assert runtime.clock.now_ms() - before_ms == 10_000

        task = node.spawn(main)
        world.run_until(task, virtual_ms=20_000)
        task.result()
        assert world.now_ms() == 5_000


def test_access_to_the_real_world_raises() -> None:
    async def main(runtime: Runtime) -> None:
        running = asyncio.get_running_loop()
        with pytest.raises(NotImplementedError):
            running.call_soon_threadsafe(print)
        with pytest.raises(NotImplementedError):
            await running.run_in_executor(None, print)
        with pytest.raises(NotImplementedError):
            running.add_signal_handler(15, print)
        with pytest.raises(NotImplementedError):
            await asyncio.open_connection("127.0.0.1", 1)

    run(main)


def test_waiting_for_nothing_is_a_deadlock_that_names_the_suspended_task() -> None:
    async def forgotten_lock() -> None:
        await asyncio.Event().wait()

    async def main(runtime: Runtime) -> None:
        async with runtime.tasks.scope("scope") as scope:
            scope.spawn(forgotten_lock(), name="waits")

    with pytest.raises(Deadlock, match=r"scope/waits: forgotten_lock .*test_loop.py"):
        run(main)


def test_handles_that_reschedule_each_other_forever_are_a_livelock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "INSTANT_HANDLES_MAX", 1_000)

    async def main(runtime: Runtime) -> None:
        async with runtime.tasks.scope("two") as scope:
            for name in "ab":
                scope.spawn(yields_for_ever(), name=name)

    async def yields_for_ever() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(Livelock):
        run(main)


def test_condition_that_is_not_met_in_time_raises_with_its_name() -> None:
    async def main(runtime: Runtime) -> None:
        for _ in itertools.count():
            await asyncio.sleep(1)

    with SimWorld(0) as world:
        world.node("n").spawn(main)
        with pytest.raises(NotReached, match="the answer"):
            world.run_until(lambda: False, virtual_ms=5_000, why="the answer")
        assert world.now_ms() == 5_000


def test_an_error_in_a_plain_callback_ends_the_run() -> None:
    async def main(runtime: Runtime) -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        run(main)


def test_unawaited_error_fails_the_run() -> None:
    async def fails() -> None:
        raise ValueError("unheard")

    async def main(runtime: Runtime) -> None:
        task = asyncio.get_running_loop().create_task(fails())
        await asyncio.sleep(1)
        del task

    with SimWorld(0) as world:
        task = world.node("n").spawn(main)
        world.run_until(task, virtual_ms=5_000)
        gc.collect()  # since Python 3.13 a task and its error refer to each other
        assert len(world.loop.unawaited_errors) == 1
        assert "unheard" in world.loop.unawaited_errors[0]


def test_tasks_left_behind_by_a_test_are_cancelled_newest_first() -> None:
    ended: list[str] = []

    async def waits(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def main(runtime: Runtime) -> str:
        running = asyncio.get_running_loop()
        tasks = [running.create_task(waits(name)) for name in ("old", "new")]
        await asyncio.sleep(0)
        return f"{len(tasks)} left"

    assert run(main) == "2 left"
    assert ended == ["new", "old"]
