"""Fields of ACLs and of filters, which the three APIs of ACLs share."""

from typing import Any

from ...metadata.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ResourcePattern,
    enum_of,
)
from .api import Fields


def read_acl(creation: Any) -> Acl:
    """Return the ACL of a creation, not checked; raise InvalidRequest for an unknown number."""
    return Acl(
        ResourcePattern(
            enum_of(AclResourceType, creation.resource_type),
            creation.resource_name,
            enum_of(AclPatternType, creation.resource_pattern_type),
        ),
        creation.principal,
        creation.host,
        enum_of(AclOperation, creation.operation),
        enum_of(AclPermission, creation.permission_type),
    )


def read_filter(condition: Any) -> AclFilter:
    """Return a filter, not checked; raise InvalidRequest for an unknown number."""
    return AclFilter(
        resource_type=enum_of(AclResourceType, condition.resource_type_filter),
        resource_name=condition.resource_name_filter,
        pattern_type=enum_of(AclPatternType, condition.pattern_type_filter),
        principal=condition.principal_filter,
        host=condition.host_filter,
        operation=enum_of(AclOperation, condition.operation),
        permission=enum_of(AclPermission, condition.permission_type),
    )


def resource_fields(resource: ResourcePattern) -> Fields:
    """Return the fields of an ACL's resources."""
    return {
        "resource_type": int(resource.type),
        "resource_name": resource.name,
        "pattern_type": int(resource.pattern),
    }


def entry_fields(acl: Acl) -> Fields:
    """Return the fields of an ACL without its resources."""
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": int(acl.operation),
        "permission_type": int(acl.permission),
    }
