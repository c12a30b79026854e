"""Brokers: the list, the metadata quorum, and reassignments in progress."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from ...aio import AsyncLog
from ...clients.admin.fenced_brokers import FencingCause
from ...clients.admin.partitions import PartitionOutcome, Reassignment
from ...clients.admin.plans import parse_nodes
from ...clients.admin.quorum import Quorum
from ...errors import InvalidRequest, NotController, QuorumlogError
from .. import formats
from ..cluster_view import Disks, disks, last_contacts, part, read_causes, remark_of
from ..failures import failure_of
from ..lists import part_of
from ..node_metrics import Speed, read_speeds
from ..page import Form, Page, PageChange, Values, Visit
from .overview import BrokerRow, broker_rows

NODE_MAX: Final = 2**31 - 1
TRANSFER_S: Final = 5.0  # wait for the new leader of the quorum


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedBroker:
    """One line of the table of brokers."""

    common: BrokerRow
    cause: FencingCause | None  # if it is fenced or stopping
    speed: Speed


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One reassignment in progress."""

    reassignment: Reassignment
    done: float | None  # 0 to 1; None if unknown
    note: str  # the replica that lags most, or the error

    @property
    def cancel_path(self) -> str:
        """The path of the form that cancels it."""
        place = {"topic": self.reassignment.topic, "partition": self.reassignment.partition}
        return f"/brokers/cancel?{urlencode(place)}"


async def load(visit: Visit) -> Values:
    """Read everything at once; the cluster's description alone must succeed."""
    log = await visit.log()
    admin = log.admin
    cluster, quorum, topics, moves = await asyncio.gather(
        admin.describe_cluster(),
        part("quorum", admin.describe_quorum()),
        part("topics", admin.describe_topics(), limit_s=10),
        part("reassignments", admin.list_reassignments()),
    )
    found = part_of(
        [] if isinstance(moves, QuorumlogError) else moves,
        path="/brokers",
        query=visit.query,
        text=lambda each: each.topic,
        columns={"partition": lambda each: (each.topic, each.partition)},
    )
    usage, speeds, causes = await asyncio.gather(
        disks(log, cluster.brokers),
        read_speeds(log, cluster.brokers),
        read_causes(log, cluster.brokers),
    )
    rows = [
        ObservedBroker(
            common=row,
            cause=causes.get(row.broker.id),
            speed=speeds.get(row.broker.id, Speed()),
        )
        for row in broker_rows(cluster, usage, topics, speeds)
    ]
    failed = [each for each in (quorum, topics, moves) if isinstance(each, QuorumlogError)]
    return {
        "cluster": cluster,
        "remark": remark_of(cluster, with_fenced=False),
        "rows": rows,
        "slow": [row.common for row in rows if row.common.slow],
        "contacts": last_contacts(quorum, cluster),
        "quorum": None if isinstance(quorum, QuorumlogError) else quorum,
        "reassignments": found,
        "moves": await read_moves(log, found.rows, usage),
        "notes": list(dict.fromkeys(failure_of(each).message for each in failed)),
    }


async def read_moves(log: AsyncLog, moves: Sequence[Reassignment], usage: Disks) -> list[Move]:
    """Return reassignments with the progress of their new replicas, as the leaders see it."""
    if not moves:
        return []
    places = [(each.topic, each.partition) for each in moves]
    replicas = await part("replicas", log.admin.describe_replicas(places))
    if isinstance(replicas, QuorumlogError):
        return [Move(reassignment=each, done=None, note=str(replicas)) for each in moves]
    starts = usage.offsets()
    found = []
    for each, described in zip(moves, replicas, strict=True):
        start = starts.get((each.topic, each.partition), (0, 0))[0]
        ends = {replica.broker: replica.log_end_offset for replica in described.replicas}
        end = None if described.leader is None else ends.get(described.leader)
        error = "" if described.error is None else str(described.error)
        done, note = _progress(each, ends, start, end)
        found.append(Move(reassignment=each, done=done, note=error or note))
    return found


def _progress(
    move: Reassignment, ends: Mapping[int, int | None], start: int, end: int | None
) -> tuple[float | None, str]:
    """Return the copied part of the replica that lags most, and its position."""
    waiting = [node for node in move.state.adding if node not in move.state.isr]
    if not waiting:
        return 1.0, "all new replicas are in sync"
    if end is None:
        return None, "the leader's log end is unknown"
    slowest = min(waiting, key=lambda node: ends.get(node) or 0)
    at = max(ends.get(slowest) or start, start)
    done = min(1.0, (at - start) / (end - start)) if end > start else 1.0
    return done, f"broker {slowest}: {formats.number(at)} of {formats.number(end)}"


async def load_move(visit: Visit) -> Values:
    """Read the brokers that a partition can move to, and its present replicas if it is named."""
    log = await visit.log()
    topic, number = visit.query.get("topic", ""), visit.query.get("partition", "")
    cluster = await log.admin.describe_cluster()
    replicas = ""
    if topic and number.isdecimal():
        described = await log.admin.describe_topic(topic)
        for each in described.partitions:
            if each.partition == int(number):
                replicas = ",".join(map(str, each.replicas))
    given = {"topic": topic, "partition": number, "replicas": replicas}
    return {"cluster": cluster, "given": given}


async def move(visit: Visit, form: Form) -> str:
    """Start the move of one partition."""
    topic = form.text("topic")
    number = form.number("partition", low=0, high=NODE_MAX)
    if not topic or number is None:
        raise InvalidRequest("no partition is named; give a topic and the number of a partition")
    target = parse_nodes(form.text("replicas"), flag="replicas")
    log = await visit.log()
    raise_first(await log.admin.reassign_partitions({(topic, number): target}))
    nodes = ", ".join(map(str, target))
    visit.session.notice = f"Partition {topic}-{number} moves to {nodes}."
    return "/brokers"


async def cancel(visit: Visit, form: Form) -> str:
    """Cancel one reassignment."""
    topic, number = _place(visit)
    log = await visit.log()
    raise_first(await log.admin.cancel_reassignments((topic, number)))
    visit.session.notice = f"Cancelled the reassignment of {topic}-{number}."
    return "/brokers"


async def load_cancel(visit: Visit) -> Values:
    """Return the partition of a reassignment to cancel."""
    topic, number = _place(visit)
    return {"place": f"{topic}-{number}"}


def _place(visit: Visit) -> tuple[str, int]:
    number = visit.query.get("partition", "")
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise InvalidRequest(f"partition is {number[:40]!r}; give the number of a partition")
    return visit.query.get("topic", ""), int(number)


def raise_first(outcomes: Sequence[PartitionOutcome]) -> None:
    """Raise the first error of a change of partitions."""
    for each in outcomes:
        if each.error is not None:
            raise each.error


async def load_transfer(visit: Visit) -> Values:
    """Read the quorum."""
    log = await visit.log()
    return {"quorum": await log.admin.describe_quorum()}


async def transfer(visit: Visit, form: Form) -> str:
    """Transfer the leadership of the quorum, and wait for the new leader."""
    node = form.number("node", low=0, high=NODE_MAX)
    if node is None:
        raise InvalidRequest("no node is named; choose a voter")
    form.confirm(str(node))
    log = await visit.log()
    ended_epoch = await log.admin.transfer_leadership(node)
    end_s = time.monotonic() + TRANSFER_S
    while time.monotonic() < end_s:
        quorum = await part("quorum", log.admin.describe_quorum())
        if isinstance(quorum, Quorum) and quorum.leader is not None and quorum.epoch > ended_epoch:
            if quorum.leader != node:
                raise NotController(f"node {quorum.leader} was elected instead of node {node}")
            visit.session.notice = f"Node {node} leads the metadata quorum."
            return "/brokers"
        await asyncio.sleep(0.1)
    visit.session.notice = (
        f"The transfer to node {node} was requested; it has not taken effect yet."
    )
    return "/brokers"


BROKERS: Final = Page(
    path="/brokers", section="brokers", title="Brokers", template="brokers.html", load=load
)


MOVE: Final = Page(
    path="/brokers/move",
    section="brokers",
    title="Move a partition",
    template="partition_move.html",
    load=load_move,
    is_live=False,
)
CANCEL: Final = Page(
    path="/brokers/cancel",
    section="brokers",
    title="Cancel a reassignment",
    template="partition_cancel.html",
    load=load_cancel,
    is_live=False,
)
TRANSFER: Final = Page(
    path="/brokers/transfer",
    section="brokers",
    title="Transfer the quorum's leadership",
    template="quorum_transfer.html",
    load=load_transfer,
    is_live=False,
)
PAGES: Final = (BROKERS, MOVE, CANCEL, TRANSFER)
CHANGES: Final = (
    PageChange(page=MOVE, act=move),
    PageChange(page=CANCEL, act=cancel),
    PageChange(page=TRANSFER, act=transfer),
)
