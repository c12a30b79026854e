"""Liveness after the faults: the partitions that must be served, and the time bounds.

A majority of the controllers and a drawn majority of the brokers are repaired and cut off from all
other nodes. Partitions that these nodes can serve must be served soon. Then every node is repaired,
and every replica must be in sync again.
"""

from typing import Final

from quorumlog.metadata import PartitionImage
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.links import apart
from quorumlog.testing.checkers import Place

from .nodes import Cluster, ClusterNode

SETTLE_MS: Final = 40_000  # for a repaired majority to register, with all others fenced
SERVE_MS: Final = 60_000  # for a repaired majority to serve writes to every partition it can
CONVERGE_MS: Final = 90_000  # for a repaired cluster to have every replica in sync


def choose_core(cluster: Cluster, entropy: SimEntropy) -> list[ClusterNode]:
    """Draw a majority of the controllers and a majority of the brokers; a controller with a
    replaced disk does not count as a voter."""
    left: list[object] = list(cluster.nodes)
    entropy.shuffle(left)
    core: list[ClusterNode] = []
    for node in left:
        assert isinstance(node, ClusterNode), f"{node!r}"
        if not _is_enough(cluster, core):
            core.append(node)
    return sorted(core, key=lambda node: node.node_id)


def is_settled(cluster: Cluster, core: list[ClusterNode]) -> bool:
    """Return True if these nodes have an active controller and exactly their brokers are active."""
    image, leader = cluster.newest_image, cluster.leader()
    inside = {int(node.node_id) for node in core if node.is_broker}
    return (
        leader in core
        and all(node.is_up and node.is_ready for node in core)
        and {int(broker.id) for broker in image.brokers.values() if broker.is_active} == inside
    )


def servable(cluster: Cluster, core: list[ClusterNode]) -> list[Place]:
    """Return the partitions that these nodes alone must serve: one of them is electable, and
    enough are replicas to write with acks=all."""
    image = cluster.newest_image
    ids = {int(node.node_id) for node in core}
    found = []
    for topic in cluster.options.topics:
        there = image.topic(topic.name)
        if there is None or topic.is_inner:
            continue
        needed = min(topic.min_isr, topic.replication)
        for index, state in there.sorted_partitions():
            if _can_lead(state, ids) and len(ids & set(state.replicas)) >= needed:
                found.append((topic.name, index))
    return found


def leave_alone(cluster: Cluster, core: list[ClusterNode], clients: list[str]) -> None:
    """Cut a core and the clients off from all other nodes."""
    rest = [node.name for node in cluster.nodes if node not in core]
    inside = [node.name for node in core] + clients
    cluster.world.fabric.barriers.close(apart(rest, inside))


def is_whole(cluster: Cluster) -> bool:
    """Return True if every node runs, every controller votes, and every replica is in sync."""
    image, voters = cluster.newest_image, cluster.voters()
    return (
        voters is not None
        and all(node.is_up and node.is_ready for node in cluster.nodes)
        and all(node.voter in voters for node in cluster.controllers)
        and all(
            set(state.isr) == set(state.replicas) and state.leader >= 0
            for topic in image.sorted_topics()
            for _, state in topic.sorted_partitions()
        )
    )


def _can_lead(state: PartitionImage, ids: set[int]) -> bool:
    """Return True if one of these nodes is electable without loss; if only others were in sync,
    only they have all acknowledged records."""
    return bool(ids & ({*state.isr} | {*state.elr}))


def _is_enough(cluster: Cluster, core: list[ClusterNode]) -> bool:
    brokers = sum(node.is_broker for node in core)
    if brokers * 2 <= len(cluster.brokers):
        return False
    views = [raft.voters for node in cluster.nodes if (raft := cluster.raft_of(node)) is not None]
    return all(sum(node.voter in voters for node in core) >= voters.majority for voters in views)
