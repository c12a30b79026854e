"""Bounds of data loss: machines that may lose their disk or unflushed data now.

An acknowledged record is on every replica of the maximal ISR, and that has at least
min.insync.replicas members. So fewer losses than that at once leave an electable copy. A loss is
over when the machine has registered again and is in sync everywhere. With min.insync.replicas of 1
no loss is allowed: only the leader may have the records.
"""

from ..cluster.nodes import Cluster, ClusterNode
from ..cluster.options import TopicPlan


def may_cut_power(cluster: Cluster, node: ClusterNode) -> bool:
    """Return True if the machine's unflushed data may be lost."""
    return _may_lose(
        cluster, node, [topic for topic in cluster.options.topics if topic.flush_policy != "fsync"]
    )


def may_wipe(cluster: Cluster, node: ClusterNode) -> bool:
    """Return True if the machine's disk may be lost."""
    if not _may_lose(cluster, node, list(cluster.options.topics)):
        return False
    return not node.is_controller or _quorum_can_do_without(cluster, node)


def _may_lose(cluster: Cluster, node: ClusterNode, topics: list[TopicPlan]) -> bool:
    if not node.is_broker or not topics:
        return True
    image = cluster.newest_image
    if any(topic.min_isr < 2 or image.topic(topic.name) is None for topic in topics):
        return False
    if cluster.damaged or not _is_healed(cluster):
        return False
    for topic in topics:
        found = image.topic(topic.name)
        assert found is not None, f"{topic.name} was just there"
        for _, state in found.sorted_partitions():
            others = [one for one in (*state.isr, *state.elr) if one != node.node_id]
            if node.node_id in (*state.isr, *state.elr) and not others:
                return False
    return True


def _is_healed(cluster: Cluster) -> bool:
    """Return True if every machine that lost data is in sync again."""
    image = cluster.newest_image
    for name in list(cluster.recovering):
        node = next(one for one in cluster.nodes if one.name == name)
        is_in_sync = all(
            node.node_id in state.isr or node.node_id not in state.replicas
            for topic in image.sorted_topics()
            for _, state in topic.sorted_partitions()
        )
        if is_in_sync:
            cluster.recovering.discard(name)
    return not cluster.recovering


def _quorum_can_do_without(cluster: Cluster, node: ClusterNode) -> bool:
    """Return True if the quorum keeps a majority of disks, every controller is up and all agree
    on the voters."""
    voters = cluster.voters()
    if voters is None or any(not one.is_up for one in cluster.controllers):
        return False
    gone = {voter for one in cluster.controllers for voter in one.gone}
    left = sum(voter not in gone and voter != node.voter for voter in voters)
    rafts = [one.node.parts.raft for one in cluster.controllers if one.node is not None]
    is_settled = all(raft is not None and raft.voters == voters for raft in rafts)
    return is_settled and left >= voters.majority and len(voters) >= 3
