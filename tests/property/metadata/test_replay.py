"""Random commands: the decided image, the replayed image and the changes of a delta agree."""

import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st

from quorumlog.ids import NO_NODE, NodeId, TopicId
from quorumlog.metadata import (
    EMPTY_IMAGE,
    CreateTopic,
    DeleteTopic,
    DeltaBuilder,
    MetadataImage,
    PartitionImage,
    replay_batch,
)
from quorumlog.proto.metadata_records_pb2 import MetadataRecord

from .random_commands import Step, decide_all, registration, steps


def replayed(log: list[bytes]) -> MetadataImage:
    records = [MetadataRecord.FromString(value) for value in log]
    return replay_batch(EMPTY_IMAGE, records, base_offset=0, epoch=1)


def partitions_of(image: MetadataImage) -> dict[tuple[bytes, int], PartitionImage]:
    return {
        (topic.id, index): partition
        for topic in image.sorted_topics()
        for index, partition in topic.sorted_partitions()
    }


@given(steps)
@settings(max_examples=150, deadline=None)
def test_replaying_the_log_gives_the_decided_image(script: list[Step]) -> None:
    images, log = decide_all(script)
    assert replayed(log) == images[-1]


@given(steps)
@settings(max_examples=150, deadline=None)
def test_equal_commands_give_equal_bytes(script: list[Step]) -> None:
    assert decide_all(script)[1] == decide_all(script)[1]


@given(steps)
@settings(max_examples=150, deadline=None)
def test_every_image_is_valid(script: list[Step]) -> None:
    images, _ = decide_all(script)
    for image in images:
        for partition in partitions_of(image).values():
            assert set(partition.isr) <= set(partition.replicas)
            assert all(image.brokers[node].is_active for node in partition.isr)
            if partition.leader == NO_NODE:
                assert not partition.isr
                continue
            leader = image.brokers[partition.leader]
            assert partition.leader in partition.isr
            assert leader.is_active, f"broker {leader.id} leads while fenced or stopping"
        assert {t.name for t in image.sorted_topics()} == set(image.topics_by_name)
        assert len(image.topics_by_id) == len(image.topics_by_name) == len(image.topics_by_key)


@given(steps)
@settings(max_examples=150, deadline=None)
def test_the_indexes_equal_those_of_a_full_scan(script: list[Step]) -> None:
    images, _ = decide_all(script)
    for image in images:
        partitions = partitions_of(image)
        for node in range(4):
            on_node = sorted(key for key, each in partitions.items() if node in each.replicas)
            assert list(image.partitions_on(NodeId(node))) == on_node
            assert image.replica_count(NodeId(node)) == len(on_node)
        assert set(image.placed) == {n for each in partitions.values() for n in each.replicas}
        moving = sorted(key for key, each in partitions.items() if each.adding or each.removing)
        assert list(image.moving) == moving
        elsewhere = sorted(k for k, each in partitions.items() if each.leader != each.replicas[0])
        assert list(image.led_elsewhere) == elsewhere


@given(steps)
@settings(max_examples=150, deadline=None)
def test_epochs_count_every_change_and_never_go_back(script: list[Step]) -> None:
    images, _ = decide_all(script)
    for before, after in itertools.pairwise(images):
        old, new = partitions_of(before), partitions_of(after)
        for key, partition in new.items():
            was = old.get(key)
            if was is None or was == partition:
                continue
            assert partition.partition_epoch == was.partition_epoch + 1
            is_new_epoch = partition.leader != was.leader or (
                set(was.replicas) - set(partition.replicas)
            )
            assert partition.leader_epoch == was.leader_epoch + bool(is_new_epoch)


def created(partitions: int) -> CreateTopic:
    topic_id = TopicId(bytes([1]) * 16)
    return CreateTopic(name="a", topic_id=topic_id, partitions=partitions)


RECREATED: list[Step] = [
    registration(NodeId(0), 0),
    ("unfence", NodeId(0)),
    created(3),
    DeleteTopic(name="a"),
    created(1),
]


@given(steps, st.integers(0, 60))
@example(RECREATED, 6)
@settings(max_examples=150, deadline=None)
def test_delta_has_exactly_the_differences(script: list[Step], cut: int) -> None:
    _, log = decide_all(script)
    cut = min(cut, len(log))
    builder = DeltaBuilder(replayed(log[:cut]))
    for offset, value in enumerate(log[cut:], cut):
        builder.replay(MetadataRecord.FromString(value), offset=offset, epoch=1)
    delta = builder.build()
    assert delta.after == replayed(log)
    old, new = partitions_of(delta.before), partitions_of(delta.after)
    differing = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    named = [(change.topic.id, change.index) for change in delta.changed_partitions()]
    assert len(named) == len(set(named))
    assert set(named) == differing
    topics = {t.id for t in delta.created_topics()}, {t.id for t in delta.deleted_topics()}
    before, after = set(delta.before.topics_by_id), set(delta.after.topics_by_id)
    assert topics == (after - before, before - after)
    brokers = {(b or a).id for b, a in delta.changed_brokers()}  # type: ignore[union-attr]
    assert brokers == {
        node for node in range(4) if delta.before.broker(node) != delta.after.broker(node)
    }
