"""Barriers between machines: delayed, late and lost connections."""

import asyncio
from dataclasses import dataclass, field

from quorumlog.errors import QuorumlogError
from quorumlog.proto.log_pb2 import PublishRequest, PublishResponse
from quorumlog.runtime import CallContext, Handler, Method, Runtime, Stream
from quorumlog.simulation import SimWorld
from quorumlog.simulation.links import Barriers, apart, between

STREAM = Method("/test.T/Stream", PublishRequest, PublishResponse, streaming=True)
ADDRESS = "127.0.0.1:7000"


@dataclass(slots=True)
class Talk:
    """One stream from a to b whose messages are recorded and echoed."""

    heard: list[int] = field(default_factory=list)
    echoed: list[int] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    stream: "Stream[PublishRequest, PublishResponse] | None" = None

    def start(self, world: SimWorld) -> None:
        world.node("b").spawn(self.serve)
        world.run_for(10)
        world.node("a").spawn(self.call)
        world.run_until(lambda: self.stream is not None, virtual_ms=1_000)

    async def serve(self, runtime: Runtime) -> None:
        await runtime.network.serve(ADDRESS, {STREAM.path: Handler(STREAM, self.answer)})
        await asyncio.Event().wait()

    async def answer(
        self, stream: Stream[PublishResponse, PublishRequest], context: CallContext
    ) -> None:
        while (message := await stream.receive()) is not None:
            self.heard.append(message.timeout_ms)
            await stream.send(PublishResponse(base_offset=message.timeout_ms))

    async def call(self, runtime: Runtime) -> None:
        stream = await runtime.network.channel(ADDRESS).stream(STREAM, timeout_ms=0)
        self.stream = stream
        try:
            while (message := await stream.receive()) is not None:
                self.echoed.append(message.base_offset)
        except QuorumlogError as error:
            self.broken.append(type(error).__name__)
        await asyncio.Event().wait()

    def say(self, world: SimWorld, number: int) -> None:
        async def send(runtime: Runtime) -> None:
            assert self.stream is not None
            await self.stream.send(PublishRequest(timeout_ms=number))

        world.node("a").attach(send, name="say")
        world.run_for(5)


def test_messages_behind_a_barrier_arrive_in_order_when_it_opens() -> None:
    talk = Talk()
    with SimWorld(1) as world:
        talk.start(world)
        world.fabric.barriers.close(between("a", "b"))
        for number in range(3):
            talk.say(world, number)
        world.run_for(5_000)
        assert talk.heard == []
        world.fabric.barriers.open(between("a", "b"))
        talk.say(world, 3)
        assert talk.heard == talk.echoed == [0, 1, 2, 3]


def test_one_direction_may_be_open_while_the_other_is_closed() -> None:
    talk = Talk()
    with SimWorld(1) as world:
        talk.start(world)
        world.fabric.barriers.close(between("b", "a"))
        talk.say(world, 7)
        assert (talk.heard, talk.echoed) == ([7], [])
        world.fabric.barriers.open_all()
        world.run_for(5)
        assert talk.echoed == [7]


def test_connection_behind_a_barrier_is_lost_after_a_timeout() -> None:
    talk = Talk()
    with SimWorld(1) as world:
        talk.start(world)
        world.fabric.barriers.close(apart("a", "b"))
        talk.say(world, 1)
        world.run_for(16_000)
        assert talk.broken == ["StreamBroken"]


def test_connects_through_a_barrier_get_no_response_in_either_direction() -> None:
    for closed in (between("a", "b"), between("b", "a")):
        talk = Talk()
        with SimWorld(1) as world:
            world.node("b").spawn(talk.serve)
            world.run_for(10)
            world.fabric.barriers.close(closed)
            task = world.node("a").spawn(lambda runtime: runtime.network.refuses(ADDRESS, 400))
            world.run_until(task, virtual_ms=2_000)
            assert task.result() is False, "the address is silent, it does not refuse"
            assert not talk.heard


def test_the_end_of_a_stream_stays_behind_the_barrier_too() -> None:
    talk = Talk()
    with SimWorld(1) as world:
        talk.start(world)
        world.fabric.barriers.close(between("b", "a"))
        world.node("b").crash()
        world.run_for(5_000)
        assert talk.broken == []


def test_clogged_link_delivers_late_and_in_order() -> None:
    talk = Talk()
    with SimWorld(1) as world:
        talk.start(world)
        world.fabric.barriers.clog(between("a", "b"), 300)
        talk.say(world, 1)
        world.fabric.barriers.clog(between("a", "b"), 0)
        talk.say(world, 2)
        world.run_for(200)
        assert talk.heard == []
        world.run_for(100)
        assert talk.heard == [1, 2]


def test_all_connections_between_two_machines_can_be_broken() -> None:
    talk = Talk()
    with SimWorld(1) as world:
        talk.start(world)
        assert world.fabric.break_between("b", "a") == 1
        world.run_for(100)
        assert talk.broken == ["StreamBroken"]


def test_a_direction_closed_twice_opens_with_the_second_barrier() -> None:
    opened: list[tuple[str, str]] = []
    barriers = Barriers(on_open=opened.append)
    barriers.close(apart(["a"], ["b", "c"]))
    barriers.close(between(["a"], ["b"]))
    barriers.open(between(["a"], ["b"]))
    assert barriers.is_closed("a", "b")
    assert not opened
    barriers.open(between(["a"], ["b"]))
    assert opened == [("a", "b")]
    assert barriers.cuts("a", "b"), "the other direction is closed still"
    assert not barriers.is_closed("a", "b")
