"""Settings: where the node listens, and the addresses that it tells others."""

from dataclasses import dataclass

from .rows import setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Listeners:
    """Addresses of the node, as "host:port"."""

    grpc_listener: str = setting(
        "listeners.grpc",
        "127.0.0.1:9094",
        "host:port clients use; port 0 picks a free one.",
        field_name="listeners",
    )
    controller_listener: str = setting(
        "listeners.controller",
        "127.0.0.1:9093",
        "host:port for brokers and controllers; port 0 picks a free one.",
        field_name="listeners",
    )
    raft_listener: str = setting(
        "listeners.raft",
        "",
        "host:port where the other members of the quorum send entries and snapshots; they reach it "
        "at the host of this node's controller address, and ask there for the port. Empty: a free "
        "port on the host of listeners.controller; give one where a firewall wants to know it.",
    )
    replica_listener: str = setting(
        "listeners.replica",
        "",
        "host:port where other brokers read the partitions that this one leads; they reach it at "
        "the host of advertised.replica, else of advertised.grpc, and ask there for the port. "
        "Empty: a free port on the host of listeners.grpc; give one where a firewall wants to "
        "know it.",
    )
    http_listener: str = setting(
        "listeners.http",
        "",
        "host:port for metrics and health over HTTP, open to whoever reaches it; port 0 picks a "
        "free one. Empty: none, except that `quorumlog dev` and `quorumlog cluster up` open one.",
    )
    kafka_listeners: tuple[str, ...] = setting(
        "listeners.kafka",
        (),
        "host:port, or NAME://host:port for several, where clients of the Kafka protocol connect; "
        "without a name it is PLAINTEXT, port 0 picks a free one. Empty: none, except that "
        "`quorumlog dev` and `quorumlog cluster up` open one.",
        field_name="listeners",
    )
    advertised_grpc: str = setting(
        "advertised.grpc",
        "",
        "host:port told to clients; empty: the listener's own address.",
        field_name="advertised.listeners",
    )
    advertised_replica: str = setting(
        "advertised.replica",
        "",
        "host:port at which other brokers read from this one; empty: where clients do.",
        field_name="advertised.listeners",
    )
    advertised_controller: str = setting(
        "advertised.controller",
        "",
        "host:port told to the other members of the quorum; empty: as controller.voters has it, "
        "else the listener's own address.",
        field_name="advertised.listeners",
    )
    advertised_kafka: tuple[str, ...] = setting(
        "advertised.kafka",
        (),
        "host:port, or NAME://host:port for several, told to clients of the Kafka protocol instead "
        "of the listener of the name. Empty: the listener's port, at its host, or where it listens "
        "on all addresses at the host by which the client has reached the broker that it asks.",
        field_name="advertised.listeners",
    )
