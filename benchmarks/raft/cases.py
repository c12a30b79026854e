"""The clusters under test, and the loads of each in every round."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.raft import etcd, ours, pysyncobj_cluster
from benchmarks.raft.load import Outcome

MANY = 1000
STREAMS = {"stream, gathered": 125, "stream, one by one": 1}
"""Proposals in the first messages of a stream: as many as a connection to etcd has in flight, or
one."""
Loading: TypeAlias = Callable[[Any, float], Awaitable[Outcome]]  # (cluster, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One row: the kind of the proposals, their number in flight, and the function that makes
    them."""

    way: str
    outstanding: int
    run: Loading


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A cluster that is started for a round's loads and ended after them."""

    system: str
    open: Callable[[Path], AbstractAsyncContextManager[Any]]
    loads: tuple[Load, ...]


def cases() -> tuple[list[Case], list[str]]:
    """Return all cases that can run here, and the requirements of the others."""
    found, missing = [_ours()], []
    if (program := etcd.program()) is None:
        missing.append(etcd.MISSING)
    else:
        found.append(_etcd(program))
    if pysyncobj_cluster.is_here():
        found += _pysyncobj()
    else:
        missing.append(pysyncobj_cluster.MISSING)
    return found, missing


def _plain(way: str, outstanding: int) -> Load:
    async def run(cluster: Any, seconds: float) -> Outcome:
        outcome: Outcome = await cluster.load(outstanding, seconds)
        return outcome

    return Load(way=way, outstanding=outstanding, run=run)


def _ours() -> Case:
    return Case(
        system="quorumlog",
        open=ours.Quorum,
        loads=(
            *(_stream(way, MANY) for way in STREAMS),
            _stream("stream, one by one", 1),
            _injected(MANY),
            _injected(1),
        ),
    )


def _stream(way: str, outstanding: int) -> Load:
    async def run(cluster: Any, seconds: float) -> Outcome:
        outcome: Outcome = await cluster.load_stream(outstanding, seconds, gathered=STREAMS[way])
        return outcome

    return Load(way=way, outstanding=outstanding, run=run)


def _injected(outstanding: int) -> Load:
    async def run(cluster: Any, seconds: float) -> Outcome:
        outcome: Outcome = await cluster.load_injected(outstanding, seconds)
        return outcome

    return Load(way="injected", outstanding=outstanding, run=run)


def _etcd(program: str) -> Case:
    loads = (_plain(f"{etcd.CONNECTIONS} connections", MANY), _plain("1 connection", 1))
    return Case(system="etcd", open=lambda folder: etcd.Etcd(folder, program), loads=loads)


def _pysyncobj() -> list[Case]:
    found = []
    for journal in (False, True):
        system = f"PySyncObj, {'journal file' if journal else 'in memory'}"
        for options, loads in (
            ({}, (_plain("injected", MANY), _plain("injected", 1))),
            (pysyncobj_cluster.GATHERING, (_plain("injected, tuned", MANY),)),
            (pysyncobj_cluster.AT_ONCE, (_plain("injected, tuned", 1),)),
        ):

            def open_(
                folder: Path, journal: bool = journal, options: dict[str, Any] = options
            ) -> AbstractAsyncContextManager[Any]:
                return pysyncobj_cluster.PySyncObj(folder, journal=journal, options=options)

            found.append(Case(system=system, open=open_, loads=loads))
    return found
