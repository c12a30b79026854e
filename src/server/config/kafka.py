"""Settings: what clients of the Kafka protocol may do and take."""

from dataclasses import dataclass

from .rows import MIB, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class KafkaClients:
    """Bounds of the Kafka listeners."""

    auto_create_topics: str = setting(
        "auto.create.topics.enable",
        "true",
        "Whether a client of the Kafka protocol that asks for an unknown topic by name creates it; "
        "equal on all brokers.",
        choices=("false", "true"),
        field_name="auto.create.topics.enable",
    )
    kafka_request_bytes_max: int = setting(
        "kafka.request.bytes.max",
        100 * MIB,
        "The largest request of a Kafka client; a larger one ends its connection before memory is "
        "taken for it.",
        unit="bytes",
        low=1 << 10,
        high=1024 * MIB,
        field_name="socket.request.max.bytes",
    )
    kafka_connections_max: int = setting(
        "kafka.connections.max",
        10_000,
        "Connections of Kafka clients at once; the next one is closed.",
        unit="connections",
        low=1,
        high=1_000_000,
        field_name="max.connections",
    )
    kafka_listener_connections_max: int = setting(
        "kafka.listener.connections.max",
        1_000_000,
        "Connections of each Kafka listener at once, so that one of several cannot take all that "
        "kafka.connections.max allows; the next one is closed.",
        unit="connections",
        low=1,
        high=1_000_000,
    )
    kafka_connections_idle_ms_max: int = setting(
        "kafka.connections.idle.ms.max",
        600_000,
        "A connection of a Kafka client without a request for so long is closed.",
        unit="ms",
        low=1_000,
        high=24 * 3_600_000,
        field_name="connections.max.idle.ms",
    )
    kafka_request_receive_ms_max: int = setting(
        "kafka.request.receive.ms.max",
        60_000,
        "A request of a Kafka client that has begun to come must be complete by then, a large one "
        "a second later for each 64 KB; else its connection is closed.",
        unit="ms",
        low=1_000,
        high=24 * 3_600_000,
    )
    kafka_requests_bytes_max: int = setting(
        "kafka.requests.bytes.max",
        256 * MIB,
        "Bytes of requests of all Kafka clients that have come and are not answered; when it is "
        "reached, their connections are not read until there is room again.",
        unit="bytes",
        low=1 * MIB,
        high=1 << 40,
        field_name="queued.max.request.bytes",
    )
