"""The gRPC client of the benchmarks, with gRPC's own server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from benchmarks.raft.wire import Connection
from grpc import aio

WINDOW = 65_535  # of a stream, before the server sends more


class RecordingClient:
    """A connection that records its responses."""

    def __init__(self, method: str, *, ends: int) -> None:
        self.answers: dict[int, list[bytes]] = {}
        self.ended: dict[int, bool] = {}
        self.next_call: Callable[[int], bytes] | None = None  # calls to start when one has ended
        self._ends = ends
        self._over = asyncio.get_running_loop().create_future()
        self.connection = Connection(
            method, on_message=self._answer, on_end=self._end, on_lost=self._lost
        )

    async def all_over(self) -> None:
        """Wait until the expected number of calls have ended."""
        await self._over
        self.connection.close()

    def _answer(self, stream: int, payload: bytes) -> None:
        self.answers.setdefault(stream, []).append(payload)

    def _end(self, stream: int, succeeded: bool) -> None:
        assert stream not in self.ended, f"stream {stream} ended twice"
        self.ended[stream] = succeeded
        if len(self.ended) == self._ends:
            self._over.set_result(None)
        elif self.next_call is not None:
            self.connection.call(self.next_call(len(self.ended)))

    def _lost(self, why: str) -> None:
        if not self._over.done():
            self._over.set_exception(ConnectionError(why))


class Handlers(grpc.GenericRpcHandler):
    """Handlers: /t/Turn reverses a message, /t/Each each one of a stream, /t/Not refuses."""

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a method."""

        async def turn(request: bytes, context: Any) -> bytes:
            return request[::-1]

        async def each(requests: AsyncIterator[bytes], context: Any) -> None:
            async for request in requests:
                await context.write(request[::-1])

        async def refuse(request: bytes, context: Any) -> bytes:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not here")
            return b""

        if details.method == "/t/Turn":
            return grpc.unary_unary_rpc_method_handler(turn)
        if details.method == "/t/Each":
            return grpc.stream_stream_rpc_method_handler(each)
        return grpc.unary_unary_rpc_method_handler(refuse)


@asynccontextmanager
async def asked(method: str, *, ends: int) -> AsyncIterator[RecordingClient]:
    """A connection to a server."""
    server = aio.server()
    server.add_generic_rpc_handlers((Handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    it = RecordingClient(method, ends=ends)
    try:
        await asyncio.get_running_loop().create_connection(lambda: it.connection, "127.0.0.1", port)
        yield it
    finally:
        it.connection.close()
        await server.stop(None)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it on asyncio's own loop."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main()

    asyncio.run(bounded())


def test_each_of_many_calls_at_once_gets_its_own_answer() -> None:
    async def main() -> None:
        async with asked("/t/Turn", ends=300) as it:
            streams = {it.connection.call(b"call %d" % n): b"call %d" % n for n in range(300)}
            it.connection.flush()
            await it.all_over()
            assert all(it.ended.values())
            assert it.answers == {each: [sent[::-1]] for each, sent in streams.items()}

    run(main)


@pytest.mark.parametrize("size", [0, 1, 16_383, 16_384, WINDOW, WINDOW + 1, 1 << 20])
def test_messages_larger_than_frames_and_windows_arrive_whole(size: int) -> None:
    async def main() -> None:
        async with asked("/t/Each", ends=1) as it:
            stream = it.connection.open()
            sent = [bytes([n % 251 for n in range(size)]), b"after", bytes(size)]
            for each in sent:
                it.connection.send(stream, each)
            it.connection.finish(stream)
            it.connection.flush()
            await it.all_over()
            assert it.answers == {stream: [each[::-1] for each in sent]}

    run(main)


def test_a_refused_call_has_failed() -> None:
    async def main() -> None:
        async with asked("/t/Not", ends=2) as it:
            it.connection.call(b"one")
            it.connection.call(b"another")
            it.connection.flush()
            await it.all_over()
            assert list(it.ended.values()) == [False, False]
            assert it.answers == {}

    run(main)


def test_call_can_start_at_the_end_of_another() -> None:
    async def main() -> None:
        async with asked("/t/Turn", ends=3) as it:
            it.next_call = lambda number: b"%d." % number
            it.connection.call(b"0.")
            it.connection.flush()
            await it.all_over()
            assert list(it.answers.values()) == [[b".0"], [b".1"], [b".2"]]

    run(main)
