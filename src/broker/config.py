"""Settings of produce and fetch requests, and of replication."""

from dataclasses import dataclass
from typing import Final

from ..settings import setting

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """Settings of leaders and followers."""

    lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        30_000,
        "Time after which a follower that has not caught up with its leader leaves the in-sync "
        "replicas: shorter keeps writes from waiting for it, and also removes stalled replicas.",
        unit="ms",
        low=100,
        high=3_600_000,
    )
    lapsed_accepts_acks_one: bool = setting(
        "lapsed.leader.accepts.acks.one",
        False,
        "Accept records with acks 0 and 1 on a leader without contact to a controller for the "
        "session timeout: another leader may have been elected, and such records would be lost.",
    )
    fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        500,
        "Maximum wait of a follower's fetch at a leader without new records; shorter costs more "
        "requests in an idle cluster.",
        unit="ms",
        low=10,
        high=60_000,
    )
    partition_bytes_max: int = setting(
        "replica.fetch.max.bytes",
        MIB,
        "Maximum bytes of one partition in a response to a follower; a single larger batch is "
        "still sent.",
        unit="bytes",
        low=1,
        high=64 * MIB,
    )
    fetch_bytes_max: int = setting(
        "replica.fetch.response.max.bytes",
        10 * MIB,
        "Maximum bytes of a response to a follower; a single larger batch is still sent.",
        unit="bytes",
        low=1,
        high=48 * MIB,
    )
    silence_ms_max: int = 3_000  # beyond fetch_wait_max_ms; then the stream is aborted
    backoff_ms_min: int = 50  # between attempts to connect
    backoff_ms_max: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestConfig:
    """Bounds of produce, fetch and subscribe requests, over every protocol."""

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
        "Fetches of this node that wait for new records. At the limit the oldest one of the user "
        "with the most is answered without records.",
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
        "Open Subscribe streams of this node, of up to 16 MiB each. At the limit the oldest one of "
        "the user with the most ends.",
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
