"""The marker sender: its share of the event loop, and unexpected exceptions, which do not end the
node's scope."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from quorumlog import simulation
from quorumlog.broker.shell.broker_calls import BrokerCalls
from quorumlog.broker.transactions.marker_queue import MarkerQueue
from quorumlog.broker.transactions.requests import MarkerPartition, MarkersWritten, WriteMarkers
from quorumlog.broker.transactions.shell.marker_sender import (
    MARKERS_A_TURN,
    MarkerSender,
    WriteHere,
)
from quorumlog.broker.transactions.shell.metrics import TransactionMetrics
from quorumlog.errors import QuorumlogError
from quorumlog.ids import NodeId, ProducerIdentity
from quorumlog.records.control import TransactionMarker
from quorumlog.runtime import Runtime, Scope

from .shard_play import TOPIC_A, TOPICS, image_of


def sender_of(
    runtime: Runtime,
    scope: Scope,
    queue: MarkerQueue,
    write_here: WriteHere,
    report: Callable[[MarkersWritten], object],
) -> MarkerSender:
    return MarkerSender(
        runtime.clock,
        scope.spawn,
        queue,
        BrokerCalls(runtime.network, lambda: image_of(TOPICS)),
        cluster_id="c",
        node_id=NodeId(1),
        figures=TransactionMetrics(),
        write_here=write_here,
        report=report,
    )


@pytest.mark.parametrize("is_dropped", [False, True])
def test_many_markers_leave_turns_of_the_loop_to_others(is_dropped: bool) -> None:
    """The decisions of one step have more markers than one turn queues."""
    effects = [
        WriteMarkers(
            transactional_id="t",
            producer=ProducerIdentity(number, 1),
            is_commit=True,
            transaction_version=2,
            partitions=tuple(MarkerPartition("a", index, TOPIC_A) for index in range(100)),
        )
        for number in range(50)
    ]
    reports: list[MarkersWritten] = []
    may_answer = asyncio.Event()

    async def write_here(
        markers: Sequence[tuple[TransactionMarker, MarkerPartition, int]], wait_ms: int
    ) -> list[QuorumlogError | None]:
        await may_answer.wait()
        return [None] * len(markers)

    async def main(runtime: Runtime) -> None:
        queue = MarkerQueue()
        queue.image_changed(image_of(TOPICS, partitions=100), ())
        async with runtime.tasks.scope("test") as scope:
            sender = sender_of(runtime, scope, queue, write_here, reports.append)
            counts = [queue.marker_count()]
            for effect in effects:
                sender.start(0, 5, effect)
            counts.append(queue.marker_count())
            while not counts[-1]:
                await asyncio.sleep(0)
                counts.append(queue.marker_count())
            if is_dropped:
                sender.drop(0, 5)
                await asyncio.sleep(1)
                assert queue.marker_count() == 0
            else:
                while counts[-1] < 5_000:
                    await asyncio.sleep(0)
                    counts.append(queue.marker_count())
                may_answer.set()
                await asyncio.sleep(1)
            sender.close()
        growth = [after - before for before, after in pairwise(counts)]
        assert max(growth) <= MARKERS_A_TURN < 5_000

    simulation.run(main)
    assert len(reports) == (0 if is_dropped else 50)


def test_marker_and_report_are_repeated_after_an_unexpected_exception(
    caplog: pytest.LogCaptureFixture,
) -> None:
    image = image_of(TOPICS)
    producer = ProducerIdentity(1, 0)
    effect = WriteMarkers(
        transactional_id="t",
        producer=producer,
        is_commit=True,
        transaction_version=2,
        partitions=(MarkerPartition("a", 0, TOPIC_A),),
    )
    writes: list[int] = []
    reports: list[MarkersWritten] = []

    async def write_here(
        markers: Sequence[tuple[TransactionMarker, MarkerPartition, int]], wait_ms: int
    ) -> list[QuorumlogError | None]:
        writes.append(len(markers))
        if len(writes) == 1:
            raise RuntimeError("broken write")
        return [None] * len(markers)

    def report(written: MarkersWritten) -> None:
        reports.append(written)
        if len(reports) == 1:
            raise RuntimeError("broken report")

    async def main(runtime: Runtime) -> None:
        queue = MarkerQueue()
        queue.image_changed(image, ())
        async with runtime.tasks.scope("test") as scope:
            sender = sender_of(runtime, scope, queue, write_here, report)
            sender.start(0, 5, effect)
            await asyncio.sleep(1)
            sender.close()
        assert queue.marker_count() == 0
        assert queue.oldest_since_ms() is None

    simulation.run(main)
    assert (writes, len(reports)) == ([1, 1], 2)
    assert "RuntimeError: broken write" in caplog.text
    assert "RuntimeError: broken report" in caplog.text
