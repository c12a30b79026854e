"""RemoveRaftVoter: remove a node's data directory from the voters (KIP-853)."""

from typing import Final

from ....api.quorum import RemoveVoter
from ....errors import InvalidRequest
from ..api import Answer, BrokerContext, Call, KafkaApi
from ..error_codes import error_fields
from ..item_results import outcome


async def remove_raft_voter(broker: BrokerContext, call: Call) -> Answer:
    """Forward the request to the quorum's leader; the response waits for the commit."""
    return error_fields(await outcome(_remove(broker, call)))


async def _remove(broker: BrokerContext, call: Call) -> None:
    body = call.body
    if body.voter_directory_id is None:
        raise InvalidRequest("voter_directory_id: empty; give the id of the voter's data directory")
    change = RemoveVoter(
        cluster_id=body.cluster_id or "",
        id=body.voter_id,
        directory_id=body.voter_directory_id.bytes,
    )
    await broker.api.quorum.remove_voter(change, call.context)


API: Final = KafkaApi(
    key=81, name="RemoveRaftVoter", low=0, high=0, flexible=0, handle=remove_raft_voter
)
