"""Health and reflection services, as the standard tools use them, in every version in use."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.waits import AMPLE_S, run_patiently

from quorumlog.proto.log_pb2 import PublishRequest, PublishResponse
from quorumlog.runtime import CallContext, CallListener, Handler, Runtime
from quorumlog.runtime.grpc_introspection import QUESTION_MAX, HealthStatus
from quorumlog.runtime.reflection import answer_reflection
from quorumlog.services import LOG_PUBLISH

WAIT_S = AMPLE_S
HEALTH = "grpc.health.v1.Health"
V1, V1ALPHA = (f"grpc.reflection.{version}.ServerReflection" for version in ("v1", "v1alpha"))
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

Client = Callable[[aio.Channel, CallListener, Runtime], Awaitable[None]]


async def publish(request: PublishRequest, context: CallContext) -> PublishResponse:
    return PublishResponse()


def with_server(client: Client, *, is_ready: bool = True) -> None:
    async def main(runtime: Runtime) -> None:
        handlers = {LOG_PUBLISH.path: Handler(LOG_PUBLISH, publish)}
        listener = await runtime.network.serve("127.0.0.1:0", handlers, is_ready=is_ready)
        async with asyncio.timeout(WAIT_S), aio.insecure_channel(listener.address) as channel:
            await client(channel, listener, runtime)

    run_patiently(main)


# --- health --------------------------------------------------------------------------------------


def stub(channel: aio.Channel) -> Any:
    return health_pb2_grpc.HealthStub(channel)


def asked(service: str = "") -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=service)


def test_every_service_and_the_whole_server_are_healthy() -> None:
    async def client(channel: aio.Channel, listener: CallListener, runtime: Runtime) -> None:
        services = ["", "quorumlog.v1.Log", HEALTH, V1, V1ALPHA]
        for service in services:
            assert (await stub(channel).Check(asked(service))).status == SERVING
        with pytest.raises(aio.AioRpcError) as caught:
            await stub(channel).Check(asked("quorumlog.v1.Nothing"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        messages: Any = health_pb2
        everything = await stub(channel).List(messages.HealthListRequest())
        assert {name: one.status for name, one in everything.statuses.items()} == dict.fromkeys(
            services, SERVING
        )

    with_server(client)


def test_server_is_not_serving_before_it_is_ready_nor_while_it_stops() -> None:
    """Calls are answered nevertheless."""

    async def client(channel: aio.Channel, listener: CallListener, runtime: Runtime) -> None:
        call: Any = channel.unary_unary(LOG_PUBLISH.path, PublishRequest.SerializeToString)
        watch: Any = stub(channel).Watch(asked("quorumlog.v1.Log"))
        for is_ready, status in [(False, NOT_SERVING), (True, SERVING), (False, NOT_SERVING)]:
            listener.announce(is_ready=is_ready)
            assert (await watch.read()).status == status
            assert (await stub(channel).Check(asked())).status == status
            await call(PublishRequest())

    with_server(client, is_ready=False)


def test_named_service_has_its_own_status() -> None:
    async def client(channel: aio.Channel, listener: CallListener, runtime: Runtime) -> None:
        watch: Any = stub(channel).Watch(asked("quorumlog.quorum"))
        assert (await watch.read()).status == SERVICE_UNKNOWN
        for is_ready, status in [(False, NOT_SERVING), (True, SERVING), (False, NOT_SERVING)]:
            listener.announce(is_ready=is_ready, service="quorumlog.quorum")
            assert (await watch.read()).status == status
            assert (await stub(channel).Check(asked("quorumlog.quorum"))).status == status
            assert (await stub(channel).Check(asked())).status == SERVING
        messages: Any = health_pb2
        everything = await stub(channel).List(messages.HealthListRequest())
        assert everything.statuses["quorumlog.quorum"].status == NOT_SERVING
        assert everything.statuses["quorumlog.v1.Log"].status == SERVING

    with_server(client)


def test_watch_sends_the_last_status_and_ends_with_the_server() -> None:
    async def client(channel: aio.Channel, listener: CallListener, runtime: Runtime) -> None:
        watch = stub(channel).Watch(asked())
        unknown = stub(channel).Watch(asked("quorumlog.v1.Nothing"))
        assert (await watch.read()).status == SERVING
        assert (await unknown.read()).status == SERVICE_UNKNOWN
        async with runtime.tasks.scope("test") as scope:
            scope.spawn(listener.close(1000 * WAIT_S), name="close")
            assert (await watch.read()).status == NOT_SERVING
            assert await watch.read() is aio.EOF
            assert await unknown.read() is aio.EOF

    with_server(client)


def test_a_watch_of_a_server_that_was_not_ready_ends_with_it_too() -> None:
    async def client(channel: aio.Channel, listener: CallListener, runtime: Runtime) -> None:
        watch = stub(channel).Watch(asked())
        assert (await watch.read()).status == NOT_SERVING
        async with runtime.tasks.scope("test") as scope:
            scope.spawn(listener.close(1000 * WAIT_S), name="close")
            assert await watch.read() is aio.EOF

    with_server(client, is_ready=False)


def test_a_server_that_closes_is_not_made_ready_again() -> None:
    """The start completes while the node is already stopping."""
    readiness = HealthStatus(is_serving=False)
    readiness.close()
    readiness.set(is_serving=True)
    assert readiness.status() == "NOT_SERVING"


@pytest.mark.parametrize(
    "path", [f"/{HEALTH}/Check", f"/{HEALTH}/Watch", f"/{V1}/ServerReflectionInfo"]
)
def test_invalid_request_is_refused_and_not_logged(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def client(channel: aio.Channel, listener: CallListener, runtime: Runtime) -> None:
        call: Any = channel.stream_stream(path)()
        await call.write(b"\xff\xff\xff")
        with pytest.raises(aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    with_server(client)
    # asyncio may report an event that grpc still had for the loop of an earlier test
    assert not [record for record in caplog.records if record.name != "asyncio"]


# --- reflection ----------------------------------------------------------------------------------


class Reflection:
    """One stream of requests."""

    def __init__(self, channel: aio.Channel, service: str) -> None:
        self._call: Any = channel.stream_stream(
            f"/{service}/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )()

    async def ask(self, **question: Any) -> Any:
        await self._call.write(reflection_pb2.ServerReflectionRequest(**question))
        answer = await self._call.read()
        assert answer.original_request == reflection_pb2.ServerReflectionRequest(**question)
        return answer

    async def error(self, **question: Any) -> tuple[int, str]:
        error = (await self.ask(**question)).error_response
        return error.error_code, error.error_message

    async def read(self) -> Any:
        return await self._call.read()

    async def end(self) -> None:
        await self._call.done_writing()
        assert await self._call.read() is aio.EOF


def pool_of(answer: Any) -> descriptor_pool.DescriptorPool:
    """Return the descriptor pool that a client without other sources builds from a response."""
    pool = descriptor_pool.DescriptorPool()
    raw = answer.file_descriptor_response.file_descriptor_proto
    files = [descriptor_pb2.FileDescriptorProto.FromString(one) for one in raw]
    for file in reversed(files):  # dependencies come after the files that import them
        pool.Add(file)
    return pool


@pytest.mark.parametrize("version", [V1, V1ALPHA])
def test_every_listed_service_is_described_completely(version: str) -> None:
    async def client(channel: aio.Channel, listener: CallListener, runtime: Runtime) -> None:
        reflection = Reflection(channel, version)
        answer = await reflection.ask(list_services="")
        names = [one.name for one in answer.list_services_response.service]
        assert names == [HEALTH, "quorumlog.v1.Log", V1, V1ALPHA]
        methods = set()
        for name in names:
            service = pool_of(await reflection.ask(file_containing_symbol=name)).FindServiceByName(
                name
            )
            methods |= {(name, method.input_type.full_name) for method in service.methods}
        assert ("quorumlog.v1.Log", "quorumlog.v1.ProduceRequest") in methods
        for name in (V1, V1ALPHA):
            request = name.removesuffix("ServerReflection") + "ServerReflectionRequest"
            assert (name, request) in methods
        await reflection.end()

    with_server(client)


def test_a_symbol_may_be_a_method_a_field_or_an_error_detail() -> None:
    async def client(channel: aio.Channel, listener: CallListener, runtime: Runtime) -> None:
        reflection = Reflection(channel, V1)
        for symbol, file in {
            "quorumlog.v1.Log.Produce": "quorumlog/v1/log.proto",
            "quorumlog.v1.Error": "quorumlog/v1/errors.proto",
            "quorumlog.v1.Error.name": "quorumlog/v1/errors.proto",
            "grpc.reflection.v1.ServerReflectionRequest": "grpc/reflection/v1/reflection.proto",
        }.items():
            pool = pool_of(await reflection.ask(file_containing_symbol=symbol))
            assert pool.FindFileByName(file).name == file
            by_name = pool_of(await reflection.ask(file_by_filename=file))
            assert by_name.FindFileByName(file).name == file

    with_server(client)


def test_unknown_symbol_is_not_found_and_the_stream_continues() -> None:
    async def client(channel: aio.Channel, listener: CallListener, runtime: Runtime) -> None:
        reflection = Reflection(channel, V1)
        not_found = grpc.StatusCode.NOT_FOUND.value[0]
        for question in (
            {"file_containing_symbol": "quorumlog.v1.Nothing"},
            {"file_containing_symbol": "grpc.reflection.v1.Nothing"},
            {"file_by_filename": "nothing.proto"},
            {"all_extension_numbers_of_type": "quorumlog.v1.Nothing"},
        ):
            (name,) = question.values()
            assert await reflection.error(**question) == (not_found, f"{name} not found")
        asked_for = reflection_pb2.ExtensionRequest(
            containing_type="quorumlog.v1.Error", extension_number=7
        )
        code, _ = await reflection.error(file_containing_extension=asked_for)
        assert code == not_found
        code, _ = await reflection.error()
        assert code == grpc.StatusCode.UNIMPLEMENTED.value[0]
        answer = await reflection.ask(all_extension_numbers_of_type="quorumlog.v1.Error")
        extensions = answer.all_extension_numbers_response
        assert (extensions.base_type_name, list(extensions.extension_number)) == (
            "quorumlog.v1.Error",
            [],
        )
        options = "google.protobuf.MethodOptions"
        answer = await reflection.ask(all_extension_numbers_of_type=options)
        assert answer.all_extension_numbers_response.base_type_name == options

    with_server(client)


def test_idle_reflection_stream_ends_with_the_server_without_delay() -> None:
    """Tools keep the stream open while they run."""

    async def client(channel: aio.Channel, listener: CallListener, runtime: Runtime) -> None:
        reflection = Reflection(channel, V1)
        await reflection.ask(list_services="")
        await listener.close(1000 * WAIT_S)
        assert await reflection.read() is aio.EOF

    with_server(client)


WORDS = [
    "",
    ".",
    "/",
    "\x00",
    "quorumlog",
    "v1",
    "Log",
    "Publish",
    "Record",
    "key",
    "Compression",
    "COMPRESSION_GZIP",
    "grpc",
    "reflection",
    "v1alpha",
    "ServerReflection",
    "google",
    "protobuf",
    "descriptor.proto",
]
NAMES = st.text() | st.lists(st.sampled_from(WORDS)).map(".".join)
FIELDS = [
    "list_services",
    "file_containing_symbol",
    "file_by_filename",
    "file_containing_extension",
    "all_extension_numbers_of_type",
]


@given(
    name=NAMES,
    question=st.sampled_from(FIELDS),
    number=st.integers(min_value=-(2**31), max_value=2**31 - 1),
)
def test_any_request_has_a_response(name: str, question: str, number: int) -> None:
    request, response = (
        reflection_pb2.ServerReflectionRequest(host=name),
        reflection_pb2.ServerReflectionResponse(),
    )
    if question == "file_containing_extension":
        request.file_containing_extension.containing_type = name
        request.file_containing_extension.extension_number = number
    else:
        setattr(request, question, name)
    answer_reflection(request, response, ["quorumlog.v1.Log"])
    assert response.WhichOneof("message_response")


@pytest.mark.parametrize(
    ("path", "question"),
    [
        (f"/{HEALTH}/Check", asked("x" * QUESTION_MAX)),
        (f"/{HEALTH}/Watch", asked("x" * QUESTION_MAX)),
        (
            f"/{V1}/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="x" * QUESTION_MAX),
        ),
    ],
)
def test_request_longer_than_any_name_is_refused_and_not_echoed(path: str, question: Any) -> None:
    """Responses echo the request: complete, they could exceed the limits of a peer."""

    async def client(channel: aio.Channel, listener: CallListener, runtime: Runtime) -> None:
        call: Any = channel.stream_stream(path)()
        await call.write(question.SerializeToString())
        with pytest.raises(aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert f"the limit is {QUESTION_MAX}" in (caught.value.details() or "")

    with_server(client)


@pytest.mark.parametrize("letter", ["x", "ü", "語"])
def test_an_unknown_service_of_any_name_is_not_found(letter: str) -> None:
    async def client(channel: aio.Channel, listener: CallListener, runtime: Runtime) -> None:
        name = letter * ((QUESTION_MAX - 8) // len(letter.encode()))
        with pytest.raises(aio.AioRpcError) as caught:
            await stub(channel).Check(asked(name))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND

    with_server(client)
