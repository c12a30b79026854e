"""A transactional id, and the forms that abort its transaction or a hanging one."""

import time
from collections.abc import Mapping
from typing import Final

from ...aio import AsyncLog
from ...clients.admin.findings import Finding, unstable
from ...clients.admin.transactions import OpenTransaction
from ...errors import InvalidRequest, QuorumlogError, TransactionalIdNotFound
from ..cluster_view import part
from ..lists import part_of
from ..page import Form, Page, PageChange, Values, Visit
from .transactions import PART_S, UNFINISHED, Place, age_of, stable_offsets


def id_of(visit: Visit) -> str:
    """Return the transactional id of a page. Raise InvalidRequest without one."""
    name = visit.query.get("id", "")
    if not name:
        raise InvalidRequest("id: empty; the list of transactions has the address of each id")
    return name


async def load(visit: Visit) -> Values:
    """Read the transactional id; offsets and causes of its visible partitions alone."""
    log = await visit.log()
    found = await log.admin.describe_transaction(id_of(visit))
    places = part_of(
        found.partitions,
        path="/transaction",
        query=visit.query,
        text=str,
        columns={"partition": lambda each: (each.topic, each.partition)},
    )
    offsets: dict[Place, tuple[int, int]] = {}
    findings: dict[Place, Finding] = {}
    error = ""
    if places.rows:
        read = await part("offsets", stable_offsets(log, places.rows), limit_s=PART_S)
        if isinstance(read, QuorumlogError):
            error = str(read)
        else:
            offsets = read
            findings, error = await _causes(log, offsets)
    now_ms = round(time.time() * 1000)
    return {
        "title": f"Transactional id {found.name}",
        "found": found,
        "is_open": found.state in UNFINISHED,
        "age_ms": age_of(found, now_ms),
        "partitions": places,
        "offsets": offsets,
        "findings": findings,
        "error": error,
    }


async def _causes(
    log: AsyncLog, offsets: Mapping[Place, tuple[int, int]]
) -> tuple[dict[Place, Finding], str]:
    """Return the transactions that hold the last stable offsets, and an error as text."""
    held = [place for place, (stable, end) in offsets.items() if stable < end]
    if not held:
        return {}, ""
    found = await part("open transactions", log.admin.open_transactions(held), limit_s=PART_S)
    ids = await part("transactional ids", log.admin.list_transactions(), limit_s=PART_S)
    for answer in (found, ids):
        if isinstance(answer, QuorumlogError):
            return {}, str(answer)
    assert not isinstance(found, QuorumlogError), "returned above"
    assert not isinstance(ids, QuorumlogError), "returned above"
    names = {each.producer_id: each for each in ids}
    now_ms = round(time.time() * 1000)
    findings = unstable(offsets, found, names, [], now_ms=now_ms)
    return {
        (each.topic, each.partition): each
        for each in findings
        if each.topic is not None and each.partition is not None
    }, ""


async def load_abort(visit: Visit) -> Values:
    """Read the transaction, or the staged commits of that name, for the form."""
    log = await visit.log()
    name = id_of(visit)
    try:
        found = await log.admin.describe_transaction(name)
    except TransactionalIdNotFound:
        stage = await log.admin.describe_commits(name)
        return {"name": name, "found": None, "stage": stage, "is_open": True}
    return {"name": name, "found": found, "stage": None, "is_open": found.state in UNFINISHED}


async def abort(visit: Visit, form: Form) -> str:
    """Abort the open transaction of a transactional id, or the current write of staged commits."""
    name = id_of(visit)
    form.confirm(name)
    log = await visit.log()
    await log.admin.abort_transaction(name)
    visit.session.notice = f"Aborted the transaction of {name}."
    return "/transactions"


async def find_hanging(log: AsyncLog, query: Mapping[str, str]) -> OpenTransaction:
    """Return the hanging transaction that a query names. Raise InvalidRequest if it does not hang
    any more."""
    fields = Form(fields=query)
    number = fields.number("partition", low=0, high=2**31 - 1)
    producer_id = fields.number("producer", low=0, high=2**63 - 1)
    topic = query.get("topic", "")
    if number is None or producer_id is None or not topic:
        raise InvalidRequest(
            "topic, partition and producer: empty; follow a link of waiting readers"
        )
    for each in await log.admin.find_hanging_transactions([(topic, number)]):
        if each.producer.producer_id == producer_id:
            return each
    raise InvalidRequest(
        f"{topic}-{number}: no hanging transaction of producer id {producer_id}; it was aborted, or"
        " its coordinator has it again"
    )


async def load_hanging(visit: Visit) -> Values:
    """Read the hanging transaction for the form."""
    return {"found": await find_hanging(await visit.log(), visit.query)}


async def abort_hanging(visit: Visit, form: Form) -> str:
    """Write an abort marker for a hanging transaction."""
    log = await visit.log()
    found = await find_hanging(log, visit.query)
    form.confirm(f"{found.topic}-{found.partition}")
    await log.admin.abort_hanging_transaction(found)
    visit.session.notice = (
        f"Aborted the transaction of producer id {found.producer.producer_id} in"
        f" {found.topic}-{found.partition}."
    )
    return "/transactions/held?search=1"


TRANSACTION: Final = Page(
    path="/transaction",
    section="transactions",
    title="Transactional id",
    template="transaction.html",
    load=load,
)
ABORT: Final = Page(
    path="/transaction/abort",
    section="transactions",
    title="Abort a transaction",
    template="transaction_abort.html",
    load=load_abort,
    is_live=False,
)
ABORT_HANGING: Final = Page(
    path="/transactions/held/abort",
    section="transactions",
    title="Abort a hanging transaction",
    template="transaction_hanging.html",
    load=load_hanging,
    is_live=False,
)
PAGES: Final = (TRANSACTION, ABORT, ABORT_HANGING)
CHANGES: Final = (
    PageChange(page=ABORT, act=abort),
    PageChange(page=ABORT_HANGING, act=abort_hanging),
)
