"""The service `Groups`. Its methods are imported at the first call, so that a broker without groups
starts without them (`group_calls`)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...api.audit import AuditLog
from ...api.authorizer import Authorizer
from ...broker.groups.shell import GroupCoordinator
from ...ids import NodeId
from ...metadata.shell.publisher import MetadataPublisher
from ...runtime import CallContext, Handler, Runtime
from ...services import (
    GROUPS_COMMIT_OFFSETS,
    GROUPS_DELETE,
    GROUPS_DELETE_OFFSETS,
    GROUPS_DESCRIBE,
    GROUPS_FETCH_OFFSETS,
    GROUPS_HEARTBEAT,
    GROUPS_LIST,
)

if TYPE_CHECKING:
    from .group_calls import GroupCalls


class GroupsService:
    """Handlers of `quorumlog.v1.Groups`."""

    def __init__(
        self,
        runtime: Runtime,
        groups: GroupCoordinator,
        metadata: MetadataPublisher,
        authorizer: Authorizer,
        *,
        node_id: NodeId,
        audit: AuditLog | None = None,
    ) -> None:
        """`audit` records deletions."""
        self._runtime = runtime
        self._audit = audit
        self._groups = groups
        self._metadata = metadata
        self._authorizer = authorizer
        self._node_id = node_id
        self._calls: GroupCalls | None = None

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (
            Handler(GROUPS_HEARTBEAT, self._later("heartbeat")),
            Handler(GROUPS_COMMIT_OFFSETS, self._later("commit_offsets")),
            Handler(GROUPS_FETCH_OFFSETS, self._later("fetch_offsets")),
            Handler(GROUPS_DELETE_OFFSETS, self._later("delete_offsets")),
            Handler(GROUPS_LIST, self._later("list_groups")),
            Handler(GROUPS_DESCRIBE, self._later("describe_groups")),
            Handler(GROUPS_DELETE, self._later("delete_groups")),
        )
        return {handler.method.path: handler for handler in table}

    def _later(self, name: str) -> Callable[[Any, CallContext], Awaitable[Any]]:
        """Return a handler that looks up the method of `GroupCalls` when it is called."""

        async def handle(request: Any, context: CallContext) -> Any:
            return await getattr(self._loaded(), name)(request, context)

        return handle

    def _loaded(self) -> "GroupCalls":
        if self._calls is None:
            from .group_calls import GroupCalls

            self._calls = GroupCalls(
                self._runtime,
                self._groups,
                self._metadata,
                self._authorizer,
                node_id=self._node_id,
                audit=self._audit,
            )
        return self._calls
