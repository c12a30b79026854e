"""What producers and consumers did, in the order in which they did it, and what they were told.

A history may be written in one process, or by several of one machine, each with its own numbers for
time; `merge` puts them in one order. Lines of JSON hold it in files. Nothing here judges.
"""

import base64
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .ledger import Place, short


class Outcome(StrEnum):
    """What a producer said of a record in the end."""

    OK = "ok"  # it is stored at its offset, for good
    FAILED = "failed"  # it is not stored and never will be
    UNKNOWN = "unknown"  # it may be stored, now or later, and may be lost again


@dataclass(slots=True)
class Send:
    """One record that a producer was given."""

    producer: str
    place: Place
    value: bytes
    invoked_at: int  # a time of any unit that grows, the same for a whole history
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = -1  # where it is, as the producer was told; -1: nobody said
    completed_at: int = -1  # -1: no answer yet


@dataclass(slots=True)
class Poll:
    """What one consumer was handed out of one partition at once."""

    consumer: str
    place: Place
    records: list[tuple[int, bytes]]  # (offset, value), in the order of the answer
    at: int
    is_first: bool = False  # the consumer was put somewhere just before: what it had does not count


@dataclass(slots=True)
class History:
    """Everything of a run. Sends by their unique value, in the order of asking."""

    sends: dict[bytes, Send] = field(default_factory=dict)
    polls: list[Poll] = field(default_factory=list)
    _put: set[tuple[str, Place]] = field(
        default_factory=set
    )  # consumers put somewhere, no poll yet

    def invoke(self, producer: str, place: Place, value: bytes, *, at: int) -> None:
        """A producer is given a record; its outcome is unknown until it is told."""
        assert value not in self.sends, f"{short(value)} is not unique"
        self.sends[value] = Send(producer, place, value, at)

    def acknowledge(self, value: bytes, offset: int, *, at: int, is_promise: bool = True) -> None:
        """The producer said where the record is. Without `is_promise` (acks by the leader alone)
        it may be lost again."""
        send = self._open_send(value)
        send.outcome = Outcome.OK if is_promise else Outcome.UNKNOWN
        send.offset = offset if is_promise else -1
        send.completed_at = at

    def fail(self, value: bytes, *, at: int, is_certain: bool) -> None:
        """The producer gave the record up; `is_certain`: it is not stored and never will be."""
        send = self._open_send(value)
        send.outcome = Outcome.FAILED if is_certain else Outcome.UNKNOWN
        send.completed_at = at

    def assign(self, consumer: str, place: Place) -> None:
        """A consumer was put somewhere in a partition: it owes nothing to what it had before."""
        self._put.add((consumer, place))

    def poll(
        self, consumer: str, place: Place, records: Iterable[tuple[int, bytes]], *, at: int
    ) -> None:
        """A consumer was handed records out."""
        is_first = (consumer, place) in self._put
        self._put.discard((consumer, place))
        self.polls.append(Poll(consumer, place, list(records), at, is_first))

    def of_places(self, places: Collection[Place]) -> "History":
        """The part of it that is about some partitions."""
        sends = {value: send for value, send in self.sends.items() if send.place in places}
        return History(sends, [poll for poll in self.polls if poll.place in places])

    def _open_send(self, value: bytes) -> Send:
        send = self.sends[value]
        assert send.completed_at < 0, f"{short(value)} has an outcome: {send.outcome}"
        return send

    # --- as text ---

    def lines(self) -> Iterator[str]:
        """Yield the history as lines of JSON; `History.parse` reads them."""
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
        """Read lines back; raises ValueError for anything else."""
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
                        Outcome(row["outcome"]),
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
    """Put histories of one machine into one, by their times; raises ValueError for a value that
    two of them sent."""
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
