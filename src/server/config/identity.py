"""Settings of the node itself: ids, roles, data directory, listeners, metrics, log, shutdown."""

from dataclasses import dataclass

from .declaration import setting

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


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ListenerSettings:
    """Addresses of the node, as "host:port"."""

    grpc_listener: str = setting(
        "listeners.grpc",
        "127.0.0.1:9094",
        "host:port for gRPC clients; port 0 picks a free port.",
        field_name="listeners",
    )
    controller_listener: str = setting(
        "listeners.controller",
        "127.0.0.1:9093",
        "host:port for brokers and controllers; port 0 picks a free port.",
        field_name="listeners",
    )
    raft_listener: str = setting(
        "listeners.raft",
        "",
        "host:port for entries and snapshots of the metadata log from other controllers. They "
        "connect to the host of this node's controller address and request the port there. Empty: "
        "a free port on the host of listeners.controller; set it if a firewall needs a fixed port.",
    )
    replica_listener: str = setting(
        "listeners.replica",
        "",
        "host:port for followers of the partitions that this broker leads. They connect to the "
        "host of advertised.replica, or else of advertised.grpc, and request the port there. "
        "Empty: a free port on the host of listeners.grpc; set it if a firewall needs a fixed "
        "port.",
    )
    http_listener: str = setting(
        "listeners.http",
        "",
        "host:port for metrics and health checks over HTTP, without access control; port 0 picks a "
        "free port. Empty: none, but `quorumlog dev` and `quorumlog cluster up` open one.",
    )
    kafka_listeners: tuple[str, ...] = setting(
        "listeners.kafka",
        (),
        "host:port, or NAME://host:port for several, for Kafka clients. The default name is "
        "PLAINTEXT; port 0 picks a free port. Empty: none, but `quorumlog dev` and "
        "`quorumlog cluster up` open one.",
        field_name="listeners",
    )
    advertised_grpc: str = setting(
        "advertised.grpc",
        "",
        "host:port advertised to gRPC clients; empty: the listener's address.",
        field_name="advertised.listeners",
    )
    advertised_replica: str = setting(
        "advertised.replica",
        "",
        "host:port advertised to followers; empty: that for clients.",
        field_name="advertised.listeners",
    )
    advertised_controller: str = setting(
        "advertised.controller",
        "",
        "host:port advertised to the other controllers; empty: the one in controller.voters, or "
        "else the listener's address.",
        field_name="advertised.listeners",
    )
    advertised_kafka: tuple[str, ...] = setting(
        "advertised.kafka",
        (),
        "host:port, or NAME://host:port for several, advertised to Kafka clients of the listener "
        "with that name. Empty: the listener's address. If it listens on all interfaces, the host "
        "by which the client reached the broker that it asked.",
        field_name="advertised.listeners",
    )


LOG_FORMATS = ("text", "json")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class OperationSettings:
    """Metrics, log, shutdown."""

    metric_topics_max: int = setting(
        "metrics.topics.max",
        0,
        "Number of topics, the first by name, with metrics of end offsets and sizes. Each topic "
        "adds two time series a node, and a lookup of each of its partitions. 0: none.",
        unit="topics",
        low=0,
        high=10_000,
    )
    log_format: str = setting(
        "log.format",
        "text",
        "Format of log lines on stderr: text, or json with every field by name. The environment "
        "variable QUORUMLOG_LOG sets the level.",
    )
    controlled_shutdown_timeout_ms: int = setting(
        "controlled.shutdown.timeout.ms",
        10_000,
        "Maximum wait of a stopping broker until others lead its partitions and the metadata is "
        "replicated; without a controller it waits two seconds. 0: no controlled shutdown.",
        unit="ms",
        low=0,
        high=3_600_000,
    )
    shutdown_grace_ms: int = setting(
        "shutdown.grace.ms",
        2_000,
        "Time for calls in progress to end when the node stops.",
        unit="ms",
        low=0,
        high=600_000,
    )
