"""Limits on time, memory and connections of Kafka clients, and the order of waiting requests."""

import asyncio
import struct
from dataclasses import replace

import pytest
from tests.kit.kafka_client import ConnectionEnded, RawClient, connect, connected
from tests.kit.node import Run
from tests.kit.waits import wait_until

from quorumlog import simulation
from quorumlog.broker.quotas import ClientQuotaManager
from quorumlog.errors import (
    TransportError,
)
from quorumlog.frontends.kafka import KafkaServer
from quorumlog.frontends.kafka.api import Answer, BrokerContext, Call, Done
from quorumlog.metadata.client_quotas import REQUEST_PERCENTAGE
from quorumlog.runtime import Runtime

from .bare_server import (
    ASKED,
    GATED_KEY,
    LARGE,
    LARGE_KEY,
    PLAIN_KEY,
    Gate,
    bare_server,
    is_served,
    topics,
)


def at_once(door: BrokerContext, call: Call, done: Done) -> bool:
    """Respond within the call, as the hot paths may."""
    done({"results": []})
    return True


AT_ONCE = replace(LARGE, name="AtOnce", begin=at_once, read=lambda version, body: bytes(body))


async def is_let_in(runtime: Runtime, address: str) -> bool:
    """Return True if a connection is accepted."""
    try:
        async with connected(runtime, address) as client:
            return await is_served(client)
    except (TransportError, ConnectionEnded):
        return False


# --- time ----------------------------------------------------------------------------------------


def test_idle_connection_is_closed_and_an_active_one_is_not() -> None:
    async def main(runtime: Runtime) -> None:
        async with (
            bare_server(runtime, connections_idle_ms_max=60_000) as (server, addresses),
            connected(runtime, addresses["one"]) as idle,
            connected(runtime, addresses["one"]) as busy,
        ):
            began_ms = runtime.clock.now_ms()
            while not idle.has_ended:
                assert await is_served(busy)
                await asyncio.sleep(7)
            assert 60_000 <= runtime.clock.now_ms() - began_ms <= 90_000
            assert server.figures.listeners["one"].ended == {"idle": 1}
            assert await is_served(busy)

    simulation.run(main)


def test_a_connection_that_waits_for_its_answer_is_not_idle() -> None:
    async def main(runtime: Runtime) -> None:
        gate = Gate()
        async with (
            bare_server(runtime, gate.api, connections_idle_ms_max=10_000) as (_, addresses),
            connected(runtime, addresses["one"]) as client,
        ):
            sent = client.send(GATED_KEY, 4, topic_names=["t"], timeout=1)
            await asyncio.sleep(100)
            gate.open(1)
            assert (await client.answer(GATED_KEY, 4))[0] == sent

    simulation.run(main)


@pytest.mark.parametrize("size", [100, 300_000])
def test_request_that_arrives_byte_by_byte_ends_its_connection(size: int) -> None:
    """The bytes keep the connection from being idle, and memory reserved."""

    async def main(runtime: Runtime) -> None:
        async with (
            bare_server(runtime, frame_ms_max=30_000) as (server, addresses),
            connected(runtime, addresses["one"]) as slow,
            connected(runtime, addresses["one"]) as good,
        ):
            assert await is_served(slow)
            began_ms = runtime.clock.now_ms()
            slow.send_raw(struct.pack(">ihh", size, PLAIN_KEY, 5))
            while not slow.has_ended:
                slow.send_raw(b"\0")
                await asyncio.sleep(1)
                assert await is_served(good)
            assert 30_000 <= runtime.clock.now_ms() - began_ms <= 80_000
            assert server.figures.listeners["one"].ended == {"slow": 1}
            await wait_until(lambda: server.memory.taken == 0)

    simulation.run(main)


def test_claimed_size_reserves_no_memory_and_extends_no_timeout() -> None:
    async def main(runtime: Runtime) -> None:
        async with (
            bare_server(runtime, frame_ms_max=5_000, requests_bytes_max=900_000) as (_, addresses),
            connected(runtime, addresses["one"]) as slow,
            connected(runtime, addresses["one"]) as good,
        ):
            began_ms = runtime.clock.now_ms()
            claim(slow, 1_000_000, 70_000)
            await asyncio.sleep(1)
            assert await is_served(good)
            assert runtime.clock.now_ms() - began_ms < 2_000
            await slow.ended()
            assert 5_000 <= runtime.clock.now_ms() - began_ms <= 12_000

    simulation.run(main)


def test_a_large_request_over_a_slow_link_has_its_time() -> None:
    async def main(runtime: Runtime) -> None:
        async with (
            bare_server(runtime, frame_ms_max=5_000, request_bytes_max=8 << 20) as (_, addresses),
            connected(runtime, addresses["one"]) as client,
        ):
            body = struct.pack(">hhih", PLAIN_KEY, 2, 1, -1) + struct.pack(">i", 1)
            name = b"\x7f\xff" + b"n" * 0x7FFF
            rest = struct.pack(">ih", 1, 1) + bytes(4)
            configs = struct.pack(">i", 60) + (name + name) * 60
            request = body + name + rest + configs + struct.pack(">ib", 1, 0)
            flow = struct.pack(">i", len(request)) + request
            began_ms = runtime.clock.now_ms()
            for at in range(0, len(flow), 100_000):
                client.send_raw(flow[at : at + 100_000])
                await asyncio.sleep(0.5)
            _, answer = await client.answer(PLAIN_KEY, 2)
            assert len(answer.topics) == 1
            assert runtime.clock.now_ms() - began_ms > 15_000

    simulation.run(main)


# --- memory --------------------------------------------------------------------------------------


def test_client_that_never_reads_is_paused_and_then_closed() -> None:
    async def main(runtime: Runtime) -> None:
        async with (
            bare_server(runtime, LARGE, connections_idle_ms_max=60_000) as (server, addresses),
            connected(runtime, addresses["one"]) as deaf,
            connected(runtime, addresses["one"]) as good,
        ):
            deaf.connection.pause_reading()
            for _ in range(200):  # 20 MB of responses
                deaf.send(LARGE_KEY, 2, **ASKED)
            for _ in range(20):
                await asyncio.sleep(1)
                assert await is_served(good)
            answered = server.figures.apis["Large"].answered
            assert 5 < answered < 60  # the bound and the kernel's buffers, no more
            while server.connection_count == 2:
                await asyncio.sleep(5)
                assert await is_served(good)
            assert server.figures.listeners["one"].ended == {"idle": 1}
            assert server.figures.apis["Large"].answered == answered

    simulation.run(main)


def test_closing_connection_without_a_reader_is_aborted() -> None:
    """Earlier responses may still be sent, and the client has some time for them."""

    async def main(runtime: Runtime) -> None:
        async with (
            bare_server(runtime, LARGE, connections_idle_ms_max=40_000) as (server, addresses),
            connected(runtime, addresses["one"]) as deaf,
            connected(runtime, addresses["one"]) as late,
        ):
            for client in (deaf, late):
                client.connection.pause_reading()
                for _ in range(4):
                    client.send(LARGE_KEY, 2, **ASKED)
                client.send_raw(b"garbage " * 10)
            await asyncio.sleep(5)
            assert server.connection_count == 2
            late.connection.resume_reading()
            for _ in range(4):
                await late.answer(LARGE_KEY, 2)
            assert await late.ended() is None
            began_ms = runtime.clock.now_ms()
            assert await deaf_end(server) == {"invalid": 2}
            assert runtime.clock.now_ms() - began_ms < 40_000

    async def deaf_end(server: KafkaServer) -> dict[str, int]:
        while server.connection_count:  # noqa: ASYNC110 (there is no event)
            await asyncio.sleep(1)
        return server.figures.listeners["one"].ended

    simulation.run(main)


def test_a_client_that_reads_late_gets_every_answer(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with (
            bare_server(runtime, LARGE, unsent_bytes_max=200_000) as (_, addresses),
            connected(runtime, addresses["one"]) as client,
        ):
            client.connection.pause_reading()
            sent = [client.send(LARGE_KEY, 2, **ASKED) for _ in range(50)]
            await asyncio.sleep(0.05)
            client.connection.resume_reading()
            for number in sent:
                correlation_id, answer = await client.answer(LARGE_KEY, 2)
                assert correlation_id == number
                assert len(answer.results) == 4

    run(main)


def test_requests_wait_while_the_request_memory_is_full(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        gate = Gate()
        async with (
            bare_server(runtime, gate.api, requests_bytes_max=5_000) as (server, addresses),
            connected(runtime, addresses["one"]) as first,
            connected(runtime, addresses["one"]) as second,
            connected(runtime, addresses["one"]) as third,
        ):
            first.send(GATED_KEY, 4, topic_names=["t" * 6_000], timeout=1)
            await gate.reached(1)
            assert server.memory.is_full
            for client in (second, third):
                client.send(PLAIN_KEY, 5, **topics("waits"))
            asked = [
                asyncio.ensure_future(client.answer(PLAIN_KEY, 5)) for client in (second, third)
            ]
            done, _ = await asyncio.wait(asked, timeout=0.1)
            assert not done
            gate.open(1)
            await asyncio.gather(*asked)
            await first.answer(GATED_KEY, 4)
            assert server.memory.taken == 0

    run(main)


def test_connection_closed_while_waiting_for_memory_leaves_the_queue(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        gate = Gate()
        async with (
            bare_server(runtime, gate.api, requests_bytes_max=5_000) as (server, addresses),
            connected(runtime, addresses["one"]) as first,
        ):
            first.send(GATED_KEY, 4, topic_names=["t" * 6_000], timeout=1)
            await gate.reached(1)
            before = server.figures.received_bytes
            async with connected(runtime, addresses["one"]) as waiting:
                waiting.send(PLAIN_KEY, 5, **topics("waits"))
                await wait_until(lambda: server.figures.received_bytes > before)
            async with connected(runtime, addresses["one"]) as last:
                last.send(PLAIN_KEY, 5, **topics("t"))
                gate.open(1)
                await last.answer(PLAIN_KEY, 5)

    run(main)


def test_frame_larger_than_the_memory_is_read_once_no_other_holds_any(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        gate = Gate()
        async with (
            bare_server(runtime, gate.api, requests_bytes_max=10_000) as (server, addresses),
            connected(runtime, addresses["one"]) as client,
        ):
            client.send(GATED_KEY, 1, topic_names=["t" * 30_000] * 20, timeout=1)
            gate.open(1)
            await client.answer(GATED_KEY, 1)
            assert server.memory.taken == 0

    run(main)


def claim(client: RawClient, size: int, sent: int) -> None:
    """Send the start of a request of a size; its other bytes are zeros."""
    client.send_raw(struct.pack(">ihhih", size, GATED_KEY, 1, 1, -1) + bytes(sent - 10))


def test_large_frames_that_fill_the_memory_are_completed_one_after_another(run: Run) -> None:
    size = 600_000

    async def main(runtime: Runtime) -> None:
        gate = Gate()
        async with (
            bare_server(runtime, gate.api, requests_bytes_max=1_000_000) as (server, addresses),
            connected(runtime, addresses["one"]) as other,
        ):
            crowd = [await connect(runtime, addresses["one"]) for _ in range(5)]
            for client in crowd:
                claim(client, size, 300_000)
            await wait_until(lambda: server.memory.is_full)
            other.send(PLAIN_KEY, 5, **topics("waits"))
            for client in crowd:
                client.send_raw(bytes(size - 300_000))
            await gate.reached(1)
            assert server.memory.taken < 1_000_000 + size
            gate.open(0)
            for client in crowd:
                await client.answer(GATED_KEY, 1)
                client.connection.abort()
            await other.answer(PLAIN_KEY, 5)
            await wait_until(lambda: server.memory.taken == 0)

    run(main)


def test_large_frame_that_stops_does_not_keep_the_memory() -> None:
    """One of several clients that fill the memory together stops sending."""

    async def main(runtime: Runtime) -> None:
        gate = Gate()
        async with (
            bare_server(runtime, gate.api, requests_bytes_max=400_000) as (server, addresses),
            connected(runtime, addresses["one"]) as first,
            connected(runtime, addresses["one"]) as second,
            connected(runtime, addresses["one"]) as other,
        ):
            for client in (first, second):
                claim(client, 1 << 20, 300_000)
            await wait_until(lambda: server.memory.is_full)
            began_ms = runtime.clock.now_ms()
            assert await is_served(other)
            assert runtime.clock.now_ms() - began_ms < 30_000
            assert server.figures.listeners["one"].ended == {"slow": 1}

    simulation.run(main)


@pytest.mark.parametrize("before", ["a long wait", "an unread response"])
def test_requests_that_cannot_start_do_not_keep_the_memory(before: str) -> None:
    async def main(runtime: Runtime) -> None:
        gate, is_full = Gate(), asyncio.Event()

        async def huge(door: BrokerContext, call: Call) -> Answer:
            await is_full.wait()
            row = {"name": "t", "error_code": 0, "error_message": "x" * 30_000}
            return {"results": [row] * 80}

        apis = replace(gate.api, waits_for_others=True), replace(LARGE, handle=huge)
        async with (
            bare_server(runtime, *apis, requests_bytes_max=50_000) as (server, addresses),
            connected(runtime, addresses["one"]) as first,
            connected(runtime, addresses["one"]) as other,
        ):
            first.connection.pause_reading()
            if before == "a long wait":
                first.send(GATED_KEY, 4, topic_names=["t"], timeout=1)
            else:
                first.send(LARGE_KEY, 2, **ASKED)
                first.send(PLAIN_KEY, 5, **topics("begins"))
            first.send(PLAIN_KEY, 5, **topics(*["t" * 20_000] * 3))
            await wait_until(lambda: server.memory.is_full)
            is_full.set()
            began_ms = runtime.clock.now_ms()
            assert await is_served(other)
            assert runtime.clock.now_ms() - began_ms < 30_000
            assert server.figures.listeners["one"].ended == {"slow": 1}

    simulation.run(main)


def test_connection_reads_little_while_the_memory_is_full() -> None:
    """Each connection may read some bytes before it is paused, and there may be thousands."""

    async def main(runtime: Runtime) -> None:
        gate = Gate()
        async with (
            bare_server(runtime, gate.api, requests_bytes_max=5_000) as (server, addresses),
            connected(runtime, addresses["one"]) as first,
            connected(runtime, addresses["one"]) as second,
        ):
            first.send(GATED_KEY, 4, topic_names=["t" * 6_000], timeout=1)
            await gate.reached(1)
            before = server.figures.received_bytes
            for _ in range(20):
                second.send(PLAIN_KEY, 5, **topics("t" * 5_000))
            await asyncio.sleep(1)
            assert 0 < server.figures.received_bytes - before <= 4_096
            gate.open(1)
            for _ in range(20):
                await second.answer(PLAIN_KEY, 5)

    simulation.run(main)


def test_any_number_of_connections_may_wait_for_memory() -> None:
    """A request that completes at once releases its memory at once for the next one."""

    async def main(runtime: Runtime) -> None:
        gate = Gate()
        async with (
            bare_server(
                runtime,
                *(gate.api, AT_ONCE),
                requests_bytes_max=5_000,
                connections_max=1_000,
                listener_connections_max=1_000,
            ) as (server, addresses),
            connected(runtime, addresses["one"]) as first,
        ):
            first.send(GATED_KEY, 4, topic_names=["t" * 6_000], timeout=1)
            await gate.reached(1)
            crowd = [await connect(runtime, addresses["one"]) for _ in range(300)]
            for client in crowd:
                client.send(LARGE_KEY, 2, **ASKED)
            await asyncio.sleep(1)
            gate.open(1)
            for client in crowd:
                await client.answer(LARGE_KEY, 2)
                client.connection.abort()
            assert server.memory.taken == 0

    simulation.run(main)


class FailingQuotas(ClientQuotaManager):
    """A quota manager that raises at the last of `answers` queries."""

    answers = -1

    @property
    def counts_work(self) -> bool:
        """Queried where a request is answered and where one of a hot path starts."""
        self.answers -= 1
        if not self.answers:
            raise ZeroDivisionError("one of ours")
        return False


def test_bug_in_the_next_request_ends_one_connection_and_not_the_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The next request starts in the task that sent the previous response."""

    async def main(runtime: Runtime) -> None:
        gate, throttling = Gate(), FailingQuotas()
        async with (
            bare_server(runtime, gate.api, AT_ONCE, throttling=throttling) as (server, addresses),
            connected(runtime, addresses["one"]) as unlucky,
            connected(runtime, addresses["one"]) as other,
        ):
            unlucky.send(GATED_KEY, 4, topic_names=["t"], timeout=1)
            unlucky.send(LARGE_KEY, 2, **ASKED)
            await gate.reached(1)
            throttling.answers = 2
            gate.open(1)
            await unlucky.ended()
            assert await is_served(other)
            assert server.figures.listeners["one"].ended == {"bug": 1}
            assert server.memory.taken == 0

    simulation.run(main)
    assert [record.msg.split()[0] for record in caplog.records] == ["kafka.connection_failed"]


# --- connections ---------------------------------------------------------------------------------


def test_one_address_cannot_use_all_connections() -> None:
    async def main(runtime: Runtime) -> None:
        async with bare_server(runtime, address_connections_max=2) as (server, addresses):
            async with (
                connected(runtime, addresses["one"]) as first,
                connected(runtime, addresses["one"]) as second,
            ):
                assert await is_served(first)
                assert await is_served(second)
                assert not await is_let_in(runtime, addresses["one"])
            await wait_until(lambda: not server.connection_count)
            assert await is_let_in(runtime, addresses["one"])

    simulation.run(main)


def test_connections_above_the_limit_are_closed_until_others_end(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with bare_server(runtime, connections_max=3) as (server, addresses):
            clients = [await connect(runtime, addresses["one"]) for _ in range(3)]
            for client in clients:
                assert await is_served(client)
            assert not await is_let_in(runtime, addresses["one"])
            clients[0].connection.abort()
            await wait_until(lambda: server.connection_count == 2)
            async with connected(runtime, addresses["one"]) as next_one:
                assert await is_served(next_one)
            figures = server.figures.listeners["one"]
            assert (figures.accepted, figures.refused) == (4, 1)
            for client in clients:
                client.connection.abort()

    run(main)


def test_one_listener_cannot_use_the_connections_of_another(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with bare_server(
            runtime, listeners=("inside", "outside"), listener_connections_max=2
        ) as (server, addresses):
            crowd = [await connect(runtime, addresses["outside"]) for _ in range(2)]
            for _ in range(3):
                assert not await is_let_in(runtime, addresses["outside"])
            assert server.figures.listeners["outside"].refused == 3
            async with connected(runtime, addresses["inside"]) as client:
                assert await is_served(client)
            for each in crowd:
                each.connection.abort()

    run(main)


@pytest.mark.slow
def test_thousand_clients_that_reconnect_at_once_are_served(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with bare_server(runtime, connections_max=1_000, listener_connections_max=1_000) as (
            server,
            addresses,
        ):
            for _ in range(2):
                clients = await asyncio.gather(
                    *(connect(runtime, addresses["one"]) for _ in range(1_000))
                )
                assert all(await asyncio.gather(*(is_served(client) for client in clients)))
                for client in clients:
                    client.connection.abort()
                await wait_until(lambda: server.connection_count == 0)
            assert server.figures.listeners["one"].refused == 0
            assert server.memory.taken == 0

    run(main)


# --- throttling ----------------------------------------------------------------------------------


class CostlyQuotas(ClientQuotaManager):
    """A quota manager that throttles every request."""

    def __init__(self, wait_ms: int) -> None:
        super().__init__()
        self.wait_ms = wait_ms
        self.apply({(("user", None),): {REQUEST_PERCENTAGE: 100.0}})

    def charge(self, **taken: object) -> int:
        """Return the throttle time."""
        return self.wait_ms


def test_response_has_its_throttle_time_and_then_reading_pauses() -> None:
    async def main(runtime: Runtime) -> None:
        dear = CostlyQuotas(4_000)
        async with (
            bare_server(runtime, throttling=dear, connections_idle_ms_max=1_000) as (_, addresses),
            connected(runtime, addresses["one"]) as client,
        ):
            began_ms = runtime.clock.now_ms()
            for _ in range(3):
                client.send(PLAIN_KEY, 5, **topics("t"))
            took_ms = []
            for _ in range(3):
                _, answer = await client.answer(PLAIN_KEY, 5)
                assert answer.throttle_time.total_seconds() == 4
                took_ms.append(runtime.clock.now_ms() - began_ms)
            assert took_ms[0] < 500
            assert 4_000 <= took_ms[1] < 4_500
            assert 8_000 <= took_ms[2] < 8_500

    simulation.run(main)


def test_throttled_client_delays_no_other() -> None:
    async def main(runtime: Runtime) -> None:
        dear = CostlyQuotas(60_000)
        async with (
            bare_server(runtime, throttling=dear) as (_, addresses),
            connected(runtime, addresses["one"]) as greedy,
            connected(runtime, addresses["one"]) as modest,
        ):
            assert await is_served(greedy)
            dear.wait_ms = 0
            began_ms = runtime.clock.now_ms()
            for _ in range(5):
                assert await is_served(modest)
            assert runtime.clock.now_ms() - began_ms < 2_000

    simulation.run(main)


# --- close ---------------------------------------------------------------------------------------


def test_close_sends_responses_in_flight_and_starts_no_other_request() -> None:
    async def main(runtime: Runtime) -> None:
        gate = Gate()
        async with (
            bare_server(runtime, gate.api) as (server, addresses),
            connected(runtime, addresses["one"]) as idle,
            connected(runtime, addresses["one"]) as waiting,
        ):
            for number in (1, 2):
                waiting.send(GATED_KEY, 4, topic_names=["t"], timeout=number)
            await gate.reached(1)
            closing = asyncio.ensure_future(server.close(60_000))
            assert await idle.ended() is None
            began_ms = runtime.clock.now_ms()
            gate.open(1)
            await waiting.answer(GATED_KEY, 4)
            assert await waiting.ended() is None
            await closing
            assert runtime.clock.now_ms() - began_ms < 5_000
            assert gate.begun == [1]  # the second request was not started
            assert server.figures.listeners["one"].ended == {"stopped": 2}

    simulation.run(main)


def test_close_has_a_time_limit(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        gate = Gate()
        async with (
            bare_server(runtime, gate.api, listeners=("one", "two")) as (server, addresses),
            connected(runtime, addresses["one"]) as stuck,
            connected(runtime, addresses["two"]) as stuck_too,
        ):
            for number, client in enumerate((stuck, stuck_too)):
                client.send(GATED_KEY, 4, topic_names=["t"], timeout=number)
            await gate.reached(2)
            await server.close(50)
            assert server.connection_count == 0
            assert server.memory.taken == 0

    run(main)
