"""Unexpected exceptions in the marker sender do not end the node's scope."""

import asyncio
from collections.abc import Sequence

import pytest

from quorumlog import simulation
from quorumlog.broker.transactions.marker_queue import MarkerQueue
from quorumlog.broker.transactions.requests import MarkerPartition, MarkersWritten, WriteMarkers
from quorumlog.broker.transactions.shell.broker_calls import BrokerCalls
from quorumlog.broker.transactions.shell.marker_sender import MarkerSender
from quorumlog.broker.transactions.shell.metrics import TransactionMetrics
from quorumlog.errors import QuorumlogError
from quorumlog.ids import NodeId, ProducerIdentity
from quorumlog.records.control import TransactionMarker
from quorumlog.runtime import Runtime

from .shard_play import TOPIC_A, TOPICS, image_of


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
            sender = MarkerSender(
                runtime.clock,
                scope.spawn,
                queue,
                BrokerCalls(runtime.network, lambda: image),
                cluster_id="c",
                node_id=NodeId(1),
                figures=TransactionMetrics(),
                write_here=write_here,
                report=report,
            )
            sender.start(0, 5, effect)
            await asyncio.sleep(1)
            sender.close()
        assert queue.marker_count() == 0
        assert queue.oldest_since_ms() is None

    simulation.run(main)
    assert (writes, len(reports)) == ([1, 1], 2)
    assert "RuntimeError: broken write" in caplog.text
    assert "RuntimeError: broken report" in caplog.text
