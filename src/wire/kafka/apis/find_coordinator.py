"""FindCoordinator: which broker has a group or a transactional id. None yet: the answer is the one
that clients repeat their question after."""

from typing import Any, Final

from ....errors import InvalidRequest
from ....ids import NO_NODE
from ..api import Answer, Api, Call, Door
from ..codes import COORDINATOR_NOT_AVAILABLE

GROUP, TRANSACTION, SHARE = 0, 1, 2

_SAYS_WHY: Final = 1  # from this version on
_TAKES_MANY: Final = 4  # keys in one request, from this version on (KIP-699)
_KNOWS_SHARE: Final = 6  # from this version on (KIP-932)


async def find_coordinator(door: Door, call: Call) -> Answer:
    """Say of every key that nobody has it now."""
    kind = getattr(call.body, "key_type", GROUP)
    is_known = kind in (GROUP, TRANSACTION) or (kind == SHARE and call.version >= _KNOWS_SHARE)
    outcome: dict[str, Any] = {
        "error_code": COORDINATOR_NOT_AVAILABLE if is_known else InvalidRequest.code,
        "node_id": NO_NODE,
        "host": "",
        "port": -1,
    }
    if call.version >= _SAYS_WHY:
        outcome["error_message"] = (
            "this cluster has no coordinators yet: consume with assigned partitions, produce "
            "without a transactional id"
            if is_known
            else f"there is no kind {kind} of coordinator in version {call.version}"
        )
    if call.version < _TAKES_MANY:
        return outcome
    return {"coordinators": [{**outcome, "key": key} for key in call.body.coordinator_keys]}


API: Final = Api(key=10, name="FindCoordinator", low=0, high=6, flexible=3, handle=find_coordinator)
