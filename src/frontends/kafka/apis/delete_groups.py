"""DeleteGroups: delete empty groups with their offsets, each with its own result (KIP-229)."""

from ....api.audit import recorded
from ....broker.groups.requests import DeleteGroup
from ....errors import QuorumlogError
from ..api import ANSWER_MS_MAX, Answer, BrokerContext, Call
from ..error_codes import group_code
from ..group_calls import check_group_request
from ..item_results import outcomes


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Delete each named group once."""
    names = list(dict.fromkeys(call.body.groups_names))

    async def delete(name: str) -> None:
        deadline_ms = call.began_ms + ANSWER_MS_MAX
        request = DeleteGroup(group=name)
        check_group_request(broker, call, request)
        with recorded(broker.api.metadata.audit, call.client.identity, request):
            await broker.groups.ask(request, deadline_ms=deadline_ms)

    found = await outcomes(broker, names, delete, context=call.context)
    return {
        "results": [
            {
                "group_id": name,
                "error_code": group_code(error) if isinstance(error, QuorumlogError) else 0,
            }
            for name, error in zip(names, found, strict=True)
        ]
    }
