"""The HTTP server on both runtimes: responses, invalid requests, limits and close."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest
from tests.kit.waits import wait_until

from quorumlog import simulation
from quorumlog.errors import AddressInUse
from quorumlog.frontends.http import HttpRequest, HttpResponse, HttpServer
from quorumlog.runtime import Runtime, real

from .http_caller import Caller, calling

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]
Answering: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]


async def echo(request: HttpRequest) -> HttpResponse:
    said = f"{request.method} {request.path} {request.query} {request.headers.get('accept', '')}"
    return HttpResponse(body=said.encode())


@asynccontextmanager
async def serving(
    runtime: Runtime, route: Answering = echo, **limits: Any
) -> AsyncIterator[HttpServer]:
    async with runtime.tasks.scope("test") as scope:
        server = await HttpServer.open(
            runtime, scope, "127.0.0.1:0", {"/here": route, "/there": route}, **limits
        )
        try:
            yield server
        finally:
            await server.close(0)


@asynccontextmanager
async def served(
    runtime: Runtime, route: Answering = echo, **limits: Any
) -> AsyncIterator[tuple[HttpServer, Caller]]:
    async with (
        serving(runtime, route, **limits) as server,
        calling(runtime, server.address) as caller,
    ):
        yield server, caller


def test_requests_of_one_connection_are_answered_one_after_the_other(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (_, caller):
            for number in range(3):
                status, headers, body = await caller.get(f"/here?n={number}", Accept="x/y")
                assert (status, body) == (200, b"GET /here n=%d x/y" % number)
                assert headers["content-length"] == str(len(body))
                assert headers["date"].endswith(" GMT")
            assert not caller.is_closed

    run(main)


def test_requests_that_were_sent_together_are_answered_in_order(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (_, caller):
            many = b"".join(b"GET /here?%d HTTP/1.1\r\nHost: h\r\n\r\n" % n for n in range(20))
            caller.connection.write([many])
            for number in range(20):
                assert (await caller.next_answer())[2] == b"GET /here %d " % number

    run(main)


def test_head_gets_the_length_and_no_body(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (_, caller):
            status, headers, body = await caller.get("/here", method="HEAD")
            assert (status, body, headers["content-length"]) == (200, b"", "12")
            assert (await caller.get("/here"))[2] == b"GET /here  "

    run(main)


def test_unknown_path_returns_the_list_of_paths(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (_, caller):
            status, _, body = await caller.get("/elsewhere")
            assert (status, body) == (404, b"Unknown path; the paths are /here, /there.\n")
            status, headers, _ = await caller.get("/here", method="DELETE")
            assert (status, headers["allow"]) == (405, "GET, HEAD")

    run(main)


@pytest.mark.slow
def test_a_body_is_dropped_and_one_that_does_not_end_is_refused(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (_, caller):
            caller.connection.write(
                [b"GET /here HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n", b"x" * 9]
            )
            assert (await caller.next_answer())[0] == 200
            caller.connection.write(
                [b"GET /here HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n"]
            )
            caller.connection.write([b"x" * 80_000])
            status, headers, _ = await caller.next_answer()
            assert (status, headers["connection"]) == (413, "close")
            await caller.wait(lambda: caller.is_closed)

    run(main)


@pytest.mark.parametrize(
    "sent",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /here HTTP/1.1\r\n\r\n",
        b"GET /here HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 20_000,
        b"\x00" * 4_000,
    ],
    ids=["http2", "tls", "no host", "endless head", "zeros"],
)
def test_invalid_request_ends_its_connection_only(run: Run, sent: bytes) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime) as (server, caller):
            async with calling(runtime, server.address) as stranger:
                stranger.connection.write([sent])
                stranger.connection.close()
                await stranger.wait(lambda: stranger.is_closed)
            assert (await caller.get("/here"))[0] == 200

    run(main)


def test_client_without_a_request_is_closed_in_time(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with served(runtime, idle_ms_max=50) as (_, caller):
            caller.connection.write([b"GET /here HTTP/1.1\r\nHo"])
            await caller.wait(lambda: caller.is_closed)
            assert caller.bytes == 0

    run(main)


def test_slow_route_has_more_time_than_a_slow_client() -> None:
    async def slow(request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0.1)
        return HttpResponse()

    async def main(runtime: Runtime) -> None:
        async with served(runtime, slow, idle_ms_max=20) as (_, caller):
            assert (await caller.get("/here"))[0] == 200

    simulation.run(main)


def test_a_route_that_fails_is_a_500_and_the_next_request_is_served(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(request: HttpRequest) -> HttpResponse:
        if request.query:
            return HttpResponse()
        raise RuntimeError("broken")

    async def main(runtime: Runtime) -> None:
        async with served(runtime, broken) as (_, caller):
            assert (await caller.get("/here"))[0] == 500
            assert (await caller.get("/here?well"))[0] == 200

    run(main)
    assert "http.route_failed path=/here" in caplog.text


def test_connections_beyond_the_bound_are_refused_while_the_others_have_a_request(
    run: Run,
) -> None:
    async def main(runtime: Runtime) -> None:
        begun, end = asyncio.Event(), asyncio.Event()

        async def slow(request: HttpRequest) -> HttpResponse:
            begun.set()
            await end.wait()
            return HttpResponse()

        async with served(runtime, slow, connections_max=1) as (server, caller):
            first = asyncio.ensure_future(caller.get("/here"))
            await begun.wait()
            async with calling(runtime, server.address) as second:
                assert (await second.get("/here"))[0] == 503
                await second.wait(lambda: second.is_closed)
            assert server.refused == 1
            end.set()
            assert (await first)[0] == 200

    run(main)


@pytest.mark.parametrize("requests", [0, 1], ids=["silent", "idle after a request"])
def test_oldest_idle_connection_ends_at_the_bound(run: Run, requests: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with (
            served(runtime, connections_max=2) as (server, oldest),
            calling(runtime, server.address) as newer,
        ):
            for _ in range(requests):
                assert (await oldest.get("/here"))[0] == 200
            assert (await newer.get("/here"))[0] == 200
            async with calling(runtime, server.address) as newest:
                assert (await newest.get("/here"))[0] == 200
                await oldest.wait(lambda: oldest.is_closed)
                assert (await newer.get("/here"))[0] == 200

    run(main)


def test_connection_with_a_delayed_refusal_ends_at_the_bound(run: Run) -> None:
    checked: list[str] = []
    cancelled = asyncio.Event()

    async def access(request: HttpRequest) -> HttpResponse | None:
        if request.path == "/there":
            checked.append(request.path)
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
        return None

    async def main(runtime: Runtime) -> None:
        async with served(runtime, access=access, connections_max=1) as (server, stranger):
            stranger.connection.write([b"GET /there HTTP/1.1\r\nHost: localhost\r\n\r\n"])
            await wait_until(lambda: bool(checked))
            async with calling(runtime, server.address) as caller:
                assert (await caller.get("/here"))[0] == 200
            await stranger.wait(lambda: stranger.is_closed)
            await cancelled.wait()

    run(main)


@pytest.mark.slow
def test_client_that_reads_nothing_keeps_one_response_and_is_closed(run: Run) -> None:
    """A buffered response for each request would fill the node's memory: the next request waits."""
    asked: list[str] = []

    async def large(request: HttpRequest) -> HttpResponse:
        asked.append(request.query)
        return HttpResponse(body=bytes(16 << 20))

    async def main(runtime: Runtime) -> None:
        async with served(runtime, large, idle_ms_max=1_000) as (server, caller):
            caller.connection.pause_reading()
            caller.connection.write([b"GET /here HTTP/1.1\r\nHost: h\r\n\r\n" * 10])
            async with asyncio.timeout(60):
                while not asked or server.connection_count:  # noqa: ASYNC110 - there is no event
                    await asyncio.sleep(0.01)
            assert len(asked) == 1

    run(main)


def test_close_completes_requests_in_flight_and_ends_idle_connections(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        began, goes_on = asyncio.Event(), asyncio.Event()

        async def held(request: HttpRequest) -> HttpResponse:
            began.set()
            await goes_on.wait()
            return HttpResponse(body=b"done")

        async with (
            served(runtime, held) as (server, caller),
            calling(runtime, server.address) as idle,
        ):
            asking = asyncio.get_running_loop().create_task(caller.get("/here"))
            await began.wait()
            closing = asyncio.get_running_loop().create_task(server.close(10_000))
            await idle.wait(lambda: idle.is_closed)
            goes_on.set()
            _, headers, body = await asking
            assert (headers["connection"], body) == ("close", b"done")
            await closing

    run(main)


def test_a_taken_port_is_a_typed_error() -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime) as server, runtime.tasks.scope("second") as scope:
            with pytest.raises(AddressInUse, match=server.address):
                await HttpServer.open(runtime, scope, server.address, {})

    real.run(main)
