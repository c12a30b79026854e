"""Replay of metadata records: the only way from one image to the next.

A draft applies records one by one and builds an image on request, which is much cheaper than an
image per record. A record that does not fit raises CorruptionError, which stops the node: a node
with a gap in its metadata must not continue (KAFKA-14275). The draft is then unusable.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from immutables import Map, MapMutation

from ..errors import CorruptionError
from ..ids import Epoch, NodeId, Offset, TopicId
from ..proto import metadata_records_pb2 as pb
from .acls import acl_of
from .codec import decode_broker
from .image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from .invariants import partition_fault
from .partition_set import NO_PARTITIONS, PartitionSetDraft
from .scram_credentials import credential_of, scram_key_of
from .topic_names import collision_key


def replay(
    image: MetadataImage, record: pb.MetadataRecord, *, offset: int, epoch: int
) -> MetadataImage:
    """Return the image after the record at `offset`, written in `epoch`; raise CorruptionError."""
    return replay_batch(image, (record,), base_offset=offset, epoch=epoch)


def replay_batch(
    image: MetadataImage, records: Iterable[pb.MetadataRecord], *, base_offset: int, epoch: int
) -> MetadataImage:
    """Return the image after records at consecutive offsets from `base_offset`; raise
    CorruptionError."""
    draft = ImageDraft(image)
    for offset, record in enumerate(records, base_offset):
        draft.replay(record, offset=offset, epoch=epoch)
    return draft.image()


class _TopicDraft:
    """A mutable copy of a topic."""

    __slots__ = ("configs", "id", "is_new", "name", "partitions")

    def __init__(self, topic: TopicImage) -> None:
        self.id = topic.id
        self.is_new = not topic.partitions  # so no partition set has bits of it
        self.name = topic.name
        self.partitions: MapMutation[int, PartitionImage] = topic.partitions.mutate()
        self.configs = topic.configs

    def image(self) -> TopicImage:
        return TopicImage(
            id=self.id, name=self.name, partitions=self.partitions.finish(), configs=self.configs
        )


class ImageDraft:
    """A mutable copy of an image."""

    __slots__ = (
        "_all_elsewhere",
        "_all_moving",
        "_bits",
        "_by_id",
        "_by_key",
        "_by_name",
        "_elsewhere",
        "_image",
        "_is_changed",
        "_moving",
        "_placed",
        "_topics",
        "epoch",
        "offset",
    )

    def __init__(self, image: MetadataImage) -> None:
        self._topics: dict[TopicId, _TopicDraft] = {}
        # New bits of changed topics, as in PartitionSet, for the three indexes of the image.
        self._bits: dict[NodeId, dict[TopicId, int]] = {}
        self._moving: dict[TopicId, int] = {}
        self._elsewhere: dict[TopicId, int] = {}
        self.offset = image.offset
        self.epoch = image.epoch
        self._begin(image)

    def _begin(self, image: MetadataImage) -> None:
        # Up to date except for topics and partition sets; only `image()` returns it.
        self._image = image
        self._by_id = image.topics_by_id.mutate()  # without the changes in `_topics`
        self._by_name = image.topics_by_name.mutate()
        self._by_key = image.topics_by_key.mutate()
        # The partition sets after settle().
        self._placed: dict[NodeId, PartitionSetDraft] = {}
        self._all_moving = PartitionSetDraft(image.moving)
        self._all_elsewhere = PartitionSetDraft(image.led_elsewhere)
        self._is_changed = False

    def settle(self) -> None:
        """Apply pending changes of topics to free their memory; call it in every step if there are
        very many records."""
        by_id = self._by_id
        for topic in self._topics.values():
            by_id[topic.id] = topic.image()
        for node, changes in self._bits.items():
            self._set_of(node).take(changes)
        self._all_moving.take(self._moving)
        self._all_elsewhere.take(self._elsewhere)
        self._topics, self._bits, self._moving, self._elsewhere = {}, {}, {}, {}

    def image(self) -> MetadataImage:
        """Return the image after the records so far; the draft remains usable."""
        if not self._is_changed:
            return self._image
        self.settle()
        placed = self._image.placed
        for node, draft in self._placed.items():
            after = draft.finish()
            if after:
                placed = placed.set(node, after)
            elif node in placed:
                placed = placed.delete(node)
        image = replace(
            self._image,
            offset=self.offset,
            epoch=self.epoch,
            topics_by_id=self._by_id.finish(),
            topics_by_name=self._by_name.finish(),
            topics_by_key=self._by_key.finish(),
            placed=placed,
            moving=self._all_moving.finish(),
            led_elsewhere=self._all_elsewhere.finish(),
        )
        self._begin(image)
        return image

    def _set_of(self, node: NodeId) -> PartitionSetDraft:
        found = self._placed.get(node)
        if found is None:
            before = self._image.placed.get(node, NO_PARTITIONS)
            found = self._placed[node] = PartitionSetDraft(before)
        return found

    def replay(self, record: pb.MetadataRecord, *, offset: int, epoch: int) -> None:
        """Apply the record at `offset`, written in `epoch`; raise CorruptionError."""
        if offset <= self.offset or epoch < self.epoch:
            raise CorruptionError(
                f"metadata record {offset} of epoch {epoch} follows record {self.offset} of epoch"
                f" {self.epoch}; offsets and epochs must increase"
            )
        self._take(record, Offset(offset))
        self.offset, self.epoch = Offset(offset), Epoch(epoch)

    def load(self, record: pb.MetadataRecord) -> None:
        """Apply a record of a snapshot, which has no offset; raise CorruptionError."""
        if record.WhichOneof("record") == "broker" and not record.broker.HasField("broker_epoch"):
            raise CorruptionError(f"broker {record.broker.id} in the snapshot has no epoch")
        self._take(record, Offset(-1))

    def _take(self, record: pb.MetadataRecord, offset: Offset) -> None:
        self._is_changed = True
        kind = record.WhichOneof("record")
        if kind == "broker":
            return self._broker(record.broker, offset)
        step = _STEPS.get(kind or "")
        if step is not None:
            step(self, getattr(record, kind))
            if kind in _SECURITY:
                self._image = replace(self._image, security_offset=offset)
        elif kind not in _WITHOUT_EFFECT:
            raise CorruptionError(
                f"metadata record {offset} has an unknown type, written by a newer release; upgrade"
                " this node"
            )

    # --- brokers and the cluster ---------------------------------------------------------------

    def _broker(self, record: pb.BrokerRecord, offset: Offset) -> None:
        broker = decode_broker(record, offset)
        self._set_brokers(self._image.brokers.set(broker.id, broker))

    def _broker_change(self, record: pb.BrokerChangeRecord) -> None:
        broker = self._registered(record.id, record.broker_epoch)
        broker = replace(
            broker,
            fenced=record.fenced if record.HasField("fenced") else broker.fenced,
            stopping=record.stopping if record.HasField("stopping") else broker.stopping,
        )
        self._set_brokers(self._image.brokers.set(broker.id, broker))

    def _unregister_broker(self, record: pb.UnregisterBrokerRecord) -> None:
        broker = self._registered(record.id, record.broker_epoch)
        self._set_brokers(self._image.brokers.delete(broker.id))

    def _registered(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        broker = self._image.broker(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            raise CorruptionError(f"broker {broker_id} is not registered with epoch {broker_epoch}")
        return broker

    def _set_brokers(self, brokers: Map[NodeId, BrokerImage]) -> None:
        self._image = replace(self._image, brokers=brokers)

    def _cluster_config(self, record: pb.ClusterConfigRecord) -> None:
        value = record.value if record.HasField("value") else None
        configs = _with_config(self._image.cluster_configs, record.name, value)
        self._image = replace(self._image, cluster_configs=configs)

    def _group_config(self, record: pb.GroupConfigRecord) -> None:
        value = record.value if record.HasField("value") else None
        groups = self._image.group_configs
        configs = _with_config(groups.get(record.group, Map()), record.name, value)
        if configs:
            groups = groups.set(record.group, configs)
        elif record.group in groups:
            groups = groups.delete(record.group)
        self._image = replace(self._image, group_configs=groups)

    def _feature_level(self, record: pb.FeatureLevelRecord) -> None:
        features = self._image.features
        if record.level:
            features = features.set(record.name, record.level)
        elif record.name in features:
            features = features.delete(record.name)
        self._image = replace(self._image, features=features)

    def _client_quota(self, record: pb.ClientQuotaRecord) -> None:
        entity = tuple(
            (part.type, part.name if part.HasField("name") else None) for part in record.entity
        )
        types = [kind for kind, _ in entity]
        if not types or types != sorted(set(types)):
            raise CorruptionError(
                f"quota {record.key}: entity {entity} is empty or not sorted by type"
            )
        all_quotas = self._image.client_quotas
        quotas: Map[str, float] = all_quotas.get(entity, Map())
        if record.HasField("value"):
            quotas = quotas.set(record.key, record.value)
        elif record.key in quotas:
            quotas = quotas.delete(record.key)
        if quotas:
            all_quotas = all_quotas.set(entity, quotas)
        elif entity in all_quotas:
            all_quotas = all_quotas.delete(entity)
        self._image = replace(self._image, client_quotas=all_quotas)

    def _acl(self, record: pb.Acl) -> None:
        acl = acl_of(record)
        if acl in self._image.acls:
            raise CorruptionError(f"ACL {acl} is created twice")
        self._image = replace(self._image, acls=self._image.acls.with_acl(acl))

    def _remove_acl(self, record: pb.Acl) -> None:
        acl = acl_of(record)
        if acl not in self._image.acls:
            raise CorruptionError(f"ACL {acl} is deleted, but does not exist")
        self._image = replace(self._image, acls=self._image.acls.without(acl))

    def _scram_credential(self, record: pb.ScramCredentialRecord) -> None:
        credentials = self._image.scram_credentials.set(
            scram_key_of(record.credential), credential_of(record)
        )
        self._image = replace(self._image, scram_credentials=credentials)

    def _remove_scram_credential(self, record: pb.ScramCredentialKey) -> None:
        key, credentials = scram_key_of(record), self._image.scram_credentials
        if key not in credentials:
            raise CorruptionError(f"SCRAM credential {key} is deleted, but does not exist")
        self._image = replace(self._image, scram_credentials=credentials.delete(key))

    def _producer_ids(self, record: pb.ProducerIdsRecord) -> None:
        if record.next_producer_id <= self._image.next_producer_id:
            raise CorruptionError(
                f"producer ids below {record.next_producer_id} are allocated twice; all below"
                f" {self._image.next_producer_id} were allocated before"
            )
        self._image = replace(self._image, next_producer_id=record.next_producer_id)

    # --- topics --------------------------------------------------------------------------------

    def _topic(self, record: pb.TopicRecord) -> None:
        topic_id = TopicId(record.topic_id)
        if topic_id in self._by_id or topic_id in self._topics or record.name in self._by_name:
            raise CorruptionError(f"topic {record.name} is created twice")
        topic = TopicImage(id=topic_id, name=record.name, partitions=Map(), configs=Map())
        self._topics[topic_id] = _TopicDraft(topic)
        self._by_name[topic.name] = topic_id
        self._by_key[collision_key(topic.name)] = topic_id

    def _remove_topic(self, record: pb.RemoveTopicRecord) -> None:
        topic = self._changing(record.topic_id)
        for node in {n for each in topic.partitions.finish().values() for n in each.replicas}:
            self._bits.setdefault(node, {})[topic.id] = 0
        del self._topics[topic.id]
        if topic.id in self._by_id:
            del self._by_id[topic.id]
        del self._by_name[topic.name]
        del self._by_key[collision_key(topic.name)]
        self._moving[topic.id] = self._elsewhere[topic.id] = 0

    def _topic_config(self, record: pb.TopicConfigRecord) -> None:
        topic = self._changing(record.topic_id)
        value = record.value if record.HasField("value") else None
        topic.configs = _with_config(topic.configs, record.name, value)

    def _partition(self, record: pb.PartitionRecord) -> None:
        topic = self._changing(record.topic_id)
        if record.partition in topic.partitions:
            raise CorruptionError(f"partition {topic.name}-{record.partition} is created twice")
        replicas, isr = _nodes(record.replicas), _nodes(record.isr)
        # By hand: there can be millions of them, and the codec would take twice as long.
        partition = PartitionImage(
            replicas=replicas,
            isr=replicas if isr == replicas else isr,
            leader=NodeId(record.leader),
            leader_epoch=Epoch(record.leader_epoch),
            partition_epoch=record.partition_epoch,
            adding=_nodes(record.adding),
            removing=_nodes(record.removing),
            elr=_nodes(record.elr),
            last_known_elr=_nodes(record.last_known_elr),
            recovering=record.recovering,
        )
        self._set_partition(topic, record.partition, None, partition)

    def _partition_change(self, record: pb.PartitionChangeRecord) -> None:
        topic = self._changing(record.topic_id)
        before = topic.partitions.get(record.partition)
        if before is None:
            raise CorruptionError(f"partition {topic.name}-{record.partition} does not exist")
        has = record.HasField
        replicas = _nodes(record.replicas.ids) if has("replicas") else before.replicas
        isr = _nodes(record.isr.ids) if has("isr") else before.isr
        after = PartitionImage(
            replicas=replicas,
            isr=replicas if isr == replicas else isr,
            leader=NodeId(record.leader) if has("leader") else before.leader,
            leader_epoch=Epoch(before.leader_epoch + has("leader")),
            partition_epoch=before.partition_epoch + 1,
            adding=_nodes(record.adding.ids) if has("adding") else before.adding,
            removing=_nodes(record.removing.ids) if has("removing") else before.removing,
            elr=_nodes(record.elr.ids) if has("elr") else before.elr,
            last_known_elr=(
                _nodes(record.last_known_elr.ids)
                if has("last_known_elr")
                else before.last_known_elr
            ),
            recovering=record.recovering if has("recovering") else before.recovering,
        )
        self._set_partition(topic, record.partition, before, after)

    def _changing(self, topic_id: bytes) -> _TopicDraft:
        """Return the draft of an existing topic; raise CorruptionError."""
        draft = self._topics.get(TopicId(topic_id))
        if draft is None:
            topic = self._by_id.get(TopicId(topic_id))
            if topic is None:
                raise CorruptionError(f"topic id {topic_id.hex()} does not exist")
            draft = self._topics[topic.id] = _TopicDraft(topic)
        return draft

    def _set_partition(
        self,
        topic: _TopicDraft,
        index: int,
        before: PartitionImage | None,
        after: PartitionImage,
    ) -> None:
        fault = partition_fault(after)
        if fault:
            raise CorruptionError(f"{topic.name}-{index}: {fault}")
        topic.partitions[index] = after
        replicas, old = after.replicas, () if before is None else before.replicas
        if old is not replicas and old != replicas:
            for node in old:
                if node not in replicas:
                    self._change_bits(topic, node, index, holds=False)
            for node in replicas:
                self._change_bits(topic, node, index, holds=True)
        is_moving = after.is_moving
        if is_moving != (before is not None and before.is_moving):
            _change_bit(self._moving, self._all_moving, topic, index, is_moving)
        is_elsewhere = after.leader != replicas[0]
        if is_elsewhere != (before is not None and before.leader != old[0]):
            _change_bit(self._elsewhere, self._all_elsewhere, topic, index, is_elsewhere)

    def _change_bits(self, topic: _TopicDraft, node: NodeId, index: int, *, holds: bool) -> None:
        changes = self._bits.get(node)
        if changes is None:
            changes = self._bits[node] = {}
        _change_bit(changes, self._set_of(node), topic, index, holds)


def _change_bit(
    changes: dict[TopicId, int],
    before: PartitionSetDraft,
    topic: _TopicDraft,
    index: int,
    holds: bool,
) -> None:
    """Record that a set has a partition from now on, or not."""
    bits = changes.get(topic.id)
    if bits is None:
        bits = 0 if topic.is_new else before.bits_of(topic.id)
    changes[topic.id] = bits | 1 << index if holds else bits & ~(1 << index)


def _nodes(ids: Iterable[int]) -> tuple[NodeId, ...]:
    return cast("tuple[NodeId, ...]", tuple(ids)) if ids else ()


def _with_config(configs: Map[str, str], name: str, value: str | None) -> Map[str, str]:
    if value is not None:
        return configs.set(name, value)
    return configs.delete(name) if name in configs else configs


_STEPS: Final[Mapping[str, Callable[[ImageDraft, Any], None]]] = {
    name: getattr(ImageDraft, f"_{name}")
    for name in (
        "broker_change",
        "unregister_broker",
        "topic",
        "remove_topic",
        "partition",
        "partition_change",
        "topic_config",
        "cluster_config",
        "group_config",
        "feature_level",
        "producer_ids",
        "client_quota",
        "acl",
        "remove_acl",
        "scram_credential",
        "remove_scram_credential",
    )
}
_SECURITY: Final = frozenset(("acl", "remove_acl", "scram_credential", "remove_scram_credential"))
# MetadataPublisher holds back the records of a transaction until its end.
_WITHOUT_EFFECT: Final = frozenset(
    ("no_op", "begin_transaction", "end_transaction", "abort_transaction")
)
