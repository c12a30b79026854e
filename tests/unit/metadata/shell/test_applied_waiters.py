"""Bounded waits until brokers and this node have applied an offset."""

import asyncio

import pytest
from tests.unit.metadata.shell.stack import Run, started

from quorumlog.errors import Overloaded, StaleMetadata
from quorumlog.ids import NodeId, Offset
from quorumlog.metadata.shell import publisher as publisher_module
from quorumlog.metadata.shell.applied_waiters import AppliedWaiters
from quorumlog.runtime import Runtime
from quorumlog.simulation import run as run_simulated

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
LONG_MS = 10_000


class Brokers:
    """The offsets that brokers have applied. Brokers without one are not awaited."""

    def __init__(self) -> None:
        self.applied: dict[NodeId, int] = {ONE: -1, TWO: -1}
        self.asked: list[NodeId] = []

    def is_awaited(self, broker: NodeId, offset: Offset) -> bool:
        self.asked.append(broker)
        return broker in self.applied and self.applied[broker] < offset


def test_wait_ends_when_the_last_broker_has_applied_its_offset() -> None:
    async def main(runtime: Runtime) -> None:
        begun_ms, brokers = runtime.clock.now_ms(), Brokers()
        waiters = AppliedWaiters(brokers.is_awaited)
        task = asyncio.ensure_future(waiters.wait((ONE, TWO, THREE), Offset(5), LONG_MS))
        await asyncio.sleep(0)
        for broker in (TWO, ONE):
            assert not task.done()
            brokers.applied[broker] = 4
            waiters.moved(broker)
            await asyncio.sleep(0)
            assert not task.done()
            brokers.applied[broker] = 5
            waiters.moved(broker)
            await asyncio.sleep(0)
        await task
        assert runtime.clock.now_ms() - begun_ms < LONG_MS

    run_simulated(main)


def test_broker_whose_stream_ends_is_not_awaited() -> None:
    async def main(runtime: Runtime) -> None:
        begun_ms, brokers = runtime.clock.now_ms(), Brokers()
        waiters = AppliedWaiters(brokers.is_awaited)
        task = asyncio.ensure_future(waiters.wait((ONE,), Offset(5), LONG_MS))
        await asyncio.sleep(0)
        del brokers.applied[ONE]
        waiters.moved(ONE)
        await task
        assert runtime.clock.now_ms() - begun_ms < LONG_MS

    run_simulated(main)


def test_heartbeat_checks_only_the_waits_for_its_sender() -> None:
    async def main(runtime: Runtime) -> None:
        brokers = Brokers()
        waiters = AppliedWaiters(brokers.is_awaited)
        tasks = [
            asyncio.ensure_future(waiters.wait((ONE,), Offset(number), 100))
            for number in range(200)
        ]
        await asyncio.sleep(0)
        brokers.asked.clear()
        waiters.moved(TWO)
        assert brokers.asked == []
        await asyncio.gather(*tasks)
        waiters.moved(ONE)
        assert brokers.asked == [], "the timed-out waiter is removed"

    run_simulated(main)


def test_waits_for_the_metadata_above_the_limit_are_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "WAITERS_MAX", 3)

    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack:
            waiting = [
                asyncio.ensure_future(stack.publisher.wait_applied(10_000, 50)) for _ in range(3)
            ]
            await asyncio.sleep(0)
            with pytest.raises(Overloaded, match="retry later"):
                await stack.publisher.wait_applied(10_000, 50)
            for task in waiting:
                with pytest.raises(StaleMetadata):
                    await task
            with pytest.raises(StaleMetadata):
                await stack.publisher.wait_applied(10_000, 1)

    run(main)


def test_principal_with_the_most_waiters_loses_one_for_others(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "WAITERS_MAX", 3)

    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack:
            wait = stack.publisher.wait_applied
            many = [
                asyncio.ensure_future(wait(10_000, 50, principal="User:mallory")) for _ in range(3)
            ]
            await asyncio.sleep(0)
            with pytest.raises(StaleMetadata):
                await wait(10_000, 10, principal="User:admin")
            with pytest.raises(Overloaded):
                await many[0]
            for task in many[1:]:
                with pytest.raises(StaleMetadata):
                    await task

    run(main)
