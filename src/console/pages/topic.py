"""A topic: partitions, configs, rates, and the forms that change or delete it."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...clients.admin.configs import Config
from ...clients.admin.descriptions import Broker, Partition, Topic
from ...clients.admin.fenced_brokers import FencingCause
from ...clients.admin.findings import not_in_sync, under_min_isr
from ...clients.admin.health import states_of
from ...clients.admin.partitions import PartitionReplicas
from ...errors import InvalidConfig, InvalidRequest, QuorumlogError
from .. import formats
from ..cluster_view import disks, part, read_causes, record_rates
from ..lists import part_of
from ..page import Form, Page, PageChange, Values, Visit
from .topics import PARTITIONS_MAX, level_of, topic_path

LEVELS: Final = ("bad", "warning", "good")
STATE_TEXTS: Final = {"led-elsewhere": "not led by its preferred replica"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaggingReplica:
    """A replica that is not in sync."""

    broker: int
    why: str  # a sentence without its full stop; empty: the cause of its broker, once for the page
    progress: str  # the distance to the leader, as a predicate; empty: unknown
    remedy: str  # a sentence without its full stop; empty: none


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One line of the table of partitions."""

    state: Partition
    text: str  # "in sync", or its states
    level: str
    first: int | None  # log start offset
    end: int | None  # log end offset
    size_bytes: int | None
    lagging: Sequence[LaggingReplica]
    error: str  # the reason if it has no leader, or if its replicas are unknown


async def load(visit: Visit) -> Values:
    """Read the topic; offsets, sizes and replicas of the visible partitions alone."""
    log = await visit.log()
    name = visit.arguments["topic"]
    topic, configs, cluster = await asyncio.gather(
        log.admin.describe_topic(name),
        part("configs", log.admin.describe_configs(name)),
        log.admin.describe_cluster(),
    )
    found = part_of(
        topic.partitions,
        path=visit.path,
        query=visit.query,
        text=lambda each: str(each.partition),
        columns={
            "partition": lambda each: each.partition,
            "leader": lambda each: (-1 if each.leader is None else each.leader, each.partition),
            "state": lambda each: (LEVELS.index(level_of(states_of(each))), each.partition),
        },
    )
    lagging = [each for each in found.rows if each.leader is None or each.is_under_replicated]
    brokers = {each.id: each for each in cluster.brokers}
    away = {node for each in lagging for node in each.replicas if node not in each.isr}
    usage, replicas, causes = await asyncio.gather(
        disks(log, cluster.brokers, [name]),
        _replicas(visit, name, lagging),
        read_causes(log, [brokers[node] for node in sorted(away & brokers.keys())]),
    )
    reasons = OutOfSyncReasons(brokers=brokers, causes=causes, time_ms=cluster.time_ms)
    records, written = record_rates(visit.session, f"topic {name}", usage, visit.now_s)
    sizes, offsets = usage.sizes(), usage.offsets()
    session = visit.session
    return {
        "cluster": cluster,
        "causes": list(causes.values()),
        "topic": topic,
        "partitions": found,
        "rows": [
            _row(name, each, sizes, offsets, replicas.get(each.partition), reasons)
            for each in found.rows
        ],
        "size_bytes": sum(sizes.values()) if sizes else None,
        "offsets": sum(end - first for first, end in offsets.values()) if offsets else None,
        "records": records,
        "written": written,
        "records_series": session.samples(f"topic {name} records"),
        "bytes_series": session.samples(f"topic {name} bytes"),
        "configs": _sorted(configs) if not isinstance(configs, QuorumlogError) else [],
        "configs_error": str(configs) if isinstance(configs, QuorumlogError) else "",
        "retention": _retention(configs),
    }


async def _replicas(
    visit: Visit, name: str, partitions: Sequence[Partition]
) -> dict[int, PartitionReplicas | QuorumlogError]:
    """Ask the leaders for the replicas of partitions that need an explanation."""
    if not partitions:
        return {}
    log = await visit.log()
    places = [(name, each.partition) for each in partitions]
    answer = await part("replicas", log.admin.describe_replicas(places))
    if isinstance(answer, QuorumlogError):
        return {each.partition: answer for each in partitions}
    return {each.partition: each for each in answer}


def _row(
    name: str,
    partition: Partition,
    sizes: Mapping[tuple[str, int], int],
    offsets: Mapping[tuple[str, int], tuple[int, int]],
    found: PartitionReplicas | QuorumlogError | None,
    reasons: "OutOfSyncReasons",
) -> PartitionRow:
    states = states_of(partition)
    first, end = offsets.get((name, partition.partition), (None, None))
    by_leader = None if isinstance(found, QuorumlogError) else found
    error = ""
    if partition.leader is None:
        error = under_min_isr(name, partition, reasons.brokers).text
    elif isinstance(found, QuorumlogError):
        error = str(found)
    elif found is not None and found.error is not None:
        error = str(found.error)
    return PartitionRow(
        state=partition,
        text=", ".join(STATE_TEXTS.get(state, state) for state in states) or "in sync",
        level=level_of(states),
        first=first,
        end=end,
        size_bytes=sizes.get((name, partition.partition)),
        lagging=[] if found is None else list(reasons.of(name, partition, by_leader)),
        error=error,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfSyncReasons:
    """The facts that explain why replicas are not in sync."""

    brokers: Mapping[int, Broker]
    causes: Mapping[int, FencingCause]  # of fenced and stopping brokers that were probed
    time_ms: int  # UTC clock of a broker, milliseconds since 1970

    def of(
        self, topic: str, partition: Partition, by_leader: PartitionReplicas | None
    ) -> Iterator[LaggingReplica]:
        """Yield each replica of a partition that is not in sync. `by_leader` is the state at the
        leader, None if it is unknown."""
        for finding in not_in_sync(topic, partition, by_leader, self.brokers):
            node = finding.broker
            assert node is not None, "of a replica"
            is_explained = node in self.causes
            why, remedy = ("", "") if is_explained else (finding.why, finding.remedy)
            yield LaggingReplica(
                broker=node, why=why, progress=self._progress(node, by_leader), remedy=remedy
            )

    def _progress(self, node: int, by_leader: PartitionReplicas | None) -> str:
        """Return the records that a replica lacks since which time, as a predicate."""
        if by_leader is None or by_leader.leader is None:
            return ""
        replicas = {each.broker: each for each in by_leader.replicas}
        replica, leader = replicas.get(node), replicas.get(by_leader.leader)
        if replica is None or leader is None or leader.log_end_offset is None:
            return ""
        if replica.log_end_offset is None:
            return "has not fetched a record since the present leader was elected"
        behind = max(0, leader.log_end_offset - replica.log_end_offset)
        lacks = f"lacks {formats.count(behind, 'record')}" if behind else "lacks no record"
        if replica.caught_up_ms_ago is None:
            return f"{lacks} and was never in sync since the present leader was elected"
        since = formats.recent_time(self.time_ms - replica.caught_up_ms_ago, self.time_ms)
        return f"{lacks} since {since}" if behind else f"{lacks}; its last fetch was at {since}"


def _sorted(configs: Mapping[str, Config]) -> list[Config]:
    """Return configs that are set first, then by name."""
    return sorted(configs.values(), key=lambda config: (config.is_default, config.name))


def _retention(configs: Mapping[str, Config] | QuorumlogError) -> str:
    """Return the retention of the topic as text."""
    if isinstance(configs, QuorumlogError):
        return formats.DASH
    limits = []
    ms, size = configs.get("retention.ms"), configs.get("retention.bytes")
    policy = configs.get("cleanup.policy")
    if policy is not None and "delete" not in policy.value:
        return "compacted"
    if ms is not None and ms.value.isdigit():
        limits.append(formats.duration(int(ms.value)))
    if size is not None and size.value.isdigit():
        limits.append(f"{formats.size(int(size.value))} a partition")
    return " or ".join(limits) or "unlimited"


async def load_topic(visit: Visit) -> Values:
    """Read the topic for a form."""
    log = await visit.log()
    topic: Topic = await log.admin.describe_topic(visit.arguments["topic"])
    return {"topic": topic}


async def load_config(visit: Visit) -> Values:
    """Read one config of the topic for its form. Raises InvalidConfig for an unknown name."""
    log = await visit.log()
    name = visit.arguments["config"]
    configs = await log.admin.describe_configs(visit.arguments["topic"])
    if name not in configs:
        raise InvalidConfig(f"{name[:80]!r}: not a config of topics; the topic's page lists them")
    return {"config": configs[name], "topic_name": visit.arguments["topic"]}


async def grow(visit: Visit, form: Form) -> str:
    """Add partitions."""
    name = visit.arguments["topic"]
    count = form.number("partitions", low=1, high=PARTITIONS_MAX)
    if count is None:
        raise InvalidRequest("New total number of partitions: empty; give the number of partitions")
    log = await visit.log()
    await log.admin.create_partitions(name, count)
    visit.session.notice = f"Topic {name} has {formats.count(count, 'partition')}."
    return topic_path(name)


async def alter(visit: Visit, form: Form) -> str:
    """Set a config, or reset it to its default.

    The form has the value that the user saw. Another present value is refused, so that two users do
    not overwrite each other's change unseen.
    """
    topic, name = visit.arguments["topic"], visit.arguments["config"]
    log = await visit.log()
    check_unchanged((await log.admin.describe_configs(topic)).get(name), form)
    if form.is_checked("reset"):
        await log.admin.alter_configs(topic, delete=[name])
        visit.session.notice = f"Reset {name} of topic {topic} to its default."
    else:
        await log.admin.alter_configs(topic, {name: form.text("value")})
        visit.session.notice = f"Set {name} of topic {topic} to {form.text('value')}."
    return topic_path(topic)


def check_unchanged(config: Config | None, form: Form) -> None:
    """Raise InvalidRequest if a config does not have the value that the form was made with."""
    if config is not None and form.exact("seen") != config.value:
        raise InvalidRequest(
            f"{config.name}: changed since this page was loaded, to {config.value[:80]!r}; check"
            " the present value and send the form again"
        )


async def elect(visit: Visit, form: Form) -> str:
    """Elect the preferred replica as leader, wherever it is in sync and does not lead."""
    name = visit.arguments["topic"]
    log = await visit.log()
    topic = await log.admin.describe_topic(name)
    moved = [(name, each.partition) for each in topic.partitions if each.leader != each.replicas[0]]
    if not moved:
        visit.session.notice = "Every partition has its preferred leader already."
        return topic_path(name)
    outcomes = await log.admin.elect_leaders(moved)
    failed = [each for each in outcomes if each.error is not None]
    if failed and failed[0].error is not None:
        raise failed[0].error
    visit.session.notice = f"Elected leaders of {formats.count(len(outcomes), 'partition')}."
    return topic_path(name)


async def delete(visit: Visit, form: Form) -> str:
    """Delete the topic."""
    name = visit.arguments["topic"]
    form.confirm(name)
    log = await visit.log()
    await log.admin.delete_topic(name)
    visit.session.notice = f"Deleted topic {name}."
    return "/topics"


def _form_page(path: str, title: str, template: str, *, is_config: bool = False) -> Page:
    return Page(
        path=f"/topic/{{topic}}/{path}",
        section="topics",
        title=title,
        template=template,
        load=load_config if is_config else load_topic,
        is_live=False,
    )


TOPIC: Final = Page(
    path="/topic/{topic}", section="topics", title="{topic}", template="topic.html", load=load
)
GROW: Final = _form_page("partitions", "Add partitions", "topic_grow.html")
ALTER: Final = _form_page("config/{config}", "Change {config}", "topic_config.html", is_config=True)
ELECT: Final = _form_page("elect", "Elect leaders", "topic_elect.html")
DELETE: Final = _form_page("delete", "Delete {topic}", "topic_delete.html")
PAGES: Final = (TOPIC, GROW, ALTER, ELECT, DELETE)
CHANGES: Final = (
    PageChange(page=GROW, act=grow),
    PageChange(page=ALTER, act=alter),
    PageChange(page=ELECT, act=elect),
    PageChange(page=DELETE, act=delete),
)
