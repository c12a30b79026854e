"""Users of a node with passwords and ACLs, set without an authorized client."""

from typing import Any

from quorumlog.metadata import AlterScramCredentials, CreateAcls, RelayedCommand
from quorumlog.metadata.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ResourcePattern,
)
from quorumlog.metadata.scram_credentials import ScramMechanism, credential_of_password
from quorumlog.server.node import Node

from .node import WAIT_MS

UNCHECKED = 2**62
"""A value for `authorized_offset`: no change of ACLs or credentials rejects the command."""
SALT = b"0123456789abcdef"
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


async def set_password(
    node: Node,
    user: str,
    password: str,
    mechanism: ScramMechanism = SHA_256,
    *,
    salt: bytes = SALT,
    iterations: int = 4_096,
) -> None:
    """Set a user's password; return when the node has applied it."""
    credential = credential_of_password(mechanism, password, salt=salt, iterations=iterations)
    await _alter(node, AlterScramCredentials(upsertions=(((user, mechanism), credential),)))


async def remove_user(node: Node, user: str, mechanism: ScramMechanism = SHA_256) -> None:
    """Delete a user's credential; return when the node has applied it."""
    await _alter(node, AlterScramCredentials(deletions=((user, mechanism),)))


async def add_acl(
    node: Node,
    principal: str,
    operation: AclOperation,
    kind: AclResourceType,
    name: str = CLUSTER_NAME,
    *,
    host: str = "*",
    permission: AclPermission = AclPermission.ALLOW,
) -> None:
    """Allow or deny an operation to a principal; return when the node has applied it."""
    pattern = ResourcePattern(kind, name, AclPatternType.LITERAL)
    acl = Acl(pattern, principal, host, operation, permission)
    await _alter(node, CreateAcls(acls=(acl,)))


async def _alter(node: Node, command: RelayedCommand[Any]) -> None:
    session, publisher = node.parts.session, node.parts.publisher
    assert session is not None
    assert publisher is not None
    done = await session.submit(command, timeout_ms=WAIT_MS, authorized_offset=UNCHECKED)
    await publisher.wait_applied(done.offset, timeout_ms=WAIT_MS)
