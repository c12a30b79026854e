"""DeleteAcls: delete the ACLs that match filters, each filter with its own result (KIP-140,
KIP-290)."""

from ....errors import QuorumlogError
from ....metadata import AclDeletion, AclsDeleted, DeleteAcls, Submitted
from ....metadata.acls import AclFilter
from ....runtime.steps import step_counter
from ..acl_fields import entry_fields, read_filter, resource_fields
from ..api import Answer, BrokerContext, Call, Fields
from ..encoding_offload import encode_if_large
from ..error_codes import error_fields
from ..item_results import PARTS_A_STEP, check_count, outcome, wait_applied


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Forward the filters to the controller, except those with unknown numbers."""
    filters = call.body.filters
    deletions = [AclDeletion()] * len(filters)
    read: dict[int, AclFilter] = {}
    take_turn = step_counter(PARTS_A_STEP)
    for place, condition in enumerate(filters):
        await take_turn()
        try:
            read[place] = read_filter(condition)
        except QuorumlogError as error:
            deletions[place] = AclDeletion(error=error)
    if read:
        deleted = await outcome(_delete(broker, call, tuple(read.values())))
        if isinstance(deleted, QuorumlogError):
            deletions = [AclDeletion(error=deleted)] * len(filters)
        else:
            await wait_applied(broker, deleted.offset, call.context)
            for place, deletion in zip(read, deleted.reply.deletions, strict=True):
                deletions[place] = deletion
    elements = sum(1 + len(each.acls) for each in deletions)
    body = {"filter_results": map(_result, deletions)}
    return await encode_if_large(broker, call, body, elements=elements)


async def _delete(
    broker: BrokerContext, call: Call, filters: tuple[AclFilter, ...]
) -> Submitted[AclsDeleted]:
    check_count(len(filters))
    return await broker.api.acls.delete(DeleteAcls(filters=filters), call.context)


def _result(deletion: AclDeletion) -> Fields:
    return {
        **error_fields(deletion.error),
        "matching_acls": [
            {**error_fields(None), **resource_fields(acl.resource), **entry_fields(acl)}
            for acl in deletion.acls
        ],
    }
