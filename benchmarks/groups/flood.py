"""Many connections that repeat the same request as soon as it is answered.

The frames are encoded before, and the first response of each connection is decoded: later ones are
the same bytes, or are decoded too. So a request costs the generator microseconds.
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

SIZE: Final = 4  # of the size before a frame
PATIENCE_S: Final = 60.0  # until the first response, on a slow machine too
LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """The request of a connection."""

    kind: tuple[int, int]
    fields: dict[str, Any]
    code_of: Callable[[Any], int]  # the error of a response; 0: none


@dataclass(frozen=True, slots=True, kw_only=True)
class Flooded:
    """The result of a flood."""

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
        self._good = b""  # a response without an error
        self.answered = 0
        self.is_stopping = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit it
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
            assert self._transport is not None, "the connection is not open"
            self._transport.write(self._frame)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_stopping:
            self._fail(exc or ConnectionResetError("the broker hung up"))

    def close(self) -> None:
        """Send no more requests, and close the connection."""
        self.is_stopping = True
        if self._transport is not None:
            self._transport.close()

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)


async def flood(
    subject: Subject, port: int, asked: Sequence[Repeated], *, warm_s: float, seconds: float
) -> Flooded:
    """Send requests for so long, and longer until the first response. Raise OSError and Refused."""
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
    """Wait. Raise the error of a connection that fails."""
    done, _ = await asyncio.wait({failed}, timeout=seconds)
    for each in done:
        each.result()
