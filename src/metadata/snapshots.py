"""Snapshots of an image: the minimal records that produce it, and the way back. Pure.

The order is fixed (brokers, topics and partitions by id, the rest by name), so that equal images
have equal bytes on every node. Records come in slices, so that the writer can yield to the event
loop between them; the image is immutable.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import itemgetter
from typing import Final

from google.protobuf.message import DecodeError

from ..errors import CorruptionError
from ..ids import Epoch, Offset
from ..proto import metadata_records_pb2 as pb
from .acls import AclFilter, acl_message
from .client_quotas import quota_record, sorted_entities
from .codec import encode_broker, encode_partition
from .image import EMPTY_IMAGE, MetadataImage, TopicImage, sorted_in_steps
from .replay import ImageDraft
from .scram_credentials import credential_record

SLICE_RECORDS: Final = 250
"""Records per slice, about 2 ms of work."""
SLICE_BYTES: Final = 32 * 1024
"""A slice ends with the record that exceeds this size."""


def image_slices(image: MetadataImage) -> Iterator[list[bytes]]:
    """Yield the serialized records of an image, in order, without its offset and epoch. An empty
    slice only ends a step."""
    values: list[bytes] = []
    size = 0
    for record in _records(image):
        if record is None:
            yield []
            continue
        values.append(record.SerializeToString(deterministic=True))
        size += len(values[-1])
        if size > SLICE_BYTES or len(values) == SLICE_RECORDS:
            yield values
            values, size = [], 0
    if values:
        yield values


class SnapshotLoader:
    """Builds the image of a snapshot, slice by slice."""

    def __init__(self) -> None:
        self._draft = ImageDraft(EMPTY_IMAGE)

    def take(self, values: Iterable[bytes]) -> None:
        """Apply the next slice; raise CorruptionError."""
        for value in values:
            try:
                record = pb.MetadataRecord.FromString(value)
            except DecodeError as error:
                raise CorruptionError(f"the snapshot has an invalid record: {error}") from error
            self._draft.load(record)
        self._draft.settle()

    def image(self, *, end_offset: int, epoch: int) -> MetadataImage:
        """Return the image after all slices: the state after [0, `end_offset`) of the log. Its
        `security_offset` is the last offset, an upper bound."""
        loaded = self._draft.image()
        offset = Offset(end_offset - 1)
        return replace(loaded, offset=offset, epoch=Epoch(epoch), security_offset=offset)


def image_of(values: Iterable[bytes], *, end_offset: int, epoch: int) -> MetadataImage:
    """Return the image of a whole snapshot; raise CorruptionError."""
    loader = SnapshotLoader()
    loader.take(values)
    return loader.image(end_offset=end_offset, epoch=epoch)


def _records(image: MetadataImage) -> Iterator[pb.MetadataRecord | None]:
    for broker in image.sorted_brokers():
        yield pb.MetadataRecord(broker=encode_broker(broker))
    for topic_id in sorted_in_steps(image.topics_by_id):
        if topic_id is None:
            yield None
        else:
            yield from _topic(image.topics_by_id[topic_id])
    yield from _configs(image)
    for name, level in sorted(image.features.items(), key=itemgetter(0)):
        yield pb.MetadataRecord(feature_level=pb.FeatureLevelRecord(name=name, level=level))
    for entity in sorted_entities(image.client_quotas):
        for key, quota in sorted(image.client_quotas[entity].items()):
            yield quota_record(entity, key, quota)
    yield from _security(image)
    if image.next_producer_id:
        ids = pb.ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
        )
        yield pb.MetadataRecord(producer_ids=ids)


def _configs(image: MetadataImage) -> Iterator[pb.MetadataRecord]:
    for name, value in sorted(image.cluster_configs.items(), key=itemgetter(0)):
        yield pb.MetadataRecord(cluster_config=pb.ClusterConfigRecord(name=name, value=value))
    for group, configs in sorted(image.group_configs.items(), key=itemgetter(0)):
        for name, value in sorted(configs.items(), key=itemgetter(0)):
            config = pb.GroupConfigRecord(group=group, name=name, value=value)
            yield pb.MetadataRecord(group_config=config)


def _security(image: MetadataImage) -> Iterator[pb.MetadataRecord]:
    for acl in image.acls.visit(AclFilter()):
        if acl is not None:
            yield pb.MetadataRecord(acl=acl_message(acl))
    for key, credential in sorted(image.scram_credentials.items(), key=itemgetter(0)):
        yield credential_record(key, credential)


def _topic(topic: TopicImage) -> Iterator[pb.MetadataRecord]:
    topic_id = topic.id
    yield pb.MetadataRecord(topic=pb.TopicRecord(topic_id=topic_id, name=topic.name))
    for name, value in sorted(topic.configs.items(), key=itemgetter(0)):
        config = pb.TopicConfigRecord(topic_id=topic_id, name=name, value=value)
        yield pb.MetadataRecord(topic_config=config)
    for index, partition in topic.sorted_partitions():
        yield pb.MetadataRecord(partition=encode_partition(topic_id, index, partition))
