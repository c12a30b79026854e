"""A consumed record."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ..producer.batches import Headers

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
