"""Calls and byte connections to an address with a route reach the end of the route."""

import asyncio

from google.protobuf.wrappers_pb2 import StringValue
from tests.kit.waits import AMPLE_MS, run_patiently

from quorumlog.runtime import ByteConnection, CallContext, Handler, Method, Runtime
from quorumlog.runtime.real import open_runtime

WHO = Method("/quorumlog.tests.Who/Are", StringValue, StringValue)


class Receiver:
    """A protocol that stores the first bytes."""

    def __init__(self, connection: ByteConnection) -> None:
        self.heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._buffer = bytearray(16)

    def buffer(self, size_hint: int) -> memoryview:
        return memoryview(self._buffer)

    def received(self, count: int) -> None:
        self.heard.set_result(bytes(self._buffer[:count]))

    def sent(self) -> None:
        pass

    def closed(self, error: Exception | None) -> None:
        pass


def test_calls_and_bytes_use_the_route_and_others_connect_directly() -> None:
    async def main(runtime: Runtime) -> None:
        def named(name: str) -> dict[str, Handler]:
            async def answer(request: StringValue, context: CallContext) -> StringValue:
                return StringValue(value=name)

            return {WHO.path: Handler(WHO, answer)}

        async def ask(node: Runtime, address: str) -> str:
            channel = node.network.channel(address)
            answer = await channel.call(WHO, StringValue(), timeout_ms=AMPLE_MS)
            await channel.close()
            return answer.value

        straight = await runtime.network.serve("127.0.0.1:0", named("straight"))
        relay = await runtime.network.serve("127.0.0.1:0", named("relay"))
        async with open_runtime("routed", routes={straight.address: relay.address}) as node:
            assert await ask(node, straight.address) == "relay"
            assert await ask(node, relay.address) == "relay"
            assert await ask(runtime, straight.address) == "straight"

    run_patiently(main)


def test_bytes_use_the_route_and_a_refusal_retries_the_address_itself() -> None:
    async def main(runtime: Runtime) -> None:
        def greeting(connection: ByteConnection) -> Receiver:
            connection.write([b"relay"])
            return Receiver(connection)

        gone = await runtime.network.listen_bytes("127.0.0.1:0", Receiver)
        relay = await runtime.network.listen_bytes("127.0.0.1:0", greeting)
        async with open_runtime("routed", routes={gone.address: relay.address}) as node:
            assert not await node.network.refuses(gone.address, AMPLE_MS)
            await gone.close(0)
            assert await node.network.refuses(gone.address, AMPLE_MS)
            made: list[Receiver] = []

            def keep(connection: ByteConnection) -> Receiver:
                made.append(Receiver(connection))
                return made[0]

            await node.network.connect_bytes(gone.address, keep)
            assert await made[0].heard == b"relay"

    run_patiently(main)


def test_listen_addresses_are_not_routed() -> None:
    async def main(runtime: Runtime) -> None:
        async with open_runtime("routed", routes={"127.0.0.1:1": "127.0.0.1:2"}) as node:
            listener = await node.network.listen_bytes("127.0.0.1:0", Receiver)
            connection = await runtime.network.connect_bytes(listener.address, Receiver)
            connection.abort()
            served = await node.network.serve("127.0.0.1:0", {})
            assert not await runtime.network.refuses(served.address, AMPLE_MS)

    run_patiently(main)
