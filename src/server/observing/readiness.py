"""Whether a node can serve, and what is in the way."""

from ...ids import NodeId
from ..config import NodeConfig
from ..parts import NodeParts


def obstacles(parts: NodeParts, config: NodeConfig) -> list[str]:
    """Return what keeps the node from serving, a sentence each; none: it is ready.

    A broker that the controllers have not fenced stays ready while they are silent: it goes on to
    serve what it leads, and with all of them gone no other broker could do better. A controller is
    of use only while the quorum has a leader.
    """
    if parts.is_stopping:
        return ["The node is stopping."]
    if parts.directory is None:
        return ["The data directory is being opened."]
    raft, publisher = parts.raft, parts.publisher
    if raft is None or publisher is None:
        return ["The metadata log is being opened."]
    found = []
    if raft.leader_id is None and not (config.is_broker and parts.is_ready):
        found.append("The quorum has no leader: a majority of the voters must be up.")
    if config.is_broker:
        broker, session = publisher.image.broker(NodeId(config.node_id)), parts.session
        if session is None or broker is None or broker.epoch != session.broker_epoch:
            found.append("The broker is not registered.")
        elif broker.fenced:
            found.append("The controller does not count on this broker: it is fenced.")
        elif broker.stopping:
            found.append("The controller was told that this broker stops.")
    if not found and not parts.is_ready:
        found.append("The start has not ended.")
    return found


def remarks(parts: NodeParts) -> list[str]:
    """Return what is not as it should be, though the node serves."""
    found = []
    if parts.session is not None and parts.session.is_lapsed():
        found.append("No controller has answered for longer than a session lasts.")
    if parts.directory is not None and parts.directory.figures.is_reserve_used:
        found.append("The disk is nearly full: producers are refused.")
    return found
