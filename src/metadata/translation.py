"""Translation between relayed requests of brokers and the controller's commands and replies."""

from collections.abc import Iterable, Mapping

from ..errors import InvalidRequest, QuorumlogError
from ..ids import NodeId, Offset, TopicId
from ..proto import admin_pb2, controller_pb2
from ..runtime import Entropy
from ..runtime.error_detail import encode_error
from .client_quotas import ClientQuotas, QuotaEntity, entity_parts
from .commands import (
    AllocateProducerIds,
    AlterClientQuotas,
    AlterClusterConfigs,
    AlterConfigs,
    AlterReassignments,
    ClientQuotasAltered,
    ClusterConfigsAltered,
    Command,
    ConfigsAltered,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    Done,
    ElectLeaders,
    FeaturesUpdated,
    FeatureUpdate,
    ListChange,
    PartitionOutcome,
    PartitionOutcomes,
    PartitionsAltered,
    PartitionsCreated,
    ProducerIdsAllocated,
    QuotaAlteration,
    Reassignment,
    Reply,
    TopicCreated,
    TopicDeleted,
    UnregisterBroker,
    UpdateFeatures,
)
from .decisions.features import FEATURES, feature_levels
from .image import MetadataImage, PartitionImage, TopicImage
from .topic_configs import effective_min_isr


def command_of(  # noqa: C901 (a dispatch)
    request: controller_pb2.RelayRequest, entropy: Entropy
) -> Command:
    """Return the command of a relayed request; a new topic without an id gets a random one."""
    match request.WhichOneof("command"):
        case "create_topic":
            return _create_topic(request.create_topic, entropy)
        case "delete_topic":
            delete = request.delete_topic
            return DeleteTopic(name=delete.name, topic_id=_topic_id(delete.topic_id))
        case "create_partitions":
            return _create_partitions(request.create_partitions)
        case "alter_configs":
            alter = request.alter_configs
            return AlterConfigs(
                topic=alter.topic,
                changes=_changes(alter.changes),
                lists=_list_changes(alter.changes),
                replace=alter.replace,
                validate_only=alter.validate_only,
            )
        case "alter_cluster_configs":
            cluster = request.alter_cluster_configs
            return AlterClusterConfigs(
                changes=_changes(cluster.changes),
                lists=_list_changes(cluster.changes),
                replace=cluster.replace,
                validate_only=cluster.validate_only,
            )
        case "alter_reassignments":
            moves = request.alter_reassignments
            return AlterReassignments(
                reassignments=tuple(_reassignment(each) for each in moves.partitions),
                keep_replication_factor=moves.keep_replication_factor,
            )
        case "elect_leaders":
            return _elect_leaders(request.elect_leaders)
        case "update_features":
            return _update_features(request.update_features)
        case "alter_client_quotas":
            return _alter_client_quotas(request.alter_client_quotas)
        case "unregister_broker":
            return UnregisterBroker(broker_id=NodeId(request.unregister_broker.broker))
        case "allocate_producer_ids":
            return AllocateProducerIds(
                broker_id=NodeId(request.broker_id),
                broker_epoch=Offset(request.allocate_producer_ids.broker_epoch),
            )
        case _:
            raise InvalidRequest("the relayed request has no command that this controller supports")


def response_of(  # noqa: C901 (a dispatch)
    reply: Reply, *, request: controller_pb2.RelayRequest, offset: Offset, applied: bool
) -> controller_pb2.RelayResponse:
    """Return the response to a relayed request."""
    answer = controller_pb2.RelayResponse()
    match reply:
        case TopicCreated(topic=topic):
            created = answer.create_topic
            created.topic.CopyFrom(describe_topic(topic))
            created.usable, created.metadata_offset = applied, offset
        case TopicDeleted(topic=topic):
            deleted = answer.delete_topic
            deleted.topic_id = topic.id
            deleted.applied, deleted.metadata_offset = applied, offset
        case PartitionsCreated(topic=topic):
            grown = answer.create_partitions
            grown.topic.CopyFrom(describe_topic(topic))
            grown.usable, grown.metadata_offset = applied, offset
        case ConfigsAltered(topic=topic):
            altered = answer.alter_configs
            altered.configs.extend(_config_entries(topic.configs))
            altered.applied, altered.metadata_offset = applied, offset
        case ClusterConfigsAltered(configs=configs):
            answer.alter_cluster_configs.configs.extend(_config_entries(dict(configs)))
            answer.alter_cluster_configs.metadata_offset = offset
        case PartitionOutcomes(outcomes=outcomes):
            is_election = request.WhichOneof("command") == "elect_leaders"
            results = answer.elect_leaders if is_election else answer.alter_reassignments
            results.results.extend(describe_outcome(each) for each in outcomes)
            results.metadata_offset = offset
        case FeaturesUpdated(levels=levels):
            answer.update_features.features.extend(_feature(*each) for each in levels)
            answer.update_features.metadata_offset = offset
        case ClientQuotasAltered(errors=errors):
            asked = request.alter_client_quotas.alterations
            answer.alter_client_quotas.results.extend(
                _quotas_result(*each) for each in zip(asked, errors, strict=True)
            )
            answer.alter_client_quotas.metadata_offset = offset
        case ProducerIdsAllocated(start=start, count=count):
            answer.allocate_producer_ids.producer_id_start = start
            answer.allocate_producer_ids.producer_id_len = count
        case Done():
            answer.unregister_broker.metadata_offset = offset
        case PartitionsAltered():
            raise AssertionError(f"no relayed command has the reply {reply}")
    return answer


def describe_topic(topic: TopicImage) -> admin_pb2.TopicDescription:
    """Return the message that describes a topic."""
    return admin_pb2.TopicDescription(
        name=topic.name,
        topic_id=topic.id,
        partitions=[describe_partition(topic, *entry) for entry in topic.sorted_partitions()],
        configs=_config_entries(topic.configs),
    )


def describe_partition(
    topic: TopicImage, index: int, partition: PartitionImage
) -> admin_pb2.PartitionDescription:
    """Return the message that describes a partition."""
    return admin_pb2.PartitionDescription(
        partition=index,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        elr=partition.elr,
        last_known_elr=partition.last_known_elr,
        adding=partition.adding,
        removing=partition.removing,
        recovering=partition.recovering,
        min_isr=effective_min_isr(topic.configs, replication_factor=partition.replication_factor),
    )


def describe_features(image: MetadataImage) -> list[admin_pb2.FeatureDescription]:
    """Return the messages that describe the features of this release."""
    return [_feature(*each) for each in feature_levels(image)]


def _feature(name: str, level: int, low: int, high: int) -> admin_pb2.FeatureDescription:
    return admin_pb2.FeatureDescription(
        name=name, level=level, level_min=low, level_max=high, doc=FEATURES[name].doc
    )


def describe_client_quotas(
    quotas: ClientQuotas, entities: Iterable[QuotaEntity]
) -> list[admin_pb2.ClientQuotas]:
    """Return the messages that describe the quotas of these entities."""
    return [
        admin_pb2.ClientQuotas(
            entity=entity_parts(entity),
            values=[
                admin_pb2.QuotaValue(key=key, value=value)
                for key, value in sorted(quotas[entity].items())
            ],
        )
        for entity in entities
    ]


def _quotas_result(
    asked: admin_pb2.ClientQuotaAlteration, error: QuorumlogError | None
) -> admin_pb2.AlterClientQuotasResult:
    result = admin_pb2.AlterClientQuotasResult(entity=asked.entity)
    if error is not None:
        result.error.CopyFrom(encode_error(error))
    return result


def describe_outcome(outcome: PartitionOutcome) -> admin_pb2.PartitionOutcome:
    """Return the message that describes the outcome of a partition."""
    described = admin_pb2.PartitionOutcome(topic=outcome.topic, partition=outcome.partition)
    if outcome.error is not None:
        described.error.CopyFrom(encode_error(outcome.error))
    return described


def _config_entries(configs: Mapping[str, str]) -> list[admin_pb2.ConfigEntry]:
    return [
        admin_pb2.ConfigEntry(name=name, value=value) for name, value in sorted(configs.items())
    ]


def _changes(changes: Iterable[admin_pb2.ConfigChange]) -> tuple[tuple[str, str | None], ...]:
    return tuple(
        (change.name, change.value if change.HasField("value") else None)
        for change in changes
        if change.operation == admin_pb2.CONFIG_OPERATION_SET
    )


def _list_changes(changes: Iterable[admin_pb2.ConfigChange]) -> tuple[ListChange, ...]:
    return tuple(
        ListChange(
            name=change.name,
            parts=tuple(part.strip() for part in change.value.split(",")),
            is_removal=change.operation == admin_pb2.CONFIG_OPERATION_SUBTRACT,
        )
        for change in changes
        if change.operation != admin_pb2.CONFIG_OPERATION_SET
    )


def _topic_id(topic_id: bytes) -> TopicId | None:
    return TopicId(topic_id) if topic_id else None


def _replicas(assignment: admin_pb2.ReplicaAssignment) -> tuple[NodeId, ...]:
    return tuple(NodeId(node) for node in assignment.replicas)


def _create_topic(request: admin_pb2.CreateTopicRequest, entropy: Entropy) -> CreateTopic:
    topic_id = request.topic_id or entropy.token(16)
    return CreateTopic(
        name=request.name,
        topic_id=TopicId(topic_id),
        partitions=request.partitions,
        replication_factor=request.replication_factor,
        configs=tuple((entry.name, entry.value) for entry in request.configs),
        validate_only=request.validate_only,
        assignments=tuple(_replicas(each) for each in request.assignments),
    )


def _create_partitions(request: admin_pb2.CreatePartitionsRequest) -> CreatePartitions:
    return CreatePartitions(
        topic=request.topic,
        count=request.count,
        assignments=tuple(_replicas(each) for each in request.assignments),
        validate_only=request.validate_only,
        topic_id=_topic_id(request.topic_id),
    )


def _reassignment(move: admin_pb2.PartitionReassignment) -> Reassignment:
    return Reassignment(
        topic=move.topic,
        partition=move.partition,
        replicas=_replicas(move.target) if move.HasField("target") else None,
    )


def _elect_leaders(request: admin_pb2.ElectLeadersRequest) -> ElectLeaders:
    return ElectLeaders(
        unclean=request.kind == admin_pb2.ELECTION_KIND_UNCLEAN,
        partitions=tuple((each.topic, each.partition) for each in request.partitions),
    )


def _update_features(request: admin_pb2.UpdateFeaturesRequest) -> UpdateFeatures:
    return UpdateFeatures(
        updates=tuple(
            FeatureUpdate(name=each.name, level=each.level, allow_downgrade=each.allow_downgrade)
            for each in request.updates
        ),
        validate_only=request.validate_only,
    )


def _alter_client_quotas(request: admin_pb2.AlterClientQuotasRequest) -> AlterClientQuotas:
    return AlterClientQuotas(
        alterations=tuple(
            QuotaAlteration(
                entity=tuple(
                    (part.type, part.name if part.HasField("name") else None)
                    for part in alteration.entity
                ),
                changes=tuple(
                    (change.key, change.value if change.HasField("value") else None)
                    for change in alteration.changes
                ),
            )
            for alteration in request.alterations
        ),
        validate_only=request.validate_only,
    )
