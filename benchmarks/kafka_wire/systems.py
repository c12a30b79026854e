"""Systems under test: their brokers, topics and processes."""

import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeAlias

from benchmarks.kafka_wire.wire import Asker, Leader
from benchmarks.raft.processes import TICKS, Member

PAGE_KB = 1024


class System(Protocol):
    """Running brokers of one kind."""

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the ids of their processes."""

    @property
    def port(self) -> int:
        """Return the port of a Kafka listener on the loopback."""

    @property
    def tls_port(self) -> int:
        """Return the port of a listener with TLS; 0: none."""


Opening: TypeAlias = Callable[[Path, int], AbstractAsyncContextManager[System]]
"""Runs so many brokers in a folder during a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A system that can run on this machine."""

    name: str
    open: Opening
    brokers: frozenset[int] = frozenset({1})  # possible numbers of brokers
    configs: Mapping[str, str] = field(default_factory=dict)  # of topics
    warms_up: bool = False  # it becomes much faster under load
    ends_by_bytes: bool = False  # its turns end by bytes; otherwise by seconds
    syncs: bool = False  # it syncs its logs itself
    has_topics: bool = True
    holds_bytes: int | None = None  # the newest bytes of records that it keeps; None: no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The system of a row: running brokers of one kind."""

    kind: Kind
    system: System

    @property
    def name(self) -> str:
        """Return the name in rows."""
        return self.kind.name


class Members:
    """The processes of a system, killed at the end of the block."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self._commands: list[tuple[list[str], Path]] = []

    def __enter__(self) -> "Members":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for member in self.members:
            member.kill()

    def add(self, command: Sequence[str], folder: Path) -> Member:
        """Start a process."""
        member = Member(list(command), folder, talks=False, ends_by_signal=True)
        self.members.append(member)
        self._commands.append((list(command), folder))
        return member

    def restart(self, at: int) -> None:
        """Wait for the end of a killed one, and start it again in its folder."""
        self.members[at].kill()
        command, folder = self._commands[at]
        self.members[at] = Member(command, folder, talks=False, ends_by_signal=True)

    @property
    def pids(self) -> tuple[int, ...]:
        """Return their ids."""
        return tuple(member.pid for member in self.members)

    def complaints(self) -> str:
        """Return the end of each process's output."""
        return "\n".join(member.complaints() for member in self.members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A system of the processes in Members."""

    members: Members
    port: int
    tls_port: int = 0

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the ids of its processes."""
        return self.members.pids

    def kill(self, number: int) -> None:
        """Kill the broker of this id (SIGKILL) without waiting for its end; ids begin at 1."""
        os.kill(self.pids[number - 1], signal.SIGKILL)

    def start(self, number: int) -> None:
        """Start a killed broker on its existing directory, without waiting for it."""
        self.members.restart(number - 1)


@asynccontextmanager
async def running(
    kinds: Sequence[Kind], folder: Path, *, brokers: int
) -> AsyncIterator[list[Subject]]:
    """Run all kinds that support so many brokers; equally configured ones share one system."""
    opened: dict[Opening, System] = {}
    subjects = []
    async with AsyncExitStack() as stack:
        for number, kind in enumerate(each for each in kinds if brokers in each.brokers):
            if kind.open not in opened:
                place = kind.open(folder / f"s{number}", brokers)
                opened[kind.open] = await stack.enter_async_context(place)
            subjects.append(Subject(kind=kind, system=opened[kind.open]))
        yield subjects


def make_topic(subject: Subject, name: str, *, partitions: int, replication: int) -> list[Leader]:
    """Create a topic and wait for its leaders."""
    if not subject.kind.has_topics:
        return [Leader(partition=number, port=subject.system.port) for number in range(partitions)]
    with Asker(subject.system.port) as asker:
        asker.create_topic(
            name, partitions=partitions, replication=replication, configs=subject.kind.configs
        )
        leaders = asker.leaders(name, partitions=partitions, replication=replication)
    for leader in leaders:
        with Asker(leader.port) as asker:
            asker.wait_leads(name, leader.partition)
    return leaders


def remove_topic(subject: Subject, name: str) -> None:
    """Delete a topic, so that its bytes need not be written to the disk."""
    if not subject.kind.has_topics:
        return
    with Asker(subject.system.port) as asker:
        asker.delete_topic(name)


def started_s(system: System) -> float:
    """Return the start time of its first process by time.perf_counter(), to 10 ms."""
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME) - time.perf_counter()
    ticks = []
    for pid in system.pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks.append(int(fields[19]))
    return min(ticks) / TICKS - since_boot


def resident_mb(system: System) -> float:
    """Return the resident memory of its processes in megabytes."""
    kilobytes = 0
    for pid in system.pids:
        status = Path(f"/proc/{pid}/status").read_text()
        kilobytes += int(status.split("VmRSS:")[1].split()[0])
    return kilobytes * PAGE_KB / 1e6
