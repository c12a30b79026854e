"""The cluster, topics and applications of a run, drawn from the seed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from quorumlog.runtime import Entropy
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.testing.checkers import Place

from ...cluster.options import ClusterOptions, TopicPlan, Workload, draw_options, draw_workload
from .calls import Generation

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INPUT: Final = "in"  # plain and transactional writers -> here
OUTPUT: Final = "out"  # the first processors -> here
LAST: Final = "last"  # the second processors -> here
COMPACTED: Final = "compacted"
DELETED: Final = "deleted"  # deleted and created again all the time
SHORT: Final = "short"  # with retention by size
KEYS: Final = 3  # of records of the compacted topic
SMALL: Final = {"segment.bytes": "4096", "file.delete.delay.ms": "1000"}
EXTRA_CONFIGS: Final = {
    COMPACTED: SMALL
    | {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "300000",
    },
    SHORT: SMALL | {"retention.bytes": "8192"},
    DELETED: {},
}
ID_EXPIRATION_MS: Final = 7 * 24 * 3_600_000  # by default
RECORDS_MAX: Final = 250  # of all plain writers


class Kind(StrEnum):
    """The kinds of applications."""

    PROCESS = "process"  # reads, writes, and commits offsets in one transaction
    WRITE = "write"  # transactions of several partitions, and reads in between


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationPlan:
    """An application: one incarnation after the other, on two machines in turn."""

    name: str
    kind: Kind
    generation: Generation
    transactional_id: str  # of every incarnation; "": each has its own
    machines: tuple[str, str]
    source: str = ""  # topic that it processes
    targets: tuple[str, ...] = ()  # topics that it writes
    timeout_ms: int = 5_000  # of transactions
    is_python: bool = False  # uses our Python client; version NEW

    @property
    def group(self) -> str:
        """The consumer group of a processing application."""
        return f"group-{self.name}"

    @property
    def is_fenced_by_member(self) -> bool:
        """True if a new incarnation fences the previous one as a member of the group (KIP-447)."""
        return not self.transactional_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """The behaviour of applications. Times in milliseconds; the rest are probabilities."""

    batch_max: int  # input records of a transaction
    records_max: int  # of a writer's transaction
    think_ms: tuple[int, int]  # between two transactions
    aborts: float
    sleeps: float  # an incarnation sleeps at a step, and its successor starts
    sleep_ms: tuple[int, int]
    dies: float  # an incarnation ends at a step without any request
    repeats_end: float  # with either outcome, after the result of the first one
    hurries: float  # a writer aborts without waiting for a batch in flight
    request_timeout_ms: int
    delivery_timeout_ms: int
    delayed: float  # requests of version NEW
    repeated: float
    operator_ms: tuple[int, int] | None  # between two transactions ended by InitProducerId
    aborts_ms: tuple[int, int] | None  # between two transactions that an operator aborts
    coordinators_ms: tuple[int, int] | None  # between two faults of coordinators
    late_calls: float  # of verifications and markers between brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsPlan:
    """A run."""

    applications: tuple[ApplicationPlan, ...]
    behaviour: Behaviour
    settings: dict[str, int]  # of every node
    is_calm_long: bool = False  # the calm phase lasts until task attempts expire

    @property
    def machines(self) -> list[str]:
        """The names of the applications' machines."""
        return sorted({name for one in self.applications for name in one.machines})


def draws_transactions(entropy: SimEntropy) -> bool:
    """Return True if clients of levels `node`, `kafka` and `groups` write in transactions in a
    run: in a third of the seeds, those in docs/track-record.md excepted."""
    return entropy.stream("writes transactions").below(3) == 0


def draw_plan(entropy: SimEntropy) -> TransactionsPlan:
    """Draw the applications: two in a row that process, and two or three writers."""
    settings = {
        "offsets_topic_num_partitions": 1 + entropy.below(2),
        "transaction_state_log_num_partitions": 1 + entropy.below(3),
        "group_min_session_timeout_ms": 1_000,
        "group_initial_rebalance_delay_ms": 0,
        "retention_check_interval_ms": (700, 3_000)[entropy.below(2)],
        "transactional_id_expiration_ms": (ID_EXPIRATION_MS, 20_000)[
            entropy.stream("expiration").below(2)
        ],
    }
    applications = []
    extra = [topic for topic in EXTRA_CONFIGS if entropy.chance(0.5)]
    for number, (source, target) in enumerate(((INPUT, OUTPUT), (OUTPUT, LAST))):
        drawn = entropy.stream(f"process/{number}")
        generation = draw_generation(drawn)
        applications.append(
            ApplicationPlan(
                name=f"p{number}",
                kind=Kind.PROCESS,
                generation=generation,
                transactional_id="" if drawn.chance(0.4) else f"process-{number}",
                machines=_draw_machines(drawn),
                source=source,
                targets=(target,),
                timeout_ms=draw_timeout(drawn),
                is_python=generation is Generation.NEW and drawn.chance(0.5),
            )
        )
    for number in range(2 + entropy.below(2)):
        drawn = entropy.stream(f"write/{number}")
        shared = number > 0 and drawn.chance(0.3)  # two producers with one transactional id
        targets = (INPUT, OUTPUT, LAST, *extra)
        generation = applications[-1].generation if shared else draw_generation(drawn)
        applications.append(
            ApplicationPlan(
                name=f"w{number}",
                kind=Kind.WRITE,
                generation=generation,
                transactional_id=f"write-{number - shared}",
                machines=_draw_machines(drawn),
                targets=tuple(topic for topic in targets if drawn.chance(0.7)) or (INPUT,),
                timeout_ms=draw_timeout(drawn),
                is_python=generation is Generation.NEW and drawn.chance(0.5),
            )
        )
    return TransactionsPlan(
        applications=tuple(applications),
        behaviour=draw_behaviour(entropy),
        settings=settings,
        is_calm_long=entropy.stream("attempts expire").chance(0.15),
    )


def draw_cluster(entropy: SimEntropy, plan: TransactionsPlan) -> ClusterOptions:
    """Draw a cluster of one, three, four or five machines, and its topics."""
    options = draw_options(entropy.stream("options"))
    is_single = entropy.chance(0.15)
    if is_single:
        options = replace(options, is_combined=True, controllers=1, brokers=1, racks=0)
    copies = min(3, options.brokers)
    base = replicated_topic(INPUT, copies)
    topics = [
        replace(base, name=name, partitions=1 + entropy.below(3)) for name in (INPUT, OUTPUT, LAST)
    ]
    used = {topic for one in plan.applications for topic in one.targets}
    topics += [
        replace(base, name=name, is_inner=True, is_compacted=name == COMPACTED)
        for name in EXTRA_CONFIGS
        if name in used
    ]
    topics += inner_topics(copies, plan.settings)
    return replace(options, topics=tuple(topics), has_kafka=True)


def replicated_topic(name: str, copies: int) -> TopicPlan:
    """Return the plan of a topic with one partition of so many replicas, as brokers create it."""
    return TopicPlan(
        name=name,
        partitions=1,
        replication=copies,
        min_isr=2 if copies == 3 else 1,
        flush_policy="fsync" if copies == 1 else "replicated",
    )


def inner_topics(copies: int, settings: Mapping[str, int]) -> list[TopicPlan]:
    """Return the plans of the coordinators' topics, for the settings of the nodes."""
    return [
        replace(replicated_topic(name, copies), partitions=settings[setting], is_inner=True)
        for name, setting in (
            (OFFSETS_TOPIC, "offsets_topic_num_partitions"),
            (TRANSACTIONS_TOPIC, "transaction_state_log_num_partitions"),
        )
    ]


def places_of(options: ClusterOptions, topics: tuple[str, ...]) -> list[Place]:
    """Return the partitions of some topics."""
    return [
        (topic.name, index)
        for topic in options.topics
        if topic.name in topics
        for index in range(topic.partitions)
    ]


def draw_writers(entropy: SimEntropy) -> Workload:
    """Draw the plain producers: a few hundred records per run."""
    workload = draw_workload(entropy)
    return replace(
        workload,
        producers=1,
        readers=0,
        burst_max=min(workload.burst_max, 6),
        pause_ms=(200, 1_500),
        value_size_max=min(workload.value_size_max, 60),
        records_max=RECORDS_MAX,
    )


def draw_generation(entropy: Entropy) -> Generation:
    """Draw the version of a producer's protocol."""
    return Generation.NEW if entropy.uniform(0, 1) < 0.6 else Generation.OLD


def _draw_machines(entropy: SimEntropy) -> tuple[str, str]:
    machines = ("a1", "a2", "a3")
    first = entropy.below(3)
    return machines[first], machines[(first + 1 + entropy.below(2)) % 3]


def draw_timeout(entropy: Entropy) -> int:
    """Draw the time-out of transactions, in milliseconds."""
    return (2_000, 5_000, 15_000)[entropy.below(3)]


def draw_behaviour(entropy: SimEntropy) -> Behaviour:
    """Draw the behaviour of applications."""
    return Behaviour(
        batch_max=entropy.spread(1, 30),
        records_max=entropy.spread(1, 12),
        think_ms=((0, 50), (20, 400), (200, 2_000))[entropy.below(3)],
        aborts=(0.05, 0.2, 0.5)[entropy.below(3)],
        sleeps=(0.0, 0.02, 0.06)[entropy.below(3)],
        sleep_ms=((300, 3_000), (2_000, 12_000))[entropy.below(2)],
        dies=(0.0, 0.02, 0.06)[entropy.below(3)],
        repeats_end=(0.0, 0.3)[entropy.below(2)],
        hurries=(0.0, 0.1, 0.3)[entropy.below(3)],
        request_timeout_ms=(800, 2_000, 4_000)[entropy.below(3)],
        delivery_timeout_ms=(3_000, 10_000)[entropy.below(2)],
        delayed=(0.0, 0.02, 0.05)[entropy.below(3)],
        repeated=(0.0, 0.1, 0.3)[entropy.below(3)],
        operator_ms=(None, (500, 6_000), (3_000, 15_000))[entropy.below(3)],
        coordinators_ms=(None, (500, 4_000), (2_000, 8_000))[entropy.below(3)],
        late_calls=(0.0, 0.05, 0.25)[entropy.below(3)],
        aborts_ms=(None, (500, 6_000), (3_000, 15_000))[entropy.below(3)],
    )
