"""Access control lists and users' passwords of the admin client.

Values are texts as in Apache Kafka's tools: "Topic", "DescribeConfigs", "Allow". They are read
without regard to case, "-" and "_".
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...errors import (
    InvalidRequest,
    NotImplementedHere,
    QuorumlogError,
    UnacceptableCredential,
)
from ...proto import admin_pb2 as pb
from ...proto import metadata_records_pb2 as records
from ...runtime.error_detail import decode_error
from ...scram_keys import ITERATIONS_DEFAULT, SALT_BYTES, keys_of_password
from ...services import (
    ADMIN_ALTER_SCRAM_CREDENTIALS,
    ADMIN_CREATE_ACLS,
    ADMIN_DELETE_ACLS,
    ADMIN_DESCRIBE_ACLS,
    ADMIN_DESCRIBE_SCRAM_CREDENTIALS,
    ADMIN_EXPLAIN_AUTHORIZATION,
)
from ..connection import Connection
from ..topology import invalid_response

CLUSTER: Final = "kafka-cluster"
"""The only name of the resource type Cluster."""

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NUMBERS: Final = {
    "SCRAM-SHA-256": records.SCRAM_MECHANISM_SHA_256,
    "SCRAM-SHA-512": records.SCRAM_MECHANISM_SHA_512,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """An access control list entry: allows or denies a principal one operation on resources."""

    principal: str  # "User:alice"; "User:*": every principal
    operation: str  # "Read", "Write", "All", ...
    resource_type: str  # "Topic", "Group", "Cluster", "TransactionalId"
    resource: str  # a name, a prefix, or "*"
    pattern: str = "Literal"  # or "Prefixed"
    permission: str = "Allow"  # or "Deny"
    host: str = "*"  # IP address of the client; "*": every address


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """A condition on ACLs; None: any value."""

    principal: str | None = None
    operation: str | None = None
    resource_type: str | None = None
    resource: str | None = None
    pattern: str | None = None  # "Match": the patterns that select the resource
    permission: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user with a password."""

    name: str
    iterations: Mapping[str, int]  # by mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class UserKeys:
    """The salted keys of a user's password for one mechanism (RFC 5802)."""

    user: str
    mechanism: str  # "SCRAM-SHA-256" or "SCRAM-SHA-512"
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"UserKeys(user={self.user!r}, mechanism={self.mechanism!r}, keys hidden)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationDecision:
    """A decision and its reason."""

    is_allowed: bool
    reason: str  # the ACL that decides, or that there is none


# --- ACLs ----------------------------------------------------------------------------------------


async def describe_acls(connection: Connection, condition: AclFilter) -> list[Acl]:
    """Query any broker; see `AsyncAdmin.describe_acls`."""
    request = pb.DescribeAclsRequest(
        filter=_filter_message(condition),
        min_metadata_offset=connection.topology.metadata_offset,
    )
    answer = await connection.call_any(ADMIN_DESCRIBE_ACLS, request)
    connection.topology.record_offset(answer.metadata_offset)
    return list(map(_acl_of, answer.acls))


async def create_acls(connection: Connection, acls: Sequence[Acl]) -> None:
    """Send new ACLs to the controller; idempotent."""
    request = pb.CreateAclsRequest(acls=list(map(_acl_message, acls)))
    answer = await connection.call_any(ADMIN_CREATE_ACLS, request)
    connection.topology.record_offset(answer.metadata_offset)
    _raise_first(answer.results, len(acls))


async def delete_acls(connection: Connection, condition: AclFilter) -> list[Acl]:
    """Send a deletion to the controller; idempotent."""
    request = pb.DeleteAclsRequest(filters=[_filter_message(condition)])
    answer = await connection.call_any(ADMIN_DELETE_ACLS, request)
    connection.topology.record_offset(answer.metadata_offset)
    _raise_first(answer.results, 1)
    return list(map(_acl_of, answer.results[0].acls))


async def explain_authorization(connection: Connection, action: Acl) -> AuthorizationDecision:
    """Query any broker; see `AsyncAdmin.explain_authorization`."""
    request = pb.ExplainAuthorizationRequest(
        principal=action.principal,
        host="" if action.host == "*" else action.host,
        operation=_number(records.AclOperation, "ACL_OPERATION_", "operation", action.operation),
        resource_type=_number(
            records.AclResourceType, "ACL_RESOURCE_TYPE_", "resource_type", action.resource_type
        ),
        resource_name=action.resource,
        min_metadata_offset=connection.topology.metadata_offset,
    )
    answer = await connection.call_any(ADMIN_EXPLAIN_AUTHORIZATION, request)
    return AuthorizationDecision(is_allowed=answer.is_allowed, reason=answer.reason)


def _acl_message(acl: Acl) -> records.Acl:
    return records.Acl(
        resource_type=_number(
            records.AclResourceType, "ACL_RESOURCE_TYPE_", "resource_type", acl.resource_type
        ),
        resource_name=acl.resource,
        pattern_type=_number(records.AclPatternType, "ACL_PATTERN_TYPE_", "pattern", acl.pattern),
        principal=acl.principal,
        host=acl.host,
        operation=_number(records.AclOperation, "ACL_OPERATION_", "operation", acl.operation),
        permission=_number(records.AclPermission, "ACL_PERMISSION_", "permission", acl.permission),
    )


def _filter_message(condition: AclFilter) -> pb.AclFilter:
    return pb.AclFilter(
        resource_type=_number(
            records.AclResourceType,
            "ACL_RESOURCE_TYPE_",
            "resource_type",
            condition.resource_type or "Any",
        ),
        resource_name=condition.resource,
        pattern_type=_number(
            records.AclPatternType, "ACL_PATTERN_TYPE_", "pattern", condition.pattern or "Any"
        ),
        principal=condition.principal,
        host=condition.host,
        operation=_number(
            records.AclOperation, "ACL_OPERATION_", "operation", condition.operation or "Any"
        ),
        permission=_number(
            records.AclPermission, "ACL_PERMISSION_", "permission", condition.permission or "Any"
        ),
    )


def _acl_of(message: records.Acl) -> Acl:
    return Acl(
        principal=message.principal,
        operation=_name(records.AclOperation, "ACL_OPERATION_", message.operation),
        resource_type=_name(records.AclResourceType, "ACL_RESOURCE_TYPE_", message.resource_type),
        resource=message.resource_name,
        pattern=_name(records.AclPatternType, "ACL_PATTERN_TYPE_", message.pattern_type),
        permission=_name(records.AclPermission, "ACL_PERMISSION_", message.permission),
        host=message.host,
    )


def _number(kind: Any, prefix: str, field: str, text: str) -> Any:
    """Return the number of a name; raise InvalidRequest with the names."""
    wanted = text.replace("-", "").replace("_", "").lower()
    for name, number in kind.items():
        if number and name.removeprefix(prefix).replace("_", "").lower() == wanted:
            return number
    offered = ", ".join(_name(kind, prefix, number) for number in kind.values() if number)
    raise InvalidRequest(f"{field} is {text!r}; give one of {offered}")


def _name(kind: Any, prefix: str, number: int) -> str:
    """Return the name of a number as in Kafka's tools; "Unknown7" for one of a later release."""
    try:
        name: str = kind.Name(number)
    except ValueError:
        return f"Unknown{number}"
    return "".join(part.capitalize() for part in name.removeprefix(prefix).split("_"))


# --- users ---------------------------------------------------------------------------------------


async def describe_users(connection: Connection, names: Iterable[str]) -> list[User]:
    """Query any broker; see `AsyncAdmin.describe_users`."""
    request = pb.DescribeScramCredentialsRequest(
        users=names, min_metadata_offset=connection.topology.metadata_offset
    )
    answer = await connection.call_any(ADMIN_DESCRIBE_SCRAM_CREDENTIALS, request)
    connection.topology.record_offset(answer.metadata_offset)
    found: dict[str, dict[str, int]] = {}
    mechanisms = {number: name for name, number in _NUMBERS.items()}
    for each in answer.credentials:
        mechanism = mechanisms.get(each.credential.mechanism, f"{each.credential.mechanism}")
        found.setdefault(each.credential.user, {})[mechanism] = each.iterations
    return [User(name=name, iterations=iterations) for name, iterations in found.items()]


async def describe_scram_keys(connection: Connection) -> list[UserKeys]:
    """Query any broker; see `AsyncAdmin.describe_scram_keys`."""
    request = pb.DescribeScramCredentialsRequest(
        min_metadata_offset=connection.topology.metadata_offset, with_keys=True
    )
    answer = await connection.call_any(ADMIN_DESCRIBE_SCRAM_CREDENTIALS, request)
    connection.topology.record_offset(answer.metadata_offset)
    if not all(each.stored_key for each in answer.credentials):
        raise NotImplementedHere("the broker returns no keys of passwords; upgrade it")
    mechanisms = {number: name for name, number in _NUMBERS.items()}
    return [
        UserKeys(
            user=each.credential.user,
            mechanism=mechanisms.get(each.credential.mechanism, f"{each.credential.mechanism}"),
            salt=each.salt,
            iterations=each.iterations,
            stored_key=each.stored_key,
            server_key=each.server_key,
        )
        for each in answer.credentials
    ]


async def set_scram_keys(connection: Connection, keys: Sequence[UserKeys]) -> None:
    """Send salted keys to the controller; see `AsyncAdmin.set_scram_keys`."""
    request = pb.AlterScramCredentialsRequest(
        upsertions=[
            records.ScramCredentialRecord(
                credential=records.ScramCredentialKey(
                    user=each.user, mechanism=_NUMBERS[_checked(each.mechanism)]
                ),
                salt=each.salt,
                iterations=each.iterations,
                stored_key=each.stored_key,
                server_key=each.server_key,
            )
            for each in keys
        ]
    )
    answer = await connection.call_any(ADMIN_ALTER_SCRAM_CREDENTIALS, request)
    connection.topology.record_offset(answer.metadata_offset)
    _raise_first(answer.results, len({each.user for each in keys}))


async def set_password(
    connection: Connection,
    user: str,
    password: str,
    *,
    mechanisms: Sequence[str],
    iterations: int,
) -> None:
    """Send a user's salted keys to the controller; the password is not sent."""
    request = pb.AlterScramCredentialsRequest(
        upsertions=[
            _credential_message(user, password, _checked(each), iterations) for each in mechanisms
        ]
    )
    await _alter(connection, request)


async def delete_user(connection: Connection, user: str, *, mechanisms: Sequence[str]) -> None:
    """Send the deletion of a user's credentials to the controller."""
    request = pb.AlterScramCredentialsRequest(
        deletions=[
            records.ScramCredentialKey(user=user, mechanism=_NUMBERS[_checked(each)])
            for each in mechanisms
        ]
    )
    await _alter(connection, request)


async def _alter(connection: Connection, request: pb.AlterScramCredentialsRequest) -> None:
    if not (request.deletions or request.upsertions):
        raise InvalidRequest("there is nothing to change: give a mechanism")
    answer = await connection.call_any(ADMIN_ALTER_SCRAM_CREDENTIALS, request)
    connection.topology.record_offset(answer.metadata_offset)
    _raise_first(answer.results, 1)


def _credential_message(
    user: str, password: str, mechanism: str, iterations: int
) -> records.ScramCredentialRecord:
    """Return the keys of a password with a new salt."""
    if iterations < 1:
        raise UnacceptableCredential(
            f"iterations is {iterations}; give {ITERATIONS_DEFAULT} or more"
        )
    salt = os.urandom(SALT_BYTES)
    keys = keys_of_password(_HASHES[mechanism], password, salt=salt, iterations=iterations)
    return records.ScramCredentialRecord(
        credential=records.ScramCredentialKey(user=user, mechanism=_NUMBERS[mechanism]),
        salt=salt,
        iterations=iterations,
        stored_key=keys.stored,
        server_key=keys.server,
    )


def _checked(mechanism: str) -> str:
    if mechanism not in _NUMBERS:
        raise InvalidRequest(f"mechanism is {mechanism!r}; give {' or '.join(MECHANISMS)}")
    return mechanism


def _raise_first(results: Sequence[Any], count: int) -> None:
    """Raise the first error of `count` results."""
    if len(results) != count:
        raise invalid_response(f"returned {len(results)} results for {count} changes")
    errors: list[QuorumlogError] = [
        decode_error(each.error) for each in results if each.HasField("error")
    ]
    if errors:
        raise errors[0]
