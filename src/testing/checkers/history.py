"""Histories: the operations of producers and consumers, in order, with their results.

A history is written by one process, or by several of one machine with separate time stamps; `merge`
puts them in one order. Files hold it as lines of JSON.
"""

import base64
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ...errors import InvalidRequest
from .ledger import Place, short


class SendOutcome(StrEnum):
    """The final result of a record, as the producer reported it."""

    OK = "ok"  # stored at its offset, durably
    FAILED = "failed"  # not stored, now or later
    UNKNOWN = "unknown"  # may be stored, now or later, and may be lost again


@dataclass(slots=True)
class Send:
    """A record given to a producer."""

    producer: str
    place: Place
    value: bytes
    invoked_at: int  # any growing unit of time, common to a history
    outcome: SendOutcome = SendOutcome.UNKNOWN
    offset: int = -1  # as acknowledged; -1: unknown
    completed_at: int = -1  # -1: no result yet


@dataclass(slots=True)
class Poll:
    """Records of one partition that a consumer was returned at once."""

    consumer: str
    place: Place
    records: list[tuple[int, bytes]]  # (offset, value), in the order of the response
    at: int
    is_first: bool = False  # the consumer was positioned just before: earlier records do not count


@dataclass(slots=True)
class History:
    """The sends of a run by their unique value, in the order of sending, and its polls."""

    sends: dict[bytes, Send] = field(default_factory=dict)
    polls: list[Poll] = field(default_factory=list)
    _put: set[tuple[str, Place]] = field(
        default_factory=set
    )  # consumers put somewhere, no poll yet

    def invoke(self, producer: str, place: Place, value: bytes, *, at: int) -> None:
        """Record that a producer was given a record; its outcome is unknown until reported."""
        if value in self.sends:
            raise InvalidRequest(f"{short(value)} is not unique: give each record its own value")
        self.sends[value] = Send(producer, place, value, at)

    def acknowledge(self, value: bytes, offset: int, *, at: int, is_promise: bool = True) -> None:
        """Record an acknowledgement. Without `is_promise` (acks=1) the record may be lost again."""
        send = self._open_send(value)
        send.outcome = SendOutcome.OK if is_promise else SendOutcome.UNKNOWN
        send.offset = offset if is_promise else -1
        send.completed_at = at

    def fail(self, value: bytes, *, at: int, is_certain: bool) -> None:
        """Record a failed send; `is_certain`: the record is not stored, now or later."""
        send = self._open_send(value)
        send.outcome = SendOutcome.FAILED if is_certain else SendOutcome.UNKNOWN
        send.completed_at = at

    def assign(self, consumer: str, place: Place) -> None:
        """Record that a consumer was positioned in a partition: the order of polls starts again."""
        self._put.add((consumer, place))

    def poll(
        self, consumer: str, place: Place, records: Iterable[tuple[int, bytes]], *, at: int
    ) -> None:
        """Record the records that a consumer was returned."""
        is_first = (consumer, place) in self._put
        self._put.discard((consumer, place))
        self.polls.append(Poll(consumer, place, list(records), at, is_first))

    def of_places(self, places: Collection[Place]) -> "History":
        """Return the part of the history that concerns these partitions."""
        sends = {value: send for value, send in self.sends.items() if send.place in places}
        return History(sends, [poll for poll in self.polls if poll.place in places])

    def _open_send(self, value: bytes) -> Send:
        send = self.sends[value]
        if send.completed_at >= 0:
            raise InvalidRequest(f"{short(value)} has an outcome already: {send.outcome}")
        return send

    # --- as text ---

    def lines(self) -> Iterator[str]:
        """Yield the history as lines of JSON, for `History.parse`."""
        for send in self.sends.values():
            yield json.dumps(
                {
                    "send": _text(send.value),
                    "producer": send.producer,
                    "place": send.place,
                    "invoked_at": send.invoked_at,
                    "outcome": send.outcome,
                    "offset": send.offset,
                    "completed_at": send.completed_at,
                }
            )
        for poll in self.polls:
            yield json.dumps(
                {
                    "poll": [[offset, _text(value)] for offset, value in poll.records],
                    "consumer": poll.consumer,
                    "place": poll.place,
                    "at": poll.at,
                    "is_first": poll.is_first,
                }
            )

    @classmethod
    def parse(cls, lines: Iterable[str]) -> "History":
        """Parse lines of JSON; raises ValueError for anything else."""
        history = cls()
        for line in lines:
            history._take(json.loads(line))
        return history

    def _take(self, row: dict[str, Any]) -> None:
        match row:
            case {"send": value, "place": [topic, partition]}:
                self._add(
                    Send(
                        row["producer"],
                        (topic, partition),
                        _bytes(value),
                        row["invoked_at"],
                        SendOutcome(row["outcome"]),
                        row["offset"],
                        row["completed_at"],
                    )
                )
            case {"poll": records, "place": [topic, partition]}:
                found = [(offset, _bytes(value)) for offset, value in records]
                self.polls.append(
                    Poll(row["consumer"], (topic, partition), found, row["at"], row["is_first"])
                )
            case _:
                raise ValueError(f"neither a send nor a poll: {row}")

    def _add(self, send: Send) -> None:
        if send.value in self.sends:
            raise ValueError(f"{short(send.value)} is not unique")
        self.sends[send.value] = send


def merge(histories: Iterable[History]) -> History:
    """Merge histories of one machine by their times; raises ValueError if two of them sent the
    same value."""
    merged = History()
    sends: list[Send] = []
    polls: list[Poll] = []
    for history in histories:
        sends += history.sends.values()
        polls += history.polls
    for send in sorted(sends, key=lambda send: send.invoked_at):
        merged._add(send)
    merged.polls = sorted(polls, key=lambda poll: poll.at)
    return merged


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
