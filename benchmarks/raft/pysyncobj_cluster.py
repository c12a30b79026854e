"""Three processes of PySyncObj, the most installed Raft library of Python.

It has no remote interface for proposals: they are made in the leader's process. It never syncs a
file. By default it sends collected proposals every 100 ms, which bounds 1,000 proposals in flight
to 10,000 per second; the rows have the setting that was used instead.
"""

import asyncio
import importlib.util
import json
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.raft.load import Outcome, Work
from benchmarks.raft.processes import Member, Refused, free_ports, python

MISSING = "PySyncObj is not here: `pip install pysyncobj`"
START_S = 120.0
GATHERING = {"appendEntriesPeriod": 0.01}
"""For many at once: a tenth of the default; less makes it no faster."""
AT_ONCE = {"appendEntriesUseBatch": False}
"""For one at a time."""


def is_here() -> bool:
    """Return True if it is installed."""
    return importlib.util.find_spec("pysyncobj") is not None


class PySyncObj:
    """A cluster that runs within a `with` block."""

    def __init__(
        self, folder: Path, *, journal: bool, options: dict[str, Any], members: int = 3
    ) -> None:
        """The members store their logs in files with `journal`; PySyncObj maps them and never
        syncs."""
        self._folder = folder
        self._journal = journal
        self._options = options
        self._addresses = [f"127.0.0.1:{port}" for port in free_ports(members)]
        self._stack = ExitStack()
        self._members: list[Member] = []
        self._leader: Member | None = None

    async def __aenter__(self) -> "PySyncObj":
        with self._stack:
            for number, address in enumerate(self._addresses):
                folder = self._folder / f"m{number}"
                options = dict(self._options)
                if self._journal:
                    options["journalFile"] = str(folder / "journal")
                others = [other for other in self._addresses if other != address]
                given = {"me": address, "others": others, "options": options}
                command = python("pysyncobj_member", json.dumps(given))
                self._members.append(self._stack.enter_context(Member(command, folder, talks=True)))
            self._leader = await self._find_leader()
            self._stack = self._stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the ids of its processes."""
        return tuple(member.pid for member in self._members)

    async def load(self, outstanding: int, seconds: float) -> Outcome:
        """Keep so many commands in flight in the leader's process."""
        assert self._leader is not None, "not entered"
        work = Work(
            outstanding=outstanding, seconds=seconds, server_pids=self.pids, client_pid=None
        )
        self._leader.tell(do="load", work=work.line())
        return Outcome(**await asyncio.to_thread(self._leader.answer))

    async def _find_leader(self) -> Member:
        """Return the leader once all members have its entries."""
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            states = [await asyncio.to_thread(each.ask, do="tell") for each in self._members]
            leaders = [
                each for each, state in zip(self._members, states, strict=True) if state["leads"]
            ]
            if len(leaders) == 1 and all(state["ready"] for state in states):
                return leaders[0]
            await asyncio.sleep(0.05)
        raise Refused(f"PySyncObj has no leader after {START_S:.0f} s")
