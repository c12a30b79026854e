"""A snapshot of any image restores that image, and has the same bytes on every node."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from quorumlog.errors import CorruptionError
from quorumlog.ids import DirectoryId, NodeId, Offset, TopicId
from quorumlog.metadata import (
    EMPTY_IMAGE,
    ControllerConfig,
    CreateTopic,
    Decision,
    MetadataImage,
    UnfenceBroker,
    decide,
    replay_batch,
)
from quorumlog.metadata.snapshots import (
    SLICE_BYTES,
    SLICE_RECORDS,
    SnapshotLoader,
    image_of,
    image_slices,
)
from quorumlog.proto.metadata_records_pb2 import BrokerRecord, MetadataRecord

from .random_commands import Step, decide_all, registration, steps


def restored(image: MetadataImage) -> MetadataImage:
    values = [value for values in image_slices(image) for value in values]
    return image_of(values, end_offset=image.offset + 1, epoch=image.epoch)


@given(steps)
@settings(max_examples=150, deadline=None)
def test_a_snapshot_restores_the_image(script: list[Step]) -> None:
    image = decide_all(script)[0][-1]
    assert restored(image) == image
    with_ids = replace(image, next_producer_id=5000)
    assert restored(with_ids) == with_ids


@given(steps)
@settings(max_examples=100, deadline=None)
def test_an_image_that_came_from_a_snapshot_gives_the_same_bytes(script: list[Step]) -> None:
    """An image after more records too: a node that loaded a snapshot is like any other."""
    images, log = decide_all(script)
    middle = images[len(images) // 2]
    records = [MetadataRecord.FromString(value) for value in log[middle.offset + 1 :]]
    later = replay_batch(restored(middle), records, base_offset=middle.offset + 1, epoch=1)
    assert list(image_slices(later)) == list(image_slices(images[-1]))


def test_slices_are_small() -> None:
    image = EMPTY_IMAGE
    commands = [
        registration(NodeId(0), 0),
        UnfenceBroker(broker_id=NodeId(0), broker_epoch=Offset(0)),
    ]
    for number in range(4):
        topic_id = TopicId(bytes([number + 1]) * 16)
        name = f"t{number}"
        commands.append(CreateTopic(name=name, topic_id=topic_id, partitions=200))
    for command in commands:
        decision = decide(image, command, ControllerConfig())
        assert isinstance(decision, Decision)
        image = replay_batch(image, decision.records, base_offset=image.offset + 1, epoch=1)
    slices = list(image_slices(image))
    assert len(slices) > 3
    for values in slices:
        assert len(values) <= SLICE_RECORDS
        assert sum(map(len, values[:-1])) <= SLICE_BYTES
    assert restored(image) == image


def test_invalid_snapshots_are_rejected() -> None:
    broker = MetadataRecord(broker=BrokerRecord(id=1, directory_id=DirectoryId(b"d" * 16)))
    for value, words in [
        (b"\xff\xff", "invalid record"),
        (broker.SerializeToString(), "has no epoch"),
        (b"", "has an unknown type"),
    ]:
        with pytest.raises(CorruptionError, match=words):
            SnapshotLoader().take([value])
