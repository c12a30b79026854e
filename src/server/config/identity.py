"""Settings: which node this is, of which cluster, and where its data lies."""

from dataclasses import dataclass

from .rows import setting

ROLES = ("controller", "broker")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Identity:
    """Who the node is."""

    data_dir: str = setting(
        "data.dir",
        None,
        "The node's data directory, formatted before its first start.",
        field_name="log.dirs",
    )
    node_id: int = setting(
        "node.id", 1, "Id of this node, unique in the cluster.", low=0, high=2**31 - 1
    )
    roles: tuple[str, ...] = setting(
        "node.roles",
        ROLES,
        "What the node does: controller, broker, or both. A broker alone follows the quorum that "
        "controller.bootstrap names, without a vote.",
        field_name="process.roles",
    )
    rack: str = setting(
        "node.rack", "", "Failure zone of the node; empty: none.", field_name="broker.rack"
    )
    cluster_id: str = setting(
        "cluster.id",
        "",
        "Cluster the data directory must belong to; empty: whatever it was formatted for.",
    )
