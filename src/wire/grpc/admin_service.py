"""The service `Admin`: the cluster, its topics, their configs, and what they have on disks.

Reads are answered from this broker's applied metadata image, once it has reached the offset the
caller names. Changes are relayed to the active controller, whose reply is passed on as it is: it
comes when the change is committed and says whether this broker has applied it.
"""

from collections.abc import Mapping, Sequence

from ...broker import DeletionSpec
from ...broker.shell.replicas import ReplicaManager
from ...errors import InvalidRequest, NotController, UnknownTopicOrPartition
from ...ids import NO_NODE, ClusterId, NodeId
from ...metadata import check_topic_name, describe_topic
from ...metadata.shell.publisher import MetadataPublisher
from ...metadata.shell.session import BrokerSession
from ...proto import admin_pb2
from ...runtime import CallContext, Handler, Runtime
from ...services import (
    ADMIN_ALTER_CONFIGS,
    ADMIN_CREATE_TOPIC,
    ADMIN_DELETE_RECORDS,
    ADMIN_DELETE_TOPIC,
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_DESCRIBE_CONFIGS,
    ADMIN_DESCRIBE_LOG_DIRS,
    ADMIN_DESCRIBE_TOPICS,
    ADMIN_LIST_TOPICS,
)
from .configs import (
    NodeSetting,
    check_alteration,
    check_resources,
    describe_node_settings,
    describe_topic_configs,
)
from .translation import (
    broker_description,
    deletion_result,
    fill_error,
    log_description,
    topic_listing,
)
from .validation import (
    ANSWER_MS,
    check_before_offset,
    check_partition,
    check_places,
    check_topic_id,
    left_ms,
)

NAMES_MAX = 10_000  # in one DescribeTopics
RELAY_ANSWER_MS = 500  # at most, that controllers end before the caller's deadline


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
        self._runtime = runtime
        self._metadata = metadata
        self._replicas = replicas
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._data_dir = data_dir
        self._settings = settings
        self._session: BrokerSession | None = None

    def attach(self, session: BrokerSession) -> None:
        """Relay changes through this session from now on.

        It comes later than the handlers, since it registers the address they are served on.
        """
        self._session = session

    def handlers(self) -> Mapping[str, Handler]:
        """Return the table that `Network.serve` takes."""
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
        )
        return {handler.method.path: handler for handler in table}

    async def describe_cluster(
        self, request: admin_pb2.DescribeClusterRequest, context: CallContext
    ) -> admin_pb2.DescribeClusterResponse:
        """Name the cluster, its active controller and its brokers."""
        await self._reach(request.min_metadata_offset, context)
        image = self._metadata.image
        return admin_pb2.DescribeClusterResponse(
            cluster_id=self._cluster_id,
            controller_id=self._controller_id(),
            brokers=[broker_description(broker) for broker in image.sorted_brokers()],
            metadata_offset=image.offset,
        )

    async def list_topics(
        self, request: admin_pb2.ListTopicsRequest, context: CallContext
    ) -> admin_pb2.ListTopicsResponse:
        """Name every topic with its size, by ascending name."""
        await self._reach(request.min_metadata_offset, context)
        image = self._metadata.image
        return admin_pb2.ListTopicsResponse(
            topics=[topic_listing(topic) for topic in image.sorted_topics()],
            metadata_offset=image.offset,
        )

    async def describe_topics(
        self, request: admin_pb2.DescribeTopicsRequest, context: CallContext
    ) -> admin_pb2.DescribeTopicsResponse:
        """Describe the topics asked for; an unknown one is an error in its place."""
        if not 1 <= len(request.names) <= NAMES_MAX:
            raise InvalidRequest(f"names has {len(request.names)} entries; give 1..{NAMES_MAX}")
        await self._reach(request.min_metadata_offset, context)
        image = self._metadata.image
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
        """Create one topic; `usable` in the answer means that produce and fetch work at once."""
        check_topic_name(request.name)
        check_topic_id(request.topic_id)
        return await self._relay().create_topic(request, timeout_ms=self._relay_ms(context))

    async def delete_topic(
        self, request: admin_pb2.DeleteTopicRequest, context: CallContext
    ) -> admin_pb2.DeleteTopicResponse:
        """Delete one topic with all its records."""
        check_topic_id(request.topic_id)
        if request.name:
            check_topic_name(request.name)
        elif not request.topic_id:
            raise InvalidRequest("name and topic_id are both empty; give one")
        return await self._relay().delete_topic(request, timeout_ms=self._relay_ms(context))

    async def describe_configs(
        self, request: admin_pb2.DescribeConfigsRequest, context: CallContext
    ) -> admin_pb2.DescribeConfigsResponse:
        """Tell every config of topics and every setting of this node, and who set it."""
        check_resources(request.resources)
        await self._reach(request.min_metadata_offset, context)
        image = self._metadata.image
        response = admin_pb2.DescribeConfigsResponse(metadata_offset=image.offset)
        for resource in request.resources:
            result = response.results.add(resource=resource)
            if resource.WhichOneof("resource") == "broker":
                self._describe_broker(result)
                continue
            topic = image.topic(resource.topic)
            if topic is None:
                fill_error(result.error, _unknown(resource.topic), resource.topic)
            else:
                result.configs.extend(describe_topic_configs(topic))
        return response

    def _describe_broker(self, result: admin_pb2.DescribeConfigsResult) -> None:
        broker = result.resource.broker
        if broker == self._node_id:
            result.configs.extend(describe_node_settings(self._settings))
            return
        error = InvalidRequest(
            f"this is broker {self._node_id}; ask broker {broker} itself for its settings"
        )
        fill_error(result.error, error)

    async def alter_configs(
        self, request: admin_pb2.AlterConfigsRequest, context: CallContext
    ) -> admin_pb2.AlterConfigsResponse:
        """Set and delete configs of one topic, all of them or none."""
        check_alteration(request)
        return await self._relay().alter_configs(request, timeout_ms=self._relay_ms(context))

    async def describe_log_dirs(
        self, request: admin_pb2.DescribeLogDirsRequest, context: CallContext
    ) -> admin_pb2.DescribeLogDirsResponse:
        """Tell what partitions take on this broker's disk; unused logs are opened for it."""
        if len(request.topics) > NAMES_MAX:
            raise InvalidRequest(f"topics has {len(request.topics)} entries; give 0..{NAMES_MAX}")
        for name in request.topics:
            check_topic_name(name)
            if self._metadata.image.topic(name) is None:
                raise _unknown(name)
        left_ms = self._left_ms(context) - ANSWER_MS
        sizes = await self._replicas.log_sizes(frozenset(request.topics), timeout_ms=left_ms)
        directory = admin_pb2.LogDirDescription(
            path=self._data_dir, logs=[log_description(size) for size in sizes]
        )
        return admin_pb2.DescribeLogDirsResponse(broker=self._node_id, directories=[directory])

    async def delete_records(
        self, request: admin_pb2.DeleteRecordsRequest, context: CallContext
    ) -> admin_pb2.DeleteRecordsResponse:
        """Make the first records of partitions that this broker leads unreadable for good."""
        check_places("partitions", request.partitions)
        specs = []
        for part in request.partitions:
            check_partition(part.topic, part.partition)
            check_topic_id(part.topic_id)
            check_before_offset(part)
            specs.append(
                DeletionSpec(part.topic, part.partition, part.before_offset, part.topic_id)
            )
        await self._reach(request.min_metadata_offset, context)
        outcomes = await self._replicas.delete_records(specs)
        return admin_pb2.DeleteRecordsResponse(
            results=[deletion_result(outcome) for outcome in outcomes],
            metadata_offset=self._metadata.image.offset,
        )

    def _relay(self) -> BrokerSession:
        if self._session is None:
            raise NotController("the broker is starting and has no controller yet; repeat")
        return self._session

    def _controller_id(self) -> NodeId:
        session = self._session
        if session is None or session.is_lapsed():
            return NO_NODE
        return session.controller_id

    async def _reach(self, offset: int, context: CallContext) -> None:
        await self._metadata.wait_applied(offset, timeout_ms=self._left_ms(context))

    def _left_ms(self, context: CallContext) -> int:
        return left_ms(context, self._runtime.clock.now_ms())

    def _relay_ms(self, context: CallContext) -> int:
        """How long the controllers may take so that the caller hears what is wrong with them."""
        left = self._left_ms(context)
        return left - min(left // 4, RELAY_ANSWER_MS)


def _unknown(name: str) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition("no such topic here; create it, or check the name", topic=name)
