"""Transactions: transactional ids, staged commits, and partitions with waiting readers."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from ...aio import AsyncLog
from ...clients.admin.findings import Finding, unstable
from ...clients.admin.staged_commits import NamedCommits
from ...clients.admin.transactions import OpenTransaction, TransactionalId
from ...errors import QuorumlogError
from ..cluster_view import CONCURRENT_MAX, part
from ..lists import part_of
from ..page import Page, Values, Visit

PART_S: Final = 5.0  # time limit of one part of a page
FINDINGS_MAX: Final = 200  # shown partitions
UNFINISHED: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
Place = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdRow:
    """One line of the list of transactional ids."""

    listed: TransactionalId
    level: str
    age_ms: int | None  # of a transaction that is not complete
    partitions: int | None  # that it holds
    error: str


async def load(visit: Visit) -> Values:
    """Read both lists; the partitions of the visible transactional ids alone."""
    log = await visit.log()
    listed, commits = await asyncio.gather(
        part("transactional ids", log.admin.list_transactions(), limit_s=PART_S),
        part("staged commits", log.admin.list_commits(), limit_s=PART_S),
    )
    if isinstance(listed, QuorumlogError) and isinstance(commits, QuorumlogError):
        raise listed
    errors = [each for each in (listed, commits) if isinstance(each, QuorumlogError)]
    ids = [] if isinstance(listed, QuorumlogError) else listed
    state = visit.query.get("state", "")
    now_ms = round(time.time() * 1000)
    found = part_of(
        [each for each in ids if state in ("", each.state)],
        path="/transactions",
        query=visit.query,
        text=lambda each: each.name,
        columns={
            "name": lambda each: each.name,
            "state": lambda each: (each.state not in UNFINISHED, each.state, each.name),
            "began": lambda each: (each.started_ms, each.name),
            "coordinator": lambda each: (each.coordinator, each.name),
        },
    )
    unfinished = [each.name for each in found.rows if each.state in UNFINISHED]
    described = dict(zip(unfinished, await describe(log, unfinished), strict=True))
    return {
        "ids": found,
        "rows": [_row(each, described.get(each.name), now_ms) for each in found.rows],
        "open": sum(each.state in UNFINISHED for each in ids),
        "oldest_ms": max((age_of(each, now_ms) or 0 for each in ids), default=0),
        "is_listed": not isinstance(listed, QuorumlogError),
        "commits": [] if isinstance(commits, QuorumlogError) else commits[:FINDINGS_MAX],
        "commits_count": None if isinstance(commits, QuorumlogError) else len(commits),
        "errors": [str(each) for each in errors],
        "state": state,
        "states": sorted({each.state for each in ids} | ({state} - {""})),
        "now_ms": now_ms,
    }


async def describe(log: AsyncLog, names: Sequence[str]) -> list[TransactionalId | QuorumlogError]:
    """Return transactional ids with their partitions, CONCURRENT_MAX calls at a time. All of them
    together have the time limit PART_S."""
    room = asyncio.Semaphore(CONCURRENT_MAX)

    async def one(name: str) -> TransactionalId:
        async with room:
            return await log.admin.describe_transaction(name)

    calls = (part(f"transactional id {name}", one(name), limit_s=PART_S) for name in names)
    return list(await asyncio.gather(*calls))


def age_of(listed: TransactionalId, now_ms: int) -> int | None:
    """Return the age of a transaction that is not complete, None for others."""
    if listed.state not in UNFINISHED or listed.started_ms < 0:
        return None
    return max(0, now_ms - listed.started_ms)


def _row(
    listed: TransactionalId, described: TransactionalId | QuorumlogError | None, now_ms: int
) -> IdRow:
    is_known = isinstance(described, TransactionalId)
    return IdRow(
        listed=listed,
        level="warning" if listed.state in UNFINISHED else "",
        age_ms=age_of(listed, now_ms),
        partitions=len(described.partitions) if isinstance(described, TransactionalId) else None,
        error="" if is_known or described is None else str(described),
    )


def transaction_path(name: str, page: str = "") -> str:
    """Return the path of a transactional id's page. The id is a parameter, since it may contain
    slashes."""
    return f"/transaction{page}?id={quote(name, safe='')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The partitions in which an open transaction holds the last stable offset."""

    findings: Sequence[Finding]
    holders: Mapping[Place, TransactionalId]  # of the first open transactions
    hanging: Sequence[OpenTransaction]
    checked: int  # partitions
    errors: Sequence[str]


async def load_held(visit: Visit) -> Values:
    """Search the open transactions of a topic's partitions, or of all, if the query asks for it."""
    topic = visit.query.get("topic", "").strip()
    held = None
    if topic or visit.query.get("search"):
        held = await find_held(await visit.log(), [topic] if topic else None)
    return {"held": held, "topic": topic, "limit": FINDINGS_MAX}


async def find_held(log: AsyncLog, names: Sequence[str] | None) -> Held:
    """Return the held partitions of topics (default: all). A broker that does not answer leaves out
    its partitions."""
    led: dict[int, list[Place]] = defaultdict(list)
    errors = []
    leaderless = 0
    for topic in await log.admin.describe_topics(names):
        for each in topic.partitions:
            if each.leader is None:
                leaderless += 1
            else:
                led[each.leader].append((topic.name, each.partition))
    if leaderless:
        errors.append(f"partitions without a leader: {leaderless:,}; they were not searched")
    answers = await asyncio.gather(
        *(
            part(f"broker {node}", log.admin.open_transactions(places), limit_s=PART_S)
            for node, places in led.items()
        )
    )
    found: list[OpenTransaction] = []
    for node, answer in zip(led, answers, strict=True):
        if isinstance(answer, QuorumlogError):
            errors.append(f"the partitions of broker {node} were not searched: {answer}")
        else:
            found += answer
    found.sort(key=lambda each: (each.topic, each.partition, each.first_offset))
    return await _explain(log, found, sum(map(len, led.values())), errors)


async def _explain(
    log: AsyncLog, found: Sequence[OpenTransaction], checked: int, errors: list[str]
) -> Held:
    """Return the causes of open transactions, as `quorumlog explain lso` does."""
    places = list(dict.fromkeys((each.topic, each.partition) for each in found))
    if not places:
        return Held(findings=(), holders={}, hanging=(), checked=checked, errors=errors)
    offsets, ids, hanging = await asyncio.gather(
        part("offsets", stable_offsets(log, places[:FINDINGS_MAX]), limit_s=PART_S),
        part("transactional ids", log.admin.list_transactions(), limit_s=PART_S),
        part("hanging transactions", log.admin.find_hanging_transactions(places), limit_s=PART_S),
    )
    if isinstance(offsets, QuorumlogError):
        errors.append(f"the last stable offsets are unknown: {offsets}")
    if isinstance(ids, QuorumlogError):
        errors.append(f"the transactional ids are unknown: {ids}")
    if isinstance(hanging, QuorumlogError):
        errors.append(f"hanging transactions are unknown: {hanging}")
    names = {} if isinstance(ids, QuorumlogError) else {each.producer_id: each for each in ids}
    hanging_ones = [] if isinstance(hanging, QuorumlogError) else hanging
    findings = unstable(
        {} if isinstance(offsets, QuorumlogError) else offsets,
        found,
        names,
        hanging_ones,
        now_ms=round(time.time() * 1000),
    )
    holders: dict[Place, TransactionalId] = {}
    for each in found:
        if each.producer.producer_id in names and each not in hanging_ones:
            holder = names[each.producer.producer_id]
            holders.setdefault((each.topic, each.partition), holder)
    return Held(
        findings=findings, holders=holders, hanging=hanging_ones, checked=checked, errors=errors
    )


async def stable_offsets(log: AsyncLog, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
    """Return (last stable offset, high watermark) of partitions."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, number in places:
        numbers[topic].append(number)
    room = asyncio.Semaphore(CONCURRENT_MAX)

    async def one(topic: str, some: list[int]) -> dict[Place, tuple[int, int]]:
        async with room:
            stable, ends = await asyncio.gather(
                log.list_offsets(topic, partitions=some, isolation_level="read_committed"),
                log.list_offsets(topic, partitions=some),
            )
        return {(topic, each): (stable[each], ends[each]) for each in some}

    found: dict[Place, tuple[int, int]] = {}
    for each in await asyncio.gather(*(one(*each) for each in numbers.items())):
        found |= each
    return found


async def load_commits(visit: Visit) -> Values:
    """Read the staged commits of a name."""
    log = await visit.log()
    commits: NamedCommits = await log.admin.describe_commits(visit.query.get("name", ""))
    return {
        "title": f"Staged commits {commits.name}",
        "commits": commits,
        "attempts": commits.attempts[:FINDINGS_MAX],
        "partitions": commits.partitions[:FINDINGS_MAX],
        "now_ms": round(time.time() * 1000),
    }


TRANSACTIONS: Final = Page(
    path="/transactions",
    section="transactions",
    title="Transactions",
    template="transactions.html",
    load=load,
)
HELD: Final = Page(
    path="/transactions/held",
    section="transactions",
    title="Waiting readers",
    template="transactions_held.html",
    load=load_held,
    is_live=False,
)
COMMITS: Final = Page(
    path="/commits",
    section="transactions",
    title="Staged commits",
    template="commits.html",
    load=load_commits,
)
PAGES: Final = (TRANSACTIONS, HELD, COMMITS)
CHANGES: Final = ()
