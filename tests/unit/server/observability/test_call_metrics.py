"""Metrics of calls by method and outcome, and of loop stalls, on the simulated runtime."""

import asyncio
from typing import Any

import pytest

from quorumlog import simulation
from quorumlog.errors import NotController
from quorumlog.metrics import Scrape
from quorumlog.metrics.table import CALL_SECONDS, CALLS, CALLS_OPEN, LOOP_STALL
from quorumlog.proto.log_pb2 import (
    ProduceResponse,
    PublishRequest,
    PublishResponse,
)
from quorumlog.runtime import CallContext, Handler, Runtime
from quorumlog.server.observability.call_metrics import CallMetrics, StallMonitor
from quorumlog.services import LOG_PRODUCE, LOG_PUBLISH

WAIT_MS = 1_000


def looked(counts: CallMetrics) -> Scrape:
    scrape = Scrape()
    counts.collect(scrape)
    return scrape


def test_calls_are_counted_by_their_status() -> None:
    async def answer(request: PublishRequest, context: CallContext) -> PublishResponse:
        if request.topic == "fails":
            raise NotController("ask another one")
        if request.topic == "breaks":
            raise RuntimeError("a bug")
        await asyncio.sleep(0.2)
        return PublishResponse()

    async def main(runtime: Runtime) -> None:
        counts = CallMetrics(runtime.clock)
        handlers = counts.counted({LOG_PUBLISH.path: Handler(LOG_PUBLISH, answer)})
        listener = await runtime.network.serve("127.0.0.1:0", handlers)
        channel = runtime.network.channel(listener.address)
        assert not looked(counts).found
        asking = asyncio.get_running_loop().create_task(
            channel.call(LOG_PUBLISH, PublishRequest(topic="works"), timeout_ms=WAIT_MS)
        )
        await asyncio.sleep(0.1)
        assert looked(counts).value(CALLS_OPEN, "Log/Publish") == 1
        await asking
        for topic in ("fails", "breaks"):
            with pytest.raises(Exception, match=r"another one|failed"):
                await channel.call(LOG_PUBLISH, PublishRequest(topic=topic), timeout_ms=WAIT_MS)
        with pytest.raises(Exception, match="ms passed"):
            await channel.call(LOG_PUBLISH, PublishRequest(topic="slow"), timeout_ms=50)
        await asyncio.sleep(0.1)

        scrape = looked(counts)
        outcomes = {labels[1]: value for labels, value in scrape.found[CALLS].items()}
        assert outcomes == {"ok": 1, "NotController": 1, "broken": 1, "cancelled": 1}
        assert scrape.value(CALLS_OPEN, "Log/Publish") == 0
        took: Any = scrape.found[CALL_SECONDS]["Log/Publish",]
        assert (took.count, took.total) == (4, 250)
        await channel.close()
        await listener.close(0)

    simulation.run(main)


def test_streams_are_open_until_they_end() -> None:
    async def echo(stream: Any, context: CallContext) -> None:
        while await stream.receive() is not None:
            await stream.send(ProduceResponse())

    async def main(runtime: Runtime) -> None:
        counts = CallMetrics(runtime.clock)
        handlers = counts.counted({LOG_PRODUCE.path: Handler(LOG_PRODUCE, echo)})
        listener = await runtime.network.serve("127.0.0.1:0", handlers)
        channel = runtime.network.channel(listener.address)
        stream = await channel.stream(LOG_PRODUCE, timeout_ms=0)
        await stream.send(LOG_PRODUCE.request())
        await stream.receive()
        assert looked(counts).value(CALLS_OPEN, "Log/Produce") == 1
        await stream.finish()
        assert await stream.receive() is None
        assert looked(counts).value(CALLS_OPEN, "Log/Produce") == 0
        assert looked(counts).value(CALLS, "Log/Produce", "ok") == 1
        assert CALL_SECONDS not in looked(counts).found, "the duration of a stream is not measured"
        await channel.close()
        await listener.close(0)

    simulation.run(main)


class HeldClock:
    """A clock that a busy loop advances: virtual time stops while code runs."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self.held_ms = 0

    def now_ms(self) -> int:
        """Return the loop's time plus its stalls."""
        return self._clock.now_ms() + self.held_ms

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def busy_us(self) -> int:
        return self._clock.busy_us()


def test_stall_is_reported_for_a_minute() -> None:
    async def main(runtime: Runtime) -> None:
        clock = HeldClock(runtime)
        watch = StallMonitor(clock)
        watching = asyncio.get_running_loop().create_task(watch.run())
        await asyncio.sleep(1)
        assert watch.longest_ms() < 5
        clock.held_ms += 300
        await asyncio.sleep(1)
        assert 275 <= watch.longest_ms() <= 305
        scrape = Scrape()
        watch.collect(scrape)
        assert 0.275 <= (scrape.value(LOOP_STALL) or 0) <= 0.305
        await asyncio.sleep(45)
        assert watch.longest_ms() >= 275
        await asyncio.sleep(15)
        assert watch.longest_ms() < 5
        watching.cancel()

    simulation.run(main)
