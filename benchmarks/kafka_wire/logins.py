"""Connections over TLS 1.3 with SCRAM-SHA-256: handshakes and logins per second, and a storm.

A handshake counts once ApiVersions is answered, a login once SaslAuthenticate is. Both open new
connections, without resumption of TLS sessions. In the storm all clients connect, log in and
request metadata at once, and reconnect after a backoff if the broker ends a connection; its figure
is the time of the slowest. One process with one thread is the client of both systems. The order of
turns and the goals are in `pairs`.

Run: python -m benchmarks.kafka_wire --only logins
"""

import asyncio
import hashlib
import hmac
import secrets
import ssl
import struct
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks.kafka_wire import apache_kafka, ours, pairs
from benchmarks.kafka_wire.pairs import Goal, Turns
from benchmarks.kafka_wire.systems import Kind, Subject, running
from benchmarks.kafka_wire.wire import METADATA, Asker, check, frame_of, reader_of, writer_of
from benchmarks.raft.processes import Refused, cpu_s

API_VERSIONS, HANDSHAKE, AUTHENTICATE = (18, 3), (17, 1), (36, 1)
ALTER_PASSWORDS: Final = (51, 0)
MECHANISM: Final = "SCRAM-SHA-256"
SCRAM_SHA_256: Final = 1
USER, PASSWORD, SALT, ITERATIONS = "bench", "secret", b"0123456789abcdef", 4_096
AT_ONCE: Final = 16  # concurrent opens
CLIENTS: Final = 1_000  # in the storm
SERVED_S: Final = 10.0  # goal of the slowest client
STORM_S: Final = 120.0  # time limit of a client
BACKOFF_S, BACKOFF_MAX_S = 0.05, 1.0  # Kafka's reconnect.backoff.ms and reconnect.backoff.max.ms
READY_S: Final = 60.0  # for a new user
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    ours.NAME: {"super.users": ["User:ANONYMOUS"]},
    apache_kafka.NAME: {
        "sasl.enabled.mechanisms": MECHANISM,
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Connections of one turn."""

    count: int
    seconds: float  # of the turn; of the storm: until the slowest client was served
    broker_cpu_s: float
    client_cpu_s: float
    reconnects: int = 0  # after connections that the broker ended

    @property
    def per_s(self) -> float:
        """Return the connections per second."""
        return self.count / self.seconds

    @property
    def cpu_ms(self) -> float:
        """Return the broker's processor time of a connection."""
        return self.broker_cpu_s / self.count * 1_000

    @property
    def is_client_bound(self) -> bool:
        """Return True if the client limits the rate."""
        return pairs.is_client_bound(
            thread_cores=self.client_cpu_s / self.seconds,
            broker_cores=self.broker_cpu_s / self.seconds,
        )


@dataclass(slots=True)
class Measured:
    """Turns by what was measured and by system."""

    turns: dict[tuple[str, str], Turns[Turn]] = field(default_factory=dict)


class Client:
    """One connection over TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int, context: ssl.SSLContext) -> "Client":
        """Connect to a broker on this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=context))

    def close(self) -> None:
        """End the connection."""
        self._writer.transport.abort()

    async def frame(self, request: bytes) -> bytes:
        """Send a frame; return the response's content."""
        self._writer.write(request)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    async def ask(self, kind: tuple[int, int], **fields: Any) -> Any:
        """Send a request; return the message of the response."""
        content = await self.frame(frame_of(kind, fields, correlation_id=0))
        message, _ = reader_of(*kind)(content[5 if writer_of(*kind)[0].__flexible__ else 4 :], 0)
        return message

    async def log_in(self) -> None:
        """Log in as the user. Raise Refused."""
        await self.frame(_handshake())
        nonce = secrets.token_hex(16)
        bare = f"n={USER},r={nonce}"
        first = await self.ask(AUTHENTICATE, auth_bytes=f"n,,{bare}".encode())
        check("the login is refused", first.error_code)
        proof = _final_message(bare, first.auth_bytes.decode())
        final = await self.ask(AUTHENTICATE, auth_bytes=proof)
        check("the login is refused", final.error_code)


@cache
def _handshake() -> bytes:
    return frame_of(HANDSHAKE, {"mechanism": MECHANISM}, correlation_id=0)


@cache
def _api_versions() -> bytes:
    named = {"client_software_name": "bench", "client_software_version": "1"}
    return frame_of(API_VERSIONS, named, correlation_id=0)


@cache
def _client_key(salt: bytes, iterations: int) -> bytes:
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt, iterations)
    return hmac.digest(salted, b"Client Key", "sha256")


def _final_message(bare: str, first: str) -> bytes:
    """Return SCRAM's client-final-message (RFC 5802)."""
    said = dict(part.split("=", 1) for part in first.split(","))
    key = _client_key(b64decode(said["s"]), int(said["i"]))
    without_proof = f"c=biws,r={said['r']}"
    signed = f"{bare},{first},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"{without_proof},p={b64encode(proof).decode()}".encode()


def create_user(port: int) -> None:
    """Create the user through the plain listener."""
    user = {
        "name": USER,
        "mechanism": SCRAM_SHA_256,
        "iterations": ITERATIONS,
        "salt": SALT,
        "salted_password": hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), SALT, ITERATIONS),
    }
    with Asker(port) as asker:
        (result,) = asker.ask(ALTER_PASSWORDS, deletions=[], upsertions=[user]).results
    check(f"the user is not created: {result.error_message}", result.error_code)


class Clients:
    """The clients of one system."""

    def __init__(self, subject: Subject, ca: Path) -> None:
        self._system = subject.system
        self._context = ssl.create_default_context(cafile=str(ca))
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3

    async def shake_hands(self) -> None:
        """Open a connection, and close it after the first response."""
        client = await Client.connect(self._system.tls_port, self._context)
        try:
            await client.frame(_api_versions())
        finally:
            client.close()

    async def log_in(self) -> None:
        """Open a connection, and close it once it is logged in."""
        client = await Client.connect(self._system.tls_port, self._context)
        try:
            await client.log_in()
        finally:
            client.close()

    async def ready(self) -> None:
        """Wait until the broker accepts the user."""
        deadline_s = time.perf_counter() + READY_S
        while True:
            try:
                await self.log_in()
            except (Refused, OSError):
                if time.perf_counter() > deadline_s:
                    raise
            else:
                return

    async def rate(self, work: Callable[[], Awaitable[None]], seconds: float) -> Turn:
        """Repeat the work for so many seconds, AT_ONCE concurrently."""
        count, began_s = 0, time.perf_counter()
        broker_s, client_s = cpu_s(self._system.pids), time.process_time()

        async def repeat() -> None:
            nonlocal count
            while time.perf_counter() < began_s + seconds:
                await work()
                count += 1

        await asyncio.gather(*(repeat() for _ in range(AT_ONCE)))
        return Turn(
            count=count,
            seconds=time.perf_counter() - began_s,
            broker_cpu_s=cpu_s(self._system.pids) - broker_s,
            client_cpu_s=time.process_time() - client_s,
        )

    async def storm(self, clients: int) -> Turn:
        """Connect all clients at once, and keep each until all were served. Raise Refused if one
        was not."""
        opened: list[Client] = []
        reconnects = 0
        began_s = time.perf_counter()
        broker_s, client_s = cpu_s(self._system.pids), time.process_time()

        async def serve() -> None:
            nonlocal reconnects
            backoff_s = BACKOFF_S
            async with asyncio.timeout(STORM_S):
                while True:
                    try:
                        client = await Client.connect(self._system.tls_port, self._context)
                        opened.append(client)
                        await client.log_in()
                        await client.ask(METADATA, topics=[], allow_auto_topic_creation=False)
                    except (OSError, EOFError):
                        reconnects += 1
                        await asyncio.sleep(backoff_s)
                        backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
                    else:
                        return

        ends = await asyncio.gather(*(serve() for _ in range(clients)), return_exceptions=True)
        turn = Turn(
            count=clients,
            seconds=time.perf_counter() - began_s,
            broker_cpu_s=cpu_s(self._system.pids) - broker_s,
            client_cpu_s=time.process_time() - client_s,
            reconnects=reconnects,
        )
        for client in opened:
            client.close()
        failures = [each for each in ends if isinstance(each, BaseException)]
        if failures:
            raise Refused(f"{len(failures)} of {clients} clients were not served: {failures[0]!r}")
        return turn


HANDSHAKES, LOGINS, STORM = "handshakes", "logins", "storm"


async def measure(
    kinds: Sequence[Kind],
    folder: Path,
    ca: Path,
    *,
    seconds: float,
    warm_s: float,
    rounds: int,
    clients: int,
) -> Measured:
    """Measure each system in turn, after it has warmed up."""
    measured = Measured()
    async with running(kinds, folder, brokers=1) as subjects:
        sides = {each.name: Clients(each, ca) for each in subjects}
        for subject in subjects:
            create_user(subject.system.port)
            side = sides[subject.name]
            await side.ready()
            await side.rate(side.log_in, warm_s)
            await side.storm(clients)
        for number, ordered in pairs.turns(subjects, rounds):
            for name in (each.name for each in ordered):
                side = sides[name]
                taken = {
                    HANDSHAKES: await side.rate(side.shake_hands, seconds),
                    LOGINS: await side.rate(side.log_in, seconds),
                    STORM: await side.storm(clients),
                }
                for what, turn in taken.items():
                    measured.turns.setdefault((what, name), {})[number] = turn
                    print(line(what, name, turn), flush=True)
    return measured


def line(what: str, name: str, turn: Turn) -> str:
    """Return the printed line of a turn."""
    figure = f"{turn.seconds:.2f} s" if what == STORM else f"{turn.per_s:,.0f}/s"
    bound = " (client-bound)" if turn.is_client_bound else ""
    return f"{name:<28} {what:<11} {figure:>9}, {turn.cpu_ms:.2f} ms of broker CPU each{bound}"


# --- results -------------------------------------------------------------------------------------

CPU: Final[Goal[Turn]] = Goal(what="CPU", figure=lambda each: each.cpu_ms, bound="<= 1.0")
RATE: Final[Goal[Turn]] = Goal(what="rate", figure=lambda each: each.per_s, bound=">= 1.0")


def row(what: str, name: str, turns: Mapping[int, Turn]) -> dict[str, Any]:
    """Return the medians of a row's rounds."""
    taken = pairs.rounds_of(turns)
    return {
        "what": what,
        "system": name,
        "count": taken[0].count if what == STORM else None,
        "per_s": round(pairs.median(turns, lambda each: each.per_s), 1),
        "seconds": round(pairs.median(turns, lambda each: each.seconds), 2),
        "broker_cpu_ms": round(pairs.median(turns, lambda each: each.cpu_ms), 3),
        "client_bound": any(each.is_client_bound for each in taken),
        "rounds_per_s": [round(each.per_s, 1) for each in taken],
        "rounds_reconnects": [each.reconnects for each in taken],
        "rounds_seconds": [round(each.seconds, 2) for each in taken],
    }


def summary(measured: Measured, *, rounds: int, seconds: float) -> dict[str, Any]:
    """Return rows, the pairs with goals, and the slowest client of all storms of quorumlog."""
    rows = [row(what, name, turns) for (what, name), turns in measured.turns.items()]
    lines: list[dict[str, Any]] = []
    for what in (HANDSHAKES, LOGINS):
        mine, theirs = (
            measured.turns.get((what, name), {}) for name in (ours.NAME, apache_kafka.NAME)
        )
        bound = any(each["client_bound"] for each in rows if each["what"] == what)
        compared = pairs.compare_costs(RATE, CPU, mine, theirs, rounds=rounds, client_bound=bound)
        lines += [{**each, "what": f"{what}: {each['what']}"} for each in compared]
    storms = pairs.rounds_of(measured.turns[STORM, ours.NAME])
    slowest_s = max(each.seconds for each in storms)
    return {
        "rows": rows,
        "compared": lines,
        "seconds": seconds,
        "slowest_s": round(slowest_s, 2),
        "slowest_goal_s": SERVED_S,
        "slowest_met": slowest_s <= SERVED_S,
    }
