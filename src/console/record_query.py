"""The position and the search that the URL of a page of records has."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlencode

from ..clients.offsets import OFFSET_MAX, Position, TimestampMs
from ..errors import InvalidRequest
from .record_filter import RecordFilter, compile_filter

STARTS: Final = {
    "latest": "the newest records",
    "earliest": "the oldest records",
    "offset": "an offset",
    "time": "a time (UTC)",
}
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_POSITION: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,19})")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """The parameters of one page of records."""

    topic: str
    partition: int | None  # None: all
    start: str  # of STARTS
    at: str  # the offset or the time
    positions: Mapping[int, int]  # of a continuation, instead of `start`
    is_uncommitted: bool
    field: str
    mode: str
    text: str  # of the search; "": every record

    @property
    def isolation(self) -> str:
        """The isolation level of the consumer."""
        return "read_uncommitted" if self.is_uncommitted else "read_committed"

    def position(self) -> Position | Mapping[int, int]:
        """Return the first position; raise InvalidRequest for a malformed one."""
        if self.positions:
            return self.positions
        if self.start == "offset":
            return parse_offset(self.at)
        if self.start == "time":
            return parse_time(self.at)
        return "earliest" if self.start == "earliest" else "latest"

    def filter(self) -> RecordFilter | None:
        """Return the search; raise InvalidRequest for a malformed one."""
        return compile_filter(self.field, self.mode, self.text) if self.text else None

    def url(self, page: str = "", **changes: object) -> str:
        """Return the URL of a page of these records, with some parameters changed."""
        query: dict[str, object] = {
            "partition": "" if self.partition is None else self.partition,
            "start": self.start,
            "at": self.at,
            "positions": positions_text(self.positions),
            "uncommitted": "1" if self.is_uncommitted else "",
            "field": self.field,
            "mode": self.mode,
            "find": self.text,
        }
        found = {name: str(value) for name, value in (query | changes).items()}
        text = urlencode({name: value for name, value in found.items() if value})
        return f"{records_path(self.topic)}{page}?{text}"


def parse_query(topic: str, query: Mapping[str, str]) -> RecordQuery:
    """Return the parameters of a URL; invalid choices count as absent."""
    partition = query.get("partition", "").strip()
    positions = {
        int(found[1]): min(int(found[2]), OFFSET_MAX)
        for each in query.get("positions", "").split(",")
        if (found := _POSITION.fullmatch(each))
    }
    start = query.get("start", "")
    return RecordQuery(
        topic=topic,
        partition=int(partition) if re.fullmatch("[0-9]{1,9}", partition) else None,
        start=start if start in STARTS else "latest",
        at=query.get("at", "").strip()[:40],
        positions=positions,
        is_uncommitted=bool(query.get("uncommitted")),
        field=query.get("field", "") or "value",
        mode=query.get("mode", "") or "contains",
        text=query.get("find", ""),
    )


def parse_offset(text: str) -> int:
    """Return an offset; raise InvalidRequest."""
    if not _NUMBER.fullmatch(text) or int(text) > OFFSET_MAX:
        raise InvalidRequest(f"{text!r} is not an offset; give a whole number, 0 or more")
    return int(text)


def parse_time(text: str) -> datetime | TimestampMs:
    """Return a time of ISO 8601, or in milliseconds since 1970; raise InvalidRequest."""
    if _NUMBER.fullmatch(text) and int(text) <= OFFSET_MAX:
        return TimestampMs(int(text))
    try:
        found = datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is not a time; give one such as 2026-01-31 18:00, or milliseconds since 1970"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def positions_text(positions: Mapping[int, int]) -> str:
    """Return offsets by partition as a parameter of a URL."""
    return ",".join(f"{partition}:{offset}" for partition, offset in positions.items())


def records_path(topic: str) -> str:
    """Return the path of the records of a topic."""
    return f"/topic/{quote(topic, safe='')}/records"


def record_path(topic: str, partition: int, offset: int) -> str:
    """Return the path of one record."""
    return f"{records_path(topic)}/{partition}/{offset}"
