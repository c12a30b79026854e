"""Three voters of quorumlog, with proposals to their leader over one stream or in its process."""

import asyncio
import itertools
import json
import os
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.raft.load import VALUES, Meter, Outcome, Work
from benchmarks.raft.processes import Member, Refused, free_ports, python
from benchmarks.raft.wire import Connection

from quorumlog.proto import raft_pb2

START_S = 120.0
PROPOSE = "/quorumlog.v1.Raft/Propose"


class Quorum:
    """A cluster that runs within a `with` block."""

    def __init__(
        self, folder: Path, *, timeouts: dict[str, int] | None = None, voters: int = 3
    ) -> None:
        """`timeouts` are fields of RaftConfig, with the defaults for the others."""
        self._folder = folder
        self._timeouts = timeouts or {}
        self.addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(voters))
        self._stack = ExitStack()
        self.members: list[Member] = []
        self.leader = 0  # node id

    async def __aenter__(self) -> "Quorum":
        with self._stack:
            self._stack.callback(self._kill_all)
            for number in range(len(self.addresses)):
                self.members.append(self._member(number))
            self.leader = await self.find_leader()
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
        return tuple(member.pid for member in self.members)

    async def find_leader(self) -> int:
        """Return the node id of the leader, once all voters follow it and have its committed
        entries."""
        deadline_s = time.monotonic() + START_S
        states: list[dict[str, Any]] = []
        while time.monotonic() < deadline_s:
            states = [await asyncio.to_thread(each.ask, do="tell") for each in self.members]
            leaders = [number for number, state in enumerate(states) if state["leads"]]
            if len(leaders) == 1 and all(
                state["leader_id"] == leaders[0]
                and state["high_watermark"] == states[leaders[0]]["high_watermark"]
                for state in states
            ):
                return leaders[0]
            await asyncio.sleep(0.02)
        raise Refused(f"the voters do not agree after {START_S:.0f} s: {states}")

    async def load_injected(self, outstanding: int, seconds: float) -> Outcome:
        """Keep so many proposals in flight in the leader's process."""
        work = Work(
            outstanding=outstanding, seconds=seconds, server_pids=self.pids, client_pid=None
        )
        leader = self.members[self.leader]
        leader.tell(do="load", work=work.line())
        return Outcome(**await asyncio.to_thread(leader.answer))

    async def load_stream(self, outstanding: int, seconds: float, *, gathered: int) -> Outcome:
        """Keep so many proposals of one value in flight on one stream, `gathered` to a message."""
        work = Work(
            outstanding=outstanding,
            seconds=seconds,
            server_pids=self.pids,
            client_pid=os.getpid(),
        )
        return await Proposals(work, gathered=gathered).run(self.addresses[self.leader])

    def _kill_all(self) -> None:
        for member in self.members:
            member.kill()

    def _member(self, number: int) -> Member:
        folder = self._folder / f"m{number}"
        given = {
            "node_id": number,
            "folder": str(folder / "data"),
            "addresses": self.addresses,
            "timeouts": self._timeouts,
        }
        return Member(python("voter", json.dumps(given)), folder, talks=True)


class Proposals:
    """The closed loop of proposals on one stream: a message with responses is followed by one with
    as many new proposals."""

    def __init__(self, work: Work, *, gathered: int) -> None:
        self._work = work
        self._gathered = gathered  # proposals of each of the first messages
        self._meter = Meter(work)
        self._over = asyncio.get_running_loop().create_future()
        self._asked_s: dict[int, float] = {}  # by request
        self._ids = itertools.count(1)
        self._connection = Connection(
            PROPOSE,
            on_message=self._answered,
            on_end=lambda stream, succeeded: self._fail("the stream ended"),
            on_lost=self._fail,
        )
        self._stream = 0

    async def run(self, address: str) -> Outcome:
        """Run the loop with the voter at this address."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self._connection, host, int(port))
        self._stream = self._connection.open()
        for _ in range(max(1, self._work.outstanding // self._gathered)):
            self._send(min(self._gathered, self._work.outstanding))
        self._connection.flush()
        try:
            await self._over
        finally:
            self._connection.close()
        return self._meter.outcome()

    def _send(self, count: int) -> None:
        requests = []
        asked_s = time.perf_counter()
        for number in itertools.islice(self._ids, count):
            values = [VALUES[number % len(VALUES)]]
            requests.append(raft_pb2.ProposeRequest(id=number, values=values))
            self._asked_s[number] = asked_s
        first = requests[0]
        first.more.extend(requests[1:])
        self._connection.send(self._stream, first.SerializeToString())

    def _answered(self, stream: int, content: bytes) -> None:
        first = raft_pb2.ProposeResponse.FromString(content)
        for response in (first, *first.more):
            if response.HasField("error"):
                self._fail(response.error.message)
                return
            self._meter.answered(self._asked_s.pop(response.id))
        if not self._meter.is_over:
            self._send(1 + len(first.more))
        elif not self._over.done():
            self._over.set_result(None)

    def _fail(self, why: str) -> None:
        if not self._over.done():
            self._over.set_exception(Refused(f"the leader: {why}"))
