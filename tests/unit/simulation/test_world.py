"""Simulated processes and machines: crash, power cut, pause, exit, restart."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from quorumlog.runtime import Runtime
from quorumlog.simulation import CrashPoint, NodeKilled, SimNode, SimWorld


def start(world: SimWorld, main: Callable[[Runtime], Any], *, virtual_ms: int = 100) -> SimNode:
    node = world.node("n")
    node.spawn(main)
    world.run_for(virtual_ms)
    return node


def test_a_crash_runs_no_clean_up_code() -> None:
    cleaned: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            cleaned.append("child")

    async def main(runtime: Runtime) -> None:
        try:
            async with runtime.tasks.scope("scope") as scope:
                scope.spawn(child(), name="child")
                await asyncio.Event().wait()
        finally:
            cleaned.append("main")

    with SimWorld(0) as world:
        node = start(world, main)
        node.crash()
        world.run_for(10_000_000)
        assert not node.alive
    del world, node
    gc.collect()
    assert cleaned == []


def test_a_dead_process_keeps_no_timer_and_its_ports_raise() -> None:
    fired: list[int] = []
    kept: list[Runtime] = []

    async def main(runtime: Runtime) -> None:
        kept.append(runtime)
        asyncio.get_running_loop().call_later(1, fired.append, 1)
        await asyncio.Event().wait()

    with SimWorld(0) as world:
        node = start(world, main)
        node.crash()
        world.run_for(5_000)
        assert fired == []
        for use in (
            lambda: kept[0].files.exists("/x"),
            lambda: kept[0].clock.now_ms(),
            lambda: kept[0].network.channel("127.0.0.1:1"),
            lambda: kept[0].tasks.scope("s"),
        ):
            with pytest.raises(NodeKilled):
                use()


@pytest.mark.parametrize("moment", ["before", "inside", "after"])
def test_crash_point_is_before_inside_or_after_its_operation(moment: str) -> None:
    reached: list[str] = []

    async def main(runtime: Runtime) -> None:
        file = runtime.files.open("/log", create=True)  # operation 1
        file.write(0, [b"x" * 1_000])  # operation 2
        try:
            file.write(1_000, [b"y" * 1_000])  # operation 3
        except Exception:
            reached.append("caught")
        reached.append("went on")

    with SimWorld(3) as world:
        node = world.node("n")
        node.crash_at(CrashPoint(operations=3, power=False, moment=moment))
        node.spawn(main)
        world.run_until(lambda: not node.alive, virtual_ms=100)
        size = len(node.device.disk.file("/log").content)
    assert reached == []
    assert node.killed
    assert {"before": size == 1_000, "inside": 1_000 <= size <= 2_000, "after": size == 2_000}[
        moment
    ]


def test_a_crash_inside_a_lane_ends_the_node_and_the_job() -> None:
    steps: list[str] = []

    async def main(runtime: Runtime) -> None:
        file = runtime.files.open("/log", create=True)

        def job() -> None:
            file.write(0, [b"x"])
            steps.append("written")
            file.sync()
            steps.append("synced")

        await runtime.tasks.offload("write:d", job)
        steps.append("answered")

    with SimWorld(0) as world:
        node = world.node("n")
        node.crash_at(CrashPoint(operations=3, power=True, moment="before"))
        node.spawn(main)
        world.run_until(lambda: not node.alive, virtual_ms=10_000)
        world.run_for(10_000)
    assert steps == ["written"]


def test_a_paused_process_runs_nothing_until_it_is_resumed() -> None:
    seen: list[int] = []

    async def main(runtime: Runtime) -> None:
        for number in range(10):
            seen.append(number)
            await asyncio.sleep(1)

    with SimWorld(0) as world:
        node = world.node("n")
        node.spawn(main)
        world.run_for(2_500)
        assert seen == [0, 1, 2]
        node.pause()
        world.run_for(60_000)
        assert seen == [0, 1, 2]
        node.resume()
        world.run_for(10)
        assert seen == [0, 1, 2, 3], "the timer that expired during the pause runs once on resume"


def test_restart_is_a_new_incarnation_with_its_own_entropy() -> None:
    tokens: list[bytes] = []
    boots: list[str] = []

    async def main(runtime: Runtime) -> None:
        tokens.append(runtime.entropy.stream("id").token(8))
        tokens.append(runtime.entropy.stream("id").token(8))
        boots.append(runtime.files.boot_id())
        await asyncio.Event().wait()

    with SimWorld(0) as world:
        node = start(world, main)
        node.crash()
        node.restart()
        world.run_for(1)
        node.power_cut()
        node.restart()
        world.run_for(1)
    assert tokens[0] == tokens[1], "a stream starts at its beginning each time"
    assert len(set(tokens)) == 3
    assert boots[0] == boots[1] != boots[2], "the boot id changes only at a boot of the machine"


def test_monotonic_clock_continues_after_a_crash_and_restarts_at_boot() -> None:
    times: list[int] = []

    async def main(runtime: Runtime) -> None:
        times.append(runtime.clock.now_ms())
        await asyncio.Event().wait()

    with SimWorld(5) as world:
        node = start(world, main, virtual_ms=1_000)
        node.crash()
        node.restart()
        world.run_for(1_000)
        node.power_cut()
        node.restart()
        world.run_for(1)
    assert times[1] - times[0] == 1_000
    assert times[2] != times[1] + 1_000


def test_process_ends_with_its_main_and_reports_the_outcome() -> None:
    async def fails(runtime: Runtime) -> None:
        raise ValueError("no")

    with SimWorld(0) as world:
        node = start(world, fails)
        assert not node.alive
        assert not node.killed
        assert isinstance(node.exit_error, ValueError)


def test_stop_node_ends_the_process_at_once_with_its_reason() -> None:
    after: list[str] = []

    async def main(runtime: Runtime) -> None:
        try:
            runtime.tasks.stop_node("disk failed")
        except Exception:
            after.append("caught")
        after.append("went on")

    with SimWorld(0) as world:
        node = start(world, main)
        assert not node.alive
        assert node.stops == ["disk failed"]
    assert after == []


def test_wall_clock_jumps_do_not_change_the_monotonic_clock() -> None:
    readings: list[tuple[int, int]] = []

    async def main(runtime: Runtime) -> None:
        while True:
            readings.append((runtime.clock.now_ms(), runtime.clock.wall_ms()))
            await asyncio.sleep(1)

    with SimWorld(0) as world:
        node = start(world, main)
        node.jump_wall_ms(-3_600_000)
        world.run_for(1_000)
    (now_1, wall_1), (now_2, wall_2) = readings
    assert now_2 - now_1 == 1_000
    assert wall_2 - wall_1 == 1_000 - 3_600_000
