"""Overview: the health of the cluster in one sentence, brokers, quorum, throughput, lags."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...aio import AsyncLog
from ...clients.admin.descriptions import Broker, Cluster, Topic
from ...clients.admin.groups import Group
from ...clients.admin.health import STATES, needs_attention, states_of, summary
from ...clients.admin.quorum import Quorum
from ...errors import QuorumlogError, TimedOut
from ...ids import TopicPartition
from .. import formats
from ..cluster_view import (
    GROUPS_MAX,
    LIST_MS,
    NO_LEADER_TEXT,
    Disks,
    disks,
    fenced_text,
    groups,
    part,
    record_rates,
    remark_of,
)
from ..failures import failure_of
from ..node_metrics import Speed, read_speeds
from ..page import Form, Page, PageChange, Values, Visit
from .topics import level_of

WORST_GROUPS: Final = 5
FIRST_DISKS_S: Final = 0.1  # the first page does not wait longer; its first refresh has the disks
ATTENTION_MAX: Final = 10
SLOW_MAX: Final = 3  # slow brokers that the health names
SAMPLE_TOPIC: Final = "sample-orders"
SAMPLE_GROUP: Final = "sample-readers"
SAMPLE_PARTITIONS: Final = 3
SAMPLE_RECORDS: Final = 1_000
_ITEMS: Final = ("apples", "bread", "coffee", "dates", "eggs", "figs", "grapes")
_CITIES: Final = ("Berlin", "Lagos", "Lima", "Osaka", "Oslo", "Quito", "Zagreb")


@dataclass(frozen=True, slots=True)
class Health:
    """The state of the cluster."""

    level: str  # "good", "warning", "bad"
    sentence: str


async def load(visit: Visit) -> Values:
    """Read everything at once; the cluster's description alone must succeed."""
    log = await visit.log()
    admin = log.admin
    (cluster, usage, speeds), quorum, listings, topics, lags = await asyncio.gather(
        _cluster(log, is_refresh=visit.is_refresh),
        part("quorum", admin.describe_quorum()),
        admin.list_topics(),
        part("topics", admin.describe_topics(), limit_s=10),
        _lags(log),
    )
    if not visit.is_refresh:  # brokers that are slow to read their disks are no failure yet
        errors = {n: each for n, each in usage.errors.items() if not isinstance(each, TimedOut)}
        usage = Disks(usage.by_broker, errors)
    records, written = None, None
    if usage.by_broker:
        records, written = record_rates(visit.session, "cluster", usage, visit.now_s)
    counts = summary(topics) if not isinstance(topics, QuorumlogError) else None
    session = visit.session
    rows = broker_rows(cluster, usage, topics, speeds)
    described = [] if isinstance(topics, QuorumlogError) else topics
    return {
        "cluster": cluster,
        "remark": None,  # the health has it
        "attention": [] if isinstance(topics, QuorumlogError) else attention_of(topics, counts),
        "health": health_of(cluster, quorum, counts, rows),
        "counts": counts,
        "topic_count": len(listings),
        "internal_count": max(0, len(described) - len(listings)),
        "records": records,
        "written": written,
        "records_series": session.samples("cluster records"),
        "bytes_series": session.samples("cluster bytes"),
        "brokers": rows,
        "quorum": None if isinstance(quorum, QuorumlogError) else quorum,
        "lags": lags,
        "notes": _notes(quorum, topics, lags),
        "guide": _guide(cluster, visit.session.config.bootstrap) if not listings else None,
    }


async def _cluster(log: AsyncLog, *, is_refresh: bool) -> tuple[Cluster, Disks, dict[int, Speed]]:
    """Return the cluster with its disks and the speed of its brokers, without the speed for the
    first page."""
    cluster = await log.admin.describe_cluster()
    if not is_refresh:
        return cluster, await disks(log, cluster.brokers, limit_s=FIRST_DISKS_S), {}
    usage, speeds = await asyncio.gather(
        disks(log, cluster.brokers), read_speeds(log, cluster.brokers)
    )
    return cluster, usage, speeds


def health_of(
    cluster: Cluster,
    quorum: Quorum | QuorumlogError,
    counts: Mapping[str, int] | None,
    brokers: Sequence["BrokerRow"] = (),
) -> Health:
    """Return the worst finding as one sentence, with the brokers that are fenced or slow."""
    fenced = [broker.id for broker in cluster.brokers if broker.fenced]
    states = [fenced_text(fenced)] if fenced else []
    states += [row.slowness for row in brokers if row.slowness][:SLOW_MAX]
    more = "".join(f" {state}" for state in states)
    remark = remark_of(cluster, with_fenced=False)
    if remark is not None:
        return Health(remark.level, remark.text)
    if isinstance(quorum, Quorum) and quorum.leader is None:
        return Health("bad", NO_LEADER_TEXT)
    if counts is not None and counts["offline"]:
        return Health(
            "bad",
            f"{formats.count(counts['offline'], 'partition')} without a leader: neither readable"
            f" nor writable.{more}",
        )
    if counts is not None and counts["under-min-isr"]:
        return Health(
            "bad",
            f"{formats.count(counts['under-min-isr'], 'partition')} below min.insync.replicas:"
            f" writes with acks=all are refused.{more}",
        )
    if counts is not None and counts["under-replicated"]:
        return Health(
            "warning",
            f"{formats.count(counts['under-replicated'], 'partition')} under-replicated: a replica"
            f" is not in sync.{more}",
        )
    if states:
        return Health("warning", " ".join(states))
    if counts is None:
        return Health("warning", "The state of the partitions is unknown.")
    nodes = formats.count(len(cluster.brokers), "broker")
    if not counts["partitions"]:
        return Health("good", f"Healthy: {nodes}, no partition yet.")
    partitions = formats.count(counts["partitions"], "partition")
    return Health("good", f"Healthy: {nodes}, {partitions}, all replicas in sync.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """A topic that needs attention, with its worst state."""

    topic: str
    level: str  # "bad", "warning"
    text: str


def attention_of(topics: Sequence[Topic], counts: Mapping[str, int] | None) -> list[Attention]:
    """Return at most ATTENTION_MAX topics that need attention, the worst first. `counts` is the
    summary of all topics."""
    if counts is None or not any(counts[state] for state in STATES if needs_attention([state])):
        return []
    found = []
    for topic in topics:
        worst = [
            states[0] for states in map(states_of, topic.partitions) if needs_attention(states)
        ]
        if worst:
            state = min(worst, key=list(STATES).index)
            partitions = formats.count(len(topic.partitions), "partition")
            text = f"{worst.count(state):,} of {partitions} {state}"
            found.append(Attention(topic=topic.name, level=level_of([state]), text=text))
    found.sort(key=lambda each: (each.level, each.topic))  # "bad" is before "warning"
    return found[:ATTENTION_MAX]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    """One line of the table of brokers."""

    broker: Broker
    state: str
    slow: str  # the reason if it is slow, as the end of a sentence; else empty
    leaders: int | None  # partitions that it leads
    replicas: int | None
    size_bytes: int | None
    used: float | None  # part of its disks in use
    free_bytes: int | None
    error: str

    @property
    def level(self) -> str:
        """The level of the state."""
        return {"in service": "good", "slow": "warning"}.get(self.state, "bad")

    @property
    def slowness(self) -> str:
        """A sentence about a broker that is slow or does not answer; else empty."""
        if self.state == "no answer":
            return f"Broker {self.broker.id} does not answer."
        return f"Broker {self.broker.id} is slow: {self.slow}." if self.state == "slow" else ""


def broker_rows(
    cluster: Cluster,
    usage: Disks,
    topics: Sequence[Topic] | QuorumlogError,
    speeds: Mapping[int, Speed],
) -> list[BrokerRow]:
    """Return the rows by id. `speeds` are those of the brokers that were asked."""
    leaders: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for topic in () if isinstance(topics, QuorumlogError) else topics:
        for each in topic.partitions:
            if each.leader is not None:
                leaders[each.leader] = leaders.get(each.leader, 0) + 1
            for node in each.replicas:
                replicas[node] = replicas.get(node, 0) + 1
    is_known = not isinstance(topics, QuorumlogError)
    rows = []
    for broker in cluster.brokers:
        directories = usage.by_broker.get(broker.id, ())
        capacity = sum(each.capacity_bytes for each in directories)
        free = sum(each.free_bytes for each in directories)
        error = usage.errors.get(broker.id)
        slow = speeds.get(broker.id, Speed()).slow
        usual = "slow" if slow else "in service"
        state = "fenced" if broker.fenced else "stopping" if broker.stopping else usual
        rows.append(
            BrokerRow(
                broker=broker,
                state="no answer" if error is not None and error.retriable else state,
                slow=slow,
                leaders=leaders.get(broker.id, 0) if is_known else None,
                replicas=replicas.get(broker.id, 0) if is_known else None,
                size_bytes=sum(each.size_bytes for each in directories) if directories else None,
                used=1 - free / capacity if capacity else None,
                free_bytes=free if capacity else None,
                error="" if error is None else str(error),
            )
        )
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Lags:
    """The groups with the largest lags."""

    worst: Sequence[Group]
    count: int  # of all groups
    described: int  # of them, at most GROUPS_MAX
    errors: Sequence[QuorumlogError] = ()  # of brokers that did not list their groups


async def _lags(log: AsyncLog) -> Lags:
    found = await part("groups", log.admin.list_reachable_groups(timeout_ms=LIST_MS))
    if isinstance(found, QuorumlogError):
        return Lags(worst=(), count=0, described=0, errors=[found])
    names = [each.name for each in found.groups[:GROUPS_MAX]]
    described = [each for each in await groups(log, names) if isinstance(each, Group)]
    described.sort(key=lambda group: (-group.lag, group.name))
    return Lags(
        worst=described[:WORST_GROUPS],
        count=len(found.groups),
        described=len(names),
        errors=found.errors,
    )


def _notes(quorum: object, topics: Sequence[Topic] | QuorumlogError, lags: Lags) -> list[str]:
    """Return the errors of parts of the page."""
    parts = (quorum, topics, *lags.errors)
    failed = [each for each in parts if isinstance(each, QuorumlogError)]
    return list(dict.fromkeys(failure_of(error).message for error in failed))


@dataclass(frozen=True, slots=True)
class Guide:
    """The addresses of the first steps on an empty cluster."""

    grpc: str
    kafka: str  # "" if no broker has a listener for Kafka clients


def _guide(cluster: Cluster, bootstrap: str) -> Guide:
    live = [broker for broker in cluster.brokers if not broker.fenced] or list(cluster.brokers)
    grpc = live[0].grpc_address if live else bootstrap.split(",")[0]
    kafka = next(iter(live[0].kafka_listeners.values()), "") if live else ""
    host, _, port = kafka.rpartition(":")
    if kafka and host in ("", "0.0.0.0", "[::]", "::"):
        kafka = f"{grpc.rpartition(':')[0]}:{port}"
    return Guide(grpc, kafka)


async def create_samples(log: AsyncLog) -> int:
    """Create the sample topic, write its records, commit the group's offsets at half of them;
    return the number of records. Raises TopicAlreadyExists."""
    await log.admin.create_topic(SAMPLE_TOPIC, partitions=SAMPLE_PARTITIONS)
    async with log.producer(linger_ms=20) as producer:
        for number in range(SAMPLE_RECORDS):
            order = {
                "order": number,
                "item": _ITEMS[number % len(_ITEMS)],
                "city": _CITIES[number * 3 % len(_CITIES)],
                "amount": number * 37 % 100 + 1,
            }
            await producer.send(SAMPLE_TOPIC, json.dumps(order), key=f"customer-{number * 7 % 50}")
    ends = await log.list_offsets(SAMPLE_TOPIC)
    half = {TopicPartition(SAMPLE_TOPIC, partition): end // 2 for partition, end in ends.items()}
    await log.admin.reset_offsets(SAMPLE_GROUP, half)
    return SAMPLE_RECORDS


async def add_samples(visit: Visit, form: Form) -> str:
    """Create the sample topic with records and a group."""
    count = await create_samples(await visit.log())
    visit.session.notice = (
        f"Created topic {SAMPLE_TOPIC} with {formats.count(count, 'record')} and the group"
        " sample-readers, which has read half of them."
    )
    return f"/topic/{SAMPLE_TOPIC}"


OVERVIEW: Final = Page(
    path="/", section="overview", title="Overview", template="overview.html", load=load
)
PAGES: Final = (OVERVIEW,)
CHANGES: Final = (PageChange(page=OVERVIEW, act=add_samples, path="/samples"),)
