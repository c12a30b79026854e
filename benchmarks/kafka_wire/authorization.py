"""The cost of authorization: the broker's CPU time of a produce request with and without the
authorizer.

Two nodes of quorumlog run concurrently. Each turn sends the same produce requests of one record,
WINDOW in flight on one plain connection; the node with the authorizer decides each by ACLs, since a
super user's decisions are cached like those by ACLs. Nodes take turns, in the opposite order every
other round.

Run: python -m benchmarks.kafka_wire --only authorization
"""

import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

from benchmarks.kafka_wire import ours, pairs
from benchmarks.kafka_wire.batches import batches_with, produce_fields
from benchmarks.kafka_wire.cases import OURS
from benchmarks.kafka_wire.pairs import Goal, Turns
from benchmarks.kafka_wire.systems import Kind, Subject, make_topic, running
from benchmarks.kafka_wire.wire import PRODUCE, frame_of, reader_of
from benchmarks.raft.processes import cpu_s

TOPIC: Final = "authorized"
WINDOW: Final = 16  # requests in flight
RECORD_BYTES: Final = 100
WITH, WITHOUT = "with the authorizer", "without"
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    WITH: {"authorizer": "acl", "super.users": ["User:ANONYMOUS"]},
    WITHOUT: {"authorizer": "none"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """The produce requests of one turn."""

    count: int
    seconds: float
    broker_cpu_s: float

    @property
    def cpu_us(self) -> float:
        """Return the broker's CPU time of a request."""
        return self.broker_cpu_s / self.count * 1e6


GOAL: Final[Goal[Requests]] = Goal(
    what="CPU of a produce request", figure=lambda each: each.cpu_us, bound="<= 1.02"
)


@dataclass(slots=True)
class Measured:
    """Turns by system."""

    turns: dict[str, Turns[Requests]] = field(default_factory=dict)


async def measure(folder: Path, *, seconds: float, rounds: int) -> Measured:
    """Measure both nodes in turn; a first turn of each does not count."""
    kinds = [
        Kind(name=name, open=partial(ours.nodes, settings=settings), configs=OURS.configs)
        for name, settings in SETTINGS.items()
    ]
    measured = Measured()
    async with running(kinds, folder, brokers=1) as subjects:
        for subject in subjects:
            make_topic(subject, TOPIC, partitions=1, replication=1)
            taken(subject, seconds)
        for number, ordered in pairs.turns(subjects, rounds):
            for subject in ordered:
                turn = taken(subject, seconds)
                measured.turns.setdefault(subject.name, {})[number] = turn
                rate = turn.count / turn.seconds
                print(f"{subject.name:<28} {turn.cpu_us:.2f} us a request, {rate:,.0f}/s")
    return measured


def taken(subject: Subject, seconds: float) -> Requests:
    """Send requests for so many seconds."""
    (batch,) = batches_with(1, RECORD_BYTES, distinct=1).batches
    frame = frame_of(PRODUCE, produce_fields(TOPIC, 0, batch, acks="1"), correlation_id=0)
    window, count = frame * WINDOW, 0
    with (
        socket.create_connection(("127.0.0.1", subject.system.port)) as connection,
        connection.makefile("rb") as answers,
    ):
        connection.sendall(frame)
        answer, _ = reader_of(*PRODUCE)(_answer(answers)[5:], 0)
        assert not int(answer.responses[0].partition_responses[0].error_code), answer
        began_s, spent_s = time.perf_counter(), cpu_s(subject.system.pids)
        while time.perf_counter() < began_s + seconds:
            connection.sendall(window)
            for _ in range(WINDOW):
                _answer(answers)
            count += WINDOW
        return Requests(
            count=count,
            seconds=time.perf_counter() - began_s,
            broker_cpu_s=cpu_s(subject.system.pids) - spent_s,
        )


def _answer(answers: BinaryIO) -> bytes:
    (size,) = struct.unpack(">i", answers.read(4))
    return answers.read(size)


# --- results -------------------------------------------------------------------------------------


def summary(measured: Measured, *, rounds: int, seconds: float) -> dict[str, Any]:
    """Return rows, and the cost of the authorizer as a ratio with its goal."""
    compared = pairs.compare(GOAL, measured.turns[WITH], measured.turns[WITHOUT], rounds=rounds)
    assert compared is not None, "a node was not measured"
    return {
        "rows": [
            {
                "system": name,
                "cpu_us": round(pairs.median(turns, lambda each: each.cpu_us), 2),
                "rounds_cpu_us": [round(each.cpu_us, 2) for each in pairs.rounds_of(turns)],
            }
            for name, turns in measured.turns.items()
        ],
        "compared": [{**compared, "what": f"{GOAL.what} with the authorizer, of that without"}],
        "seconds": seconds,
    }
