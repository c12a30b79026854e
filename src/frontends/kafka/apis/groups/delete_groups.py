"""DeleteGroups: delete empty groups with their offsets, each with its own result (KIP-229)."""

from .....broker.groups.requests import DeleteGroup
from .....errors import QuorumlogError
from ...api import ANSWER_MS_MAX, Answer, BrokerContext, Call
from ...group_codes import group_code
from ...parts import outcomes


async def handle(door: BrokerContext, call: Call) -> Answer:
    """Delete each named group once."""
    names = list(dict.fromkeys(call.body.groups_names))

    async def delete(name: str) -> None:
        deadline_ms = call.began_ms + ANSWER_MS_MAX
        await door.groups.ask(DeleteGroup(group=name), deadline_ms=deadline_ms)

    found = await outcomes(door, names, delete, context=call.context)
    return {
        "results": [
            {
                "group_id": name,
                "error_code": group_code(error) if isinstance(error, QuorumlogError) else 0,
            }
            for name, error in zip(names, found, strict=True)
        ]
    }
