"""Decisions by ACLs: may a principal do an operation on a resource? Pure.

The rules are those of Apache Kafka's StandardAuthorizer (KIP-11, KIP-290, KIP-679). A DENY takes
precedence over every ALLOW. An ALLOW of Read, Write, Delete or Alter implies Describe, and one of
AlterConfigs implies DescribeConfigs; a DENY implies nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ..errors import InvalidRequest
from .acls import (
    WILDCARD,
    Acl,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    AclTable,
    PrincipalAcls,
    ResourcePattern,
    canonical_host,
    check_name,
    check_principal,
    name_of,
)

IMPLIED_BY: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    AclOperation.DESCRIBE: frozenset(
        (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset((AclOperation.ALTER_CONFIGS,)),
}
"""The operations that imply an operation if they are allowed."""


class Action(NamedTuple):
    """An operation of a principal on a resource, from a host."""

    principal: str
    host: str
    operation: AclOperation
    type: AclResourceType
    name: str  # of the resource; for `decide_by_type` not used


def check_action(action: Action) -> Action:
    """Return a valid action in canonical form. Raise InvalidRequest for an invalid principal, host
    or name, and for an operation or a type that only ACLs or filters may have."""
    if action.operation in (AclOperation.ANY, AclOperation.ALL):
        raise InvalidRequest(f"the operation is {action.operation.name}; give one operation")
    if action.type is AclResourceType.ANY:
        raise InvalidRequest("the resource type is ANY; give one type")
    check_principal(action.principal)
    check_name("resource name", action.name)
    return action._replace(host=canonical_host(action.host) if action.host else "")


class Verdict(NamedTuple):
    """A decision and its cause. With neither of the causes no ACL decided."""

    is_allowed: bool
    acl: Acl | None = None  # that decided
    is_super_user: bool = False

    def reason(self, action: Action) -> str:
        """Return the cause of the decision for an action, as a clause."""
        if self.is_super_user:
            return f"{action.principal} is a super user"
        if self.acl is not None:
            return f"{'allowed' if self.is_allowed else 'denied'} by: {self.acl}"
        if self.is_allowed:
            return "no ACL selects the resource, and allow.everyone.if.no.acl.found is true"
        return (
            f"no ACL allows {action.principal} {name_of(action.operation)} {name_of(action.type)}"
            f" {action.name} from {action.host or 'any address'}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizerConfig:
    """Settings of a node's authorizer."""

    super_users: frozenset[str] = frozenset()  # principals that may do everything
    allow_everyone_if_no_acl_found: bool = False  # decides if no ACL selects the resource


class CompiledAcls:
    """One principal's ACLs, arranged for decisions."""

    __slots__ = ("_by_pattern", "_prefix_sizes")

    def __init__(self, acls: PrincipalAcls) -> None:
        self._by_pattern: dict[ResourcePattern, list[Acl]] = {}
        for acl in acls:
            self._by_pattern.setdefault(acl.resource, []).append(acl)
        sizes: dict[AclResourceType, set[int]] = {}
        for pattern in self._by_pattern:
            if pattern.pattern is AclPatternType.PREFIXED:
                sizes.setdefault(pattern.type, set()).add(len(pattern.name))
        self._prefix_sizes = {kind: sorted(found) for kind, found in sizes.items()}

    def on(self, kind: AclResourceType, name: str) -> Iterator[Acl]:
        """Yield the ACLs that select a resource."""
        if not self._by_pattern:
            return
        find = self._by_pattern.get
        yield from find(ResourcePattern(kind, name, AclPatternType.LITERAL), ())
        if name != WILDCARD:
            yield from find(ResourcePattern(kind, WILDCARD, AclPatternType.LITERAL), ())
        for size in self._prefix_sizes.get(kind, ()):
            if size > len(name):
                break
            yield from find(ResourcePattern(kind, name[:size], AclPatternType.PREFIXED), ())

    def on_type(self, kind: AclResourceType) -> Iterator[Acl]:
        """Yield the ACLs on resources of a type."""
        for pattern, acls in self._by_pattern.items():
            if pattern.type is kind:
                yield from acls


ActingAcls: TypeAlias = tuple[CompiledAcls, CompiledAcls]
"""The ACLs of a principal, and those of EVERY_PRINCIPAL."""


def decide_by_acls(
    table: AclTable, acting: ActingAcls, action: Action, config: AuthorizerConfig
) -> Verdict:
    """Return the decision for an action."""
    if action.principal in config.super_users:
        return Verdict(is_allowed=True, is_super_user=True)
    allowing: Acl | None = None
    for acls in acting:
        for acl in acls.on(action.type, action.name):
            if not _applies(acl, action):
                continue
            if acl.permission is AclPermission.DENY:
                return Verdict(is_allowed=False, acl=acl)
            allowing = allowing or acl
    if allowing is not None:
        return Verdict(is_allowed=True, acl=allowing)
    is_open = config.allow_everyone_if_no_acl_found
    return Verdict(is_allowed=is_open and not table.has_acl_for(action.type, action.name))


def decide_by_type(acting: ActingAcls, action: Action, config: AuthorizerConfig) -> bool:
    """Return True if the principal may do the operation on any resource of the type (KIP-679). An
    ALLOW counts unless a DENY selects all that it selects."""
    if action.principal in config.super_users:
        return True
    denied: set[ResourcePattern] = set()
    allowed: set[ResourcePattern] = set()
    for acls in acting:
        for acl in acls.on_type(action.type):
            if _applies(acl, action):
                is_denial = acl.permission is AclPermission.DENY
                (denied if is_denial else allowed).add(acl.resource)
    if ResourcePattern(action.type, WILDCARD, AclPatternType.LITERAL) in denied:
        return False
    if config.allow_everyone_if_no_acl_found and not allowed:
        return True
    return any(not _is_covered(each, denied) for each in allowed)


def _is_covered(allowed: ResourcePattern, denied: set[ResourcePattern]) -> bool:
    """Return True if a denied pattern selects everything that the allowed one selects."""
    if allowed in denied:
        return True
    if allowed.pattern is AclPatternType.LITERAL and allowed.name == WILDCARD:
        return False
    prefixes = (allowed.name[:size] for size in range(1, len(allowed.name) + 1))
    return any(
        ResourcePattern(allowed.type, each, AclPatternType.PREFIXED) in denied for each in prefixes
    )


def _applies(acl: Acl, action: Action) -> bool:
    if acl.host not in (WILDCARD, action.host):
        return False
    if acl.operation in (AclOperation.ALL, action.operation):
        return True
    return acl.permission is AclPermission.ALLOW and acl.operation in IMPLIED_BY.get(
        action.operation, ()
    )
