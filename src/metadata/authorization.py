"""Decisions by ACLs: may a principal do an operation on a resource? Pure.

The rules are those of Apache Kafka's StandardAuthorizer (KIP-11, KIP-290, KIP-679). A DENY takes
precedence over every ALLOW. An ALLOW of Read, Write, Delete or Alter implies Describe, and one of
AlterConfigs implies DescribeConfigs; a DENY implies nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

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
    """An operation on a resource, from a host."""

    operation: AclOperation
    type: AclResourceType
    name: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A decision and its reason."""

    is_allowed: bool
    reason: str  # a sentence without its period
    acl: Acl | None = None  # that decided

    def __bool__(self) -> bool:
        return self.is_allowed


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
        for acl in sorted(acls):
            self._by_pattern.setdefault(acl.resource, []).append(acl)
        self._prefix_sizes: dict[AclResourceType, list[int]] = {}
        sizes = {
            (each.type, len(each.name))
            for each in self._by_pattern
            if each.pattern is AclPatternType.PREFIXED
        }
        for kind, size in sorted(sizes):
            self._prefix_sizes.setdefault(kind, []).append(size)

    def on(self, kind: AclResourceType, name: str) -> Iterator[Acl]:
        """Yield the ACLs that select a resource."""
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


def decide_by_acls(
    table: AclTable,
    compiled: tuple[CompiledAcls, CompiledAcls],
    principal: str,
    action: Action,
    config: AuthorizerConfig,
) -> Verdict:
    """Return the decision for an action of a principal. `compiled` are the principal's ACLs and
    those of EVERY_PRINCIPAL."""
    if principal in config.super_users:
        return Verdict(is_allowed=True, reason=f"{principal} is a super user")
    allowing: Acl | None = None
    for acls in compiled:
        for acl in acls.on(action.type, action.name):
            if not _applies(acl, action.operation, action.host):
                continue
            if acl.permission is AclPermission.DENY:
                return Verdict(is_allowed=False, reason=f"denied by: {acl}", acl=acl)
            allowing = allowing or acl
    if allowing is not None:
        return Verdict(is_allowed=True, reason=f"allowed by: {allowing}", acl=allowing)
    if config.allow_everyone_if_no_acl_found and not table.has_acl_for(action.type, action.name):
        return Verdict(
            is_allowed=True,
            reason="no ACL selects the resource, and allow.everyone.if.no.acl.found is true",
        )
    return Verdict(
        is_allowed=False,
        reason=(
            f"no ACL allows {principal} {name_of(action.operation)} {name_of(action.type)}"
            f" {action.name} from {action.host}"
        ),
    )


def decide_by_type(
    compiled: tuple[CompiledAcls, CompiledAcls],
    principal: str,
    action: Action,
    config: AuthorizerConfig,
) -> bool:
    """Return True if the principal may do the operation on any resource of the type (KIP-679); the
    action's name is not used. An ALLOW counts unless a DENY selects all that it selects."""
    if principal in config.super_users:
        return True
    denied: set[ResourcePattern] = set()
    allowed: set[ResourcePattern] = set()
    for acls in compiled:
        for acl in acls.on_type(action.type):
            if _applies(acl, action.operation, action.host):
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


def _applies(acl: Acl, operation: AclOperation, host: str) -> bool:
    if acl.host not in (WILDCARD, host):
        return False
    if acl.operation in (AclOperation.ALL, operation):
        return True
    return acl.permission is AclPermission.ALLOW and acl.operation in IMPLIED_BY.get(operation, ())
