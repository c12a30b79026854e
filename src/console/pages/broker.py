"""One broker: disks, request times, its replicas, and the forms that drain or unregister it."""

import asyncio
from typing import Final

from ...aio import AsyncLog
from ...clients.admin.descriptions import Broker, Cluster
from ...clients.admin.plans import Plan, current_assignment, plan_reassignment
from ...errors import (
    BrokerIdNotRegistered,
    InvalidReplicationFactor,
    InvalidRequest,
    QuorumlogError,
)
from .. import formats
from ..cluster_view import disks, last_contacts, part, read_causes, remark_of
from ..lists import part_of
from ..node_metrics import Speed, read_speeds
from ..page import Form, Page, PageChange, Values, Visit
from .brokers import raise_first
from .overview import broker_rows

PLAN_ROWS: Final = 50  # moves that the form of a drain lists


async def load(visit: Visit) -> Values:
    """Read the broker; without its answer the page has the metadata alone."""
    log = await visit.log()
    cluster, broker = await _broker(visit, log)
    topics, usage, speeds, causes, quorum = await asyncio.gather(
        part("topics", log.admin.describe_topics(), limit_s=10),
        disks(log, [broker]),
        read_speeds(log, [broker]),
        read_causes(log, [broker]),
        part("quorum", log.admin.describe_quorum()),
    )
    rows = broker_rows(cluster, usage, topics, speeds)
    row = next(each for each in rows if each.broker.id == broker.id)
    speed = speeds.get(broker.id, Speed())
    session = visit.session
    for name, value in (("answer", speed.answer_ms), ("stall", speed.metrics.stall_ms)):
        if value is not None:
            session.sample(f"broker {broker.id} {name}", value, visit.now_s)
    directories = usage.by_broker.get(broker.id, ())
    logs = part_of(
        [each for directory in directories for each in directory.logs],
        path=visit.path,
        query=visit.query,
        text=lambda each: f"{each.topic}-{each.partition}",
        columns={
            "partition": lambda each: (each.topic, each.partition),
            "size": lambda each: (each.size_bytes, each.topic, each.partition),
        },
    )
    return {
        "remark": remark_of(cluster, with_fenced=False),
        "broker": broker,
        "row": row,
        "is_controller": broker.id == cluster.controller_id,
        "speed": speed,
        "cause": causes.get(broker.id),
        "contact": last_contacts(quorum, cluster).get(broker.id, ""),
        "directories": directories,
        "logs": logs,
        "answer_series": session.samples(f"broker {broker.id} answer"),
        "stall_series": session.samples(f"broker {broker.id} stall"),
    }


async def _broker(visit: Visit, log: AsyncLog) -> tuple[Cluster, Broker]:
    """Return the cluster and the broker of the path; raise BrokerIdNotRegistered."""
    cluster = await log.admin.describe_cluster()
    text = visit.arguments["broker"]
    for each in cluster.brokers:
        if str(each.id) == text:
            return cluster, each
    ids = ", ".join(str(each.id) for each in cluster.brokers)
    raise BrokerIdNotRegistered(f"broker {text[:40]} is not registered; registered brokers: {ids}")


async def _drain_plan(log: AsyncLog, cluster: Cluster, broker: Broker) -> Plan:
    """Return the moves that leave no replica on a broker."""
    current = current_assignment(await log.admin.describe_topics())
    held = [place for place, nodes in current.items() if broker.id in nodes]
    usable = {each.id for each in cluster.brokers if not each.fenced and not each.stopping}
    return plan_reassignment(current, held, cluster.brokers, allowed=usable - {broker.id})


async def load_drain(visit: Visit) -> Values:
    """Plan the drain."""
    log = await visit.log()
    cluster, broker = await _broker(visit, log)
    plan: Plan | QuorumlogError = await part(
        "topics", _drain_plan(log, cluster, broker), limit_s=10
    )
    error = str(plan) if isinstance(plan, QuorumlogError) else ""
    if isinstance(plan, InvalidReplicationFactor):
        usable = [each.id for each in cluster.brokers if not each.fenced and not each.stopping]
        others = formats.count(len({*usable} - {broker.id}), "other usable broker")
        error = (
            f"The replicas of broker {broker.id} have no place: some partition has more replicas"
            f" than there are other brokers ({others}). Start or add a broker, then drain."
        )
    moves = [] if isinstance(plan, QuorumlogError) else sorted(plan.items())
    return {"broker": broker, "error": error, "count": len(moves), "moves": moves[:PLAN_ROWS]}


async def drain(visit: Visit, form: Form) -> str:
    """Start to move all replicas off the broker."""
    log = await visit.log()
    cluster, broker = await _broker(visit, log)
    form.confirm(str(broker.id))
    plan = await _drain_plan(log, cluster, broker)
    if not plan:
        raise InvalidRequest(f"broker {broker.id} has no replica to move")
    raise_first(await log.admin.reassign_partitions(plan))
    moved = formats.count(len(plan), "partition")
    visit.session.notice = f"{moved} of broker {broker.id} began to move to other brokers."
    return "/brokers"


async def load_unregister(visit: Visit) -> Values:
    """Read the broker and the reason for which it is fenced."""
    log = await visit.log()
    _, broker = await _broker(visit, log)
    causes = await read_causes(log, [broker])
    return {"broker": broker, "cause": causes.get(broker.id)}


async def unregister(visit: Visit, form: Form) -> str:
    """Remove the registration of the broker."""
    log = await visit.log()
    _, broker = await _broker(visit, log)
    form.confirm(str(broker.id))
    await log.admin.unregister_broker(broker.id)
    visit.session.notice = f"Broker {broker.id} is unregistered."
    return "/brokers"


BROKER: Final = Page(
    path="/broker/{broker}",
    section="brokers",
    title="Broker {broker}",
    template="broker.html",
    load=load,
)
DRAIN: Final = Page(
    path="/broker/{broker}/drain",
    section="brokers",
    title="Drain broker {broker}",
    template="broker_drain.html",
    load=load_drain,
    is_live=False,
)
UNREGISTER: Final = Page(
    path="/broker/{broker}/unregister",
    section="brokers",
    title="Unregister broker {broker}",
    template="broker_unregister.html",
    load=load_unregister,
    is_live=False,
)
PAGES: Final = (BROKER, DRAIN, UNREGISTER)
CHANGES: Final = (
    PageChange(page=DRAIN, act=drain),
    PageChange(page=UNREGISTER, act=unregister),
)
