"""A consumed record, and bounded iteration over a consumer's records."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ...errors import InvalidRequest
from ...records.record import Headers
from ...runtime import Clock

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class ConsumerRecord:
    """A record with its topic, partition and offset.

    `text` and `json()` decode the value at each use. A ValueError that they raise names the
    record; the consumer's position is already after it.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int  # milliseconds since 1970 (UTC); -1 none
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def timestamp(self) -> datetime | None:
        """The record's time in UTC, in milliseconds; None without one or beyond the range of
        datetime."""
        if self.timestamp_ms < 0:
            return None
        try:
            return EPOCH + timedelta(milliseconds=self.timestamp_ms)
        except OverflowError:
            return None

    @property
    def text(self) -> str | None:
        """The value as UTF-8 text, None for a null; raises ValueError if it is not valid UTF-8."""
        if self.value is None:
            return None
        try:
            return self.value.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{self._place}: the value is not UTF-8 text: {error}") from None

    def json(self) -> Any:
        """Return the value parsed as JSON, None for a null; raise ValueError if it is not JSON."""
        if self.value is None:
            return None
        try:
            return json.loads(self.value)
        except ValueError as error:
            raise ValueError(f"{self._place}: the value is not JSON: {error}") from None

    @property
    def _place(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


class IterationBounds:
    """The limits of an iteration: a deadline, an idle time, a number of records."""

    __slots__ = ("_clock", "_deadline_ms", "_idle_ms", "_left")

    def __init__(
        self,
        clock: Clock,
        *,
        timeout_ms: int | None,
        idle_ms: int | None,
        max_records: int | None,
    ) -> None:
        for name, value in (("timeout_ms", timeout_ms), ("idle_ms", idle_ms)):
            if value is not None and value < 0:
                raise InvalidRequest(f"{name} is {value}: give 0 or more")
        self._clock = clock
        self._deadline_ms = None if timeout_ms is None else clock.now_ms() + timeout_ms
        self._idle_ms = idle_ms
        self._left = max_records  # records; None: any number

    def is_open(self) -> bool:
        """Return True if neither the deadline nor the number of records is reached."""
        if self._deadline_ms is not None and self._clock.now_ms() >= self._deadline_ms:
            return False
        return self._left != 0

    def count(self) -> None:
        """Count one record."""
        if self._left is not None:
            self._left -= 1

    def wait_ms(self) -> int | None:
        """Return the time limit for the next record; None: no limit."""
        if self._deadline_ms is None:
            return self._idle_ms
        left_ms = max(0, self._deadline_ms - self._clock.now_ms())
        return left_ms if self._idle_ms is None else min(left_ms, self._idle_ms)


class AsyncRecords:
    """The result of `AsyncConsumer.records`. Leaving the iteration early loses no record."""

    __slots__ = ("_bounds", "_next")

    def __init__(
        self,
        next_record: Callable[..., Awaitable[ConsumerRecord | None]],
        clock: Clock,
        *,
        timeout_ms: int | None,
        idle_ms: int | None,
        max_records: int | None,
    ) -> None:
        self._next = next_record
        self._bounds = IterationBounds(
            clock, timeout_ms=timeout_ms, idle_ms=idle_ms, max_records=max_records
        )

    def __aiter__(self) -> "AsyncRecords":
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record within the bounds."""
        if not self._bounds.is_open():
            raise StopAsyncIteration
        record = await self._next(timeout_ms=self._bounds.wait_ms())
        if record is None:
            raise StopAsyncIteration
        self._bounds.count()
        return record
