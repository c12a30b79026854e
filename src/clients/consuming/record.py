"""One record as a consumer hands it out."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ..producing.batches import Headers

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class ConsumerRecord:
    """One record and where it was.

    `text` and `json()` read the value at each use; what they raise names the record, and concerns
    the caller alone: the consumer has handed the record out and goes on behind it.
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
        """The time of the record in UTC, exact to the millisecond; None without one, or where a
        datetime cannot hold it."""
        if self.timestamp_ms < 0:
            return None
        try:
            return EPOCH + timedelta(milliseconds=self.timestamp_ms)
        except OverflowError:
            return None

    @property
    def text(self) -> str | None:
        """The value as UTF-8 text, None for a null; raises ValueError when it is none."""
        if self.value is None:
            return None
        try:
            return self.value.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{self._place}: the value is no UTF-8 text: {error}") from None

    def json(self) -> Any:
        """Return the value as JSON, None for a null; raises ValueError when it is none."""
        if self.value is None:
            return None
        try:
            return json.loads(self.value)
        except ValueError as error:
            raise ValueError(f"{self._place}: the value is no JSON: {error}") from None

    @property
    def _place(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"
