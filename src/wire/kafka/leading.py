"""What an answer says of who leads instead (KIP-951)."""

from collections.abc import Sequence

from ...errors import NotLeaderOrFollower, QuorumlogError
from ...ids import NO_NODE
from .api import Call, Door
from .hot.leaders import Endpoint, Leader


def leader_told(error: QuorumlogError) -> Leader | None:
    """Return the leader that an error names."""
    if isinstance(error, NotLeaderOrFollower) and error.leader_id != NO_NODE:
        return Leader(error.leader_id, error.leader_epoch)
    return None


def endpoints_of(door: Door, call: Call, errors: Sequence[QuorumlogError]) -> list[Endpoint]:
    """Return where the leaders that errors name are reached by this caller, each once."""
    leaders = {told.node_id for error in errors if (told := leader_told(error)) is not None}
    endpoints = []
    for node_id in sorted(leaders):
        broker = door.image.broker(node_id)
        address = None if broker is None else broker.kafka_address(call.client.listener)
        if broker is None or address is None:
            continue
        host, _, port = address.rpartition(":")
        dialled = call.client.local.rpartition(":")[0]
        host = (host or dialled).strip("[]")
        endpoints.append(Endpoint(node_id, host, int(port), broker.rack or None))
    return endpoints
