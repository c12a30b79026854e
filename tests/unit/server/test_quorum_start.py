"""A node that joins the quorum."""

import asyncio

from quorumlog.ids import TopicId
from quorumlog.metadata.shell import MetadataPublisher, MetadataStateMachine
from quorumlog.proto import metadata_records_pb2 as pb
from quorumlog.runtime import Runtime
from quorumlog.server.quorum import APPLY_PATIENCE_MS, wait_for_committed_metadata
from quorumlog.simulation import run


def test_start_waits_for_the_replay_of_the_metadata_without_a_time_limit() -> None:
    async def main(runtime: Runtime) -> None:
        metadata = MetadataStateMachine()
        publisher = MetadataPublisher(metadata)
        begun_ms = runtime.clock.now_ms()
        publisher.subscribe(lambda _: asyncio.sleep(10 * APPLY_PATIENCE_MS / 1000))
        running = asyncio.ensure_future(publisher.run())
        topic = pb.TopicRecord(topic_id=TopicId(b"t" * 16), name="t")
        value = pb.MetadataRecord(topic=topic).SerializeToString()
        metadata.committed(5, 1, [value])
        await wait_for_committed_metadata(metadata, publisher, 1)
        assert publisher.applied_offset == 5
        assert runtime.clock.now_ms() - begun_ms >= 10 * APPLY_PATIENCE_MS
        publisher.close()
        await running

    run(main)
