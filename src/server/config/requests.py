"""Settings of clients' requests."""

from dataclasses import dataclass

from .rows import MIB, setting


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
