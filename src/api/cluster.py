"""The cluster: brokers, active controller, feature levels."""

from functools import partial

from msgspec import Struct

from ..ids import ClusterId, NodeId, Offset
from ..metadata import (
    BrokerImage,
    Done,
    FeaturesUpdated,
    Submitted,
    UnregisterBroker,
    UpdateFeatures,
)
from ..metadata.acls import AclOperation, AclResourceType
from ..metadata.decisions.features import feature_levels
from ..runtime import Clock
from .authorizer import Authorizer
from .metadata_access import MetadataAccess
from .request_context import RequestContext
from .validation import check_feature_updates, check_node_id


class ClusterDescription(Struct, frozen=True, kw_only=True):
    """The cluster as this broker's metadata has it."""

    cluster_id: ClusterId
    controller_id: NodeId  # NO_NODE: unknown
    brokers: tuple[BrokerImage, ...]  # by ascending id
    offset: Offset
    time_ms: int  # UTC clock of this broker, milliseconds since 1970


class ClusterAdmin:
    """The operations on the cluster."""

    def __init__(
        self,
        clock: Clock,
        metadata: MetadataAccess,
        authorizer: Authorizer,
        *,
        cluster_id: ClusterId,
    ) -> None:
        self._clock = clock
        self._metadata = metadata
        self._authorizer = authorizer
        self._cluster_id = cluster_id

    async def describe(self, context: RequestContext) -> ClusterDescription:
        """Return the cluster id, the active controller and the brokers. Clients need them to
        connect, so no ACL is needed."""
        image = await self._metadata.reach(context)
        return ClusterDescription(
            cluster_id=self._cluster_id,
            controller_id=self._metadata.controller_id,
            brokers=tuple(image.sorted_brokers()),
            offset=image.offset,
            time_ms=self._clock.wall_ms(),
        )

    async def describe_features(
        self, context: RequestContext
    ) -> tuple[list[tuple[str, int, int, int]], Offset]:
        """Return each feature by ascending name with its finalized level and the lowest and highest
        level that every registered broker supports, and the offset of the metadata."""
        image = await self._metadata.reach(context)
        return feature_levels(image), image.offset

    async def update_features(
        self, command: UpdateFeatures, context: RequestContext
    ) -> Submitted[FeaturesUpdated]:
        """Change finalized levels, all or none."""
        authorize = partial(self._check_alter, context)
        authorize()
        check_feature_updates(command.updates)
        return await self._metadata.submit(command, context, authorize)

    async def unregister_broker(
        self, command: UnregisterBroker, context: RequestContext
    ) -> Submitted[Done]:
        """Remove the registration of a decommissioned broker."""
        authorize = partial(self._check_alter, context)
        authorize()
        check_node_id("broker", command.broker_id)
        return await self._metadata.submit(command, context, authorize)

    def _check_alter(self, context: RequestContext) -> None:
        self._authorizer.check(context.client, AclOperation.ALTER, AclResourceType.CLUSTER)
