"""Options of a cluster and of its clients' workload, drawn from the seed."""

from dataclasses import dataclass, replace
from typing import Final

from quorumlog.simulation.entropy import SimEntropy
from quorumlog.testing.checkers import Place

REPLICATED: Final = {"flush.policy": "replicated"}
FSYNC: Final = {"flush.policy": "fsync"}
SHORT_SESSION_MS: Final = 400  # a few heartbeats
SMALL_SEGMENT_BYTES: Final = "16384"
SMALL_TRANSACTION_RECORDS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic of the run."""

    name: str
    partitions: int
    replication: int
    min_isr: int
    flush_policy: str  # "replicated" or "fsync"
    is_strict: bool = True  # clients write with acks=all: no loss, no duplicates
    is_unclean: bool = False  # a replica outside the ISR may lead
    is_inner: bool = False  # created by the brokers, not used by clients
    is_compacted: bool = False  # during the run: replicas hold different batches
    extra: tuple[tuple[str, str], ...] = ()  # further configs of its creation

    @property
    def configs(self) -> dict[str, str]:
        """The configs of its creation."""
        return {
            "min.insync.replicas": str(self.min_isr),
            "flush.policy": self.flush_policy,
            "unclean.leader.election.enable": str(self.is_unclean).lower(),
            **dict(self.extra),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The nodes of a run. Times in milliseconds."""

    controllers: int
    brokers: int
    is_combined: bool  # every node has both roles, or each has one
    racks: int  # failure zones of the brokers, 0: none
    election_timeout_ms: int
    session_timeout_ms: int
    lag_time_ms_max: int  # replica.lag.time.max.ms
    topics: tuple[TopicPlan, ...]
    has_kafka: bool = False  # brokers have a Kafka listener
    records_at_once: int = 100  # of a metadata transaction, in one step of the controller

    @property
    def places(self) -> list[Place]:
        """Every partition that clients use."""
        return [
            (topic.name, index)
            for topic in self.topics
            if not topic.is_inner
            for index in range(topic.partitions)
        ]

    def topic(self, name: str) -> TopicPlan:
        """Return the plan of a topic."""
        return next(topic for topic in self.topics if topic.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The workload of the clients."""

    producers: int  # on each client machine
    readers: int
    burst_max: int  # records sent before waiting for their outcomes
    pause_ms: tuple[int, int]
    value_size_max: int
    linger_ms: int
    batch_size: int
    compression: str
    delivery_timeout_ms: int
    records_max: int  # of all producers; afterwards they slow down
    request_timeout_ms: int = 30_000  # the default
    # then a consumer starts again at the beginning
    reader_lives_ms: tuple[int, int] = (5_000, 40_000)


def draw_options(entropy: SimEntropy) -> ClusterOptions:
    """Draw the nodes and topics of a run."""
    is_combined = entropy.chance(0.6)
    brokers = 3 if entropy.chance(0.7) else 4 + entropy.below(2)
    session_ms = (1_000, 3_000)[entropy.below(2)]
    return ClusterOptions(
        controllers=3,
        brokers=3 if is_combined else brokers,
        is_combined=is_combined,
        racks=entropy.below(2) * 3,
        election_timeout_ms=(600, 1_000)[entropy.below(2)],
        session_timeout_ms=session_ms,
        lag_time_ms_max=(3_000, 10_000)[entropy.below(2)],
        topics=draw_topics(entropy.stream("topics")),
    )


def with_bounds(options: ClusterOptions, entropy: SimEntropy) -> ClusterOptions:
    """Return the options with rarely drawn bounds: short sessions, small segments, metadata
    transactions of few records."""
    if entropy.stream("small transactions").chance(0.4):
        options = replace(options, records_at_once=SMALL_TRANSACTION_RECORDS)
    if entropy.stream("short sessions").chance(0.25):
        options = replace(options, session_timeout_ms=SHORT_SESSION_MS)
    if entropy.stream("small segments").chance(0.3):
        topics = tuple(
            replace(topic, extra=(*topic.extra, ("segment.bytes", SMALL_SEGMENT_BYTES)))
            for topic in options.topics
        )
        options = replace(options, topics=topics)
    return options


def draw_topics(entropy: SimEntropy) -> tuple[TopicPlan, ...]:
    """Draw one or two strict topics, and sometimes one with weaker guarantees."""
    topics = []
    for number in range(1 + entropy.below(2)):
        replication = 3 if entropy.chance(0.8) else 2
        min_isr = 1 if entropy.chance(0.3) else 2
        topics.append(
            TopicPlan(
                name=f"strict-{number}",
                partitions=1 + entropy.below(3),
                replication=replication,
                min_isr=min_isr,
                flush_policy="replicated" if min_isr > 1 and entropy.chance(0.7) else "fsync",
            )
        )
    if entropy.chance(0.5):
        topics.append(
            TopicPlan(
                name="loose",
                partitions=1 + entropy.below(2),
                replication=3,
                min_isr=2,
                flush_policy="replicated",
                is_strict=False,
            )
        )
    return tuple(topics)


def draw_workload(entropy: SimEntropy) -> Workload:
    """Draw the workload of the clients."""
    return Workload(
        producers=1 + entropy.below(2),
        readers=1,
        burst_max=entropy.spread(1, 20),
        pause_ms=((20, 200), (100, 1_000))[entropy.below(2)],
        value_size_max=entropy.spread(10, 1_000),
        linger_ms=entropy.below(20),
        batch_size=entropy.spread(200, 20_000),
        compression=("none", "none", "lz4", "zstd")[entropy.below(4)],
        delivery_timeout_ms=(5_000, 30_000, 120_000)[entropy.below(3)],
        records_max=1_500,
        request_timeout_ms=5_000,  # the cost of a call on a connection that fell silent
    )
