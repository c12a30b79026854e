"""Bounds of clients: of Kafka listeners, and of produce, fetch and subscribe."""

from dataclasses import dataclass

from .declaration import MIB, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class KafkaClientSettings:
    """Bounds of the Kafka listeners."""

    auto_create_topics: str = setting(
        "auto.create.topics.enable",
        "true",
        "Create an unknown topic when a Kafka client requests its metadata by name; equal on all "
        "brokers.",
        choices=("false", "true"),
        field_name="auto.create.topics.enable",
    )
    kafka_request_bytes_max: int = setting(
        "kafka.request.bytes.max",
        100 * MIB,
        "Maximum size of a Kafka client's request; a larger one closes the connection before "
        "memory is allocated for it.",
        unit="bytes",
        low=1 << 10,
        high=1024 * MIB,
        field_name="socket.request.max.bytes",
    )
    kafka_connections_max: int = setting(
        "kafka.connections.max",
        10_000,
        "Maximum number of connections of Kafka clients; further ones are closed.",
        unit="connections",
        low=1,
        high=1_000_000,
        field_name="max.connections",
    )
    kafka_listener_connections_max: int = setting(
        "kafka.listener.connections.max",
        1_000_000,
        "Maximum number of connections of each Kafka listener, so that one of several listeners "
        "cannot use up kafka.connections.max; further ones are closed.",
        unit="connections",
        low=1,
        high=1_000_000,
    )
    kafka_connections_idle_ms_max: int = setting(
        "kafka.connections.idle.ms.max",
        600_000,
        "Idle time after which a Kafka client's connection is closed.",
        unit="ms",
        low=1_000,
        high=24 * 3_600_000,
        field_name="connections.max.idle.ms",
    )
    kafka_request_receive_ms_max: int = setting(
        "kafka.request.receive.ms.max",
        60_000,
        "Time in which a Kafka client's request must arrive completely after its first byte, plus "
        "a second for each 64 KB of a large one; otherwise its connection is closed.",
        unit="ms",
        low=1_000,
        high=24 * 3_600_000,
    )
    kafka_requests_bytes_max: int = setting(
        "kafka.requests.bytes.max",
        256 * MIB,
        "Maximum memory of all pending requests of Kafka clients; above it, their connections are "
        "not read until responses are sent.",
        unit="bytes",
        low=1 * MIB,
        high=1 << 40,
        field_name="queued.max.request.bytes",
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class RequestSettings:
    """Bounds of produce, fetch and subscribe."""

    produce_inflight_max: int = setting(
        "produce.inflight.requests.max",
        16,
        "Requests in flight of one Produce stream; above it the stream is not read.",
        unit="requests",
        low=1,
        high=1_000,
    )
    produce_inflight_bytes_max: int = setting(
        "produce.inflight.bytes.max",
        16 * MIB,
        "Bytes of batches in flight of one Produce stream; more hides the disk's latency at the "
        "cost of memory. A single larger request is accepted.",
        unit="bytes",
        low=64 << 10,
        high=1024 * MIB,
    )
    produce_waits_max: int = setting(
        "produce.waits.max",
        10_000,
        "Produce requests of one partition that wait for acknowledgement.",
        unit="requests",
        low=1,
        high=10_000_000,
    )
    fetch_waits_max: int = setting(
        "fetch.waits.max",
        10_000,
        "Fetches of this node that wait for new records.",
        unit="requests",
        low=1,
        high=10_000_000,
    )
    fetch_bytes_max: int = setting(
        "fetch.bytes.max",
        50 * MIB,
        "Maximum bytes of a fetch response, and of the memory of one fetch: more saves round"
        " trips at the cost of memory for each reader.",
        unit="bytes",
        low=64 << 10,
        high=60 * MIB,
        field_name="fetch.max.bytes",
    )
    subscribe_streams_max: int = setting(
        "subscribe.streams.max",
        1_000,
        "Open Subscribe streams of this node; each may hold two responses in memory.",
        unit="streams",
        low=1,
        high=1_000_000,
    )
    subscribe_heartbeat_ms: int = setting(
        "subscribe.heartbeat.ms",
        5_000,
        "Interval of messages on an idle Subscribe stream, by which clients notice a broken one.",
        unit="ms",
        low=100,
        high=600_000,
    )
