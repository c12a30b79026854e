"""Access control lists: their types, their checks, and the table of them in the image.

Types, names and numbers are those of Apache Kafka (KIP-11, KIP-290). `authorization` decides with
them.
"""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias, TypeVar

from immutables import Map

from ..errors import InvalidRequest
from ..proto import metadata_records_pb2 as pb

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""

WILDCARD: Final = "*"
"""As a literal resource name and as a host: all of them."""

USER_TYPE: Final = "User"
"""The type of every principal."""

EVERY_PRINCIPAL: Final = f"{USER_TYPE}:{WILDCARD}"

NAME_MAX: Final = 1_024
"""The maximum length of a principal or resource name, in characters."""

ACLS_MAX: Final = 50_000
"""The maximum number of ACLs, which each node holds."""

PRINCIPAL_ACLS_MAX: Final = 5_000
"""The maximum number of ACLs of one principal, which are sorted in one step."""


class AclResourceType(IntEnum):
    """A type of resource. ANY is for filters only."""

    __hash__ = int.__hash__  # each decision hashes it; Enum's own is slow

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPatternType(IntEnum):
    """The relation between an ACL's resource name and the resources. ANY and MATCH are for filters
    only."""

    ANY = 1
    MATCH = 2  # the patterns that select the resource of this name
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """An operation on a resource. ANY is for filters only."""

    __hash__ = int.__hash__  # each decision hashes it; Enum's own is slow

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """The effect of an ACL. ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


AclEnum: TypeAlias = AclResourceType | AclPatternType | AclOperation | AclPermission

_E = TypeVar("_E", AclResourceType, AclPatternType, AclOperation, AclPermission)


class ResourcePattern(NamedTuple):
    """The resources that an ACL is about."""

    type: AclResourceType
    name: str
    pattern: AclPatternType  # LITERAL or PREFIXED

    def selects(self, name: str) -> bool:
        """Return True if the pattern selects the resource of this name and its type."""
        if self.pattern is AclPatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def __str__(self) -> str:
        prefix = "prefixed " if self.pattern is AclPatternType.PREFIXED else ""
        return f"{prefix}{name_of(self.type)} {self.name}"


class Acl(NamedTuple):
    """An access control list entry with its resources (Kafka's AclBinding)."""

    resource: ResourcePattern
    principal: str  # "User:alice"; EVERY_PRINCIPAL
    host: str  # an IP address or WILDCARD
    operation: AclOperation
    permission: AclPermission

    def __str__(self) -> str:
        host = "" if self.host == WILDCARD else f" from {self.host}"
        return (
            f"{name_of(self.permission)} {self.principal} {name_of(self.operation)}"
            f" {self.resource}{host}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """A condition on ACLs; ANY and None match everything."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    pattern_type: AclPatternType = AclPatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def matches(self, acl: Acl) -> bool:
        """Return True if the ACL meets every part of the condition."""
        return (
            self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
            and self._matches_resource(acl.resource)
        )

    def _matches_resource(self, resource: ResourcePattern) -> bool:
        if self.resource_type not in (AclResourceType.ANY, resource.type):
            return False
        if self.pattern_type not in (AclPatternType.ANY, AclPatternType.MATCH, resource.pattern):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type is AclPatternType.MATCH:
            return resource.selects(self.resource_name)
        return resource.name == self.resource_name


PrincipalAcls: TypeAlias = Map[Acl, None]
"""The set of one principal's ACLs."""


@dataclass(frozen=True, slots=True)
class AclTable:
    """All ACLs. A change of one principal's ACLs leaves the sets of the others as they are, so that
    decisions for them stay cached."""

    by_principal: Map[str, PrincipalAcls] = field(default_factory=Map)  # no empty sets
    counts: Map[ResourcePattern, int] = field(default_factory=Map)  # of ACLs, > 0
    count: int = 0

    def __contains__(self, acl: Acl) -> bool:
        return acl in self.by_principal.get(acl.principal, _NO_ACLS)

    def with_acl(self, acl: Acl) -> "AclTable":
        """Return the table with an ACL that it does not contain."""
        acls = self.by_principal.get(acl.principal, _NO_ACLS).set(acl, None)
        return AclTable(
            self.by_principal.set(acl.principal, acls),
            self.counts.set(acl.resource, self.counts.get(acl.resource, 0) + 1),
            self.count + 1,
        )

    def without(self, acl: Acl) -> "AclTable":
        """Return the table without an ACL that it contains."""
        acls = self.by_principal[acl.principal].delete(acl)
        left = self.counts[acl.resource] - 1
        return AclTable(
            self.by_principal.set(acl.principal, acls)
            if acls
            else self.by_principal.delete(acl.principal),
            self.counts.set(acl.resource, left) if left else self.counts.delete(acl.resource),
            self.count - 1,
        )

    def acls_of(self, principal: str) -> PrincipalAcls:
        """Return the set of a principal's ACLs."""
        return self.by_principal.get(principal, _NO_ACLS)

    def has_acl_for(self, kind: AclResourceType, name: str) -> bool:
        """Return True if an ACL of any principal selects the resource."""
        literal = ((name, AclPatternType.LITERAL), (WILDCARD, AclPatternType.LITERAL))
        prefixes = ((name[:size], AclPatternType.PREFIXED) for size in range(1, len(name) + 1))
        return any(ResourcePattern(kind, *each) in self.counts for each in (*literal, *prefixes))

    def visit(self, condition: AclFilter) -> Iterator[Acl | None]:
        """Yield the ACLs that match, ordered by principal, then by resource; None for each visited
        ACL, so that the caller can work in steps."""
        if condition.principal is None:
            principals = sorted(self.by_principal)
        else:
            principals = [condition.principal]
        for principal in principals:
            matching = []
            for acl in self.acls_of(principal):
                if condition.matches(acl):
                    matching.append(acl)
                yield None
            yield from sorted(matching)


_NO_ACLS: Final[PrincipalAcls] = Map()

# --- checks and text -----------------------------------------------------------------------------


def check_acl(acl: Acl) -> Acl:
    """Return a valid ACL in canonical form. Raise InvalidRequest for a value that only filters may
    have, and for an invalid name, principal or host."""
    resource = acl.resource
    if resource.type is AclResourceType.ANY:
        raise InvalidRequest("acl: the resource type is ANY; give one type")
    if resource.pattern not in (AclPatternType.LITERAL, AclPatternType.PREFIXED):
        raise InvalidRequest(
            f"acl: the pattern type is {resource.pattern.name}; give LITERAL or PREFIXED"
        )
    if acl.operation is AclOperation.ANY:
        raise InvalidRequest("acl: the operation is ANY; give one operation, or ALL")
    if acl.permission is AclPermission.ANY:
        raise InvalidRequest("acl: the permission is ANY; give ALLOW or DENY")
    check_name("resource name", resource.name)
    if resource.type is AclResourceType.CLUSTER and resource.name != CLUSTER_NAME:
        raise InvalidRequest(
            f"acl: the cluster is named {resource.name[:NAME_MAX]!r}; give {CLUSTER_NAME!r}"
        )
    check_principal(acl.principal)
    return acl._replace(host=canonical_host(acl.host))


def check_filter(condition: AclFilter) -> AclFilter:
    """Return a valid filter in canonical form; raise InvalidRequest for an invalid principal, host
    or name."""
    if condition.resource_name is not None:
        check_name("resource name", condition.resource_name)
    if condition.principal is not None:
        check_principal(condition.principal)
    host = None if condition.host is None else canonical_host(condition.host)
    return AclFilter(
        resource_type=condition.resource_type,
        resource_name=condition.resource_name,
        pattern_type=condition.pattern_type,
        principal=condition.principal,
        host=host,
        operation=condition.operation,
        permission=condition.permission,
    )


def check_principal(principal: str) -> None:
    """Raise InvalidRequest unless the principal is "User:" and a name."""
    kind, _, name = principal.partition(":")
    if kind != USER_TYPE or not name:
        raise InvalidRequest(
            f"principal {principal[:NAME_MAX]!r} is not valid; give {USER_TYPE}:NAME, or"
            f" {EVERY_PRINCIPAL} for every principal"
        )
    check_name("principal", principal)


def canonical_host(host: str) -> str:
    """Return an IP address in its shortest form, WILDCARD as it is; raise InvalidRequest for any
    other host. An IPv4 address mapped to IPv6 becomes the IPv4 address."""
    if host == WILDCARD:
        return host
    try:
        address = ipaddress.ip_address(host)
    except ValueError as error:
        raise InvalidRequest(
            f"host {host[:NAME_MAX]!r} is not an IP address; give an address, or {WILDCARD} for"
            " every host"
        ) from error
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def host_of(text: str) -> str:
    """Return the host of a connection as ACLs have it: an IP address in its shortest form, or the
    name of a simulated node."""
    host = text.strip("[]")
    try:
        return canonical_host(host)
    except InvalidRequest:
        return host


def name_of(value: AclEnum) -> str:
    """Return the name of an enum's value as in ACL tools: "TransactionalId"."""
    return "".join(part.capitalize() for part in value.name.split("_"))


def enum_of(kind: type[_E], number: int) -> _E:
    """Return the value of a number of the protocol; raise InvalidRequest."""
    try:
        return kind(number)
    except ValueError as error:
        raise InvalidRequest(
            f"unknown {kind.__name__} {number}; this release supports {min(kind):d}..{max(kind):d}"
        ) from error


def check_name(thing: str, name: str) -> None:
    """Raise InvalidRequest for an empty or too long name."""
    if not 1 <= len(name) <= NAME_MAX:
        raise InvalidRequest(f"acl: the {thing} has {len(name)} characters; give 1..{NAME_MAX}")
    if not name.isprintable():
        raise InvalidRequest(f"acl: the {thing} {name!r} has characters that are not printable")


# --- messages ------------------------------------------------------------------------------------


def acl_message(acl: Acl) -> pb.Acl:
    """Return the message of an ACL."""
    message = pb.Acl()
    fill_acl(message, acl)
    return message


def fill_acl(message: pb.Acl, acl: Acl) -> None:
    """Set the fields of an empty message from an ACL."""
    kind, name, pattern = acl.resource
    message.resource_type = int(kind)  # type: ignore[assignment]
    message.resource_name = name
    message.pattern_type = int(pattern)  # type: ignore[assignment]
    message.principal = acl.principal
    message.host = acl.host
    message.operation = int(acl.operation)  # type: ignore[assignment]
    message.permission = int(acl.permission)  # type: ignore[assignment]


def acl_of(message: pb.Acl) -> Acl:
    """Return the ACL of a message, not checked; raise InvalidRequest for an unknown number."""
    return Acl(
        ResourcePattern(
            enum_of(AclResourceType, message.resource_type),
            message.resource_name,
            enum_of(AclPatternType, message.pattern_type),
        ),
        message.principal,
        message.host,
        enum_of(AclOperation, message.operation),
        enum_of(AclPermission, message.permission),
    )
