"""A group: members, lags with their causes, and the forms that reset and delete offsets."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from ...aio import AsyncLog
from ...clients.admin.descriptions import Partition
from ...clients.admin.findings import Finding
from ...clients.admin.groups import Group, GroupOffset, OffsetReset, Shift, Target
from ...clients.admin.lag_findings import lags
from ...clients.times import OFFSET_MAX, FromEnd, parse_offset_spec
from ...errors import InvalidRequest, QuorumlogError, UnknownTopicOrPartition
from ...ids import TopicPartition, places_text
from .. import formats
from ..cluster_view import part
from ..failures import failure_of
from ..lists import part_of
from ..page import Form, Page, PageChange, Values, Visit
from ..sessions import OffsetPlan
from .groups import group_path, level_of

MEMBERS_MAX: Final = 100  # shown ones
PREVIEW_MAX: Final = 200  # shown offsets of a preview
TARGETS: Final = {
    "earliest": "the start of the logs",
    "latest": "the end of the logs",
    "time": "a time",
    "offset": "an offset",
    "end": "a number of records before the end",
    "shift": "a shift of the committed offsets",
}
"""The new positions of a reset, in the order of the form."""


def name_of(visit: Visit) -> str:
    """Return the group of a page. Raise InvalidRequest without one."""
    name = visit.query.get("name", "")
    if not name:
        raise InvalidRequest("name: empty; the list of groups has the address of each group")
    return name


@dataclass(frozen=True, slots=True)
class Summary:
    """The lag of a group in one sentence."""

    level: str  # "good", "warning"
    sentence: str


async def load(visit: Visit) -> Values:
    """Read the group; causes of the visible lags and of the largest one."""
    log = await visit.log()
    name = name_of(visit)
    group = await log.admin.describe_group(name)
    age_s, before = visit.session.progress_of(group, visit.now_s)
    found = part_of(
        group.offsets,
        path="/group",
        query=visit.query,
        text=lambda each: f"{each.topic}-{each.partition}",
        columns={
            "partition": lambda each: (each.topic, each.partition),
            "lag": lambda each: -1 if each.lag is None else each.lag,
            "committed": lambda each: each.commit_ms,
            "member": lambda each: "" if each.member is None else each.member.member_id,
        },
    )
    largest = max(group.offsets, key=lambda each: each.lag or 0, default=None)
    explained = list(found.rows)
    if largest is not None and largest not in explained:
        explained.append(largest)
    partitions = await part("topics", _partitions(log, {each.topic for each in explained}))
    findings: dict[tuple[str | None, int | None], Finding] = {}
    if not isinstance(partitions, QuorumlogError):
        part_of_group = replace(group, offsets=tuple(explained))
        now_ms, between_ms = round(time.time() * 1000), round(age_s * 1000)
        causes = lags(before, part_of_group, partitions, now_ms=now_ms, between_ms=between_ms)
        findings = {(each.topic, each.partition): each for each in causes}
    session = visit.session
    session.sample(f"group {name} lag", group.lag, visit.now_s)
    rate = _read_rate(before, group, age_s)
    if rate is not None:
        session.sample(f"group {name} rate", rate, visit.now_s)
    return {
        "title": f"Group {name}",
        "group": group,
        "level": level_of(group.state),
        "summary": _summary(group),
        "cause": None if largest is None else findings.get((largest.topic, largest.partition)),
        "offsets": found,
        "findings": findings,
        "topics_error": str(partitions) if isinstance(partitions, QuorumlogError) else "",
        "members": group.members[:MEMBERS_MAX],
        "rate": rate,
        "lag_series": session.samples(f"group {name} lag"),
        "rate_series": session.samples(f"group {name} rate"),
        "now_ms": round(time.time() * 1000),
        "places_text": places_text,
    }


async def _partitions(log: AsyncLog, names: set[str]) -> Mapping[tuple[str, int], Partition]:
    """Return the partitions of those of the topics that exist."""
    if not names:
        return {}
    try:
        topics = await log.admin.describe_topics(sorted(names))
    except UnknownTopicOrPartition:
        existing = {each.name for each in await log.admin.list_topics(internal=True)}
        topics = await log.admin.describe_topics(sorted(names & existing))
    return {(topic.name, each.partition): each for topic in topics for each in topic.partitions}


def _read_rate(before: Group, group: Group, age_s: float) -> float | None:
    """Return the records that the group committed a second since `before`, None without one."""
    if age_s <= 0:
        return None
    earlier = {(each.topic, each.partition): each.committed for each in before.offsets}
    read = 0
    for each in group.offsets:
        at = earlier.get((each.topic, each.partition))
        if at is not None and each.committed is not None:
            read += max(0, each.committed - at)
    return read / age_s


def _summary(group: Group) -> Summary:
    """Return the lag of all partitions as a sentence."""
    lagging = [each for each in group.offsets if each.lag]
    unknown = [each for each in group.offsets if _is_unknown(each)]
    if not group.offsets:
        return Summary("good", "The group has no committed offsets and no assigned partitions.")
    places = formats.count(len(group.offsets), "partition")
    if not lagging and not unknown:
        return Summary("good", f"No lag: the group has read all records of its {places}.")
    if not lagging:
        return Summary("warning", f"The lag of {len(unknown):,} of {places} is unknown.")
    text = f"Lag {group.lag:,} in {len(lagging):,} of {places}"
    if unknown:
        text += f"; the lag of {formats.count(len(unknown), 'partition')} is unknown"
    return Summary("warning", f"{text}.")


def _is_unknown(offset: GroupOffset) -> bool:
    return offset.log_end_offset is None or (offset.committed is None and offset.log_end_offset > 0)


async def load_group(visit: Visit) -> Values:
    """Read the group for a form."""
    log = await visit.log()
    group = await log.admin.describe_group(name_of(visit))
    return {
        "group": group,
        "topics": sorted({each.topic for each in group.offsets if each.committed is not None}),
    }


async def load_reset(visit: Visit) -> Values:
    """Read the group, and preview the new offsets if the query has a target."""
    values = dict(await load_group(visit))
    values |= {"failed": None, "plan": None, "shown": (), "resets": (), "changed": 0}
    values |= {"targets": TARGETS}
    query = visit.query
    if "to" not in query:
        return values
    log = await visit.log()
    group: Group = values["group"]
    try:
        resets = await preview(log, group, query)
    except QuorumlogError as error:
        return values | {"failed": failure_of(error)}
    changed = sum(each.before != each.after for each in resets)
    plan = OffsetPlan(
        id=secrets.token_urlsafe(12),
        group=group.name,
        after={TopicPartition(each.topic, each.partition): each.after for each in resets},
        changed=changed,
    )
    visit.session.plan = plan
    return values | {
        "plan": plan,
        "shown": resets[:PREVIEW_MAX],
        "resets": resets,
        "changed": changed,
    }


async def preview(log: AsyncLog, group: Group, query: Mapping[str, str]) -> Sequence[OffsetReset]:
    """Return the offsets that a reset would set. Raise InvalidRequest for an unclear target."""
    topic, numbers = query.get("topic", "").strip(), query.get("partitions", "")
    topics = parse_places(topic, numbers)
    target = parse_target(query.get("to", ""), query.get("value", ""), now=datetime.now(UTC))
    if not isinstance(target, FromEnd):
        return await log.admin.reset_offsets(group.name, target, topics=topics, dry_run=True)
    places: dict[str, list[int] | None] = dict(topics or {})
    if topics is None:
        for each in group.offsets:
            if each.committed is not None:
                found = places.setdefault(each.topic, [])
                assert found is not None, "every partition by number"
                found.append(each.partition)
    exact: dict[TopicPartition, int] = {}
    for name, some in places.items():
        for number, end in (await log.list_offsets(name, partitions=some)).items():
            exact[TopicPartition(name, number)] = max(0, end - target.records)
    return await log.admin.reset_offsets(group.name, exact, dry_run=True)


def parse_target(to: str, value: str, *, now: datetime) -> Target | FromEnd:
    """Return the target of the two fields: a key of TARGETS, and the value that it needs. Raise
    InvalidRequest."""
    if to == "earliest":
        return "earliest"
    if to == "latest":
        return "latest"
    if to not in TARGETS:
        raise InvalidRequest("New position: none is given; choose one of the list")
    if to == "time":
        try:
            found = parse_offset_spec(value.strip(), now=now)
        except ValueError:
            found = None
        if not isinstance(found, datetime):
            raise InvalidRequest(
                f"Value: {value.strip()[:40]!r} is not a time; give one such as 2024-12-31T18:00,"
                " or a duration ago such as -15m, -1h or -2d"
            )
        return found
    low = -OFFSET_MAX if to == "shift" else 0
    number = Form(fields={"value": value}).number("value", low=low, high=OFFSET_MAX)
    if number is None:
        raise InvalidRequest(f"Value: empty; give {TARGETS[to]} as a whole number")
    return Shift(number) if to == "shift" else FromEnd(number) if to == "end" else number


def parse_places(topic: str, numbers: str) -> dict[str, list[int] | None] | None:
    """Return the chosen partitions by topic, None for all with a committed offset. Raise
    InvalidRequest."""
    if not topic:
        if numbers.strip():
            raise InvalidRequest("Partitions: they need a topic")
        return None
    found = []
    for text in numbers.replace(",", " ").split():
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise InvalidRequest(
                f"Partitions: {text[:40]!r} is not a partition; give numbers such as 0, 3, 7"
            )
        found.append(int(text))
    return {topic: sorted(set(found)) or None}


async def reset(visit: Visit, form: Form) -> str:
    """Set the previewed offsets."""
    name = name_of(visit)
    plan = visit.session.plan
    if plan is None or plan.id != form.exact("plan") or plan.group != name:
        raise InvalidRequest("the preview is not the last one; check the offsets below and confirm")
    form.confirm(name)
    log = await visit.log()
    set_offsets = await log.admin.reset_offsets(name, dict(plan.after))
    visit.session.plan = None
    assert len(set_offsets) == len(plan.after)
    visit.session.notice = f"Set {formats.count(plan.changed, 'offset')} of group {name}."
    return group_path(name)


async def delete_offsets(visit: Visit, form: Form) -> str:
    """Delete committed offsets of partitions of a topic."""
    name, topic = name_of(visit), form.exact("topic")
    chosen = parse_places(topic, form.exact("partitions"))
    if chosen is None:
        raise InvalidRequest("Topic: empty; choose a topic with committed offsets")
    form.confirm(name)
    log = await visit.log()
    numbers = chosen[topic]
    if numbers is None:
        group = await log.admin.describe_group(name)
        numbers = [
            each.partition
            for each in group.offsets
            if each.topic == topic and each.committed is not None
        ]
    await log.admin.delete_offsets(name, [(topic, number) for number in numbers])
    visit.session.notice = (
        f"Deleted {formats.count(len(numbers), 'offset')} of topic {topic} of group {name}."
    )
    return group_path(name)


async def delete(visit: Visit, form: Form) -> str:
    """Delete the group."""
    name = name_of(visit)
    form.confirm(name)
    log = await visit.log()
    await log.admin.delete_group(name)
    visit.session.notice = f"Deleted group {name}."
    return "/groups"


GROUP: Final = Page(
    path="/group", section="groups", title="Group", template="group.html", load=load
)
RESET: Final = Page(
    path="/group/reset",
    section="groups",
    title="Reset offsets",
    template="group_reset.html",
    load=load_reset,
    is_live=False,
)
DELETE_OFFSETS: Final = Page(
    path="/group/offsets",
    section="groups",
    title="Delete offsets",
    template="group_offsets.html",
    load=load_group,
    is_live=False,
)
DELETE: Final = Page(
    path="/group/delete",
    section="groups",
    title="Delete the group",
    template="group_delete.html",
    load=load_group,
    is_live=False,
)
PAGES: Final = (GROUP, RESET, DELETE_OFFSETS, DELETE)
CHANGES: Final = (
    PageChange(page=RESET, act=reset),
    PageChange(page=DELETE_OFFSETS, act=delete_offsets),
    PageChange(page=DELETE, act=delete),
)
