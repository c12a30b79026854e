"""The plan of the application of a seed: its clients and their settings.

Settings include extremes: buffers of a few records, deadlines shorter than a restart, slow readers,
every acknowledgement mode and codec.
"""

from dataclasses import dataclass
from typing import Final

from quorumlog.clients.config import ProducerConfig
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.testing.checkers import Place

CHURNED: Final = "churned"  # the topic that is deleted and created repeatedly


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    """A producer and its tasks."""

    name: str
    style: str  # "record", "nowait", "flush" or "arrow"
    tasks: int
    acks: str
    linger_ms: int
    batch_size: int
    compression: str
    buffer_size: int
    max_request_size: int
    delivery_timeout_ms: int
    max_block_ms: int
    burst_max: int  # records of a task before it waits for their outcomes
    pause_s_max: float
    value_size_max: int
    enable_idempotence: bool | None

    @property
    def is_idempotent(self) -> bool:
        """True if its repeated records are stored once."""
        config = ProducerConfig(acks=self.acks, enable_idempotence=self.enable_idempotence)
        return config.is_idempotent


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderPlan:
    """A consumer."""

    name: str
    style: str  # "poll", "next", "iterate" or "arrow"
    wanders: bool  # seeks, pauses and resumes
    max_poll_records: int
    max_partition_prefetch_bytes: int
    max_partition_fetch_bytes: int
    pause_s_max: float  # between two reads


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientsPlan:
    """The whole application."""

    partitions: dict[str, int]  # of the permanent topics, by name
    configs: dict[str, str]
    churn_pause_s_max: float
    producers: tuple[ProducerPlan, ...]
    readers: tuple[ReaderPlan, ...]
    request_timeout_ms: int
    call_timeout_ms: int
    produce_ms: int  # duration of the producing

    @property
    def places(self) -> list[Place]:
        """Every partition of the permanent topics."""
        return [
            (topic, index) for topic, count in self.partitions.items() for index in range(count)
        ]


def draw_clients_plan(
    entropy: SimEntropy, *, flush_policy: str, produce_ms: int = 20_000
) -> ClientsPlan:
    """Draw the application of a seed."""
    topics = [f"topic-{number}" for number in range(1 + entropy.below(2))]
    producers = [
        _draw_producer(entropy.stream(f"producer/{number}"), number)
        for number in range(2 + entropy.below(2))
    ]
    readers = [_follower(entropy.stream("follower"))]
    readers += [
        _draw_reader(entropy.stream(f"reader/{number}"), number)
        for number in range(2 + entropy.below(2))
    ]
    return ClientsPlan(
        partitions={topic: 1 + entropy.below(3) for topic in topics},
        configs={
            "flush.policy": flush_policy,
            "segment.bytes": str(entropy.spread(4_096, 1 << 20)),
        },
        churn_pause_s_max=entropy.spread(1_000, 8_000) / 1000,
        producers=tuple(producers),
        readers=tuple(readers),
        request_timeout_ms=entropy.spread(1_000, 30_000),
        call_timeout_ms=entropy.spread(2_000, 60_000),
        produce_ms=produce_ms,
    )


def _draw_producer(entropy: SimEntropy, number: int) -> ProducerPlan:
    style = ("record", "nowait", "flush", "arrow")[(number + entropy.below(2)) % 4]
    has_small_buffer = entropy.chance(0.5)
    has_short_deadline = entropy.chance(0.2 if has_small_buffer else 0.5)
    has_small_requests = style != "arrow" and entropy.chance(0.5)
    return ProducerPlan(
        name=f"p{number}",
        style=style,
        tasks=1 if style in ("flush", "arrow") else 1 + entropy.below(3),
        acks=("all", "all", "leader", "none")[entropy.below(4)],
        linger_ms=(0, 0, 5, 50)[entropy.below(4)],
        batch_size=entropy.spread(500, 100_000),
        compression=("none", "lz4", "zstd", "gzip", "snappy")[entropy.below(5)],
        buffer_size=entropy.spread(500, 8_000) if has_small_buffer else 1 << 20,
        max_request_size=entropy.spread(1_024, 10_000) if has_small_requests else 8 << 20,
        delivery_timeout_ms=entropy.spread(50, 5_000) if has_short_deadline else 120_000,
        max_block_ms=entropy.spread(10, 1_000) if has_small_buffer else 60_000,
        burst_max=entropy.spread(2, 40),
        pause_s_max=entropy.spread(100, 2_000) / 1000,
        value_size_max=entropy.spread(20, 2_000),
        enable_idempotence=False if entropy.stream("idempotence").chance(0.25) else None,
    )


def _draw_reader(entropy: SimEntropy, number: int) -> ReaderPlan:
    is_slow = entropy.chance(0.3)
    return ReaderPlan(
        name=f"r{number}",
        style=("poll", "next", "iterate", "arrow")[entropy.below(4)],
        wanders=entropy.chance(0.6),
        max_poll_records=entropy.spread(1, 500),
        max_partition_prefetch_bytes=entropy.spread(1, 100_000),
        max_partition_fetch_bytes=entropy.spread(1_024, 100_000),
        pause_s_max=entropy.spread(1_000, 5_000) / 1000 if is_slow else 0.5,
    )


def _follower(entropy: SimEntropy) -> ReaderPlan:
    """Return the plan of a consumer that reads everything once, in order."""
    return ReaderPlan(
        name="follower",
        style="poll",
        wanders=False,
        max_poll_records=entropy.spread(10, 500),
        max_partition_prefetch_bytes=entropy.spread(1_024, 100_000),
        max_partition_fetch_bytes=entropy.spread(1_024, 100_000),
        pause_s_max=0.2,
    )
