"""What became of each record of a `produce`: counted, and told in the order of the input."""

import json
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from ...errors import QuorumlogError
from ..failures import error_json, tell
from ..output import count_text, print_json, size_text, text_or_base64
from ..record_json import NewRecord
from .forms import Entry

if TYPE_CHECKING:
    from ...clients.blocking.producer import Delivery, Producer

WAITING_MAX = 100_000  # records without a told outcome: behind one that is late others wait
LAST_WAIT_MS = 2_000  # after Ctrl-C, for the answers that are under way


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record was read: an input's name, "" where there is one only, and its lines."""

    input: str
    unit: str  # line or record
    first: int
    last: int

    @classmethod
    def of(cls, name: str, unit: str, entry: Entry) -> "Place":
        """Return the place of an entry."""
        return cls(name, unit, entry.first, entry.last)

    def __str__(self) -> str:
        inside = f"{self.input} " if self.input else ""
        if self.first == self.last:
            return f"{inside}{self.unit} {self.first}"
        return f"{inside}{self.unit}s {self.first}-{self.last}"


@dataclass(slots=True)
class Report:
    """See the module."""

    verbose: bool
    as_json: bool
    records: int = 0  # stored, or sent where no acknowledgement was asked for
    stored_bytes: int = 0  # of their keys and values
    errors: int = 0
    unknown: int = 0  # given, but interrupted before the outcome was known
    _given: int = 0  # to the producer, or just about to be: Ctrl-C may come between any two steps
    _known: int = 0  # of those; counted last, so that at no point one is missing
    _waiting: "deque[tuple[Place, bytes | None, int, Delivery]]" = field(default_factory=deque)
    _start_s: float = field(default_factory=time.monotonic)

    def giving(self) -> None:
        """Note that a record is about to be given to the producer."""
        self._given += 1

    def not_taken(self) -> None:
        """Note that the producer refused it."""
        self._known += 1

    def sent(self, place: Place, record: NewRecord, delivery: "Delivery") -> None:
        """Note a record on its way; tell of those in front that have arrived. Waits for the first
        where too many are behind it: what is told is told in order, and memory is bounded."""
        key = record.key if self.verbose else None
        self._waiting.append((place, key, record.size, delivery))
        if len(self._waiting) > WAITING_MAX:
            self._settle()
        self.settle_done()

    def settle_done(self) -> None:
        """Tell of what has its outcome by now."""
        waiting = self._waiting
        while waiting and waiting[0][3].done():
            self._settle()

    def settle_all(self) -> None:
        """Wait for what is on its way and tell of it."""
        while self._waiting:
            self._settle()

    def finish(self, producer: "Producer") -> None:
        """Send what lingers, and wait for everything."""
        with suppress(QuorumlogError):  # told below, record by record
            producer.flush()
        self.settle_all()

    def interrupt(self, producer: "Producer") -> None:
        """Give what is under way a last moment; what has no outcome then is unknown."""
        with suppress(QuorumlogError):
            producer.flush(timeout_ms=LAST_WAIT_MS)
        while self._waiting:
            if self._waiting[0][3].done():
                self._settle()
            else:
                self._waiting.popleft()
        self.unknown = self._given - self._known

    def failed(self, place: Place, error: QuorumlogError, *, is_last: bool = False) -> None:
        """Tell of an entry that is not stored; `is_last`: the input is not read on behind it."""
        self.errors += 1
        if self.as_json:
            lines = {"line": place.first, "last_line": place.last}
            row = error_json(error) | ({"input": place.input} if place.input else {}) | lines
            row |= {"input_left": True} if is_last else {}
            typer.echo(json.dumps(row, ensure_ascii=False), err=True)
        else:
            typer.echo(f"quorumlog: {place}: {error}", err=True)
            if is_last:
                typer.echo(f"quorumlog: the input is not read on behind {place}", err=True)

    def refused(self, error: QuorumlogError) -> None:
        """Tell of an input that cannot be read, or not to its end."""
        self.errors += 1
        tell(error, as_json=self.as_json)

    def print_summary(self, *, interrupted_at: str = "") -> None:
        """Print what the whole run did; `interrupted_at` says how far the input was read."""
        seconds = time.monotonic() - self._start_s
        if self.as_json:
            if not self.verbose or interrupted_at:
                self._print_json_summary(seconds, interrupted=bool(interrupted_at))
            return
        size = size_text(self.stored_bytes)
        text = f"{count_text(self.records, 'record')}, {size} in {seconds:.2f} s"
        if self.errors:
            text += f", {self.errors:,} failed"
        if interrupted_at:
            text = f"interrupted, {interrupted_at}: {text}"
            if self.unknown:
                text += f", {self.unknown:,} sent without an answer yet, which may be stored or not"
        typer.echo(text, err=self.verbose or bool(interrupted_at))

    def _print_json_summary(self, seconds: float, *, interrupted: bool) -> None:
        row: dict[str, Any] = {
            "records": self.records,
            "bytes": self.stored_bytes,
            "seconds": round(seconds, 3),
            "errors": self.errors,
        }
        if interrupted:
            row |= {"interrupted": True, "unknown": self.unknown}
        print_json(row)

    def _settle(self) -> None:
        place, key, size, delivery = self._waiting.popleft()
        try:
            stored = delivery.result()
        except QuorumlogError as error:
            self.failed(place, error)
            self._known += 1
            return
        self.records += 1
        self.stored_bytes += size
        self._known += 1
        if not self.verbose:
            return
        if self.as_json:
            text, is_base64 = text_or_base64(key)
            row: dict[str, Any] = {
                "topic": stored.topic,
                "partition": stored.partition,
                "offset": stored.offset,
                "key": text,
            }
            if is_base64:
                row["key_encoding"] = "base64"
            print_json(row)
        else:
            where = f"{stored.topic}-{stored.partition}"
            offset = "" if stored.offset < 0 else f" offset {stored.offset}"
            typer.echo(f"{place}: {where}{offset}")
