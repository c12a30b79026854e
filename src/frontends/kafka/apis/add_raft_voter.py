"""AddRaftVoter: add a node that replicates the metadata log to the voters (KIP-853).

The response always waits for the commit, also where version 1 does not ask for that (KIP-1186).
"""

from typing import Any, Final

from ....api.quorum import AddVoter
from ....errors import InvalidRequest
from ..api import Answer, BrokerContext, Call, KafkaApi
from ..error_codes import error_fields
from ..item_results import outcome, with_timeout
from .describe_quorum import LISTENER


async def add_raft_voter(broker: BrokerContext, call: Call) -> Answer:
    """Forward the request to the quorum's leader."""
    return error_fields(await outcome(_add(broker, call)))


async def _add(broker: BrokerContext, call: Call) -> None:
    body = call.body
    if body.voter_directory_id is None:
        raise InvalidRequest("voter_directory_id: empty; give the id of the node's data directory")
    change = AddVoter(
        cluster_id=body.cluster_id or "",
        id=body.voter_id,
        directory_id=body.voter_directory_id.bytes,
        address=_address(body.listeners),
    )
    await broker.api.quorum.add_voter(change, with_timeout(call, body.timeout))


def _address(listeners: Any) -> str:
    """Return the address by which the other voters reach the node."""
    for listener in listeners:
        if listener.name == LISTENER:
            host = f"[{listener.host}]" if ":" in listener.host else listener.host
            return f"{host}:{listener.port}"
    raise InvalidRequest(f"listeners: none is named {LISTENER}; give the address for the voters")


API: Final = KafkaApi(key=80, name="AddRaftVoter", low=0, high=1, flexible=0, handle=add_raft_voter)
