"""DescribeAcls: return the ACLs that match a filter (KIP-140, KIP-290)."""

from ....errors import QuorumlogError
from ....metadata.acls import Acl, ResourcePattern
from ..acl_fields import entry_fields, read_filter, resource_fields
from ..api import Answer, BrokerContext, Call
from ..encoding_offload import encode_if_large
from ..error_codes import error_fields
from ..item_results import outcome


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Return the ACLs by resource."""
    described = await outcome(_describe(broker, call))
    if isinstance(described, QuorumlogError):
        return {**error_fields(described), "resources": ()}
    by_resource: dict[ResourcePattern, list[Acl]] = {}
    for acl in described:
        by_resource.setdefault(acl.resource, []).append(acl)
    resources = (
        {**resource_fields(resource), "acls": map(entry_fields, acls)}
        for resource, acls in by_resource.items()
    )
    body = {**error_fields(None), "resources": resources}
    return await encode_if_large(broker, call, body, elements=len(described))


async def _describe(broker: BrokerContext, call: Call) -> list[Acl]:
    acls, _ = await broker.api.acls.describe(read_filter(call.body), call.context)
    return acls
