"""A broker assigns each producer id once, from blocks that it requests on demand."""

import asyncio
from typing import Any

import pytest

from quorumlog.broker.shell.producer_ids import ProducerIds
from quorumlog.errors import NotController, StaleBrokerEpoch, TimedOut, UnknownServerError
from quorumlog.ids import NodeId, Offset
from quorumlog.metadata import (
    AllocateProducerIds,
    ProducerIdsAllocated,
    RelayedCommand,
    Submitted,
)
from quorumlog.runtime import Runtime
from quorumlog.simulation import run


class Session:
    """A session that returns blocks of three after a configurable delay."""

    def __init__(self) -> None:
        self.broker_id = NodeId(1)
        self.broker_epoch = Offset(5)
        self.asked: list[int] = []  # the broker epochs
        self.counts: list[int] = []
        self.takes_s = 0.0
        self.refusals: list[Exception] = []
        self.length = 3

    async def submit(self, command: RelayedCommand[Any], *, timeout_ms: int) -> Submitted[Any]:
        assert isinstance(command, AllocateProducerIds)
        assert command.is_repeatable
        self.asked.append(command.broker_epoch)
        self.counts.append(command.count)
        start = 1_000 * len(self.asked)
        async with asyncio.timeout(timeout_ms / 1000):
            await asyncio.sleep(self.takes_s)
        if self.refusals:
            raise self.refusals.pop(0)
        return Submitted(reply=ProducerIdsAllocated(start=start, count=self.length))


def test_concurrent_callers_get_different_ids_and_share_block_requests() -> None:
    async def main(runtime: Runtime) -> None:
        session = Session()
        session.takes_s = 0.1
        ids = ProducerIds(runtime.clock)
        ids.attach(session)
        taken = await asyncio.gather(*[ids.take(timeout_ms=5_000) for _ in range(7)])
        assert sorted(taken) == [1_000, 1_001, 1_002, 2_000, 2_001, 2_002, 3_000]
        assert session.asked == [5, 5, 5]

    run(main)


def test_a_drawn_id_comes_from_the_controller_alone() -> None:
    async def main(runtime: Runtime) -> None:
        session = Session()
        ids = ProducerIds(runtime.clock)
        ids.attach(session)
        assert await ids.take(timeout_ms=1_000) == 1_000
        assert [await ids.draw(timeout_ms=1_000) for _ in range(2)] == [2_000, 3_000]
        assert await ids.take(timeout_ms=1_000) == 1_001
        assert session.counts == [0, 1, 1]
        session.refusals = [StaleBrokerEpoch("a newer one exists")]
        with pytest.raises(NotController):
            await ids.draw(timeout_ms=1_000)

    run(main)


def test_unregistered_broker_returns_that_it_is_starting() -> None:
    async def main(runtime: Runtime) -> None:
        ids = ProducerIds(runtime.clock)
        with pytest.raises(NotController, match="starting"):
            await ids.take(timeout_ms=1_000)
        session = Session()
        session.broker_epoch = Offset(-1)
        ids.attach(session)
        with pytest.raises(NotController, match="starting"):
            await ids.take(timeout_ms=1_000)
        assert session.asked == []

    run(main)


def test_stale_broker_epoch_is_retriable() -> None:
    async def main(runtime: Runtime) -> None:
        session = Session()
        session.refusals = [StaleBrokerEpoch("a newer one exists")]
        ids = ProducerIds(runtime.clock)
        ids.attach(session)
        with pytest.raises(NotController, match="registering again") as caught:
            await ids.take(timeout_ms=1_000)
        assert caught.value.retriable
        session.broker_epoch = Offset(9)
        assert await ids.take(timeout_ms=1_000) == 2_000
        assert session.asked == [5, 9]

    run(main)


def test_caller_behind_another_request_waits_at_most_its_own_timeout() -> None:
    async def main(runtime: Runtime) -> None:
        session = Session()
        session.takes_s = 3.0
        ids = ProducerIds(runtime.clock)
        ids.attach(session)
        patient = asyncio.create_task(ids.take(timeout_ms=10_000))
        await asyncio.sleep(0)
        begun_ms = runtime.clock.now_ms()
        with pytest.raises(TimedOut):
            await ids.take(timeout_ms=500)
        assert runtime.clock.now_ms() - begun_ms < 600
        assert await patient == 1_000

    run(main)


def test_invalid_block_is_not_used() -> None:
    async def main(runtime: Runtime) -> None:
        session = Session()
        session.length = 0
        ids = ProducerIds(runtime.clock)
        ids.attach(session)
        with pytest.raises(UnknownServerError, match="0 producer ids"):
            await ids.take(timeout_ms=1_000)

    run(main)
