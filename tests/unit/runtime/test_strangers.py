"""Calls without credentials at a listener that authenticates its clients."""

from typing import Any, Final

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from tests.kit.waits import AMPLE_MS, run_patiently

from quorumlog.errors import QuorumlogError
from quorumlog.proto import auth_pb2 as pb
from quorumlog.runtime import (
    ANONYMOUS_CLIENT,
    CallContext,
    CallPeer,
    CallSecurity,
    CallSession,
    Handler,
    Runtime,
    Stream,
    grpc_network,
)
from quorumlog.runtime.grpc_network import STRANGERS_A_HOST
from quorumlog.services import ADMIN_LIST_TOPICS, AUTH_AUTHENTICATE

ADMIN: Final = "quorumlog.v1.Admin"
REFLECTION: Final = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"


class OpenMethods:
    """A `CallAuthenticator` of methods that need no credentials."""

    async def authenticate(self, path: str, peer: CallPeer) -> CallSession:
        return CallSession(ANONYMOUS_CLIENT, is_open=True)


async def repeat(stream: Stream[Any, Any], context: CallContext) -> None:
    """Echo the first message."""
    first = await stream.receive()
    assert first is not None
    await stream.send(pb.AuthenticateResponse(message=first.message))


def test_silent_strangers_lose_their_calls_and_others_are_served_at_once() -> None:
    async def main(runtime: Runtime) -> None:
        listener = await runtime.network.serve(
            "127.0.0.1:0",
            {AUTH_AUTHENTICATE.path: Handler(AUTH_AUTHENTICATE, repeat)},
            security=CallSecurity(authenticator=OpenMethods()),
        )
        channel = runtime.network.channel(listener.address)
        silent = [
            await channel.stream(AUTH_AUTHENTICATE, timeout_ms=AMPLE_MS)
            for _ in range(STRANGERS_A_HOST)
        ]
        client = await channel.stream(AUTH_AUTHENTICATE, timeout_ms=AMPLE_MS)
        await client.send(pb.AuthenticateRequest(message=b"hello"))
        answer = await client.receive()
        assert answer is not None
        assert answer.message == b"hello"
        for stream in silent:
            with pytest.raises(QuorumlogError, match="without credentials"):
                await stream.receive()
        await channel.close()
        await listener.close(0)

    run_patiently(main)


def test_processes_of_one_host_log_in_at_the_same_time() -> None:
    async def main(runtime: Runtime) -> None:
        listener = await runtime.network.serve(
            "127.0.0.1:0",
            {AUTH_AUTHENTICATE.path: Handler(AUTH_AUTHENTICATE, repeat)},
            security=CallSecurity(authenticator=OpenMethods()),
        )
        channel = runtime.network.channel(listener.address)
        streams = [await channel.stream(AUTH_AUTHENTICATE, timeout_ms=AMPLE_MS) for _ in range(100)]
        for number, stream in enumerate(streams):  # all of them wait for their first message
            await stream.send(pb.AuthenticateRequest(message=b"%d" % number))
        answers = [await stream.receive() for stream in streams]
        assert [each.message for each in answers if each] == [b"%d" % each for each in range(100)]
        await channel.close()
        await listener.close(0)

    run_patiently(main)


def test_stranger_at_the_limit_of_unread_responses_gets_health_but_no_reflection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_network, "STRANGER_UNREAD_BYTES", (0, 0))

    async def main(runtime: Runtime) -> None:
        listener = await runtime.network.serve(
            "127.0.0.1:0",
            {ADMIN_LIST_TOPICS.path: Handler(ADMIN_LIST_TOPICS, repeat)},
            security=CallSecurity(authenticator=OpenMethods()),
        )
        question = reflection_pb2.ServerReflectionRequest(file_containing_symbol=ADMIN)
        async with aio.insecure_channel(listener.address) as channel:
            reflection: Any = channel.stream_stream(REFLECTION)()
            await reflection.write(question.SerializeToString())
            with pytest.raises(aio.AioRpcError) as ended:
                await reflection.read()
            assert ended.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            stub: Any = health_pb2_grpc.HealthStub(channel)
            health = await stub.Check(health_pb2.HealthCheckRequest())
            assert health.status == health_pb2.HealthCheckResponse.SERVING
        await listener.close(0)

    run_patiently(main)


def test_newest_health_watches_of_a_host_continue_and_the_oldest_ends() -> None:
    async def main(runtime: Runtime) -> None:
        listener = await runtime.network.serve(
            "127.0.0.1:0",
            {AUTH_AUTHENTICATE.path: Handler(AUTH_AUTHENTICATE, repeat)},
            security=CallSecurity(authenticator=OpenMethods()),
        )
        async with aio.insecure_channel(listener.address) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            watches = []
            for _ in range(STRANGERS_A_HOST + 1):
                watches.append(stub.Watch(health_pb2.HealthCheckRequest()))
                assert (await watches[-1].read()).status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(aio.AioRpcError) as ended:
                await watches[0].read()
            assert ended.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            listener.announce(is_ready=False)
            for watch in watches[1:]:
                status = (await watch.read()).status
                assert status == health_pb2.HealthCheckResponse.NOT_SERVING
        await listener.close(0)

    run_patiently(main)
