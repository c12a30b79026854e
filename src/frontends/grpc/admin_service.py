"""The service `Admin`: the cluster, its topics, partitions, configs and quotas.

A handler decodes the request, calls the operation in `api`, and encodes its result.
"""

from collections.abc import Mapping
from typing import Any

from ...api.broker_api import BrokerApi
from ...api.configs import ConfigResource, ResourceType
from ...api.partitions import STEP
from ...api.request_context import RequestContext, context_of
from ...api.topics import PARTITIONS_A_STEP
from ...broker import DeletionSpec
from ...errors import InvalidRequest
from ...ids import NodeId
from ...metadata import (
    AlterClientQuotas,
    AlterClusterConfigs,
    AlterConfigs,
    AlterReassignments,
    AlterScramCredentials,
    CreateAcls,
    CreatePartitions,
    CreateTopic,
    DeleteAcls,
    DeleteTopic,
    ElectLeaders,
    TopicImage,
    UnregisterBroker,
    UpdateFeatures,
)
from ...metadata.acls import acl_message
from ...metadata.client_quotas import EntityFilter
from ...metadata.codec import (
    decode_request,
    describe_client_quotas,
    describe_features,
    describe_partition,
    describe_scram_credentials,
    describe_topic,
    read_acl_filter,
)
from ...metadata.shell.relay_reply import encode_reply
from ...proto import admin_pb2 as pb
from ...runtime import CallContext, Handler
from ...runtime.steps import step_counter
from ...services import (
    ADMIN_ALTER_CLIENT_QUOTAS,
    ADMIN_ALTER_CLUSTER_CONFIGS,
    ADMIN_ALTER_CONFIGS,
    ADMIN_ALTER_REASSIGNMENTS,
    ADMIN_ALTER_SCRAM_CREDENTIALS,
    ADMIN_CREATE_ACLS,
    ADMIN_CREATE_PARTITIONS,
    ADMIN_CREATE_TOPIC,
    ADMIN_DELETE_ACLS,
    ADMIN_DELETE_RECORDS,
    ADMIN_DELETE_TOPIC,
    ADMIN_DESCRIBE_ACLS,
    ADMIN_DESCRIBE_CLIENT_QUOTAS,
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_DESCRIBE_CONFIGS,
    ADMIN_DESCRIBE_FEATURES,
    ADMIN_DESCRIBE_LOG_DIRS,
    ADMIN_DESCRIBE_REPLICAS,
    ADMIN_DESCRIBE_SCRAM_CREDENTIALS,
    ADMIN_DESCRIBE_TOPICS,
    ADMIN_ELECT_LEADERS,
    ADMIN_EXPLAIN_AUTHORIZATION,
    ADMIN_LIST_REASSIGNMENTS,
    ADMIN_LIST_TOPICS,
    ADMIN_UNREGISTER_BROKER,
    ADMIN_UPDATE_FEATURES,
)
from .translation import (
    broker_description,
    config_description,
    deletion_result,
    fill_error,
    log_description,
    read_action,
    replicas_description,
    topic_listing,
)


class AdminService:
    """Handlers of `quorumlog.v1.Admin`."""

    def __init__(self, api: BrokerApi, *, node_id: NodeId) -> None:
        self._authorizer = api.authorizer
        self._topics = api.topics
        self._configs = api.configs
        self._cluster = api.cluster
        self._partitions = PartitionHandlers(api, node_id=node_id)
        self._quotas = QuotaHandlers(api)
        self._security = SecurityHandlers(api)

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (
            Handler(ADMIN_DESCRIBE_CLUSTER, self.describe_cluster),
            Handler(ADMIN_CREATE_TOPIC, self.create_topic),
            Handler(ADMIN_LIST_TOPICS, self.list_topics),
            Handler(ADMIN_DESCRIBE_TOPICS, self.describe_topics),
            Handler(ADMIN_DELETE_TOPIC, self.delete_topic),
            Handler(ADMIN_CREATE_PARTITIONS, self.create_partitions),
            Handler(ADMIN_DESCRIBE_CONFIGS, self.describe_configs),
            Handler(ADMIN_ALTER_CONFIGS, self.alter_configs),
            Handler(ADMIN_ALTER_CLUSTER_CONFIGS, self.alter_cluster_configs),
            Handler(ADMIN_DESCRIBE_FEATURES, self.describe_features),
            Handler(ADMIN_UPDATE_FEATURES, self.update_features),
            Handler(ADMIN_UNREGISTER_BROKER, self.unregister_broker),
        )
        own = {handler.method.path: handler for handler in table}
        return {
            **own,
            **self._partitions.handlers(),
            **self._quotas.handlers(),
            **self._security.handlers(),
        }

    async def describe_cluster(
        self, request: pb.DescribeClusterRequest, context: CallContext
    ) -> pb.DescribeClusterResponse:
        """Return the cluster id, the active controller and the brokers."""
        cluster = await self._cluster.describe(_context(request, context))
        return pb.DescribeClusterResponse(
            cluster_id=cluster.cluster_id,
            controller_id=cluster.controller_id,
            brokers=map(broker_description, cluster.brokers),
            metadata_offset=cluster.offset,
            time_ms=cluster.time_ms,
        )

    async def list_topics(
        self, request: pb.ListTopicsRequest, context: CallContext
    ) -> pb.ListTopicsResponse:
        """Return every topic with its size, by ascending name."""
        topics, offset = await self._topics.list_topics(_context(request, context))
        return pb.ListTopicsResponse(topics=map(topic_listing, topics), metadata_offset=offset)

    async def describe_topics(
        self, request: pb.DescribeTopicsRequest, context: CallContext
    ) -> pb.DescribeTopicsResponse:
        """Describe the requested topics; the error of an unknown one is in its result."""
        found = await self._topics.describe(request.names, _context(request, context))
        response = pb.DescribeTopicsResponse(
            brokers=map(broker_description, found.brokers), metadata_offset=found.offset
        )
        take_turn = step_counter(PARTITIONS_A_STEP)
        for name, topic in zip(request.names, found.topics, strict=True):
            result = response.results.add(name=name)
            if isinstance(topic, TopicImage):
                result.topic.CopyFrom(describe_topic(topic))
                await take_turn(len(topic.partitions))
            else:
                fill_error(result.error, topic, name)
        return response

    async def create_topic(
        self, request: pb.CreateTopicRequest, context: CallContext
    ) -> pb.CreateTopicResponse:
        """Create a topic; `usable` in the response means that produce and fetch work at once. A
        client that may not describe the topic gets the configs of its request: those of the topic
        may have changed before a repeat."""
        command = decode_request(CreateTopic, request)
        submitted = await self._topics.create(command, context_of(context))
        response = (await encode_reply(command, submitted)).create_topic
        describes = self._authorizer.describes_topics(context.client)
        if describes is not None and not describes(request.name):
            del response.topic.configs[:]
            response.topic.configs.extend(sorted(request.configs, key=lambda config: config.name))
        return response

    async def delete_topic(
        self, request: pb.DeleteTopicRequest, context: CallContext
    ) -> pb.DeleteTopicResponse:
        """Delete a topic with all its records."""
        command = decode_request(DeleteTopic, request)
        submitted = await self._topics.delete(command, context_of(context))
        return (await encode_reply(command, submitted)).delete_topic

    async def create_partitions(
        self, request: pb.CreatePartitionsRequest, context: CallContext
    ) -> pb.CreatePartitionsResponse:
        """Raise the partition count of a topic; an unchanged count succeeds."""
        command = decode_request(CreatePartitions, request)
        submitted = await self._topics.create_partitions(command, context_of(context))
        return (await encode_reply(command, submitted)).create_partitions

    async def describe_configs(
        self, request: pb.DescribeConfigsRequest, context: CallContext
    ) -> pb.DescribeConfigsResponse:
        """Return every config of topics and of the cluster, and every setting of this node, with
        the source of each value."""
        resources = [_resource(*each) for each in enumerate(request.resources)]
        described, offset = await self._configs.describe(resources, _context(request, context))
        response = pb.DescribeConfigsResponse(metadata_offset=offset)
        for resource, found in zip(request.resources, described, strict=True):
            result = response.results.add(resource=resource)
            result.configs.extend(map(config_description, found.configs))
            if found.error is not None:
                fill_error(result.error, found.error, resource.topic)
        return response

    async def alter_configs(
        self, request: pb.AlterConfigsRequest, context: CallContext
    ) -> pb.AlterConfigsResponse:
        """Set and delete configs of one topic, all or none."""
        _check_operations(request)
        command = decode_request(AlterConfigs, request)
        submitted = await self._configs.alter_topic(command, context_of(context))
        return (await encode_reply(command, submitted)).alter_configs

    async def alter_cluster_configs(
        self, request: pb.AlterClusterConfigsRequest, context: CallContext
    ) -> pb.AlterClusterConfigsResponse:
        """Set and delete configs of the whole cluster, all or none."""
        _check_operations(request)
        command = decode_request(AlterClusterConfigs, request)
        submitted = await self._configs.alter_cluster(command, context_of(context))
        return (await encode_reply(command, submitted)).alter_cluster_configs

    async def describe_features(
        self, request: pb.DescribeFeaturesRequest, context: CallContext
    ) -> pb.DescribeFeaturesResponse:
        """Return the finalized levels, and the levels that the registered brokers support."""
        levels, offset = await self._cluster.describe_features(_context(request, context))
        return pb.DescribeFeaturesResponse(
            features=describe_features(levels), metadata_offset=offset
        )

    async def update_features(
        self, request: pb.UpdateFeaturesRequest, context: CallContext
    ) -> pb.UpdateFeaturesResponse:
        """Change finalized levels, all or none."""
        command = decode_request(UpdateFeatures, request)
        submitted = await self._cluster.update_features(command, context_of(context))
        return (await encode_reply(command, submitted)).update_features

    async def unregister_broker(
        self, request: pb.UnregisterBrokerRequest, context: CallContext
    ) -> pb.UnregisterBrokerResponse:
        """Remove the registration of a decommissioned broker."""
        command = decode_request(UnregisterBroker, request)
        submitted = await self._cluster.unregister_broker(command, context_of(context))
        return (await encode_reply(command, submitted)).unregister_broker


class PartitionHandlers:
    """Handlers of the partition methods of `quorumlog.v1.Admin`."""

    def __init__(self, api: BrokerApi, *, node_id: NodeId) -> None:
        self._partitions = api.partitions
        self._metadata = api.metadata
        self._node_id = node_id

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (
            Handler(ADMIN_ALTER_REASSIGNMENTS, self.alter_reassignments),
            Handler(ADMIN_LIST_REASSIGNMENTS, self.list_reassignments),
            Handler(ADMIN_ELECT_LEADERS, self.elect_leaders),
            Handler(ADMIN_DESCRIBE_REPLICAS, self.describe_replicas),
            Handler(ADMIN_DESCRIBE_LOG_DIRS, self.describe_log_dirs),
            Handler(ADMIN_DELETE_RECORDS, self.delete_records),
        )
        return {handler.method.path: handler for handler in table}

    async def alter_reassignments(
        self, request: pb.AlterReassignmentsRequest, context: CallContext
    ) -> pb.AlterReassignmentsResponse:
        """Start or cancel reassignments, each with its own result."""
        command = decode_request(AlterReassignments, request)
        submitted = await self._partitions.alter_reassignments(command, context_of(context))
        return (await encode_reply(command, submitted)).alter_reassignments

    async def list_reassignments(
        self, request: pb.ListReassignmentsRequest, context: CallContext
    ) -> pb.ListReassignmentsResponse:
        """Return the reassignments in progress."""
        moving, offset = await self._partitions.list_reassignments(
            request.topics, _context(request, context)
        )
        response = pb.ListReassignmentsResponse(metadata_offset=offset)
        for topic, index, partition in moving:
            described = describe_partition(topic, index, partition)
            response.reassignments.add(topic=topic.name, partition=described)
        return response

    async def elect_leaders(
        self, request: pb.ElectLeadersRequest, context: CallContext
    ) -> pb.ElectLeadersResponse:
        """Elect other leaders where that is possible."""
        if request.kind not in pb.ElectionKind.values():
            raise InvalidRequest(
                f"kind: {request.kind}; give ELECTION_KIND_PREFERRED or ELECTION_KIND_UNCLEAN"
            )
        command = decode_request(ElectLeaders, request)
        submitted = await self._partitions.elect_leaders(command, context_of(context))
        return (await encode_reply(command, submitted)).elect_leaders

    async def describe_replicas(
        self, request: pb.DescribeReplicasRequest, context: CallContext
    ) -> pb.DescribeReplicasResponse:
        """Describe the replicas of partitions that this broker leads, of all if none is named.
        Other tasks run in between."""
        described, offset = await self._partitions.describe_replicas(
            [(part.topic, part.partition) for part in request.partitions],
            _context(request, context),
        )
        response = pb.DescribeReplicasResponse(broker=self._node_id, metadata_offset=offset)
        take_turn = step_counter(STEP)
        for status in described:
            response.partitions.append(replicas_description(status))
            await take_turn()
        return response

    async def describe_log_dirs(
        self, request: pb.DescribeLogDirsRequest, context: CallContext
    ) -> pb.DescribeLogDirsResponse:
        """Return the sizes of partitions on this broker's disk; unopened logs are opened for it."""
        usage = await self._partitions.describe_log_dir(
            request.topics,
            context_of(context),
            directory_only=request.directories_only,
        )
        directory = pb.LogDirDescription(
            path=usage.path,
            capacity_bytes=usage.capacity_bytes,
            free_bytes=usage.free_bytes,
            logs=map(log_description, usage.logs),
        )
        open_descriptors, descriptors_max = usage.descriptors
        return pb.DescribeLogDirsResponse(
            broker=self._node_id,
            directories=[directory],
            open_descriptors=open_descriptors,
            descriptors_max=descriptors_max,
        )

    async def delete_records(
        self, request: pb.DeleteRecordsRequest, context: CallContext
    ) -> pb.DeleteRecordsResponse:
        """Advance the log start offsets of partitions that this broker leads, for good."""
        specs = [
            DeletionSpec(part.topic, part.partition, part.before_offset, part.topic_id)
            for part in request.partitions
        ]
        outcomes = await self._partitions.delete_records(specs, _context(request, context))
        return pb.DeleteRecordsResponse(
            results=map(deletion_result, outcomes), metadata_offset=self._metadata.image.offset
        )


class QuotaHandlers:
    """Handlers of the quota methods of `quorumlog.v1.Admin`."""

    def __init__(self, api: BrokerApi) -> None:
        self._quotas = api.quotas

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
        quotas, offset = await self._quotas.describe(
            list(map(_filter, request.filters)), _context(request, context), strict=request.strict
        )
        return pb.DescribeClientQuotasResponse(
            quotas=describe_client_quotas(quotas), metadata_offset=offset
        )

    async def alter_client_quotas(
        self, request: pb.AlterClientQuotasRequest, context: CallContext
    ) -> pb.AlterClientQuotasResponse:
        """Set and remove quotas, each entity with its own result."""
        command = decode_request(AlterClientQuotas, request)
        submitted = await self._quotas.alter(command, context_of(context))
        return (await encode_reply(command, submitted)).alter_client_quotas


class SecurityHandlers:
    """Handlers of the methods of `quorumlog.v1.Admin` for ACLs and SCRAM credentials."""

    def __init__(self, api: BrokerApi) -> None:
        self._acls = api.acls
        self._scram = api.scram

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (
            Handler(ADMIN_DESCRIBE_ACLS, self.describe_acls),
            Handler(ADMIN_CREATE_ACLS, self.create_acls),
            Handler(ADMIN_DELETE_ACLS, self.delete_acls),
            Handler(ADMIN_EXPLAIN_AUTHORIZATION, self.explain_authorization),
            Handler(ADMIN_DESCRIBE_SCRAM_CREDENTIALS, self.describe_scram_credentials),
            Handler(ADMIN_ALTER_SCRAM_CREDENTIALS, self.alter_scram_credentials),
        )
        return {handler.method.path: handler for handler in table}

    async def describe_acls(
        self, request: pb.DescribeAclsRequest, context: CallContext
    ) -> pb.DescribeAclsResponse:
        """Return the ACLs that match the filter."""
        condition = read_acl_filter(request.filter)
        acls, offset = await self._acls.describe(condition, _context(request, context))
        return pb.DescribeAclsResponse(acls=map(acl_message, acls), metadata_offset=offset)

    async def create_acls(
        self, request: pb.CreateAclsRequest, context: CallContext
    ) -> pb.CreateAclsResponse:
        """Create ACLs, each with its own result."""
        command = decode_request(CreateAcls, request)
        submitted = await self._acls.create(command, context_of(context))
        return (await encode_reply(command, submitted)).create_acls

    async def delete_acls(
        self, request: pb.DeleteAclsRequest, context: CallContext
    ) -> pb.DeleteAclsResponse:
        """Delete the ACLs that match filters, each filter with its own result."""
        command = decode_request(DeleteAcls, request)
        submitted = await self._acls.delete(command, context_of(context))
        return (await encode_reply(command, submitted)).delete_acls

    async def explain_authorization(
        self, request: pb.ExplainAuthorizationRequest, context: CallContext
    ) -> pb.ExplainAuthorizationResponse:
        """Return the decision for an action, and the ACL that decides."""
        is_allowed, reason = await self._acls.explain(
            read_action(request), _context(request, context)
        )
        return pb.ExplainAuthorizationResponse(is_allowed=is_allowed, reason=reason)

    async def describe_scram_credentials(
        self, request: pb.DescribeScramCredentialsRequest, context: CallContext
    ) -> pb.DescribeScramCredentialsResponse:
        """Return users with the mechanisms and iterations of their credentials, and their keys to
        clients that may set them."""
        by_user, offset = await self._scram.describe(
            request.users, _context(request, context), with_keys=request.with_keys
        )
        return pb.DescribeScramCredentialsResponse(
            credentials=describe_scram_credentials(by_user, with_keys=request.with_keys),
            metadata_offset=offset,
        )

    async def alter_scram_credentials(
        self, request: pb.AlterScramCredentialsRequest, context: CallContext
    ) -> pb.AlterScramCredentialsResponse:
        """Set and delete SCRAM credentials, each user with its own result."""
        command = decode_request(AlterScramCredentials, request)
        submitted = await self._scram.alter(command, context_of(context))
        return (await encode_reply(command, submitted)).alter_scram_credentials


def _context(request: Any, context: CallContext) -> RequestContext:
    """Return the context of a read, which may require a metadata offset."""
    return context_of(context, request.min_metadata_offset)


def _resource(index: int, resource: pb.ConfigResource) -> ConfigResource:
    match resource.WhichOneof("resource"):
        case "topic":
            return ConfigResource(type=ResourceType.TOPIC, topic=resource.topic)
        case "broker":
            return ConfigResource(type=ResourceType.BROKER, broker=resource.broker)
        case "cluster" if resource.cluster:
            return ConfigResource(type=ResourceType.CLUSTER)
        case _:
            raise InvalidRequest(
                f"resources[{index}]: it names no topic, broker or cluster; give one of them"
            )


def _check_operations(request: pb.AlterConfigsRequest | pb.AlterClusterConfigsRequest) -> None:
    """Raise InvalidRequest for an unknown operation, and for one that lacks its value."""
    topic = request.topic if isinstance(request, pb.AlterConfigsRequest) else ""
    for change in request.changes:
        if change.operation not in pb.ConfigOperation.values():
            raise InvalidRequest(
                f"{change.name}: unknown operation {change.operation}; give CONFIG_OPERATION_SET,"
                " CONFIG_OPERATION_APPEND or CONFIG_OPERATION_SUBTRACT",
                topic=topic,
            )
        if change.operation != pb.CONFIG_OPERATION_SET and not change.HasField("value"):
            raise InvalidRequest(
                f"{change.name}: no value to append or subtract; give one", topic=topic
            )


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
