"""Three members of etcd, and puts to their leader.

Each member has its own folder and syncs it, by default; nothing is tuned. The client's 8
connections all go to the leader, so that no member forwards puts.

The messages of etcd's interface by field number: `KV/Put` has a key (1) and a value (2), and the
response of `Maintenance/Status` has a header (1) with the member id (2), the leader's member id
(4), and the index of the newest entry (5).
"""

import asyncio
import itertools
import os
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

from benchmarks.raft.load import VALUES, Meter, Outcome, Work
from benchmarks.raft.processes import Member, Refused, free_ports
from benchmarks.raft.wire import Connection, ask

MISSING = (
    "etcd is not here: install it (Debian and Ubuntu: `apt install etcd-server`), or say in ETCD"
    " where the program is"
)
CONNECTIONS = 8
KEYS = 1000
START_S = 120.0
PUT = "/etcdserverpb.KV/Put"
STATUS = "/etcdserverpb.Maintenance/Status"


def program() -> str | None:
    """Return the path of etcd."""
    return os.environ.get("ETCD") or shutil.which("etcd")


class Etcd:
    """A cluster that runs within a `with` block."""

    def __init__(self, folder: Path, etcd: str, *, members: int = 3) -> None:
        self._folder = folder
        self._etcd = etcd
        ports = free_ports(2 * members)
        self.addresses = tuple(f"127.0.0.1:{port}" for port in ports[::2])  # for clients
        self._peers = [f"http://127.0.0.1:{port}" for port in ports[1::2]]
        self._stack = ExitStack()
        self.members: list[Member] = []
        self.leader = 0  # a member's number

    async def __aenter__(self) -> "Etcd":
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

    async def load(self, outstanding: int, seconds: float) -> Outcome:
        """Keep so many puts in flight over CONNECTIONS connections, or over one for one put."""
        work = Work(
            outstanding=outstanding,
            seconds=seconds,
            server_pids=self.pids,
            client_pid=os.getpid(),
        )
        return await Puts(work).run(self.addresses[self.leader])

    def restart(self, number: int) -> None:
        """Start a member again, in its existing folder."""
        self.members[number].kill()
        self.members[number] = self._member(number)

    async def find_leader(self) -> int:
        """Return the leader once all others follow it and have its entries."""
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            try:
                states = [Status.of(await ask(each, STATUS, b"")) for each in self.addresses]
            except OSError:
                states = []
            leaders = [number for number, each in enumerate(states) if each.me == each.leader]
            if len(leaders) == 1 and len({(each.leader, each.index) for each in states}) == 1:
                return leaders[0]
            await asyncio.sleep(0.05)
        complaints = [member.complaints() for member in self.members]
        raise Refused(f"etcd has no leader after {START_S:.0f} s: {complaints}")

    async def commits(self, address: str, within_s: float) -> bool:
        """Put one value there; return True if it was committed in this time."""
        try:
            async with asyncio.timeout(within_s):
                await ask(address, PUT, put_request(0))
        except (OSError, TimeoutError):
            return False
        return True

    def _kill_all(self) -> None:
        for member in self.members:
            member.kill()

    def _member(self, number: int) -> Member:
        client, peer = f"http://{self.addresses[number]}", self._peers[number]
        initial = ",".join(f"m{other}={url}" for other, url in enumerate(self._peers))
        folder = self._folder / f"m{number}"
        command = [self._etcd, "--name", f"m{number}", "--data-dir", str(folder / "data")]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--initial-cluster", initial, "--log-level", "error"]
        return Member(command, folder, talks=False, ends_by_signal=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a member."""

    me: int  # member ids
    leader: int  # 0: none
    index: int  # of its newest entry

    @classmethod
    def of(cls, answer: bytes) -> "Status":
        """Parse a response of STATUS."""
        status = fields(answer)
        header = status.get(1, b"")
        assert isinstance(header, bytes), "the header is no message"
        numbers = (fields(header).get(2, 0), status.get(4, 0), status.get(5, 0))
        me, leader, index = (int(each) for each in numbers)
        return cls(me=me, leader=leader, index=index)


class Puts:
    """A closed loop of puts: each response starts the next put on the same connection."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._meter = Meter(work)
        self._over = asyncio.get_running_loop().create_future()
        self._requests = itertools.cycle([put_request(number) for number in range(KEYS)])
        self._connections: list[Connection] = []
        self._asked_s: list[dict[int, float]] = []  # by connection and stream

    async def run(self, address: str) -> Outcome:
        """Run the loop with the member at this address."""
        loop = asyncio.get_running_loop()
        host, _, port = address.rpartition(":")
        count = min(CONNECTIONS, self._work.outstanding)
        for number in range(count):
            connection = Connection(
                PUT, on_message=_forget, on_end=partial(self._end, number), on_lost=self._fail
            )
            await loop.create_connection(partial(_same, connection), host, int(port))
            self._connections.append(connection)
            self._asked_s.append({})
        for turn in range(self._work.outstanding):
            self._put(turn % count)
        for connection in self._connections:
            connection.flush()
        try:
            await self._over
        finally:
            for connection in self._connections:
                connection.close()
        return self._meter.outcome()

    def _put(self, number: int) -> None:
        stream = self._connections[number].call(next(self._requests))
        self._asked_s[number][stream] = time.perf_counter()

    def _end(self, number: int, stream: int, succeeded: bool) -> None:
        if not succeeded:
            self._fail("a put was refused")
            return
        self._meter.answered(self._asked_s[number].pop(stream))
        if not self._meter.is_over:
            self._put(number)
        elif not self._over.done():
            self._over.set_result(None)

    def _fail(self, why: str) -> None:
        if not self._over.done():
            self._over.set_exception(Refused(f"etcd: {why}"))


def _forget(stream: int, answer: bytes) -> None:
    """Ignore its content: a response means success."""


def _same(connection: Connection) -> Connection:
    return connection


# --- messages ------------------------------------------------------------------------------------


def put_request(number: int) -> bytes:
    """Return a put of a value of VALUE_BYTES under one of so many keys of 8 bytes."""
    key, value = b"k%07d" % number, VALUES[number % len(VALUES)]
    return b"\x0a" + varint(len(key)) + key + b"\x12" + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Return a number as protobuf encodes it."""
    content = bytearray()
    while value > 0x7F:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    content.append(value)
    return bytes(content)


def fields(content: bytes) -> dict[int, int | bytes]:
    """Return a message's fields by number: varints and byte strings, the last one of each
    number."""
    found: dict[int, int | bytes] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (content[at] & 0x7F) << shift
            shift += 7
            at += 1
            if content[at - 1] < 0x80:
                return value

    while at < len(content):
        tag = number()
        if tag & 7 == 0:
            found[tag >> 3] = number()
        else:
            assert tag & 7 == 2, f"wire type {tag & 7}"
            size = number()
            found[tag >> 3] = content[at : at + size]
            at += size
    return found
