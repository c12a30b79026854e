"""The standard services of every server: health and reflection.

Tools of any language use them to list services, describe messages and check whether the server
accepts work. Both use loaded descriptors and one flag, and never wait for another service. Their
messages are loaded at the first request.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias

from google.protobuf.message import DecodeError

from ..errors import Overloaded, TimedOut
from .quiet_grpc import aio, grpc
from .reflection import REFLECTION_SERVICES, answer_reflection, is_described

RpcMethod: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Context: TypeAlias = aio.ServicerContext[Any, Any]
_Code: Final = grpc.StatusCode

HEALTH: Final = "grpc.health.v1.Health"
QUESTION_MAX: Final = 2048  # bytes; responses repeat it, and peers limit a status's text


class StrangerCalls(Protocol):
    """Bounds the calls of clients without credentials."""

    async def read(self, context: _Context) -> Any:
        """Return the next message, or EOF. Raise TimedOut."""

    async def write(self, context: _Context, response: bytes) -> None:
        """Send a response. Raise Overloaded."""

    async def watch(self, context: _Context, watch: Awaitable[None]) -> None:
        """Watch the health until the client leaves. Raise Overloaded."""


def _health_messages() -> Any:
    """Return the messages of the health service. Its stubs lack the newest call."""
    from grpc_health.v1 import health_pb2

    return health_pb2


def _reflection_messages() -> Any:
    """Return the messages of the reflection service. The health service, which it describes, is
    loaded too."""
    from grpc_reflection.v1alpha import reflection_pb2

    _health_messages()
    return reflection_pb2


class HealthStatus:
    """The health status of a server and its services. Watchers wait for changes.

    A service that was announced by name has its own status; the others share the server's.
    """

    def __init__(self, *, is_serving: bool) -> None:
        self._is_serving = {"": is_serving}  # by service name; "" is the server
        self.is_closed = False  # watches end, since no change follows
        self._changed = asyncio.Event()  # replaced after each change

    @property
    def names(self) -> list[str]:
        """The services with their own status; "" is the server."""
        return list(self._is_serving)

    def status(self, service: str = "") -> str:
        """Return the health protocol's status of a service."""
        is_serving = self._is_serving.get(service, self._is_serving[""])
        return "SERVING" if is_serving else "NOT_SERVING"

    def set(self, *, is_serving: bool, service: str = "") -> None:
        """Set the status and wake watchers. Has no effect after the close."""
        if is_serving != self._is_serving.get(service) and not self.is_closed:
            self._is_serving[service] = is_serving
            self._wake()

    def close(self) -> None:
        """Set the status to not serving for good."""
        self._is_serving, self.is_closed = dict.fromkeys(self._is_serving, False), True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Return at the next change or at the close."""
        await self._changed.wait()

    async def closed(self) -> None:
        """Return at the close."""
        while not self.is_closed:
            await self.changed()


def introspection_methods(
    services: list[str], readiness: HealthStatus, strangers: StrangerCalls | None
) -> dict[str, RpcMethod]:
    """Return the methods of both services by path, for a server with these services. `strangers`
    None: their clients have no bounds."""
    return _health_methods(services, readiness, strangers) | _reflection_methods(
        services, readiness, strangers
    )


def _health_methods(
    services: list[str], readiness: HealthStatus, strangers: StrangerCalls | None
) -> dict[str, RpcMethod]:
    def known() -> list[str]:
        return [*services, HEALTH, *REFLECTION_SERVICES, *readiness.names]

    async def check(raw: bytes, context: _Context) -> bytes:
        asked = (await _parse(_health_messages().HealthCheckRequest, raw, context)).service
        if asked not in known():
            await context.abort(_Code.NOT_FOUND, f"service {asked} not found")
        return _health(readiness.status(asked))

    async def list_all(raw: bytes, context: _Context) -> bytes:
        messages = _health_messages()
        words = {
            name: messages.HealthCheckResponse(status=readiness.status(name)) for name in known()
        }
        answer = messages.HealthListResponse(statuses=words)
        raw_answer: bytes = answer.SerializeToString(deterministic=True)
        return raw_answer

    async def watch(raw: bytes, context: _Context) -> None:
        asked = (await _parse(_health_messages().HealthCheckRequest, raw, context)).service
        sent = ""
        while True:  # the protocol requires that the watch of an unknown service continues
            status = readiness.status(asked) if asked in known() else "SERVICE_UNKNOWN"
            if status != sent:
                sent = status
                await context.write(_health(status))
            elif readiness.is_closed:
                return
            else:
                await readiness.changed()

    if strangers is None:
        return {
            f"/{HEALTH}/Check": grpc.unary_unary_rpc_method_handler(check),
            f"/{HEALTH}/List": grpc.unary_unary_rpc_method_handler(list_all),
            f"/{HEALTH}/Watch": grpc.unary_stream_rpc_method_handler(watch),
        }
    bounded = strangers.watch
    return {
        f"/{HEALTH}/Check": _guarded(
            strangers, lambda raw, call: _answer(check(raw, call), call, strangers)
        ),
        f"/{HEALTH}/List": _guarded(
            strangers, lambda raw, call: _answer(list_all(raw, call), call, strangers)
        ),
        f"/{HEALTH}/Watch": _guarded(strangers, lambda raw, call: bounded(call, watch(raw, call))),
    }


def _guarded(
    strangers: StrangerCalls, handle: Callable[[bytes, _Context], Awaitable[None]]
) -> RpcMethod:
    """Return a method of one message of a stranger: as a stream, so that gRPC does not read it."""

    async def serve(_: object, context: _Context) -> None:
        try:
            raw: Any = await strangers.read(context)
            if raw is aio.EOF:
                await context.abort(_Code.INVALID_ARGUMENT, "the call has no request")
            await handle(raw, context)
        except TimedOut as error:
            await context.abort(_Code.DEADLINE_EXCEEDED, error.message)
        except Overloaded as error:
            await context.abort(_Code.RESOURCE_EXHAUSTED, error.message)

    return grpc.stream_stream_rpc_method_handler(serve)


async def _answer(answer: Awaitable[bytes], context: _Context, strangers: StrangerCalls) -> None:
    await strangers.write(context, await answer)


def _reflection_methods(
    services: list[str], readiness: HealthStatus, strangers: StrangerCalls | None
) -> dict[str, RpcMethod]:
    reflected = sorted([name for name in services if is_described(name)] + [HEALTH])
    reflected += REFLECTION_SERVICES

    async def reflect(_: object, context: _Context) -> None:
        messages = _reflection_messages()
        while (raw := await _read_until_closed(context, readiness, strangers)) is not aio.EOF:
            request = await _parse(messages.ServerReflectionRequest, raw, context)
            response = messages.ServerReflectionResponse()
            answer_reflection(request, response, reflected)
            content = response.SerializeToString()
            if strangers is None:
                await context.write(content)
                continue
            try:
                await strangers.write(context, content)
            except Overloaded as error:
                await context.abort(_Code.RESOURCE_EXHAUSTED, error.message)

    # Both versions have equal messages.
    method: RpcMethod = grpc.stream_stream_rpc_method_handler(reflect)
    return {f"/{service}/ServerReflectionInfo": method for service in REFLECTION_SERVICES}


async def _read_until_closed(
    context: _Context, readiness: HealthStatus, strangers: StrangerCalls | None
) -> Any:
    """Return the next message, or EOF when the client finishes or the server closes.

    Tools keep their stream open, and an idle one must not use up the grace of a stop.
    """
    read = context.read() if strangers is None else strangers.read(context)
    reading = asyncio.ensure_future(read)
    closing = asyncio.ensure_future(readiness.closed())
    try:
        await asyncio.wait({reading, closing}, return_when=asyncio.FIRST_COMPLETED)
        return reading.result() if reading.done() else aio.EOF
    except TimedOut:
        return aio.EOF
    finally:
        reading.cancel()
        closing.cancel()
        await asyncio.gather(reading, closing, return_exceptions=True)


async def _parse(kind: Any, raw: bytes, context: _Context) -> Any:
    if len(raw) > QUESTION_MAX:
        await context.abort(
            _Code.INVALID_ARGUMENT, f"request: {len(raw)} bytes; the limit is {QUESTION_MAX}"
        )
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        await context.abort(_Code.INVALID_ARGUMENT, f"request: cannot be parsed; {error}")


def _health(status: str) -> bytes:
    raw: bytes = _health_messages().HealthCheckResponse(status=status).SerializeToString()
    return raw
