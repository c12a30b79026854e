"""The readiness of a node, and the reasons against it."""

from ...ids import NodeId
from ..config import NodeConfig
from ..parts import NodeParts


def obstacles(parts: NodeParts, config: NodeConfig) -> list[str]:
    """Return the reasons why the node is not ready, a sentence each; empty if it is ready.

    A broker that was not fenced stays ready without contact to the controllers: it continues to
    serve the partitions that it leads, and without controllers no other broker can take over. A
    node with only the controller role is ready only while the quorum has a leader.
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
        found.append("The quorum has no leader: start a majority of the voters.")
    if config.is_broker:
        broker, session = publisher.image.broker(NodeId(config.node_id)), parts.session
        if session is None or broker is None or broker.epoch != session.broker_epoch:
            found.append("The broker is not registered.")
        elif broker.fenced:
            found.append("The controller has fenced this broker.")
        elif broker.stopping:
            found.append("The broker has requested a controlled shutdown.")
    if not found and not parts.is_ready:
        found.append("The node is still starting.")
    return found


def remarks(parts: NodeParts) -> list[str]:
    """Return warnings about a node that serves."""
    found = []
    if parts.session is not None and parts.session.is_lapsed():
        found.append("No controller has answered for longer than the session timeout.")
    if parts.directory is not None and parts.directory.figures.is_reserve_used:
        found.append("The disk is nearly full: produce requests are rejected.")
    return found
