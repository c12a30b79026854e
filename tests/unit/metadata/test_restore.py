"""Restore of the controller's state from a snapshot: the image, and the delta to subscribers."""

import asyncio

from quorumlog import simulation
from quorumlog.ids import TopicId
from quorumlog.metadata.delta import COMPARED_A_STEP, DeltaBuilder, ImageDelta
from quorumlog.metadata.shell import MetadataPublisher, MetadataStateMachine
from quorumlog.proto import metadata_records_pb2 as pb
from quorumlog.runtime import Runtime

OLD, KEPT, NEW = (TopicId(bytes([number]) * 16) for number in (3, 1, 2))


def topic(topic_id: bytes, name: str, *, epoch: int = 0) -> list[bytes]:
    partition = pb.PartitionRecord(
        topic_id=topic_id, partition=0, replicas=[1], isr=[1], leader=1, leader_epoch=epoch
    )
    records = (
        pb.MetadataRecord(topic=pb.TopicRecord(topic_id=topic_id, name=name)),
        pb.MetadataRecord(partition=partition),
    )
    return [record.SerializeToString() for record in records]


def metadata_of(*values: bytes) -> MetadataStateMachine:
    metadata = MetadataStateMachine()
    metadata.committed(0, 1, list(values))
    return metadata


def restore(into: MetadataStateMachine, source: MetadataStateMachine, *, end_offset: int) -> None:
    slices = source.snapshot()
    assert slices is not None
    into.begin_restore()
    for values in slices:
        into.restore(values)
    into.end_restore(end_offset, 7)


def test_snapshot_restores_its_image() -> None:
    source = metadata_of(*topic(KEPT, "kept"), *topic(NEW, "new"))
    slices = source.snapshot()
    assert slices is not None
    source.committed(4, 1, topic(OLD, "later"))  # the snapshot does not change
    restored = MetadataStateMachine()
    restored.begin_restore()
    for values in slices:
        restored.restore(values)
    restored.end_restore(9, 7)
    image = restored.committed_image
    assert [each.name for each in image.sorted_topics()] == ["kept", "new"]
    assert (image.offset, image.epoch) == (8, 7)


def test_subscribers_get_a_restored_state_as_one_delta() -> None:
    source = metadata_of(*topic(KEPT, "kept"), *topic(NEW, "new"))
    deltas: list[ImageDelta] = []

    async def main(runtime: Runtime) -> None:
        metadata = MetadataStateMachine()
        publisher = MetadataPublisher(metadata)
        metadata.committed(0, 1, [*topic(KEPT, "kept"), *topic(OLD, "old")])
        publisher.subscribe(deltas.append)
        async with runtime.tasks.scope("test") as scope:
            scope.spawn(publisher.run(), name="publisher")
            await publisher.wait_applied(3, 1000)
            restore(metadata, source, end_offset=100)
            await publisher.wait_applied(99, 1000)
            metadata.committed(100, 8, topic(OLD, "old again"))
            await publisher.wait_applied(101, 1000)
            publisher.close()

    simulation.run(main)
    _, jump, after = deltas
    assert [each.name for each in jump.created_topics()] == ["new"]
    assert [each.name for each in jump.deleted_topics()] == ["old"]
    assert jump.changed_topics() == []
    changes = [(each.topic.name, each.before is None) for each in jump.changed_partitions()]
    assert sorted(changes) == [("new", True), ("old", False)]
    assert [each.name for each in after.created_topics()] == ["old again"]


def test_snapshot_over_unpublished_changes_skips_nothing() -> None:
    source = metadata_of(*topic(NEW, "new"))
    deltas: list[ImageDelta] = []

    async def main(runtime: Runtime) -> None:
        metadata = MetadataStateMachine()
        publisher = MetadataPublisher(metadata)
        metadata.committed(0, 1, [*topic(OLD, "old")])
        publisher.subscribe(deltas.append)
        restore(metadata, source, end_offset=100)
        async with runtime.tasks.scope("test") as scope:
            scope.spawn(publisher.run(), name="publisher")
            await publisher.wait_applied(99, 1000)
            await asyncio.sleep(0)
            publisher.close()

    simulation.run(main)
    assert [[each.name for each in delta.created_topics()] for delta in deltas] == [
        ["old"],
        ["new"],
    ]


def test_large_state_is_compared_in_steps_that_yield_the_loop() -> None:
    many = [value for n in range(2_000) for value in topic(n.to_bytes(16), f"topic-{n}")]
    before, source = metadata_of(), metadata_of(*many)
    builder = DeltaBuilder.replacing(before.committed_image, source.committed_image)
    assert len(list(builder.comparing)) >= 2_000 // COMPARED_A_STEP
    assert len(list(builder.build().changed_partitions())) == 2_000


def test_equal_parts_are_not_compared_further() -> None:
    before = metadata_of(*topic(KEPT, "kept")).committed_image
    after = metadata_of(*topic(KEPT, "kept", epoch=0), *topic(NEW, "new")).committed_image
    delta = DeltaBuilder.replacing(before, after).build()
    assert delta.touched_topics == (NEW,)
    assert [change.topic.id for change in delta.changed_partitions()] == [NEW]


def test_snapshot_has_the_listeners_of_brokers() -> None:
    listeners = [
        pb.KafkaListener(name="IN", address="10.0.0.1:9092"),
        pb.KafkaListener(name="OUT", address=":19092"),
    ]
    record = pb.BrokerRecord(
        id=1, incarnation_id=bytes(16), directory_id=bytes(16), kafka_listeners=listeners
    )
    source = metadata_of(pb.MetadataRecord(broker=record).SerializeToString())
    restored = MetadataStateMachine()
    restore(restored, source, end_offset=1)
    broker = restored.committed_image.broker(1)
    assert broker is not None
    assert broker.kafka_address("IN") == "10.0.0.1:9092"
    assert broker.kafka_address("OUT") == ":19092"
    assert broker.kafka_address("PLAINTEXT") is None
