"""The groups of a run, their members and their behaviour, drawn from the seed."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from quorumlog.simulation.entropy import SimEntropy

from ...cluster.options import ClusterOptions, Workload, draw_options, draw_workload
from ..transactions.plan import draws_transactions, inner_topics

OFFSETS_TOPIC: Final = "__consumer_offsets"
NO_TRANSACTIONS: Final = {"transaction_state_log_num_partitions": 0}
RECORDS_MAX: Final = 300
SMALL_SEGMENTS: Final = {
    "segment.bytes": "8192",  # one decision of a group must fit: two of seven members do
    "min.cleanable.dirty.ratio": "0.01",
    # longer than any replica is down; otherwise deleted records return
    "delete.retention.ms": "300000",
    "file.delete.delay.ms": "1000",
}
"""With these configs the offsets topic is compacted repeatedly during the run."""


class MemberKind(StrEnum):
    """The protocols of members."""

    OWN = "own"  # the Python client
    EAGER = "eager"  # the classic protocol, eager rebalance
    COOPERATIVE = "cooperative"  # the classic protocol, cooperative rebalance
    BEATING = "beating"  # KIP-848 without a client


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """A machine with one process of a member after the other."""

    name: str  # of the machine
    group: str
    kind: MemberKind
    instance_id: str = ""  # of a static member
    is_twin: bool = False  # another member has the same static name: this one ends with the faults

    @property
    def is_classic(self) -> bool:
        """True for the classic protocol, in which a static member fences its predecessor."""
        return self.kind in (MemberKind.EAGER, MemberKind.COOPERATIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """A group. Times in milliseconds."""

    name: str
    topics: tuple[str, ...]
    session_ms: int
    rebalance_ms: int
    beat_ms: int  # of members that choose it
    members: tuple[MemberPlan, ...]
    auto_commit: bool = False  # the Python clients commit automatically


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberBehaviour:
    """The behaviour of members, and their faults."""

    work_ms: tuple[int, int]  # processing time of one poll
    records_max: int  # of one poll
    commit_ms: tuple[int, int]  # between two commits
    late: float  # probability that a former member commits late
    request_timeout_ms: int
    pause_ms: tuple[int, int]  # between two faults of members
    span_ms: tuple[int, int]  # duration of an outage or pause
    lie_ms: tuple[int, int]  # between two forged requests
    keep_ms: tuple[int, int] = (50, 300)  # between two checked commits, and two fetches
    coordinators_ms: tuple[int, int] | None = None  # between two faults of coordinators


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsPlan:
    """The groups of a run."""

    groups: tuple[GroupPlan, ...]
    behaviour: MemberBehaviour
    settings: dict[str, int]  # of every node
    offsets_configs: dict[str, str] = field(default_factory=dict)  # of the offsets topic
    is_transactional: bool = False  # most commits are in transactions

    @property
    def members(self) -> list[MemberPlan]:
        """The members of all groups."""
        return [member for group in self.groups for member in group.members]

    def group(self, name: str) -> GroupPlan:
        """Return the plan of a group."""
        return next(group for group in self.groups if group.name == name)


PROTOCOL_MIXES: Final = (
    (MemberKind.OWN,),
    (MemberKind.EAGER,),
    (MemberKind.COOPERATIVE,),
    (MemberKind.BEATING,),
    (MemberKind.OWN, MemberKind.BEATING),
    (MemberKind.OWN, MemberKind.COOPERATIVE),
    (MemberKind.BEATING, MemberKind.EAGER),
    (
        MemberKind.EAGER,
        MemberKind.BEATING,
    ),  # a static member and its twin are mostly the first kind
    (MemberKind.COOPERATIVE, MemberKind.OWN),
)
"""The protocols in one group."""
TWINS: Final = 0.8  # probability of a twin of a classic static member
RARE_TWINS: Final = 0.4  # the same for KIP-848: there the younger one waits for ever


def draw_cluster(
    entropy: SimEntropy, settings: dict[str, int], *, is_compacted: bool = False
) -> ClusterOptions:
    """Draw a cluster of one, three, four or five machines, with strict topics only."""
    options = draw_options(entropy.stream("options"))
    topics = tuple(topic for topic in options.topics if topic.is_strict)
    if entropy.chance(0.2):
        options = replace(options, is_combined=True, controllers=1, brokers=1, racks=0)
        topics = tuple(
            replace(topic, replication=1, min_isr=1, flush_policy="fsync") for topic in topics
        )
    elif options.is_combined and entropy.chance(0.2):
        options = replace(options, brokers=5)
    copies = min(3, options.brokers)
    offsets, transactions = inner_topics(copies, {**NO_TRANSACTIONS, **settings})
    offsets = replace(offsets, is_compacted=is_compacted)
    inner = [offsets, transactions] if transactions.partitions else [offsets]
    topics = tuple(
        replace(topic, partitions=topic.partitions + entropy.below(4)) for topic in topics
    )
    return replace(options, topics=(*topics, *inner), has_kafka=True)


def draw_writers(entropy: SimEntropy) -> Workload:
    """Draw the producers: a few hundred records per run."""
    workload = draw_workload(entropy)
    return replace(
        workload,
        producers=1,
        readers=0,
        burst_max=min(workload.burst_max, 8),
        pause_ms=(200, 1_500),
        value_size_max=min(workload.value_size_max, 100),
        records_max=RECORDS_MAX,
    )


def draw_plan(entropy: SimEntropy, topics: list[str]) -> GroupsPlan:
    """Draw the groups of a run, in a third of the seeds with transactions."""
    is_transactional = draws_transactions(entropy)
    return draw_groups(entropy.stream("groups"), topics, is_transactional=is_transactional)


def draw_groups(
    entropy: SimEntropy, topics: list[str], *, is_transactional: bool = False
) -> GroupsPlan:
    """Draw one or two groups of two to five members."""
    session_ms = (3_000, 6_000, 10_000)[entropy.below(3)]
    beat_ms = (300, 1_000)[entropy.below(2)]
    settings = {
        "offsets_topic_num_partitions": 1 + entropy.below(3),
        "group_min_session_timeout_ms": 1_000,
        "group_initial_rebalance_delay_ms": (0, 500, 3_000)[entropy.below(3)],
        "group_consumer_session_timeout_ms": session_ms,
        "group_consumer_heartbeat_interval_ms": beat_ms,
        "retention_check_interval_ms": (700, 3_000)[entropy.below(2)],
        "offsets_retention_check_interval_ms": (300, 2_000)[entropy.below(2)],
    }
    if is_transactional:
        partitions = 1 + entropy.stream("transactions").below(3)
        settings["transaction_state_log_num_partitions"] = partitions
    is_compacted = entropy.chance(0.5)
    groups, machines = [], 0
    for number in range(1 + entropy.below(2)):
        drawn = entropy.stream(f"group/{number}")
        name = f"g{number}"
        kinds = PROTOCOL_MIXES[drawn.below(len(PROTOCOL_MIXES))]
        statics = drawn.chance(0.5)
        members = []
        for index in range(2 + drawn.below(4)):
            machines += 1
            is_static = statics and drawn.chance(0.6)
            members.append(
                MemberPlan(
                    name=f"m{machines}",
                    group=name,
                    kind=kinds[index % len(kinds)],
                    instance_id=f"static-{index}" if is_static else "",
                )
            )
        static = next((one for one in members if one.instance_id), None)
        if static is not None and drawn.chance(TWINS if static.is_classic else RARE_TWINS):
            machines += 1
            members.append(replace(static, name=f"m{machines}", is_twin=True))
        wanted = topics if drawn.chance(0.7) else topics[:1]
        groups.append(
            GroupPlan(
                name=name,
                topics=tuple(wanted),
                session_ms=session_ms,
                rebalance_ms=(3_000, 8_000)[drawn.below(2)],
                beat_ms=beat_ms,
                members=tuple(members),
                auto_commit=(
                    MemberKind.OWN in kinds and drawn.chance(0.4) and not is_transactional
                ),
            )
        )
    return GroupsPlan(
        groups=tuple(groups),
        behaviour=_draw_behaviour(entropy),
        settings=settings,
        offsets_configs=SMALL_SEGMENTS if is_compacted else {},
        is_transactional=is_transactional,
    )


def _draw_behaviour(entropy: SimEntropy) -> MemberBehaviour:
    return MemberBehaviour(
        work_ms=((0, 20), (10, 300))[entropy.below(2)],
        records_max=entropy.spread(1, 50),
        commit_ms=((50, 500), (500, 3_000))[entropy.below(2)],
        late=(0.0, 0.5, 1.0)[entropy.below(3)],
        request_timeout_ms=(1_500, 4_000)[entropy.below(2)],
        pause_ms=((300, 2_000), (1_000, 8_000))[entropy.below(2)],
        span_ms=((50, 2_000), (500, 15_000))[entropy.below(2)],
        lie_ms=((200, 2_000), (1_000, 5_000))[entropy.below(2)],
        keep_ms=((30, 200), (200, 1_000))[entropy.below(2)],
        coordinators_ms=(None, (500, 4_000), (2_000, 8_000))[entropy.below(3)],
    )
