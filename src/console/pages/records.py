"""Records: windows of a topic, search, live tail."""

import asyncio
import json
import shlex
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from ...clients.consumer.record import ConsumerRecord
from ...errors import (
    OffsetOutOfRange,
    QuorumlogError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ..failures import failure_of
from ..html import render
from ..lists import part_of
from ..live import event
from ..page import Page, PageChange, Values, Visit, Write
from ..record_filter import FIELDS, MODES
from ..record_query import STARTS, RecordQuery, parse_query, positions_text, record_path
from ..record_scan import FETCH, MIB, Scan, ScanBounds, ScanRange, numbers_of, open_span
from ..record_views import preview

WINDOW: Final = 50  # records of one page
BROWSE: Final = ScanBounds(found=WINDOW, records=100_000, content_bytes=64 * MIB, seconds=5)
SEARCH: Final = ScanBounds(found=WINDOW, records=200_000, content_bytes=256 * MIB, seconds=20)
EVENT_S: Final = 0.25  # between two events of a stream
COMMANDS_MAX: Final = 8
TAIL_LAG_MAX: Final = 5_000  # offsets; the tail skips to the end beyond
TAIL_POLL_MS: Final = 1_000
TAIL_RETRY_S: Final = 1.0  # after an error
FAILURES_MAX: Final = 3  # shown ones
AGE_STEP_S: Final = 5  # of the age in a banner, which screen readers announce again at a change


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
    """One line of a table of records, without the contents: they may be huge."""

    partition: int
    offset: int
    timestamp_ms: int
    path: str
    key: str | None  # the beginning, as text
    value: str | None
    size: int  # bytes of key, value and headers


def row_of(record: ConsumerRecord) -> RecordRow:
    """Return the line of a record."""
    headers = sum(len(name.encode()) + len(content or b"") for name, content in record.headers)
    return RecordRow(
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        path=record_path(record.topic, record.partition, record.offset),
        key=None if record.key is None else preview(record.key),
        value=None if record.value is None else preview(record.value),
        size=len(record.key or b"") + len(record.value or b"") + headers,
    )


async def load_topics(visit: Visit) -> Values:
    """List the topics."""
    log = await visit.log()
    listings = await log.admin.list_topics(internal=False)
    found = part_of(
        listings,
        path="/records",
        query=visit.query,
        text=lambda topic: topic.name,
        columns={
            "name": lambda topic: topic.name,
            "partitions": lambda topic: (topic.partitions, topic.name),
        },
    )
    return {"topics": found}


async def span_of(visit: Visit, query: RecordQuery) -> ScanRange:
    """Look up the offsets of a query."""
    log = await visit.log()
    return await open_span(
        log,
        query.topic,
        partition=query.partition,
        start=query.position(),
        back=SEARCH.records if query.text else WINDOW,
        isolation=query.isolation,
    )


async def load(visit: Visit) -> Values:
    """Read a window of records."""
    query = parse_query(visit.arguments["topic"], visit.query)
    span = await span_of(visit, query)
    quota = max(1, WINDOW // len(span.starts))
    scan = Scan(log=await visit.log(), span=span, bounds=BROWSE, quota=quota)
    rows: list[RecordRow] = []

    async def take(found: list[ConsumerRecord]) -> None:
        rows.extend(row_of(record) for record in found)

    await scan.read(take)
    is_newest_first = query.start == "latest"
    if len(span.starts) > 1:
        rows.sort(key=lambda each: (each.timestamp_ms, each.partition, each.offset))
    else:
        rows.sort(key=lambda each: each.offset)
    if is_newest_first:
        rows.reverse()
    older = {each: max(span.firsts[each], at - quota) for each, at in span.starts.items()}
    has_older = any(at > span.firsts[each] for each, at in span.starts.items())
    return _common(query, span.partitions, list(span.starts)) | {
        "rows": rows,
        "scan": scan,
        "failure_text": None if scan.error is None else failure_of(scan.error),
        "older": query.url(positions=positions_text(older)) if has_older else "",
        "newer": "" if scan.is_whole else query.url(positions=positions_text(scan.positions)),
        "is_newest_first": is_newest_first,
        "span_positions": positions_text(span.starts),
        "command": commands_of(query, span, visit.session.config.bootstrap, WINDOW),
        "python": python_of(query, span, visit.session.config.bootstrap, WINDOW),
    }


def _common(query: RecordQuery, partitions: int, numbers: list[int]) -> dict[str, Any]:
    """Return the values that the form of every page of records needs."""
    return {
        "query": query,
        "starts": STARTS,
        "fields": FIELDS,
        "modes": MODES,
        "partitions": partitions,
        "is_one_of_many": len(numbers) < partitions,
    }


async def load_stream(visit: Visit) -> Values:
    """Check the query of a search or a tail; its stream reads the offsets and the records, and
    waits for partitions without a leader."""
    query = parse_query(visit.arguments["topic"], visit.query)
    query.filter()
    query.position()
    count = await (await visit.log()).partition_count(query.topic)
    return _common(query, count, numbers_of(query.topic, query.partition, count)) | {
        "stream_url": f"/live{visit.url}"
    }


async def search(visit: Visit, write: Write) -> None:
    """Write the events of a search: its progress, then the whole result."""
    query = parse_query(visit.arguments["topic"], visit.query)
    rows: list[RecordRow] = []
    try:
        span = await span_of(visit, query)
        scan = Scan(log=await visit.log(), span=span, bounds=SEARCH, matches=query.filter())
    except QuorumlogError as error:
        values = {"failure": failure_of(error), "age_s": None}
        await write(event("failed", render("banner.html", values)))
        return
    sent_s = 0.0
    total = sum(end - span.starts[each] for each, end in span.ends.items())

    async def take(found: list[ConsumerRecord]) -> None:
        nonlocal sent_s
        rows.extend(row_of(record) for record in found)
        if time.monotonic() - sent_s >= EVENT_S:
            await write(event("live", _found(query, scan, rows, total, has_ended=False)))
            sent_s = time.monotonic()

    await scan.read(take)
    await write(event("done", _found(query, scan, rows, total, has_ended=True)))


def _found(
    query: RecordQuery, scan: Scan, rows: list[RecordRow], total: int, *, has_ended: bool
) -> str:
    """Return the progress and the found records as HTML."""
    read = sum(at - scan.span.starts[each] for each, at in scan.positions.items())
    values = {
        "query": query,
        "scan": scan,
        "rows": rows,
        "has_ended": has_ended,
        "percent": round(100 * read / total) if total else 100,
        "positions": [
            (each, at, scan.span.ends[each]) for each, at in sorted(scan.positions.items())
        ],
        "next": ""
        if scan.is_whole
        else query.url("/search", positions=positions_text(scan.positions)),
        "failure_text": None if scan.error is None else failure_of(scan.error),
        "has_earlier": query.start == "latest"
        and any(at > scan.span.firsts[each] for each, at in scan.span.starts.items()),
        "span_url": {"positions": positions_text(scan.span.starts)},
    }
    return render("records_found.html", values)


@dataclass(slots=True)
class TailState:
    """The progress of one live tail, which outlasts its consumers."""

    fresh_s: float  # monotonic time at which every partition was read last
    rows: "deque[RecordRow]" = field(default_factory=lambda: deque(maxlen=WINDOW))
    count: int = 0
    skipped: int = 0
    positions: dict[int, int] = field(default_factory=dict)  # next offsets by partition


async def tail(visit: Visit, write: Write) -> None:
    """Write the newest records as they arrive, from one consumer, until the browser leaves.

    The next records are read after the browser accepted the previous ones. If the end is more than
    TAIL_LAG_MAX offsets ahead, the records before it are skipped and counted. After an error
    another consumer continues at the same offsets.
    """
    query = parse_query(visit.arguments["topic"], visit.query)
    state = TailState(time.monotonic())
    while visit.session.is_signed_in:
        try:
            await _follow(visit, query, state, write)
        except QuorumlogError as error:
            if isinstance(error, OffsetOutOfRange | UnknownTopicId | UnknownTopicOrPartition):
                state.positions = {}  # of records that do not exist any more
            if visit.session.is_signed_in:
                await write(_waiting(state, failure_of(error).message))
                await asyncio.sleep(TAIL_RETRY_S)
    await write(event("ended", ""))


async def _follow(visit: Visit, query: RecordQuery, state: TailState, write: Write) -> None:
    """Write the events of one consumer until the session ends; raise its error."""
    span = await span_of(visit, query)
    matches = query.filter()
    places = [(query.topic, each) for each in span.starts]
    log = await visit.log()
    async with log.consumer(
        places, start="latest", isolation_level=query.isolation, **FETCH
    ) as consumer:
        for partition, offset in state.positions.items():
            await consumer.seek((query.topic, partition), offset)
        if not state.positions:
            await write(event("live", _tail(query, state)))
        while visit.session.is_signed_in:
            records = await consumer.poll(timeout_ms=TAIL_POLL_MS)
            found = [each for each in records if matches is None or matches(each)]
            state.count += len(found)
            state.rows.extendleft(row_of(record) for record in found[-WINDOW:])
            state.positions = {place.partition: at for place, at in consumer.positions().items()}
            failures = [
                f"partition {place.partition}: {each.failure}"
                for place, each in sorted(consumer.statistics().partitions.items())
                if each.failures
            ]
            if found:
                await write(event("live", _tail(query, state)))
            if failures:
                await write(_waiting(state, "; ".join(failures[:FAILURES_MAX])))
                continue
            state.fresh_s = time.monotonic()
            if not found:
                await write(event("same", ""))
                continue
            await asyncio.sleep(EVENT_S)
            lag = sum(
                each.lag for each in consumer.statistics().partitions.values() if each.lag > 0
            )
            if lag > TAIL_LAG_MAX:
                state.skipped += lag
                await consumer.seek_to_end()


def _waiting(state: TailState, text: str) -> bytes:
    """Return the event of a tail that cannot read every partition."""
    age_s = time.monotonic() - state.fresh_s
    age_ms = 1000 * (age_s - age_s % AGE_STEP_S)
    return event("failed", render("records_waiting.html", {"text": text, "age_ms": age_ms}))


def _tail(query: RecordQuery, state: TailState) -> str:
    return render("records_tail.html", {"query": query, "rows": list(state.rows), "state": state})


def commands_of(query: RecordQuery, span: ScanRange, bootstrap: str, limit: int) -> str:
    """Return the commands that print the records of a page: one, or one for each partition."""
    if len(span.starts) == 1 or query.positions:
        places = list(span.starts.items())[:COMMANDS_MAX]
        parts = [["--partition", str(each), "--from", str(at)] for each, at in places]
    else:
        start = {"latest": f"-{limit}", "earliest": "earliest"}.get(query.start, query.at)
        parts = [["--from", start]]
    tail = ["--max", str(limit), "--until-end", "--output", "json", "--bootstrap", bootstrap]
    lines = (["quorumlog", "consume", query.topic, *part, *tail] for part in parts)
    return "\n".join(shlex.join(words) for words in lines)


def python_of(query: RecordQuery, span: ScanRange, bootstrap: str, limit: int) -> str:
    """Return the program that prints the records of a page."""
    topic = json.dumps(query.topic)
    return (
        f"import quorumlog\n\nstarts = {dict(span.starts)}  # offsets by partition\n"
        f"with quorumlog.connect({json.dumps(bootstrap)}) as log:\n"
        f"    partitions = {{{topic}: list(starts)}}\n"
        '    with log.consumer(partitions, start="latest", until_end=True) as consumer:\n'
        "        for partition, offset in starts.items():\n"
        f"            consumer.seek(({topic}, partition), offset)\n"
        f"        for record in consumer.records(max_records={limit}):\n"
        "            print(record.partition, record.offset, record.key, record.value)"
    )


def _page(path: str, title: str, template: str, load: Any, **more: Any) -> Page:
    return Page(
        path=f"/topic/{{topic}}/records{path}",
        section="records",
        title=title,
        template=template,
        load=load,
        is_live=False,
        **more,
    )


TOPICS: Final = Page(
    path="/records",
    section="records",
    title="Records",
    template="records_topics.html",
    load=load_topics,
    is_live=False,
)
RECORDS: Final = _page("", "Records", "records.html", load)
SEARCH_PAGE: Final = _page("/search", "Search", "records_stream.html", load_stream, stream=search)
TAIL: Final = _page("/tail", "Live tail", "records_stream.html", load_stream, stream=tail)
PAGES: Final = (TOPICS, RECORDS, SEARCH_PAGE, TAIL)
CHANGES: Final[tuple[PageChange, ...]] = ()
