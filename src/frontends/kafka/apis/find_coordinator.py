"""FindCoordinator: return the coordinator of a group or of a transactional id.

Share groups are not offered: their error is final, so that clients do not retry.
"""

from typing import Any, Final

from ....errors import CoordinatorNotAvailable, InvalidRequest, QuorumlogError
from ....ids import NO_NODE, NodeId
from ....metadata.acls import AclOperation, AclResourceType
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..endpoints import endpoints
from ..error_codes import group_code
from ..item_results import outcomes

GROUP, TRANSACTION, SHARE = 0, 1, 2

CREATION_MS_MAX: Final = 5_000
"""The longest wait for the coordinator's topic to be created at first use; clients retry then."""

_SAYS_WHY: Final = 1  # the first version with error messages
_TAKES_MANY: Final = 4  # the first version with several keys (KIP-699)
_KNOWS_SHARE: Final = 6  # the first version with share groups (KIP-932)


async def find_coordinator(broker: BrokerContext, call: Call) -> Answer:
    """Look up each key."""
    body = call.body
    if call.version < _TAKES_MANY:
        (found,) = await outcomes(
            broker, [body.key], _looked_up(broker, call), context=call.context
        )
        return _result(call, found)
    keys = body.coordinator_keys
    results = await outcomes(broker, keys, _looked_up(broker, call), context=call.context)
    coordinators = (
        {**_result(call, found), "key": key} for key, found in zip(keys, results, strict=True)
    )
    return {"coordinators": coordinators}


def _looked_up(broker: BrokerContext, call: Call) -> Any:
    """Return a function that looks up one key of the request's key type."""
    kind = getattr(call.body, "key_type", GROUP)

    async def look_up(key: str) -> Fields:
        node_id = await _coordinator_of(broker, call, kind, key)
        reached = endpoints(broker.image, call.client, asked=broker.hosted.node_id).get(node_id)
        if reached is None:
            raise CoordinatorNotAvailable(
                f"broker {node_id}: the coordinator has no endpoint on this listener now; retry"
            )
        return {"node_id": node_id, "host": reached.host, "port": reached.port}

    return look_up


async def _coordinator_of(broker: BrokerContext, call: Call, kind: int, key: str) -> NodeId:
    """Return the coordinator; raise InvalidRequest for a key type without one."""
    deadline_ms = call.began_ms + CREATION_MS_MAX
    authorizer, client = broker.api.authorizer, call.client.identity
    describe = AclOperation.DESCRIBE
    if kind == GROUP:
        authorizer.check(client, describe, AclResourceType.GROUP, key)
        return await broker.groups.coordinator_of(key, deadline_ms=deadline_ms)
    if kind == TRANSACTION:
        broker.api.transactions.listed_rights(describe, key, client)
        return await broker.api.transactions.coordinator_of(key, deadline_ms=deadline_ms)
    if kind == SHARE and call.version >= _KNOWS_SHARE:
        raise InvalidRequest("coordinator: share groups are not offered; use a consumer group")
    raise InvalidRequest(f"key type {kind}: unknown in version {call.version}")


def _result(call: Call, found: Fields | QuorumlogError) -> Fields:
    if not isinstance(found, QuorumlogError):
        return {"error_code": 0, **found}
    result: dict[str, Any] = {
        "error_code": group_code(found),
        "node_id": NO_NODE,
        "host": "",
        "port": -1,
    }
    if call.version >= _SAYS_WHY:
        result["error_message"] = str(found)
    return result


API: Final = KafkaApi(
    key=10, name="FindCoordinator", low=0, high=6, flexible=3, handle=find_coordinator
)
