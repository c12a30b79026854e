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
    """Brokers that run, of one kind."""

    @property
    def pids(self) -> tuple[int, ...]:
        """Their processes."""

    @property
    def port(self) -> int:
        """Where one of them listens for the Kafka protocol, on the loopback."""

    @property
    def tls_port(self) -> int:
        """Where it listens with TLS; 0: it does not."""


Opening: TypeAlias = Callable[[Path, int], AbstractAsyncContextManager[System]]
"""Starts so many brokers in a folder, for as long as a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A system that can be started here."""

    name: str
    open: Opening
    brokers: frozenset[int] = frozenset({1})  # how many it can be
    configs: Mapping[str, str] = field(default_factory=dict)  # of topics
    warms_up: bool = False  # it gets much faster by work
    ends_by_bytes: bool = False  # its turns end by bytes; else by seconds
    syncs: bool = False  # it writes its logs back itself
    has_topics: bool = True
    holds_bytes: int | None = None  # the newest records that it keeps; None: no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The system of a row: running brokers of one kind."""

    kind: Kind
    system: System

    @property
    def name(self) -> str:
        """For rows."""
        return self.kind.name


class Members:
    """The processes of a system, ended with the block that they are entered for."""

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
        """Start one."""
        member = Member(list(command), folder, talks=False, ends_by_signal=True)
        self.members.append(member)
        self._commands.append((list(command), folder))
        return member

    def restart(self, at: int) -> None:
        """Wait for the end of one that was killed, and start it again where it was."""
        self.members[at].kill()
        command, folder = self._commands[at]
        self.members[at] = Member(command, folder, talks=False, ends_by_signal=True)

    @property
    def pids(self) -> tuple[int, ...]:
        """Their ids."""
        return tuple(member.pid for member in self.members)

    def complaints(self) -> str:
        """The end of what each wrote."""
        return "\n".join(member.complaints() for member in self.members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A system whose processes are Members."""

    members: Members
    port: int
    tls_port: int = 0

    @property
    def pids(self) -> tuple[int, ...]:
        """Its processes."""
        return self.members.pids

    def kill(self, number: int) -> None:
        """SIGKILL for the broker of this id, without waiting for its end; ids begin at 1."""
        os.kill(self.pids[number - 1], signal.SIGKILL)

    def start(self, number: int) -> None:
        """Start a broker that was killed, on the directory that it had, without waiting for it."""
        self.members.restart(number - 1)


@asynccontextmanager
async def running(
    kinds: Sequence[Kind], folder: Path, *, brokers: int
) -> AsyncIterator[list[Subject]]:
    """All kinds that can be so many brokers; those that are opened alike share one system."""
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
    """Make a topic and wait for its leaders."""
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
    """Delete a topic, so that its bytes need not go to the disk."""
    if not subject.kind.has_topics:
        return
    with Asker(subject.system.port) as asker:
        asker.delete_topic(name)


def started_s(system: System) -> float:
    """When the first of its processes was started, as time.perf_counter() counts, to 10 ms."""
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME) - time.perf_counter()
    ticks = []
    for pid in system.pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks.append(int(fields[19]))
    return min(ticks) / TICKS - since_boot


def resident_mb(system: System) -> float:
    """Memory that its processes hold, in megabytes."""
    kilobytes = 0
    for pid in system.pids:
        status = Path(f"/proc/{pid}/status").read_text()
        kilobytes += int(status.split("VmRSS:")[1].split()[0])
    return kilobytes * PAGE_KB / 1e6
