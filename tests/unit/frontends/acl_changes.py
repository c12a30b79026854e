"""ACLs of a node, set without a client that is authorized for it."""

from collections.abc import Collection

from tests.kit.node import WAIT_MS

from quorumlog.metadata import CreateAcls, DeleteAcls
from quorumlog.metadata.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ResourcePattern,
)
from quorumlog.server.node import Node


async def allow(
    node: Node,
    needs: Collection[tuple[AclOperation, AclResourceType]],
    *,
    principal: str = "User:ANONYMOUS",
    name: str = "secret",
) -> None:
    """Replace the ACLs by those of the needs on the resources of a name."""
    session, publisher = node.parts.session, node.parts.publisher
    assert session is not None
    assert publisher is not None
    await session.submit(DeleteAcls(filters=(AclFilter(),)), timeout_ms=WAIT_MS)
    acls = tuple(_acl(principal, name, *need) for need in needs)
    done = await session.submit(CreateAcls(acls=acls), timeout_ms=WAIT_MS)
    await publisher.wait_applied(done.offset, timeout_ms=WAIT_MS)


def _acl(principal: str, name: str, operation: AclOperation, kind: AclResourceType) -> Acl:
    if kind is AclResourceType.CLUSTER:
        name = CLUSTER_NAME
    pattern = ResourcePattern(kind, name, AclPatternType.LITERAL)
    return Acl(pattern, principal, "*", operation, AclPermission.ALLOW)
