"""Requests per second of a coordinator: joins and leaves, commits, heartbeats.

One broker. *Joins and leaves*: 32 members, each alone in its own group on a topic of one partition,
join, get it and leave, repeatedly; a classic one requests an id first, as clients do. *Commits*: 32
members of 32 groups commit one partition, or ten of them, each as soon as the last one is stored.
*Heartbeats*: 100 members of one group each send one as soon as the last is answered; the broker's
cost of one is the cost of a member that sends one per second.

Run: python -m benchmarks.groups --only rates
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.groups.flood import Flooded, Repeated, flood
from benchmarks.groups.members import PROTOCOLS, ClassicMember, Crowd, Group, Member
from benchmarks.groups.systems import FSYNC, KAFKA, OURS, coordinator, settle_commits
from benchmarks.groups.wire import (
    COMMIT,
    CONSUMER_HEARTBEAT,
    HEARTBEAT,
    Caller,
    commit_fields,
    consumer_fields,
    heartbeat_fields,
)
from benchmarks.kafka_wire.systems import Kind, Subject, make_topic, running
from benchmarks.kafka_wire.throughput import middle
from benchmarks.raft.processes import Refused, cpu_s
from benchmarks.raft.result import comparison

ONE, MANY = "one", "many"  # topics
PARTITIONS: Final = 100  # of the second topic
WORKERS: Final = 32
BEATING: Final = 100
COMMITTED: Final = (1, 10)  # partitions of a commit
GOAL: Final = ">= 1.0"
Key: TypeAlias = tuple[str, str]  # system, what


@dataclass(slots=True)
class Measured:
    """Floods by row, in the order of the first round, and the reasons of missing rows."""

    floods: dict[Key, list[Flooded]] = field(default_factory=dict)
    refusals: dict[Key, str] = field(default_factory=dict)


async def measure(
    kinds: Sequence[Kind], folder: Path, *, seconds: float, warm_s: float, rounds: int
) -> Measured:
    """Measure all rows, round by round, with `warm_s` before each."""
    measured = Measured()
    async with running(kinds, folder, brokers=1) as subjects:
        for subject in {subject.system.port: subject for subject in subjects}.values():
            await asyncio.to_thread(make_topic, subject, ONE, partitions=1, replication=1)
            await asyncio.to_thread(make_topic, subject, MANY, partitions=PARTITIONS, replication=1)
        for number in range(rounds):
            for subject in subjects:
                await asyncio.to_thread(settle_commits, subject)
                for what, work in rows_of(subject):
                    key = (subject.name, what)
                    try:
                        took = await work(f"{subject.name}-{number}-{what}", warm_s, seconds)
                        if not took.requests:
                            raise Refused(f"nothing was answered in {took.seconds:.1f} s")
                    except (Refused, OSError) as refused:
                        measured.refusals[key] = str(refused)
                        print(f"{subject.name}, {what}: {refused}", flush=True)
                        continue
                    measured.floods.setdefault(key, []).append(took)
                    show(*key, took)
    return measured


def rows_of(subject: Subject) -> list[tuple[str, "Work"]]:
    """Return the rows of a system; if commits wait for the disk, only they differ."""
    found = [
        (
            f"commits of {'1 partition' if size == 1 else f'{size} partitions'}",
            Commits(subject, size),
        )
        for size in COMMITTED
    ]
    others: list[tuple[str, Work]] = []
    if subject.kind.name != FSYNC.name:
        others += [(f"joins and leaves, {each}", Turns(subject, each)) for each in PROTOCOLS]
        others += [(f"heartbeats, {each}", Beats(subject, each)) for each in PROTOCOLS]
    return [*others, *found]


class Work:
    """A row; called with a unique name and the durations."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    async def __call__(self, name: str, warm_s: float, seconds: float) -> Flooded:
        """Measure the row. Raise OSError and Refused."""
        raise NotImplementedError

    async def place_of(self, group: str) -> int:
        """Return the port of a group's coordinator."""
        port = self.subject.system.port
        return (await asyncio.to_thread(coordinator, port, group))[1]


class Turns(Work):
    """Joins and leaves; a request is one of both."""

    def __init__(self, subject: Subject, protocol: str) -> None:
        super().__init__(subject)
        self._make = PROTOCOLS[protocol]
        self._turns = 0

    async def __call__(self, name: str, warm_s: float, seconds: float) -> Flooded:
        ends_s = time.perf_counter() + warm_s + seconds
        works = [self._work(f"{name}-{number}", ends_s) for number in range(WORKERS)]
        tasks = [asyncio.ensure_future(work) for work in works]
        try:
            await while_they_run(tasks, warm_s)
            turns, pids = self._turns, self.subject.system.pids
            broker_s, client_s = cpu_s(pids), time.process_time()
            began_s = time.perf_counter()
            await while_they_run(tasks, ends_s - began_s)
            if self._turns == turns:
                await asyncio.gather(*tasks)  # each ends after a complete turn, for a slow machine
            took = Flooded(
                requests=self._turns - turns,
                seconds=time.perf_counter() - began_s,
                broker_cpu_s=cpu_s(pids) - broker_s,
                client_cpu_s=time.process_time() - client_s,
            )
            await asyncio.gather(*tasks)
            return took
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, name: str, ends_s: float) -> None:
        caller = await Caller.open(await self.place_of(name))
        try:
            is_over = False
            while not is_over:
                group = Group(name=name, topic=ONE, partitions=1)
                member = self._make(group, caller)
                await member.join()
                while not member.owned:  # of KIP-848: it is in the next response at the latest
                    await member.beat()
                await member.leave()
                self._turns += 1
                is_over = time.perf_counter() >= ends_s
        finally:
            caller.close()


class Commits(Work):
    """Commits of so many partitions."""

    def __init__(self, subject: Subject, size: int) -> None:
        super().__init__(subject)
        self._size = size

    async def __call__(self, name: str, warm_s: float, seconds: float) -> Flooded:
        members, callers = [], []
        port = await self.place_of(name)
        try:
            for number in range(WORKERS):
                callers.append(await Caller.open(port))
                group = Group(name=f"{name}-{number}", topic=MANY, partitions=PARTITIONS)
                await self.place_of(group.name)
                member = ClassicMember(group, callers[-1])
                await member.join()
                members.append((group, member))
            asked = [self._asked(group, member) for group, member in members]
            return await flood(self.subject, port, asked, warm_s=warm_s, seconds=seconds)
        finally:
            for caller in callers:
                caller.close()

    def _asked(self, group: Group, member: ClassicMember) -> Repeated:
        partitions = range(self._size)
        return Repeated(
            kind=COMMIT,
            fields=commit_fields(group.name, member.generation, member.member_id, MANY, partitions),
            code_of=commit_code,
        )


class Beats(Work):
    """Heartbeats of the members of one group."""

    def __init__(self, subject: Subject, protocol: str) -> None:
        super().__init__(subject)
        self._protocol = protocol

    async def __call__(self, name: str, warm_s: float, seconds: float) -> Flooded:
        port = await self.place_of(name)
        group = Group(name=name, topic=MANY, partitions=PARTITIONS)
        async with Crowd(group, PROTOCOLS[self._protocol], port) as crowd:
            members = await crowd.come(BEATING)
            await crowd.settled(BEATING, is_even=True)
            await crowd.rest()
            asked = [self._asked(group, member) for member in members]
            return await flood(self.subject, port, asked, warm_s=warm_s, seconds=seconds)

    def _asked(self, group: Group, member: Member) -> Repeated:
        kind, fields = CONSUMER_HEARTBEAT, consumer_fields
        if self._protocol == "classic":
            kind, fields = HEARTBEAT, heartbeat_fields  # type: ignore[assignment]
        return Repeated(
            kind=kind,
            fields=dict(fields(group.name, *_who(self._protocol, member))),
            code_of=lambda answer: int(answer.error_code),
        )


def _who(protocol: str, member: Member) -> tuple[Any, Any]:
    """Return its generation and id, in the order of the protocol's request."""
    if protocol == "classic":
        return member.generation, member.member_id
    return member.member_id, member.generation


async def while_they_run(tasks: Sequence[asyncio.Task[None]], seconds: float) -> None:
    """Wait. Raise the error of a failed task."""
    done, _ = await asyncio.wait(
        tasks, timeout=max(0.0, seconds), return_when=asyncio.FIRST_EXCEPTION
    )
    for task in done:
        task.result()


def commit_code(answer: Any) -> int:
    """Return the first error in a response to a commit."""
    codes = (int(part.error_code) for topic in answer.topics for part in topic.partitions)
    return next((code for code in codes if code), 0)


def show(system: str, what: str, took: Flooded) -> None:
    """Print one result."""
    print(
        f"{system:<28} {what:<28} {took.requests / took.seconds:,.0f}/s,"
        f" {took.broker_cpu_s / max(1, took.requests) * 1e6:,.0f} µs of the broker's each",
        flush=True,
    )


def summary(measured: Measured, *, seconds: float) -> dict[str, Any]:
    """Return rows, and quorumlog compared with Kafka."""
    rows = {key: row(*key, floods) for key, floods in measured.floods.items()}
    compared = [
        comparison(
            f"{what} a second, of Kafka's",
            rows.get((OURS.name, what)),
            theirs,
            of="per_s",
            goal=GOAL,
        )
        for (system, what), theirs in rows.items()
        if system == KAFKA.name
    ]
    return {
        "seconds": seconds,
        "workers": WORKERS,
        "beating": BEATING,
        "rows": list(rows.values()),
        "compared": [each for each in compared if each is not None],
        "refusals": [
            {"system": system, "what": what, "why": why}
            for (system, what), why in measured.refusals.items()
        ],
    }


def row(system: str, what: str, floods: Sequence[Flooded]) -> dict[str, Any]:
    """Return the medians."""
    return {
        "system": system,
        "what": what,
        "per_s": round(middle([each.requests / each.seconds for each in floods]), 1),
        "cpu_us": round(
            middle([each.broker_cpu_s / max(1, each.requests) * 1e6 for each in floods]), 1
        ),
        "cores": round(middle([each.broker_cpu_s / each.seconds for each in floods]), 2),
        "client_cores": round(middle([each.client_cpu_s / each.seconds for each in floods]), 2),
    }
