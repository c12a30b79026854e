"""ACLs of a node, set without an authorized client."""

from collections.abc import Collection

from tests.kit.node import WAIT_MS
from tests.kit.users import UNCHECKED

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
    """Replace the ACLs by those that the needs require on the resources of a name."""
    session, publisher = node.parts.session, node.parts.publisher
    assert session is not None
    assert publisher is not None
    everything = DeleteAcls(filters=(AclFilter(),))
    await session.submit(everything, timeout_ms=WAIT_MS, authorized_offset=UNCHECKED)
    acls = tuple(_acl(principal, name, *need) for need in needs)
    command = CreateAcls(acls=acls)
    done = await session.submit(command, timeout_ms=WAIT_MS, authorized_offset=UNCHECKED)
    await publisher.wait_applied(done.offset, timeout_ms=WAIT_MS)


def _acl(principal: str, name: str, operation: AclOperation, kind: AclResourceType) -> Acl:
    if kind is AclResourceType.CLUSTER:
        name = CLUSTER_NAME
    pattern = ResourcePattern(kind, name, AclPatternType.LITERAL)
    return Acl(pattern, principal, "*", operation, AclPermission.ALLOW)
