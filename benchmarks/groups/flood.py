"""Many connections that each ask the same thing again as soon as it is answered.

The frames are encoded before, and the first answer of each connection is looked at: later ones are
the same bytes, or are looked at too. So a request costs the generator microseconds.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from benchmarks.groups.wire import decoded
from benchmarks.kafka_wire.systems import Subject
from benchmarks.kafka_wire.wire import frame_of
from benchmarks.raft.processes import Refused, cpu_s

SIZE: Final = 4  # bytes in front of a frame that say how long it is
PATIENCE_S: Final = 60.0  # until something is answered, on whatever machine
LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """What a connection asks."""

    kind: tuple[int, int]
    fields: dict[str, Any]
    code_of: Callable[[Any], int]  # the error in an answer; 0: none


@dataclass(frozen=True, slots=True, kw_only=True)
class Flooded:
    """What came of it."""

    requests: int
    seconds: float
    broker_cpu_s: float
    client_cpu_s: float


class _Asking(asyncio.Protocol):
    """One connection."""

    def __init__(self, repeated: Repeated, failed: asyncio.Future[None]) -> None:
        self._repeated = repeated
        self._failed = failed
        self._frame = frame_of(repeated.kind, repeated.fields, correlation_id=1)
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._good = b""  # an answer without an error
        self.answered = 0
        self.is_stopping = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._transport.write(self._frame)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < SIZE:
            return
        end = SIZE + int.from_bytes(self._buffer[:SIZE], "big")
        if len(self._buffer) < end:
            return
        answer, self._buffer = self._buffer[SIZE:end], self._buffer[end:]
        if answer != self._good:
            code = self._repeated.code_of(decoded(self._repeated.kind, answer))
            if code:
                self._fail(Refused(f"a request of key {self._repeated.kind[0]}: error {code}"))
                return
            self._good = answer
        self.answered += 1
        if not self.is_stopping:
            assert self._transport is not None, "it is connected"
            self._transport.write(self._frame)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_stopping:
            self._fail(exc or ConnectionResetError("the broker hung up"))

    def close(self) -> None:
        """Ask no more, and hang up."""
        self.is_stopping = True
        if self._transport is not None:
            self._transport.close()

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)


async def flood(
    subject: Subject, port: int, asked: Sequence[Repeated], *, warm_s: float, seconds: float
) -> Flooded:
    """Ask for so long, and for longer while nothing is answered; raises OSError and Refused."""
    loop = asyncio.get_running_loop()
    failed: asyncio.Future[None] = loop.create_future()
    asking = [_Asking(each, failed) for each in asked]
    try:
        for each in asking:
            await loop.create_connection(lambda each=each: each, "127.0.0.1", port)  # type: ignore[misc]
        await _unless(failed, warm_s)
        before = sum(each.answered for each in asking)
        broker_s, client_s = cpu_s(subject.system.pids), time.process_time()
        began_s = time.perf_counter()
        await _unless(failed, seconds)
        while (
            not (requests := sum(each.answered for each in asking) - before)
            and time.perf_counter() - began_s < PATIENCE_S
        ):
            await _unless(failed, LOOK_S)
        took_s = time.perf_counter() - began_s
        return Flooded(
            requests=requests,
            seconds=took_s,
            broker_cpu_s=cpu_s(subject.system.pids) - broker_s,
            client_cpu_s=time.process_time() - client_s,
        )
    finally:
        for each in asking:
            each.close()
        if not failed.cancel():
            failed.exception()


async def _unless(failed: asyncio.Future[None], seconds: float) -> None:
    """Wait; raises what failed meanwhile."""
    done, _ = await asyncio.wait({failed}, timeout=seconds)
    for each in done:
        each.result()
