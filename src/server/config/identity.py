"""Settings of the node's identity: ids, roles, data directory."""

from dataclasses import dataclass

from .rows import setting

ROLES = ("controller", "broker")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class IdentitySettings:
    """The node's identity."""

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
        "Roles of the node: controller, broker, or both. A node with the role broker alone follows "
        "the quorum of controller.bootstrap as an observer.",
        field_name="process.roles",
    )
    rack: str = setting(
        "node.rack", "", "Failure zone of the node; empty: none.", field_name="broker.rack"
    )
    cluster_id: str = setting(
        "cluster.id",
        "",
        "Cluster id that the data directory must have; empty: any.",
    )
