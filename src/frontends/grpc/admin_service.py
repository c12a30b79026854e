"""The service `Admin`: the cluster, its topics and configs, and the log directories.

Reads are answered from this broker's applied metadata image, once it has reached the offset that
the request names. Changes are forwarded to the active controller. Its response is returned
unchanged: it waits for the commit and reports whether this broker has applied the change.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from ...broker import DeletionSpec
from ...broker.shell.replica_manager import ReplicaManager
from ...errors import InvalidRequest, StorageError, UnknownTopicOrPartition
from ...ids import ClusterId, NodeId
from ...metadata import (
    check_not_internal,
    check_topic_name,
    describe_client_quotas,
    describe_features,
    describe_topic,
)
from ...metadata.client_quotas import (
    ENTITY_TYPES,
    QUOTAS,
    EntityFilter,
    check_filters,
    matching_entities,
)
from ...metadata.shell.publisher import MetadataPublisher
from ...metadata.shell.session import BrokerSession
from ...proto import admin_pb2
from ...proto import admin_pb2 as pb
from ...runtime import CallContext, Handler, Runtime
from ...services import (
    ADMIN_ALTER_CLIENT_QUOTAS,
    ADMIN_ALTER_CLUSTER_CONFIGS,
    ADMIN_ALTER_CONFIGS,
    ADMIN_CREATE_TOPIC,
    ADMIN_DELETE_RECORDS,
    ADMIN_DELETE_TOPIC,
    ADMIN_DESCRIBE_CLIENT_QUOTAS,
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_DESCRIBE_CONFIGS,
    ADMIN_DESCRIBE_FEATURES,
    ADMIN_DESCRIBE_LOG_DIRS,
    ADMIN_DESCRIBE_TOPICS,
    ADMIN_LIST_TOPICS,
    ADMIN_UNREGISTER_BROKER,
    ADMIN_UPDATE_FEATURES,
)
from .configs import (
    NodeSetting,
    check_alteration,
    check_changes,
    check_resources,
    describe_cluster_configs,
    describe_node_settings,
    describe_topic_configs,
)
from .metadata_access import MetadataAccess
from .partition_admin import PartitionAdmin
from .translation import (
    broker_description,
    deletion_result,
    fill_error,
    log_description,
    topic_listing,
)
from .validation import (
    ANSWER_MS,
    NAMES_MAX,
    check_assignments,
    check_before_offset,
    check_feature_updates,
    check_partition,
    check_places,
    check_topic_id,
)


class AdminService:
    """Handlers of `quorumlog.v1.Admin`."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataPublisher,
        replicas: ReplicaManager,
        *,
        cluster_id: ClusterId,
        node_id: NodeId,
        data_dir: str,
        settings: Sequence[NodeSetting],
    ) -> None:
        self._metadata = MetadataAccess(runtime, metadata)
        self.partitions = PartitionAdmin(self._metadata, replicas, node_id=node_id)
        self.quotas = QuotaAdmin(self._metadata)
        self._replicas = replicas
        self._files = runtime.files
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._data_dir = data_dir
        self._settings = settings

    def attach(self, session: BrokerSession) -> None:
        """Forward changes through this session from now on.

        The session is created after the handlers, since it registers the address of their listener.
        """
        self._metadata.attach(session)

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (
            Handler(ADMIN_DESCRIBE_CLUSTER, self.describe_cluster),
            Handler(ADMIN_CREATE_TOPIC, self.create_topic),
            Handler(ADMIN_LIST_TOPICS, self.list_topics),
            Handler(ADMIN_DESCRIBE_TOPICS, self.describe_topics),
            Handler(ADMIN_DELETE_TOPIC, self.delete_topic),
            Handler(ADMIN_DESCRIBE_CONFIGS, self.describe_configs),
            Handler(ADMIN_ALTER_CONFIGS, self.alter_configs),
            Handler(ADMIN_DESCRIBE_LOG_DIRS, self.describe_log_dirs),
            Handler(ADMIN_DELETE_RECORDS, self.delete_records),
            Handler(ADMIN_ALTER_CLUSTER_CONFIGS, self.alter_cluster_configs),
            Handler(ADMIN_DESCRIBE_FEATURES, self.describe_features),
            Handler(ADMIN_UPDATE_FEATURES, self.update_features),
            Handler(ADMIN_UNREGISTER_BROKER, self.unregister_broker),
        )
        own = {handler.method.path: handler for handler in table}
        return {**own, **self.partitions.handlers(), **self.quotas.handlers()}

    async def describe_cluster(
        self, request: admin_pb2.DescribeClusterRequest, context: CallContext
    ) -> admin_pb2.DescribeClusterResponse:
        """Return the cluster id, the active controller and the brokers."""
        image = await self._metadata.reach(request.min_metadata_offset, context)
        return admin_pb2.DescribeClusterResponse(
            cluster_id=self._cluster_id,
            controller_id=self._metadata.controller_id,
            brokers=[broker_description(broker) for broker in image.sorted_brokers()],
            metadata_offset=image.offset,
        )

    async def list_topics(
        self, request: admin_pb2.ListTopicsRequest, context: CallContext
    ) -> admin_pb2.ListTopicsResponse:
        """Return every topic with its size, by ascending name."""
        image = await self._metadata.reach(request.min_metadata_offset, context)
        return admin_pb2.ListTopicsResponse(
            topics=[topic_listing(topic) for topic in image.sorted_topics()],
            metadata_offset=image.offset,
        )

    async def describe_topics(
        self, request: admin_pb2.DescribeTopicsRequest, context: CallContext
    ) -> admin_pb2.DescribeTopicsResponse:
        """Describe the requested topics; the error of an unknown one is in its result."""
        if not 1 <= len(request.names) <= NAMES_MAX:
            raise InvalidRequest(f"names: {len(request.names)} entries; give 1..{NAMES_MAX}")
        image = await self._metadata.reach(request.min_metadata_offset, context)
        response = admin_pb2.DescribeTopicsResponse(metadata_offset=image.offset)
        named: set[NodeId] = set()
        for name in request.names:
            check_topic_name(name)
            result = response.results.add(name=name)
            topic = image.topic(name)
            if topic is None:
                fill_error(result.error, _unknown(name), name)
                continue
            result.topic.CopyFrom(describe_topic(topic))
            for partition in topic.partitions.values():
                named.update(partition.replicas)
        for node_id in sorted(named):
            broker = image.broker(node_id)
            if broker is not None:
                response.brokers.append(broker_description(broker))
        return response

    async def create_topic(
        self, request: admin_pb2.CreateTopicRequest, context: CallContext
    ) -> admin_pb2.CreateTopicResponse:
        """Create a topic; `usable` in the response means that produce and fetch work at once."""
        check_topic_name(request.name)
        check_not_internal(request.name)
        check_topic_id(request.topic_id)
        check_assignments(request.assignments)
        return (await self._metadata.submit(request, context)).create_topic

    async def delete_topic(
        self, request: admin_pb2.DeleteTopicRequest, context: CallContext
    ) -> admin_pb2.DeleteTopicResponse:
        """Delete a topic with all its records."""
        check_topic_id(request.topic_id)
        if request.name:
            check_topic_name(request.name)
        elif not request.topic_id:
            raise InvalidRequest("name and topic_id: both are empty; give one of them")
        return (await self._metadata.submit(request, context)).delete_topic

    async def describe_configs(
        self, request: admin_pb2.DescribeConfigsRequest, context: CallContext
    ) -> admin_pb2.DescribeConfigsResponse:
        """Return every config of topics and of the cluster, and every setting of this node, with
        the source of each value."""
        check_resources(request.resources)
        image = await self._metadata.reach(request.min_metadata_offset, context)
        response = admin_pb2.DescribeConfigsResponse(metadata_offset=image.offset)
        for resource in request.resources:
            result = response.results.add(resource=resource)
            match resource.WhichOneof("resource"):
                case "broker":
                    self._describe_broker(result)
                case "cluster":
                    result.configs.extend(describe_cluster_configs(image.cluster_configs))
                case _:
                    topic = image.topic(resource.topic)
                    if topic is None:
                        fill_error(result.error, _unknown(resource.topic), resource.topic)
                    else:
                        configs = describe_topic_configs(
                            topic.configs,
                            image.cluster_configs,
                            replication_factor=topic.replication_factor,
                        )
                        result.configs.extend(configs)
        return response

    def _describe_broker(self, result: admin_pb2.DescribeConfigsResult) -> None:
        broker = result.resource.broker
        if broker == self._node_id:
            result.configs.extend(describe_node_settings(self._settings))
            return
        error = InvalidRequest(
            f"broker {broker}: settings are local to each broker and this is broker"
            f" {self._node_id}; ask broker {broker}"
        )
        fill_error(result.error, error)

    async def alter_configs(
        self, request: admin_pb2.AlterConfigsRequest, context: CallContext
    ) -> admin_pb2.AlterConfigsResponse:
        """Set and delete configs of one topic, all or none."""
        check_alteration(request)
        return (await self._metadata.submit(request, context)).alter_configs

    async def describe_log_dirs(
        self, request: admin_pb2.DescribeLogDirsRequest, context: CallContext
    ) -> admin_pb2.DescribeLogDirsResponse:
        """Return the sizes of partitions on this broker's disk; unopened logs are opened for it."""
        if len(request.topics) > NAMES_MAX:
            raise InvalidRequest(f"topics: {len(request.topics)} entries; give 0..{NAMES_MAX}")
        for name in request.topics:
            check_topic_name(name)
            if self._metadata.image.topic(name) is None:
                raise _unknown(name)
        directory = self._directory()
        if not request.directories_only:
            left_ms = self._metadata.left_ms(context) - ANSWER_MS
            sizes = await self._replicas.log_sizes(frozenset(request.topics), timeout_ms=left_ms)
            directory.logs.extend(map(log_description, sizes))
        return admin_pb2.DescribeLogDirsResponse(broker=self._node_id, directories=[directory])

    def _directory(self) -> admin_pb2.LogDirDescription:
        path, files = self._data_dir, self._files
        try:
            return admin_pb2.LogDirDescription(
                path=path,
                capacity_bytes=files.capacity_bytes(path),
                free_bytes=files.free_bytes(path),
            )
        except OSError as error:
            raise StorageError(
                f"{path}: cannot read its size: {error.strerror or error}"
            ) from error

    async def delete_records(
        self, request: admin_pb2.DeleteRecordsRequest, context: CallContext
    ) -> admin_pb2.DeleteRecordsResponse:
        """Advance the log start offsets of partitions that this broker leads, for good."""
        check_places("partitions", request.partitions)
        specs = []
        for part in request.partitions:
            check_partition(part.topic, part.partition)
            check_topic_id(part.topic_id)
            check_before_offset(part)
            specs.append(
                DeletionSpec(part.topic, part.partition, part.before_offset, part.topic_id)
            )
        await self._metadata.reach(request.min_metadata_offset, context)
        outcomes = await self._replicas.delete_records(specs)
        return admin_pb2.DeleteRecordsResponse(
            results=[deletion_result(outcome) for outcome in outcomes],
            metadata_offset=self._metadata.image.offset,
        )

    async def alter_cluster_configs(
        self, request: admin_pb2.AlterClusterConfigsRequest, context: CallContext
    ) -> admin_pb2.AlterClusterConfigsResponse:
        """Set and delete configs of the whole cluster, all or none."""
        check_changes(request.changes, replace=request.replace)
        return (await self._metadata.submit(request, context)).alter_cluster_configs

    async def describe_features(
        self, request: admin_pb2.DescribeFeaturesRequest, context: CallContext
    ) -> admin_pb2.DescribeFeaturesResponse:
        """Return the finalized levels, and the levels that the registered brokers support."""
        image = await self._metadata.reach(request.min_metadata_offset, context)
        return admin_pb2.DescribeFeaturesResponse(
            features=describe_features(image), metadata_offset=image.offset
        )

    async def update_features(
        self, request: admin_pb2.UpdateFeaturesRequest, context: CallContext
    ) -> admin_pb2.UpdateFeaturesResponse:
        """Change finalized levels, all or none."""
        check_feature_updates(request.updates)
        return (await self._metadata.submit(request, context)).update_features

    async def unregister_broker(
        self, request: admin_pb2.UnregisterBrokerRequest, context: CallContext
    ) -> admin_pb2.UnregisterBrokerResponse:
        """Remove the registration of a decommissioned broker."""
        if request.broker < 0:
            raise InvalidRequest(f"broker: {request.broker} is not a node id; give 0 or more")
        return (await self._metadata.submit(request, context)).unregister_broker


def _unknown(name: str) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(
        "the topic does not exist; create it, or check the name", topic=name
    )


ALTERATIONS_MAX: Final = 1_000  # in one request


class QuotaAdmin:
    """Handlers of the quota methods of `quorumlog.v1.Admin`."""

    def __init__(self, metadata: MetadataAccess) -> None:
        self._metadata = metadata

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (
            Handler(ADMIN_DESCRIBE_CLIENT_QUOTAS, self.describe_client_quotas),
            Handler(ADMIN_ALTER_CLIENT_QUOTAS, self.alter_client_quotas),
        )
        return {handler.method.path: handler for handler in table}

    async def describe_client_quotas(
        self, request: pb.DescribeClientQuotasRequest, context: CallContext
    ) -> pb.DescribeClientQuotasResponse:
        """Return the quotas of the entities that match the filters."""
        filters = [_filter(each) for each in request.filters[: len(ENTITY_TYPES) + 1]]
        check_filters(filters)
        image = await self._metadata.reach(request.min_metadata_offset, context)
        quotas = image.client_quotas
        entities = matching_entities(quotas, filters, strict=request.strict)
        return pb.DescribeClientQuotasResponse(
            quotas=describe_client_quotas(quotas, entities), metadata_offset=image.offset
        )

    async def alter_client_quotas(
        self, request: pb.AlterClientQuotasRequest, context: CallContext
    ) -> pb.AlterClientQuotasResponse:
        """Set and remove quotas, each entity with its own result."""
        count = len(request.alterations)
        if not 1 <= count <= ALTERATIONS_MAX:
            raise InvalidRequest(f"alterations: {count} entries; give 1..{ALTERATIONS_MAX}")
        for alteration in request.alterations:
            if max(len(alteration.entity), len(alteration.changes)) > 2 * len(QUOTAS):
                raise InvalidRequest(
                    f"alteration: {len(alteration.entity)} entity parts and"
                    f" {len(alteration.changes)} quotas; give each once"
                )
        return (await self._metadata.submit(request, context)).alter_client_quotas


def _filter(wanted: pb.QuotaFilter) -> EntityFilter:
    match wanted.WhichOneof("match"):
        case "name":
            return EntityFilter(type=wanted.type, name=wanted.name)
        case "is_default" if wanted.is_default:
            return EntityFilter(type=wanted.type)
        case "is_any" if wanted.is_any:
            return EntityFilter(type=wanted.type, is_any=True)
        case _:
            raise InvalidRequest("filter: empty; give a name, is_default or is_any")
