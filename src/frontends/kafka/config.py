"""Settings of the Kafka listeners."""

from dataclasses import dataclass
from typing import Final

from ...settings import setting

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """The bounds of the Kafka listeners."""

    auto_create_topics: bool = setting(
        "auto.create.topics.enable",
        True,
        "Create an unknown topic when a Kafka client requests its metadata by name; equal on all "
        "brokers.",
        field_name="auto.create.topics.enable",
    )
    request_bytes_max: int = setting(
        "kafka.request.bytes.max",
        100 * MIB,
        "Maximum size of a Kafka client's request; a larger one closes the connection before "
        "memory is allocated for it.",
        unit="bytes",
        low=1 << 10,
        high=1024 * MIB,
        field_name="socket.request.max.bytes",
    )
    connections_max: int = setting(
        "kafka.connections.max",
        10_000,
        "Maximum number of connections of Kafka clients. Beyond it a connection that is not "
        "authenticated yet is closed, then one of the user with the most.",
        unit="connections",
        low=1,
        high=1_000_000,
        field_name="max.connections",
    )
    listener_connections_max: int = setting(
        "kafka.listener.connections.max",
        1_000_000,
        "Maximum number of connections of each Kafka listener, so that one of several listeners "
        "cannot use up kafka.connections.max; beyond it one of them is closed in the same way.",
        unit="connections",
        low=1,
        high=1_000_000,
    )
    address_connections_max: int = setting(
        "kafka.connections.max.per.ip",
        1_000_000,
        "Maximum number of connections of Kafka clients from one address; beyond it one of them is "
        "closed in the same way.",
        unit="connections",
        low=1,
        high=1_000_000,
        field_name="max.connections.per.ip",
    )
    connections_idle_ms_max: int = setting(
        "kafka.connections.idle.ms.max",
        600_000,
        "Idle time after which a Kafka client's connection is closed.",
        unit="ms",
        low=1_000,
        high=24 * 3_600_000,
        field_name="connections.max.idle.ms",
    )
    frame_ms_max: int = setting(
        "kafka.request.receive.ms.max",
        60_000,
        "Time in which a Kafka client's request must arrive completely after its first byte, plus "
        "a second for each 64 KB of a large one; otherwise its connection is closed.",
        unit="ms",
        low=1_000,
        high=24 * 3_600_000,
    )
    requests_bytes_max: int = setting(
        "kafka.requests.bytes.max",
        256 * MIB,
        "Maximum memory of all pending requests of Kafka clients; above it, their connections are "
        "not read until responses are sent.",
        unit="bytes",
        low=1 * MIB,
        high=1 << 40,
        field_name="queued.max.request.bytes",
    )
