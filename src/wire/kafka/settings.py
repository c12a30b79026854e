"""The bounds of the Kafka listeners, all from the node's configuration."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """See docs/configuration.md for each."""

    request_bytes_max: int  # a larger frame ends its connection before a byte of it is kept
    connections_max: int  # of all listeners together; the next one is closed at once
    listener_connections_max: int  # of each listener
    connections_idle_ms_max: int  # without a request; the connection is closed then
    frame_ms_max: int  # from a request's first byte to its last, and longer for a large one
    requests_bytes_max: int  # of all connections under way; more are not read
    inflight_max: int  # requests of one connection under way; more are not read
    unsent_bytes_max: int  # of answers that a client does not read, before it is read no more
    fetch_bytes_max: int  # of one answer to a fetch
    auto_create_topics: bool  # a look-up of an unknown topic by name creates it, if it allows that
