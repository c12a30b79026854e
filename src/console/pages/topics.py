"""Topics: the list, and the form for a new one."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from ...clients.admin.configs import Config
from ...clients.admin.descriptions import Cluster, Topic, TopicListing
from ...clients.admin.health import needs_attention, states_of
from ...errors import InvalidConfig, QuorumlogError
from ..cluster_view import disks, part, remark_of
from ..lists import part_of
from ..page import Form, Page, PageChange, Values, Visit

PARTITIONS_MAX: Final = 100_000
REPLICAS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the list."""

    listing: TopicListing
    state: str  # of its worst partition, "" if unknown
    level: str  # "good", "warning", "bad", ""
    size_bytes: int | None  # of one replica of each partition
    offsets: int | None  # between log start and end, of all partitions


async def load(visit: Visit) -> Values:
    """Read the list; states and sizes of the visible topics alone."""
    log = await visit.log()
    is_internal = bool(visit.query.get("internal"))
    listings, cluster = await asyncio.gather(
        log.admin.list_topics(internal=is_internal), log.admin.describe_cluster()
    )
    found = part_of(
        listings,
        path="/topics",
        query=visit.query,
        text=lambda topic: topic.name,
        columns={
            "name": lambda topic: topic.name,
            "partitions": lambda topic: (topic.partitions, topic.name),
            "replication": lambda topic: (topic.replication_factor, topic.name),
        },
    )
    names = [listing.name for listing in found.rows]
    described: list[Topic] | QuorumlogError = []
    sizes: Mapping[tuple[str, int], int] = {}
    offsets: Mapping[tuple[str, int], tuple[int, int]] = {}
    if names:
        described, usage = await asyncio.gather(
            part("topics", log.admin.describe_topics(names)),
            disks(log, cluster.brokers, names),
        )
        sizes, offsets = usage.sizes(), usage.offsets()
    topics = {} if isinstance(described, QuorumlogError) else {t.name: t for t in described}
    return {
        "cluster": cluster,
        "topics": found,
        "rows": [_row(listing, topics.get(listing.name), sizes, offsets) for listing in found.rows],
        "is_internal": is_internal,
    }


def level_of(states: list[str]) -> str:
    """Return "good", "warning" or "bad" for the states of a partition."""
    if not needs_attention(states):
        return "good"
    return "bad" if states[0] in ("offline", "under-min-isr") else "warning"


def _row(
    listing: TopicListing,
    topic: Topic | None,
    sizes: Mapping[tuple[str, int], int],
    offsets: Mapping[tuple[str, int], tuple[int, int]],
) -> Row:
    places = [(listing.name, number) for number in range(listing.partitions)]
    known = [place for place in places if place in offsets]
    state, level = "", ""
    if topic is not None:
        worst = [states_of(each) for each in topic.partitions]
        ranks = {"good": 0, "warning": 1, "bad": 2}
        states = max(worst, key=lambda each: ranks[level_of(each)], default=[])
        level = level_of(states)
        state = states[0] if level != "good" else "in sync"
    return Row(
        listing=listing,
        state=state,
        level=level,
        size_bytes=sum(sizes[place] for place in known) if known else None,
        offsets=sum(offsets[p][1] - offsets[p][0] for p in known) if known else None,
    )


def topic_path(name: str) -> str:
    """Return the path of a topic's page."""
    return f"/topic/{quote(name, safe='')}"


def parse_configs(text: str) -> dict[str, str]:
    """Return lines of name=value as a dict. Raise InvalidConfig for another line."""
    configs = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise InvalidConfig(
                f"{line[:60]!r}: not a config; give name=value, such as retention.ms=7d"
            )
        configs[name.strip()] = value.strip()
    return configs


async def load_new(visit: Visit) -> Values:
    """Read the state of the cluster and the defaults of a new topic. The form is there without
    them, too."""
    answer = await part("defaults", _defaults(visit))
    cluster, configs = (None, {}) if isinstance(answer, QuorumlogError) else answer

    def placeholder(name: str) -> str:
        return f"{configs[name].value} (default)" if name in configs else "default of the cluster"

    return {
        "remark": None if cluster is None else remark_of(cluster),
        "partitions_default": placeholder("num.partitions"),
        "replication_default": placeholder("default.replication.factor"),
    }


async def _defaults(visit: Visit) -> tuple[Cluster, Mapping[str, Config]]:
    """Return the cluster, and the settings of the controller if it is a broker."""
    log = await visit.log()
    cluster = await log.admin.describe_cluster()
    if cluster.controller_id not in {broker.id for broker in cluster.brokers}:
        return cluster, {}
    return cluster, await log.admin.describe_configs(broker=cluster.controller_id)


async def create(visit: Visit, form: Form) -> str:
    """Create a topic."""
    name = form.text("name")
    partitions = form.number("partitions", low=1, high=PARTITIONS_MAX)
    replication = form.number("replication", low=1, high=REPLICAS_MAX)
    configs = parse_configs(form.exact("configs"))
    log = await visit.log()
    await log.admin.create_topic(
        name, partitions=partitions, replication=replication, configs=configs
    )
    visit.session.notice = f"Created topic {name}."
    return topic_path(name)


TOPICS: Final = Page(
    path="/topics", section="topics", title="Topics", template="topics.html", load=load
)
NEW: Final = Page(
    path="/topics/new",
    section="topics",
    title="Create a topic",
    template="topic_new.html",
    load=load_new,
    is_live=False,
)
PAGES: Final = (TOPICS, NEW)
CHANGES: Final = (PageChange(page=NEW, act=create),)
