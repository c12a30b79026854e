"""One record, downloads of records and contents, and the form that produces a record."""

import json
import re
import tempfile
from contextlib import ExitStack
from functools import partial
from typing import IO, Any, Final

from starlette.responses import Response

from ...clients.consumer.arrow_file import ArrowFileWriter
from ...clients.consumer.record import ConsumerRecord
from ...clients.consumer.record_json import record_json
from ...errors import InvalidRequest, TimedOut
from ..live import SessionStream
from ..page import Download, Form, Page, PageChange, Values, Visit, Write
from ..record_query import parse_offset, parse_query, record_path
from ..record_scan import MIB, Scan, ScanBounds, ScanRange, read_one
from ..record_views import VIEWS, ContentView, best_view, view_of
from .records import commands_of, python_of, span_of

DOWNLOAD: Final = ScanBounds(found=100_000, records=1_000_000, content_bytes=256 * MIB, seconds=300)
CHUNK_BYTES: Final = 64 * 1024
PARTITION_MAX: Final = 2**31 - 1
HEADERS_MAX: Final = 100  # shown


def place_of(visit: Visit) -> tuple[str, int, int]:
    """Return topic, partition and offset of the path; raise InvalidRequest."""
    partition = parse_offset(visit.arguments["partition"])
    if partition > PARTITION_MAX:
        raise InvalidRequest(f"{partition} is not a partition; give one of the topic's page")
    return visit.arguments["topic"], partition, parse_offset(visit.arguments["offset"])


async def load(visit: Visit) -> Values:
    """Read one record."""
    topic, partition, offset = place_of(visit)
    log = await visit.log()
    record = await read_one(log, topic, partition, offset)
    kind = visit.query.get("view", "")
    kind = kind if kind in VIEWS else best_view(record.value)
    query = parse_query(topic, {"partition": str(partition)})
    starts = {partition: offset}
    span = ScanRange(
        topic=topic,
        partitions=await log.partition_count(topic),
        isolation=query.isolation,
        firsts=starts,
        starts=starts,
        ends=starts,
    )
    return {
        "record": record,
        "path": record_path(topic, partition, offset),
        "views": VIEWS,
        "kind": kind,
        "value": _view(record.value, kind),
        "key": _view(record.key, "hex" if kind == "hex" else "text"),
        "headers": [
            (name, _view(content, "hex" if kind == "hex" else "text"), len(content or b""))
            for name, content in record.headers[:HEADERS_MAX]
        ],
        "headers_left": max(0, len(record.headers) - HEADERS_MAX),
        "previous": record_path(topic, partition, offset - 1) if offset else "",
        "next": record_path(topic, partition, offset + 1),
        "command": commands_of(query, span, visit.session.config.bootstrap, 1),
        "python": python_of(query, span, visit.session.config.bootstrap, 1),
    }


def _view(content: bytes | None, kind: str) -> ContentView | None:
    return None if content is None else view_of(content, kind)


def attachment(name: str, kind: str) -> dict[str, str]:
    """Return the headers of a file that the browser stores and never shows."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:150]
    return {"Content-Disposition": f'attachment; filename="{safe}"', "Content-Type": kind}


async def content(visit: Visit) -> Response:
    """Return the key or the value of a record, byte for byte."""
    topic, partition, offset = place_of(visit)
    record = await read_one(await visit.log(), topic, partition, offset)
    part = visit.arguments["part"]
    found = {"key": record.key, "value": record.value}.get(part)
    if found is None:
        raise InvalidRequest(f"{part[:20]!r}: the record has no such content")
    name = f"{topic}-{partition}-{offset}-{part}.bin"
    return Response(found, headers=attachment(name, "application/octet-stream"))


async def download(visit: Visit) -> Response:
    """Return the found records as a file of JSON lines or Parquet, up to the bounds of
    DOWNLOAD."""
    visit.session.check_streams()
    query = parse_query(visit.arguments["topic"], visit.query)
    scan = Scan(
        log=await visit.log(),
        span=await span_of(visit, query),
        bounds=DOWNLOAD,
        matches=query.filter(),
    )
    if visit.query.get("format") == "parquet":
        kind = "application/vnd.apache.parquet"
        visit.session.streams += 1
        try:
            file = await _parquet(scan)
        finally:
            visit.session.streams -= 1
        headers = attachment(f"{query.topic}.parquet", kind)
        return SessionStream(partial(_parts, file), visit.session, headers)
    headers = attachment(f"{query.topic}.jsonl", "application/jsonl")
    return SessionStream(partial(_lines, scan), visit.session, headers)


def line_of(record: ConsumerRecord) -> str:
    """Return a record as a line of JSON, with its 64-bit numbers as strings."""
    row: dict[str, Any] = record_json(record)
    row |= {"offset": str(record.offset), "timestamp": str(record.timestamp_ms)}
    if record.timestamp_ms < 0:
        row["timestamp"] = None
    return json.dumps(row, ensure_ascii=False)


async def _lines(scan: Scan, write: Write) -> None:
    async def take(found: list[ConsumerRecord]) -> None:
        for record in found:
            await write((line_of(record) + "\n").encode())

    await scan.read(take)
    _check(scan)  # the browser reports an incomplete file


def _check(scan: Scan) -> None:
    """Raise the error of a scan, TimedOut at its time limit."""
    if scan.error is not None:
        raise scan.error
    if scan.has_timed_out:
        raise TimedOut(
            f"{scan.span.topic}: the download reached {scan.stop}; choose a partition, a later"
            " start or a narrower search"
        )


async def _parquet(scan: Scan) -> IO[bytes]:
    """Write the records to a temporary file: the footer of Parquet needs all of them."""
    with ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile())
        writer = ArrowFileWriter(file, is_parquet=True)

        async def take(found: list[ConsumerRecord]) -> None:
            writer.write(found)

        await scan.read(take)
        _check(scan)
        writer.close()
        file.seek(0)
        stack.pop_all()
    return file


async def _parts(file: IO[bytes], write: Write) -> None:
    with file:
        while part := file.read(CHUNK_BYTES):
            await write(part)


async def load_produce(visit: Visit) -> Values:
    """Read the number of partitions for the form."""
    log = await visit.log()
    return {"partitions": await log.partition_count(visit.arguments["topic"])}


def text_content(text: str) -> bytes:
    """Return a field as UTF-8; forms send line ends as CR LF, records get LF."""
    return text.replace("\r\n", "\n").encode("utf-8", "surrogateescape")


def parse_headers(text: str) -> list[tuple[str, bytes]]:
    """Return lines of name=value as headers; raise InvalidRequest for another line."""
    headers = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise InvalidRequest(f"{line[:60]!r}: not a header; give name=value, one a line")
        headers.append((name.strip(), text_content(value)))
    return headers


async def produce(visit: Visit, form: Form) -> str:
    """Produce a record."""
    topic = visit.arguments["topic"]
    partition = form.number("partition", low=0, high=PARTITION_MAX)
    key = text_content(form.exact("key"))
    value = None if form.is_checked("null") else text_content(form.exact("value"))
    if form.is_checked("null") and form.exact("value"):
        raise InvalidRequest("Value: not empty; clear it, or do not choose the null value")
    log = await visit.log()
    async with log.producer() as producer:
        stored = await producer.send_and_wait(
            topic,
            value,
            key=key or None,
            headers=parse_headers(form.exact("headers")),
            partition=partition,
        )
    visit.session.notice = f"Produced to partition {stored.partition} at offset {stored.offset}."
    return record_path(topic, stored.partition, stored.offset)


RECORD: Final = Page(
    path="/topic/{topic}/records/{partition}/{offset}",
    section="records",
    title="Record",
    template="record.html",
    load=load,
    is_live=False,
)
PRODUCE: Final = Page(
    path="/topic/{topic}/produce",
    section="records",
    title="Produce a record",
    template="record_produce.html",
    load=load_produce,
    is_live=False,
)
PAGES: Final = (RECORD, PRODUCE)
CHANGES: Final = (PageChange(page=PRODUCE, act=produce),)
DOWNLOADS: Final = (
    Download(path="/topic/{topic}/records/download", respond=download),
    Download(path="/topic/{topic}/records/{partition}/{offset}/{part}", respond=content),
)
