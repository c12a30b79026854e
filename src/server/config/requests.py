"""Settings: how much clients may have under way."""

from dataclasses import dataclass

from .rows import MIB, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Requests:
    """Bounds of produce, fetch and subscribe."""

    produce_inflight_max: int = setting(
        "produce.inflight.requests.max",
        16,
        "Requests of one Produce stream under way at once; beyond it the stream is not read.",
        unit="requests",
        low=1,
        high=1_000,
    )
    produce_inflight_bytes_max: int = setting(
        "produce.inflight.bytes.max",
        16 * MIB,
        "Bytes of batches of one Produce stream under way at once; more hides the disk's latency "
        "and holds them in memory. One larger request is taken alone.",
        unit="bytes",
        low=64 << 10,
        high=1024 * MIB,
    )
    produce_waits_max: int = setting(
        "produce.waits.max",
        10_000,
        "Produce requests waiting for acknowledgement in one partition.",
        unit="requests",
        low=1,
        high=10_000_000,
    )
    fetch_waits_max: int = setting(
        "fetch.waits.max",
        10_000,
        "Fetches waiting for new records on this node.",
        unit="requests",
        low=1,
        high=10_000_000,
    )
    fetch_bytes_max: int = setting(
        "fetch.bytes.max",
        50 * MIB,
        "Upper bound of one fetch answer, and of what one fetch holds in memory: more saves round"
        " trips and costs memory a reader.",
        unit="bytes",
        low=64 << 10,
        high=60 * MIB,
        field_name="fetch.max.bytes",
    )
    subscribe_streams_max: int = setting(
        "subscribe.streams.max",
        1_000,
        "Subscribe streams of this node at once; each may hold two answers in memory.",
        unit="streams",
        low=1,
        high=1_000_000,
    )
    subscribe_heartbeat_ms: int = setting(
        "subscribe.heartbeat.ms",
        5_000,
        "An idle Subscribe stream says so this often, so that a silent cut is noticed.",
        unit="ms",
        low=100,
        high=600_000,
    )
