"""The current leader in responses to requests that reached another broker (KIP-951)."""

from collections.abc import Sequence

from ...errors import NotLeaderOrFollower, QuorumlogError
from ...ids import NO_NODE
from .api import BrokerContext, Call
from .endpoints import endpoints
from .hot.leaders import CurrentLeader, NodeEndpoint


def current_leader(error: QuorumlogError) -> CurrentLeader | None:
    """Return the leader that an error names, or None."""
    if isinstance(error, NotLeaderOrFollower) and error.leader_id != NO_NODE:
        return CurrentLeader(error.leader_id, error.leader_epoch)
    return None


def leader_endpoints(
    door: BrokerContext, call: Call, errors: Sequence[QuorumlogError]
) -> list[NodeEndpoint]:
    """Return the endpoints, for this client, of the leaders that errors name, each once."""
    leaders = {told.node_id for error in errors if (told := current_leader(error)) is not None}
    if not leaders:
        return []
    reached = endpoints(door.image, call.client, asked=door.replicas.node_id)
    return [
        NodeEndpoint(one.node_id, one.host, one.port, one.rack)
        for one in reached.values()
        if one.node_id in leaders
    ]
