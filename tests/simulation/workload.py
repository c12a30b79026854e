"""Print the event hash of a small world that uses every port.

test_determinism runs it in separate processes, since PYTHONHASHSEED is fixed when an interpreter
starts. `python workload.py SEED [planted]`: "planted" makes the order of some sends depend on a set
of strings.
"""

import asyncio
import sys

from quorumlog.errors import QuorumlogError
from quorumlog.proto import log_pb2
from quorumlog.runtime import CallContext, Handler, Method, Runtime, Stream
from quorumlog.simulation import CrashPoint, Faults, SimWorld
from quorumlog.simulation.entropy import SimEntropy

CALL = Method("/test.Echo/Call", log_pb2.PublishRequest, log_pb2.PublishResponse)
STREAM = Method(
    "/test.Echo/Stream", log_pb2.PublishRequest, log_pb2.PublishResponse, streaming=True
)
ADDRESS = "127.0.0.1:9094"


async def server(runtime: Runtime) -> None:
    runtime.files.make_folder("/data")
    log = runtime.files.open("/data/log", create=True)

    async def answer(
        request: log_pb2.PublishRequest, context: CallContext
    ) -> log_pb2.PublishResponse:
        position = log.size()
        log.write(position, [request.topic.encode()])
        await runtime.tasks.offload("write:data", log.sync)
        await runtime.tasks.offload("read", lambda: log.read(0, 100))
        return log_pb2.PublishResponse(base_offset=position)

    async def echo(
        stream: Stream[log_pb2.PublishResponse, log_pb2.PublishRequest], context: CallContext
    ) -> None:
        while (message := await stream.receive()) is not None:
            await stream.send(log_pb2.PublishResponse(base_offset=len(message.topic)))

    await runtime.network.serve(
        ADDRESS, {CALL.path: Handler(CALL, answer), STREAM.path: Handler(STREAM, echo)}
    )
    await asyncio.Event().wait()


async def client(runtime: Runtime, *, planted: bool) -> None:
    channel = runtime.network.channel(ADDRESS)
    names = [f"name-{number}" for number in range(12)]

    async def call(name: str) -> None:
        entropy = runtime.entropy.stream(name)
        for _ in range(20):
            await asyncio.sleep(entropy.uniform(0.0, 0.1))
            try:
                await channel.call(CALL, log_pb2.PublishRequest(topic=name), timeout_ms=500)
            except QuorumlogError:
                await asyncio.sleep(0.1)

    async def follow() -> None:
        for _ in range(30):
            try:
                stream = await channel.stream(STREAM, timeout_ms=2_000)
                # The planted leak: a set of strings is iterated in hash order.
                for name in set(names) if planted else names:
                    await stream.send(log_pb2.PublishRequest(topic=name))
                await stream.finish()
                while await stream.receive() is not None:
                    pass
            except QuorumlogError:
                pass
            await asyncio.sleep(0.2)

    async with runtime.tasks.scope("client") as scope:
        scope.spawn(follow(), name="follow")
        for name in names:
            scope.spawn(call(name), name=name)


def main(seed: int, *, planted: bool) -> None:
    faults = Faults.draw(SimEntropy(f"faults/{seed}"))
    with SimWorld(seed, faults=faults) as world:
        node = world.node("server")
        node.spawn(server)
        done = world.node("client").spawn(lambda runtime: client(runtime, planted=planted))
        node.crash_at(CrashPoint(operations=40, power=True, moment="inside"))
        world.run_until(lambda: not node.alive or done.done(), virtual_ms=600_000)
        if not node.alive:
            world.run_for(700)
            node.restart()
        world.run_until(done, virtual_ms=600_000)
        done.result()
        print(world.event_hash(), world.events.count, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), planted="planted" in sys.argv[2:])
