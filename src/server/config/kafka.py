"""Settings: what clients of the Kafka protocol may do and take."""

from dataclasses import dataclass

from .rows import MIB, setting


@dataclass(frozen=True, kw_only=True)
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
    kafka_connections_idle_ms_max: int = setting(
        "kafka.connections.idle.ms.max",
        600_000,
        "A connection of a Kafka client without a request for so long is closed.",
        unit="ms",
        low=1_000,
        high=24 * 3_600_000,
        field_name="connections.max.idle.ms",
    )
