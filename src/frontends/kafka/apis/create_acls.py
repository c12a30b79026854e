"""CreateAcls: create ACLs, each with its own result (KIP-140, KIP-290)."""

from ....errors import QuorumlogError
from ....metadata import AclsCreated, CreateAcls, Submitted
from ....metadata.acls import Acl
from ....runtime.steps import step_counter
from ..acl_fields import read_acl
from ..api import Answer, BrokerContext, Call
from ..encoding_offload import encode_if_large
from ..error_codes import error_fields
from ..item_results import PARTS_A_STEP, check_count, outcome, wait_applied


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Forward the ACLs to the controller, except those with unknown numbers."""
    creations = call.body.creations
    errors: list[QuorumlogError | None] = [None] * len(creations)
    read: dict[int, Acl] = {}
    take_turn = step_counter(PARTS_A_STEP)
    for place, creation in enumerate(creations):
        await take_turn()
        try:
            read[place] = read_acl(creation)
        except QuorumlogError as error:
            errors[place] = error
    if read:
        created = await outcome(_create(broker, call, tuple(read.values())))
        if isinstance(created, QuorumlogError):
            errors = [created] * len(creations)
        else:
            await wait_applied(broker, created.offset, call.context)
            for place, failure in zip(read, created.reply.errors, strict=True):
                errors[place] = failure
    results = map(error_fields, errors)
    return await encode_if_large(broker, call, {"results": results}, elements=len(errors))


async def _create(
    broker: BrokerContext, call: Call, acls: tuple[Acl, ...]
) -> Submitted[AclsCreated]:
    check_count(len(acls))
    return await broker.api.acls.create(CreateAcls(acls=acls), call.context)
