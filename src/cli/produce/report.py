"""Outcomes of the records of a `produce`: counted, and printed in the order of the input."""

import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...clients.consumer.record_json import text_or_base64
from ...errors import QuorumlogError
from ..failures import error_json, print_error
from ..output import count_text, echo, print_json, size_text
from ..record_json import NewRecord
from .parsers import Entry

if TYPE_CHECKING:
    from ...clients.blocking.producer import Delivery, Producer

WAITING_MAX = 100_000  # records without a printed outcome: a late one delays those after it
LAST_WAIT_MS = 2_000  # after Ctrl-C, for outstanding acknowledgements


@dataclass(frozen=True, slots=True)
class InputPosition:
    """The position of a record in the input: the input's name, "" for a single input, and lines."""

    input: str
    unit: str  # line or record
    first: int
    last: int

    @classmethod
    def of(cls, name: str, unit: str, entry: Entry) -> "InputPosition":
        """Return the position of an entry."""
        return cls(name, unit, entry.first, entry.last)

    def __str__(self) -> str:
        inside = f"{self.input} " if self.input else ""
        if self.first == self.last:
            return f"{inside}{self.unit} {self.first}"
        return f"{inside}{self.unit}s {self.first}-{self.last}"


@dataclass(slots=True)
class Report:
    """The outcomes of one run; see the module."""

    verbose: bool
    as_json: bool
    records: int = 0  # stored, or sent with acks=none
    stored_bytes: int = 0  # of their keys and values
    errors: int = 0
    unknown: int = 0  # sent, but interrupted before the outcome
    _sent: int = 0  # counted before the send, because Ctrl-C may arrive between any two steps
    _known: int = 0  # outcomes of those; counted last for the same reason
    _waiting: "deque[tuple[InputPosition, bytes | None, int, Delivery]]" = field(
        default_factory=deque
    )
    _start_s: float = field(default_factory=time.monotonic)

    def sending(self) -> None:
        """Count a record that is about to be sent."""
        self._sent += 1

    def not_sent(self) -> None:
        """Count a record that the producer rejected."""
        self._known += 1

    def sent(self, place: InputPosition, record: NewRecord, delivery: "Delivery") -> None:
        """Add a record in flight, and print the outcomes at the front of the queue. Wait for the
        first outcome if the queue is full, which bounds memory and keeps the order."""
        key = record.key if self.verbose else None
        self._waiting.append((place, key, record.size, delivery))
        if len(self._waiting) > WAITING_MAX:
            self._settle()
        self.settle_done()

    def settle_done(self) -> None:
        """Print the outcomes at the front of the queue that are known."""
        waiting = self._waiting
        while waiting and waiting[0][3].done():
            self._settle()

    def settle_all(self) -> None:
        """Wait for all outcomes and print them."""
        while self._waiting:
            self._settle()

    def finish(self, producer: "Producer") -> None:
        """Flush the producer, and wait for all outcomes."""
        with suppress(QuorumlogError):  # reported below, record by record
            producer.flush()
        self.settle_all()

    def interrupt(self, producer: "Producer") -> None:
        """Flush the producer for LAST_WAIT_MS; outcomes that are missing then are unknown."""
        with suppress(QuorumlogError):
            producer.flush(timeout_ms=LAST_WAIT_MS)
        while self._waiting:
            if self._waiting[0][3].done():
                self._settle()
            else:
                self._waiting.popleft()
        self.unknown = self._sent - self._known

    def failed(self, place: InputPosition, error: QuorumlogError, *, is_last: bool = False) -> None:
        """Print the error of an entry; `is_last`: the rest of the input is not read."""
        self.errors += 1
        if self.as_json:
            lines = {"line": place.first, "last_line": place.last}
            row = error_json(error) | ({"input": place.input} if place.input else {}) | lines
            row |= {"input_left": True} if is_last else {}
            print_json(row, err=True)
        else:
            echo(f"quorumlog: {place}: {error}", err=True)
            if is_last:
                echo(f"quorumlog: stopped reading the input after {place}", err=True)

    def refused(self, error: QuorumlogError) -> None:
        """Print the error of an input that cannot be read to its end."""
        self.errors += 1
        print_error(error, as_json=self.as_json)

    def print_summary(self, *, interrupted_at: str = "") -> None:
        """Print the totals of the run; `interrupted_at` is the position at Ctrl-C."""
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
                text += f", {self.unknown:,} with an unknown outcome"
        echo(text, err=self.verbose or bool(interrupted_at))

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
            echo(f"{place}: {where}{offset}")
