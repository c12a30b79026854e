"""Effects of network failures on calls and streams, within the contract of the ports."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from quorumlog.errors import (
    ConnectionFailed,
    OutcomeUnknown,
    QuorumlogError,
    StreamBroken,
    TimedOut,
    TransportError,
)
from quorumlog.proto.log_pb2 import PublishRequest, PublishResponse
from quorumlog.runtime import CallContext, Handler, Method, Runtime, Stream
from quorumlog.simulation import Faults, SimNode, SimWorld

CALL = Method("/test.T/Call", PublishRequest, PublishResponse)
STREAM = Method("/test.T/Stream", PublishRequest, PublishResponse, streaming=True)
ADDRESS = "127.0.0.1:7000"

Incoming = Stream[PublishResponse, PublishRequest]
Body = Callable[[Runtime], Awaitable[None]]


class Server:
    """A server that counts calls and records every message with the number of its stream."""

    def __init__(self) -> None:
        self.calls = 0
        self.streams = 0
        self.received: list[tuple[int, int]] = []  # (stream, message)
        self.cancelled = 0

    async def main(self, runtime: Runtime) -> None:
        handlers = {CALL.path: Handler(CALL, self.call), STREAM.path: Handler(STREAM, self.stream)}
        await runtime.network.serve(ADDRESS, handlers)
        await asyncio.Event().wait()

    async def call(self, request: PublishRequest, context: CallContext) -> PublishResponse:
        self.calls += 1
        try:
            await asyncio.sleep(request.timeout_ms / 1000)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return PublishResponse(base_offset=self.calls)

    async def stream(self, stream: Incoming, context: CallContext) -> None:
        self.streams += 1
        number = self.streams
        while (message := await stream.receive()) is not None:
            self.received.append((number, message.timeout_ms))


def play(
    body: Body, *, faults: Faults | None = None, seed: int = 0, with_server: bool = True
) -> tuple[Server, SimWorld]:
    """Run a client with the server until the client is done."""
    server = Server()
    with SimWorld(seed, faults=faults) as world:
        if with_server:
            world.node("server").spawn(server.main)
        world.run_for(10)
        task = world.node("client").spawn(lambda runtime: _body(body, runtime))
        world.run_until(task, virtual_ms=120_000)
        task.result()
        world.run_for(20_000)
    return server, world


async def _body(body: Body, runtime: Runtime) -> None:
    await body(runtime)


async def send_numbers(runtime: Runtime, count: int) -> None:
    """Send 0, 1, ... over one stream, and open another one when it breaks."""
    channel, number = runtime.network.channel(ADDRESS), 0
    while number < count:
        try:
            stream = await channel.stream(STREAM, timeout_ms=0)
            while number < count:
                await stream.send(PublishRequest(timeout_ms=number))
                number += 1
                await asyncio.sleep(0.001)
        except QuorumlogError:
            await asyncio.sleep(0.05)


BREAKING = Faults(link_break=1.0, link_break_frames=(10, 20))


@pytest.mark.parametrize("seed", range(10))
def test_a_stream_is_ordered_and_without_duplicates_until_it_breaks(seed: int) -> None:
    server, world = play(lambda runtime: send_numbers(runtime, 50), faults=BREAKING, seed=seed)
    assert world.fabric.links_broken >= 2
    assert server.streams >= 2
    for stream in range(1, server.streams + 1):
        numbers = [message for owner, message in server.received if owner == stream]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True


def test_a_suffix_in_flight_may_be_lost() -> None:
    lost = 0
    for seed in range(10):
        server, _ = play(lambda runtime: send_numbers(runtime, 50), faults=BREAKING, seed=seed)
        lost += 50 - len({message for _, message in server.received})
    assert lost > 0


def test_a_broken_streams_messages_may_arrive_after_its_successor_has_started() -> None:
    """Receivers must fence such late messages by epoch, never by arrival."""
    faults = Faults(
        link_break=1.0, link_break_frames=(10, 20), late_suffix=1.0, late_suffix_ms=(200, 3_000)
    )
    zombies = 0
    for seed in range(10):
        server, _ = play(lambda runtime: send_numbers(runtime, 50), faults=faults, seed=seed)
        streams = [stream for stream, _ in server.received]
        zombies += any(later < max(streams[:at]) for at, later in enumerate(streams) if at)
    assert zombies > 0


def test_a_call_may_be_executed_though_its_answer_is_lost() -> None:
    executed_and_lost = 0
    for seed in range(20):
        lost = 0

        async def body(runtime: Runtime) -> None:
            nonlocal lost
            channel = runtime.network.channel(ADDRESS)
            for _ in range(20):
                try:
                    await channel.call(CALL, PublishRequest(), timeout_ms=1_000)
                except (TransportError, TimedOut):
                    lost += 1
                    await asyncio.sleep(0.6)

        faults = Faults(link_break=1.0, link_break_frames=(1, 10))
        server, _ = play(body, faults=faults, seed=seed)
        executed_and_lost += server.calls + lost > 20
    assert executed_and_lost > 0


def test_one_end_may_miss_the_break_and_its_calls_time_out() -> None:
    outcomes: set[str] = set()

    async def body(runtime: Runtime) -> None:
        channel = runtime.network.channel(ADDRESS)
        for _ in range(30):
            try:
                await channel.call(CALL, PublishRequest(), timeout_ms=700)
                outcomes.add("answered")
            except QuorumlogError as error:
                outcomes.add(type(error).__name__)
                await asyncio.sleep(0.1)

    for seed in range(10):
        faults = Faults(link_break=1.0, link_break_frames=(5, 20), end_never_learns=1.0)
        play(body, faults=faults, seed=seed)
    assert {"answered", "TimedOut"} <= outcomes


def crash_after(world: SimWorld, node: SimNode, ms: int, *, power: bool) -> None:
    world.loop.call_at_ns(
        world.loop.now_ns + ms * 1_000_000, None, node.power_cut if power else node.crash
    )


@pytest.mark.parametrize("power", [False, True])
def test_call_in_flight_fails_at_a_crash_and_hangs_at_a_power_cut(power: bool) -> None:
    server = Server()
    with SimWorld(0) as world:
        node = world.node("server")
        node.spawn(server.main)

        async def body(runtime: Runtime) -> str:
            channel = runtime.network.channel(ADDRESS)
            try:
                await channel.call(CALL, PublishRequest(timeout_ms=60_000), timeout_ms=5_000)
            except QuorumlogError as error:
                return type(error).__name__
            return "answered"

        crash_after(world, node, 500, power=power)
        world.run_for(10)
        task = world.node("client").spawn(body)
        world.run_until(task, virtual_ms=60_000)
        assert task.result() == ("TimedOut" if power else "OutcomeUnknown")
        assert server.calls == 1
        assert server.cancelled == 0, "the handler of a dead server is not cancelled, it is gone"


@pytest.mark.parametrize("power", [False, True])
def test_a_dead_process_refuses_and_a_dead_machine_is_silent(power: bool) -> None:
    answers: list[object] = []

    async def body(runtime: Runtime) -> None:
        answers.append(await runtime.network.refuses(ADDRESS, 400))
        try:
            await runtime.network.channel(ADDRESS).call(CALL, PublishRequest(), timeout_ms=2_000)
        except QuorumlogError as error:
            answers.append(type(error))

    with SimWorld(0) as world:
        node = world.node("server")
        node.spawn(Server().main)
        world.run_for(10)
        node.power_cut() if power else node.crash()
        task = world.node("client").spawn(body)
        world.run_until(task, virtual_ms=60_000)
        task.result()
    assert answers == ([False, OutcomeUnknown] if power else [True, ConnectionFailed])


def test_the_death_of_the_caller_cancels_the_handler() -> None:
    server = Server()
    with SimWorld(0) as world:
        world.node("server").spawn(server.main)
        world.run_for(10)

        async def body(runtime: Runtime) -> None:
            await runtime.network.channel(ADDRESS).call(
                CALL, PublishRequest(timeout_ms=60_000), timeout_ms=90_000
            )

        client = world.node("client")
        client.spawn(body)
        world.run_for(100)
        client.crash()
        world.run_for(100)
    assert (server.calls, server.cancelled) == (1, 1)


def test_stream_to_a_silent_machine_breaks_when_the_machine_is_back() -> None:
    with SimWorld(0) as world:
        node = world.node("server")
        node.spawn(Server().main)
        world.run_for(10)

        async def body(runtime: Runtime) -> str:
            stream = await runtime.network.channel(ADDRESS).stream(STREAM, timeout_ms=0)
            for number in range(1_000):
                try:
                    await stream.send(PublishRequest(timeout_ms=number))
                except StreamBroken:
                    return "broken"
                await asyncio.sleep(0.1)
            return "never"

        task = world.node("client").spawn(body)
        world.run_for(1_000)
        node.power_cut()
        world.run_for(2_000)
        assert not task.done(), "silence is no error"
        node.restart()
        world.run_for(4_000)
        assert task.result() == "broken"


def test_messages_are_copies_on_every_side() -> None:
    async def body(runtime: Runtime) -> None:
        request = PublishRequest(topic="before")

        async def change(received: PublishRequest, context: CallContext) -> PublishResponse:
            received.topic = "after"
            return PublishResponse()

        listener = await runtime.network.serve("127.0.0.1:0", {CALL.path: Handler(CALL, change)})
        await runtime.network.channel(listener.address).call(CALL, request, timeout_ms=1_000)
        assert request.topic == "before"

    play(body, with_server=False)


def test_network_without_faults_breaks_nothing() -> None:
    with SimWorld(1, faults=BREAKING) as world:
        server = Server()
        world.node("server").spawn(server.main)
        world.run_for(10)
        world.faults.end_all()
        task = world.node("client").spawn(lambda runtime: send_numbers(runtime, 200))
        world.run_until(task, virtual_ms=60_000)
        world.run_for(1_000)
        assert [message for _, message in server.received] == list(range(200))
        assert world.fabric.links_broken == 0
