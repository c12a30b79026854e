"""The methods of the service `Groups`: groups of the consumer protocol (KIP-848), and the stored
state of all groups.

Clients may send a request to any broker, which forwards it to the group's coordinator.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from ...api.audit import AuditLog, recorded
from ...api.authorizer import Authorizer
from ...api.validation import (
    NAMES_MAX,
    PARTITIONS_MAX,
    check_partition,
    check_place_count,
    check_places,
    check_topic_id,
)
from ...broker.groups.requests import (
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    OffsetToCommit,
    StoredOffset,
)
from ...broker.groups.shell import GroupCoordinator
from ...errors import GroupNotFound, InvalidRequest, QuorumlogError
from ...ids import NodeId
from ...metadata import MetadataImage
from ...metadata.acls import AclOperation, AclResourceType
from ...metadata.shell.publisher import MetadataPublisher
from ...proto import errors_pb2
from ...proto import groups_pb2 as pb
from ...runtime import CallContext, Runtime
from ...runtime.error_detail import encode_error
from ...services import (
    GROUPS_COMMIT_OFFSETS,
    GROUPS_DELETE,
    GROUPS_DELETE_OFFSETS,
    GROUPS_DESCRIBE,
    GROUPS_FETCH_OFFSETS,
    GROUPS_HEARTBEAT,
    GROUPS_LIST,
)
from .call_forwarder import CallForwarder, ForwardedCall, check_text, client_of
from .group_translation import (
    error_message,
    group_description,
    group_listing,
    group_partitions,
    offset_result,
    read_commit,
    read_fetch,
    read_heartbeat,
    read_offset,
    topics_of,
)

T = TypeVar("T")

REBALANCE_TIMEOUT_MS_MAX: Final = 3_600_000
OWNED_MAX: Final = 100_000  # partitions of one member
PARTS_A_REQUEST: Final = 1_000  # offsets that are stored in one step

_READ_TOPIC: Final = (AclOperation.READ, AclResourceType.TOPIC)
_DESCRIBE_TOPIC: Final = (AclOperation.DESCRIBE, AclResourceType.TOPIC)


class GroupCalls:
    """The methods of the service `Groups`."""

    def __init__(
        self,
        runtime: Runtime,
        groups: GroupCoordinator,
        metadata: MetadataPublisher,
        authorizer: Authorizer,
        *,
        node_id: NodeId,
        audit: AuditLog | None,
    ) -> None:
        self._groups = groups
        self._audit = audit
        self._metadata = metadata
        self._authorizer = authorizer
        self._node_id = node_id

        async def coordinator_of(group: str, deadline_ms: int) -> NodeId:
            return await groups.coordinator_of(group, deadline_ms=deadline_ms)

        self._forwarder = CallForwarder(
            runtime, metadata, node_id=node_id, coordinator_of=coordinator_of
        )

    # --- members -------------------------------------------------------------------------------

    async def heartbeat(
        self, request: pb.GroupHeartbeatRequest, context: CallContext
    ) -> pb.GroupHeartbeatResponse:
        """Keep a member's session alive, or add or remove the member."""
        _check_heartbeat(request)
        self._check_group(AclOperation.READ, request.group, context)
        for topic in request.subscription.topics:
            self._authorizer.check(context.client, *_DESCRIBE_TOPIC, topic)

        async def here() -> pb.GroupHeartbeatResponse:
            describes = self._authorizer.describes_topics(context.client)
            asked = read_heartbeat(self._image, request, client_of(context).host, describes)
            asked.client = client_of(context).principal
            beat = await self._groups.ask(asked, deadline_ms=self._forwarder.deadline_ms(context))
            response = pb.GroupHeartbeatResponse(
                member_epoch=beat.member_epoch,
                heartbeat_interval_ms=beat.heartbeat_interval_ms,
                session_timeout_ms=beat.session_timeout_ms,
            )
            if beat.assignment is not None:
                response.assignment.SetInParent()
                response.assignment.partitions.extend(
                    part
                    for part in group_partitions(self._image, beat.assignment)
                    if self._may_describe(part.topic, context)
                )
            return response

        return await self._forwarder.at_coordinator(
            GROUPS_HEARTBEAT, request, context, request.group, here
        )

    # --- offsets -------------------------------------------------------------------------------

    async def commit_offsets(
        self, request: pb.CommitOffsetsRequest, context: CallContext
    ) -> pb.CommitOffsetsResponse:
        """Store a group's committed offsets, each with its own result."""
        check_text("group", request.group)
        check_text("member_id", request.member_id)
        check_offsets(request.offsets)
        self._check_group(AclOperation.READ, request.group, context)

        async def here() -> pb.CommitOffsetsResponse:
            image, errors = self._image, [errors_pb2.Error() for _ in request.offsets]
            wanted: list[tuple[int, OffsetToCommit]] = []
            for index, offset in enumerate(request.offsets):
                try:
                    check_read(self._authorizer, image, offset, context)
                    wanted.append((index, read_offset(image, offset)))
                except QuorumlogError as refused:
                    errors[index] = encode_error(refused)
            for part in _slices(wanted):
                topics = (offset.topic for _, offset in part)
                self._check_step(AclOperation.READ, request.group, topics, context)
                asked = read_commit(request, [offset for _, offset in part])
                stored = await self._groups.ask(
                    asked, deadline_ms=self._forwarder.deadline_ms(context)
                )
                for (index, _), failure in zip(part, stored.errors, strict=True):
                    errors[index] = error_message(failure)
            return pb.CommitOffsetsResponse(
                results=[
                    pb.OffsetResult(offset=offset, error=failure if failure.name else None)
                    for offset, failure in zip(request.offsets, errors, strict=True)
                ]
            )

        return await self._forwarder.at_coordinator(
            GROUPS_COMMIT_OFFSETS, request, context, request.group, here
        )

    async def fetch_offsets(
        self, request: pb.FetchOffsetsRequest, context: CallContext
    ) -> pb.FetchOffsetsResponse:
        """Return committed offsets."""
        check_text("group", request.group)
        check_text("member_id", request.member_id)
        if request.partitions:
            _check_places(request.partitions)
        self._check_group(AclOperation.DESCRIBE, request.group, context)

        async def here() -> pb.FetchOffsetsResponse:
            places = tuple((part.topic, part.partition) for part in request.partitions)
            asked = read_fetch(request, places or None)
            found = await self._groups.ask(asked, deadline_ms=self._forwarder.deadline_ms(context))
            return pb.FetchOffsetsResponse(
                results=[
                    result
                    for each in found
                    if (result := self._offset_result(each, context, named=bool(places)))
                ]
            )

        return await self._forwarder.at_coordinator(
            GROUPS_FETCH_OFFSETS, request, context, request.group, here
        )

    async def delete_offsets(
        self, request: pb.DeleteOffsetsRequest, context: CallContext
    ) -> pb.DeleteOffsetsResponse:
        """Delete committed offsets, each with its own result."""
        check_text("group", request.group)
        _check_places(request.partitions)
        self._check_group(AclOperation.DELETE, request.group, context)

        async def here() -> pb.DeleteOffsetsResponse:
            errors = [errors_pb2.Error() for _ in request.partitions]
            wanted: list[tuple[int, tuple[str, int]]] = []
            for index, each in enumerate(request.partitions):
                try:
                    self._authorizer.check(context.client, *_READ_TOPIC, each.topic)
                    wanted.append((index, (each.topic, each.partition)))
                except QuorumlogError as refused:
                    errors[index] = encode_error(refused)
            for part in _slices(wanted):
                topics = (topic for _, (topic, _) in part)
                self._check_step(AclOperation.DELETE, request.group, topics, context)
                asked = DeleteOffsets(
                    group=request.group, partitions=tuple(place for _, place in part)
                )
                with recorded(self._audit, context.client, asked):
                    done = await self._groups.ask(
                        asked, deadline_ms=self._forwarder.deadline_ms(context)
                    )
                for (index, _), failure in zip(part, done.errors, strict=True):
                    errors[index] = error_message(failure)
            return pb.DeleteOffsetsResponse(errors=errors)

        return await self._forwarder.at_coordinator(
            GROUPS_DELETE_OFFSETS, request, context, request.group, here
        )

    # --- listing, describing, deleting ---------------------------------------------------------

    async def list_groups(
        self, request: pb.ListGroupsRequest, context: CallContext
    ) -> pb.ListGroupsResponse:
        """Return the groups of all brokers; the response names the brokers that failed."""
        if len(request.states) + len(request.types) > NAMES_MAX:
            raise InvalidRequest(f"states and types: more than {NAMES_MAX} entries; give fewer")
        if context.is_forwarded:
            return await self._listed_here(request, context)
        answers, errors = await self._forwarder.at_all_brokers(
            "groups", GROUPS_LIST, request, context, lambda: self._listed_here(request, context)
        )
        groups = sorted(
            (line for answer in answers for line in answer.groups), key=lambda line: line.group
        )
        return pb.ListGroupsResponse(groups=groups, errors=errors)

    async def describe_groups(
        self, request: pb.DescribeGroupsRequest, context: CallContext
    ) -> pb.DescribeGroupsResponse:
        """Describe each group, with its own result."""

        async def here(name: str) -> pb.GroupDescription:
            self._check_any_group(name)
            asked = DescribeGroup(group=name)
            found = await self._groups.ask(asked, deadline_ms=self._forwarder.deadline_ms(context))
            described = group_description(self._image, found, self._node_id)
            topics = topics_of(described)
            self._authorizer.check_description(context.client, f"group {name}", topics)
            return described

        async def there(
            forward: ForwardedCall, names: Sequence[str]
        ) -> Iterable[pb.GroupDescription]:
            asked = pb.DescribeGroupsRequest(groups=names)
            return (await forward(GROUPS_DESCRIBE, asked)).groups

        found = await self._forwarder.at_coordinators(
            "groups",
            request.groups,
            context,
            here,
            there,
            check=lambda name: self._check_group(AclOperation.DESCRIBE, name, context),
            is_here=not self._groups.has_topic,
        )
        return pb.DescribeGroupsResponse(
            groups=[
                pb.GroupDescription(listing=pb.GroupListing(group=name), error=encode_error(each))
                if isinstance(each, QuorumlogError)
                else each
                for name, each in zip(request.groups, found, strict=True)
            ]
        )

    async def delete_groups(
        self, request: pb.DeleteGroupsRequest, context: CallContext
    ) -> pb.DeleteGroupsResponse:
        """Delete each group, with its own result."""
        if len(request.groups) <= NAMES_MAX and len(set(request.groups)) < len(request.groups):
            raise InvalidRequest("groups: a group is named twice; name each once")

        async def here(name: str) -> errors_pb2.Error:
            self._check_any_group(name)
            asked = DeleteGroup(group=name)
            with recorded(self._audit, context.client, asked):
                await self._groups.ask(asked, deadline_ms=self._forwarder.deadline_ms(context))
            return errors_pb2.Error()

        async def there(forward: ForwardedCall, names: Sequence[str]) -> Iterable[errors_pb2.Error]:
            asked = pb.DeleteGroupsRequest(groups=names)
            return (await forward(GROUPS_DELETE, asked)).errors

        found = await self._forwarder.at_coordinators(
            "groups",
            request.groups,
            context,
            here,
            there,
            check=lambda name: self._check_group(AclOperation.DELETE, name, context),
            is_here=not self._groups.has_topic,
        )
        return pb.DeleteGroupsResponse(
            errors=[
                encode_error(each) if isinstance(each, QuorumlogError) else each for each in found
            ]
        )

    async def _listed_here(
        self, request: pb.ListGroupsRequest, context: CallContext
    ) -> pb.ListGroupsResponse:
        states = {state.lower() for state in request.states}
        types = {kind.lower() for kind in request.types}
        found = await self._groups.list_groups(
            lambda name: self._authorizer.describes_group(context.client, name)
        )
        lines = (
            group_listing(each, self._node_id)
            for each in found
            if not states or each.state.lower() in states
        )
        return pb.ListGroupsResponse(
            groups=[line for line in lines if not types or line.type in types]
        )

    def _check_any_group(self, name: str) -> None:
        """Raise GroupNotFound if there are no groups: a request to the coordinator would create
        the topic."""
        if not self._groups.has_topic:
            raise GroupNotFound(f"group {name}: it does not exist; the cluster has no groups")

    # --- authorization -------------------------------------------------------------------------

    def _may_describe(self, topic: str, context: CallContext) -> bool:
        """Return True for a topic that the client may describe, and for the empty name of a
        deleted one. Report a denial: another member has the topic by the same pattern."""
        denial = self._authorizer.denial(context.client, *_DESCRIBE_TOPIC, topic) if topic else None
        return denial is None

    def _check_group(self, operation: AclOperation, group: str, context: CallContext) -> None:
        self._authorizer.check(context.client, operation, AclResourceType.GROUP, group)

    def _check_step(
        self, operation: AclOperation, group: str, topics: Iterable[str], context: CallContext
    ) -> None:
        """Check session and rights before a step of a request about offsets, after a wait."""
        context.check_session()
        self._check_group(operation, group, context)
        for topic in sorted(set(topics)):
            self._authorizer.check(context.client, *_READ_TOPIC, topic)

    def _offset_result(
        self, stored: StoredOffset, context: CallContext, *, named: bool
    ) -> pb.OffsetResult | None:
        """Return a committed offset. For a topic that the client may not describe: an error if the
        request names it, otherwise None."""
        denial = self._authorizer.denial(context.client, *_DESCRIBE_TOPIC, stored.topic)
        if denial is None:
            return offset_result(self._image, stored)
        if not named:
            return None
        return pb.OffsetResult(
            offset=pb.CommittedOffset(topic=stored.topic, partition=stored.partition),
            error=encode_error(denial),
        )

    @property
    def _image(self) -> MetadataImage:
        return self._metadata.image


def _slices(parts: Sequence[T]) -> Iterable[Sequence[T]]:
    for begin in range(0, len(parts), PARTS_A_REQUEST):
        yield parts[begin : begin + PARTS_A_REQUEST]


def _check_heartbeat(request: pb.GroupHeartbeatRequest) -> None:
    if not request.member_id:
        raise InvalidRequest("member_id: empty; choose a UUID, as text")
    for field in ("group", "member_id", "instance_id", "rack", "assignor", "client_id"):
        check_text(field, getattr(request, field))
    check_text("subscription.pattern", request.subscription.pattern)
    if not 0 <= request.rebalance_timeout_ms <= REBALANCE_TIMEOUT_MS_MAX:
        raise InvalidRequest(
            f"rebalance_timeout_ms: {request.rebalance_timeout_ms}; give"
            f" 1..{REBALANCE_TIMEOUT_MS_MAX}, or 0 to leave it unchanged"
        )
    if len(request.subscription.topics) > NAMES_MAX:
        raise InvalidRequest(
            f"subscription: {len(request.subscription.topics)} topics; the limit is {NAMES_MAX}"
        )
    for topic in request.subscription.topics:
        check_text("subscription.topics", topic)
    if request.owned.partitions:
        check_place_count("owned", len(request.owned.partitions), limit=OWNED_MAX)
    for part in request.owned.partitions:
        check_topic_id(part.topic_id)


def _check_places(partitions: Sequence[pb.GroupPartition]) -> None:
    check_place_count("partitions", len(partitions))
    for part in partitions:
        check_partition(part.topic, part.partition)
    check_places("partitions", [(part.topic, part.partition) for part in partitions])


def check_read(
    authorizer: Authorizer, image: MetadataImage, offset: pb.CommittedOffset, context: CallContext
) -> None:
    """Raise TopicAuthorizationFailed unless the client may read the topic of an offset, whether or
    not the topic exists. An unknown topic id passes."""
    if offset.topic:
        authorizer.check(context.client, *_READ_TOPIC, offset.topic)
        return
    topic = image.topic_of_id(offset.topic_id)
    if topic is not None:
        authorizer.check_topic_of_id(context.client, AclOperation.READ, topic.name)


def check_offsets(offsets: Sequence[pb.CommittedOffset]) -> None:
    if not 1 <= len(offsets) <= PARTITIONS_MAX:
        raise InvalidRequest(f"offsets: {len(offsets)} entries; give 1..{PARTITIONS_MAX}")
    for offset in offsets:
        check_topic_id(offset.topic_id)
        check_text("note", offset.note)
        if offset.offset < 0:
            raise InvalidRequest(
                f"offset: {offset.offset} is negative; give 0 or more",
                topic=offset.topic,
                partition=offset.partition,
            )
