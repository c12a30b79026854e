"""Settings of listeners and advertised addresses."""

from dataclasses import dataclass

from .rows import setting


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
