"""Reads of the cluster that several pages share. A part that fails does not hide the others."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ..aio import AsyncLog
from ..clients.admin.configs import LogDir, LogSize
from ..clients.admin.descriptions import Broker, Cluster
from ..clients.admin.fenced_brokers import FencingCause
from ..clients.admin.groups import Group
from ..clients.admin.quorum import Quorum
from ..errors import QuorumlogError, TimedOut
from . import formats
from .sessions import Session

T = TypeVar("T")

PART_S: Final = 2.0  # time limit of one broker's part of a page
GROUPS_S: Final = 4.0
GROUPS_MAX: Final = 50  # groups that one refresh describes
LIST_MS: Final = 1_500  # time limit of the list of groups, without those of silent brokers
END_MS: Final = 1_000  # time limit of the log ends at one leader; without them lags are unknown
CONCURRENT_MAX: Final = 8
NO_LEADER_TEXT: Final = (
    "The metadata quorum has no leader. Topics, leaders and brokers are shown as they were before,"
    " and changes fail. It recovers once a majority of the controllers runs."
)


async def part(what: str, call: Awaitable[T], *, limit_s: float = PART_S) -> T | QuorumlogError:
    """Return the result of a call, or its error, TimedOut after `limit_s`."""
    try:
        async with asyncio.timeout(limit_s):
            return await call
    except QuorumlogError as error:
        return error
    except TimeoutError:
        return TimedOut(f"{what}: no answer within {limit_s:g} s")


@dataclass(frozen=True, slots=True)
class Disks:
    """The data directories of the brokers that answered."""

    by_broker: Mapping[int, Sequence[LogDir]]
    errors: Mapping[int, QuorumlogError]

    def sizes(self) -> dict[tuple[str, int], int]:
        """Return the size of each partition: that of its largest replica."""
        found: dict[tuple[str, int], int] = defaultdict(int)
        for log in self._logs():
            found[log.topic, log.partition] = max(found[log.topic, log.partition], log.size_bytes)
        return found

    def offsets(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return (log start offset, log end offset) of each partition's longest replica."""
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for log in self._logs():
            place = (log.topic, log.partition)
            if place not in found or log.log_end_offset > found[place][1]:
                found[place] = (log.log_start_offset, log.log_end_offset)
        return found

    def _logs(self) -> Iterable[LogSize]:
        for directories in self.by_broker.values():
            for directory in directories:
                yield from directory.logs


async def disks(
    log: AsyncLog,
    brokers: Iterable[Broker],
    topics: Sequence[str] = (),
    *,
    limit_s: float = PART_S,
) -> Disks:
    """Return the disk usage of topics (default: all) on all brokers that are not fenced."""
    asked = [broker.id for broker in brokers if not broker.fenced]
    results = await asyncio.gather(
        *(
            part(
                f"broker {node}",
                log.admin.describe_log_dirs(topics, broker=node),
                limit_s=limit_s,
            )
            for node in asked
        )
    )
    found: dict[int, Sequence[LogDir]] = {}
    errors: dict[int, QuorumlogError] = {}
    for node, result in zip(asked, results, strict=True):
        if isinstance(result, QuorumlogError):
            errors[node] = result
        else:
            found[node] = result
    return Disks(found, errors)


async def groups(log: AsyncLog, names: Collection[str]) -> list[Group | QuorumlogError]:
    """Return the descriptions of groups, at most GROUPS_MAX at once: each may wait for a silent
    leader. Each has the time limit GROUPS_S."""
    room = asyncio.Semaphore(GROUPS_MAX)

    async def one(name: str) -> Group:
        async with room:
            return await log.admin.describe_group(name, end_timeout_ms=END_MS)

    calls = (part(f"group {name}", one(name), limit_s=GROUPS_S) for name in names)
    return list(await asyncio.gather(*calls))


async def read_causes(log: AsyncLog, brokers: Iterable[Broker]) -> dict[int, FencingCause]:
    """Return the causes for which brokers are fenced, by broker."""
    asked = [broker for broker in brokers if broker.fenced or broker.stopping]
    causes = await part("fenced brokers", log.admin.explain_fenced(asked), limit_s=5)
    return {} if isinstance(causes, QuorumlogError) else {each.broker: each for each in causes}


def last_contacts(quorum: Quorum | QuorumlogError, cluster: Cluster) -> dict[int, str]:
    """Return when the leader of the quorum received the last request of each node, as a sentence;
    nodes without a known time are left out."""
    if isinstance(quorum, QuorumlogError):
        return {}
    found = {}
    for each in (*quorum.voters, *quorum.observers):
        if each.heard_ms_ago is not None and each.id != quorum.leader:
            at, ago = cluster.time_ms - each.heard_ms_ago, formats.duration(each.heard_ms_ago)
            found[each.id] = f"Its last contact was {ago} ago, at {formats.time(at)}."
    return found


@dataclass(frozen=True, slots=True)
class Remark:
    """A state of the cluster that every page reports, since its values depend on it."""

    level: str  # "warning", "bad"
    text: str


def remark_of(cluster: Cluster, *, with_fenced: bool = True) -> Remark | None:
    """Return the worst state of a cluster that pages report, None for a usual one. Pages with the
    causes of fenced brokers leave these out."""
    if cluster.controller_id is None:
        return Remark("bad", NO_LEADER_TEXT)
    fenced = [broker.id for broker in cluster.brokers if broker.fenced]
    if not fenced or not with_fenced:
        return None
    return Remark("warning", fenced_text(fenced))


def fenced_text(fenced: Sequence[int]) -> str:
    """Return that these brokers are fenced, as a sentence."""
    ids = ", ".join(map(str, fenced))
    if len(fenced) == 1:
        return f"Broker {ids} is fenced: it is down, or has no contact with the controllers."
    return f"Brokers {ids} are fenced: they are down, or have no contact with the controllers."


def record_rates(
    session: Session, scope: str, parts: Disks, now_s: float
) -> tuple[float | None, float | None]:
    """Append the rates of appended records and bytes since the last call to the session's series
    `<scope> records` and `<scope> bytes`, and return them; None at the first call.

    A partition that is new, or lost records or bytes to retention, does not count for once.
    """
    ends = {place: end for place, (_, end) in parts.offsets().items()}
    sizes = parts.sizes()
    before = session.totals.get(scope)
    session.totals[scope] = (now_s, ends, sizes)
    if before is None or now_s - before[0] < 0.05:
        return None, None
    seconds = now_s - before[0]
    records = _growth(before[1], ends) / seconds
    written = _growth(before[2], sizes) / seconds
    session.sample(f"{scope} records", records, now_s)
    session.sample(f"{scope} bytes", written, now_s)
    return records, written


def _growth(before: Mapping[tuple[str, int], int], after: Mapping[tuple[str, int], int]) -> int:
    return sum(max(0, value - before[place]) for place, value in after.items() if place in before)
