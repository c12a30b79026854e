"""One connection: requests in, answers in the same order.

Requests begin in the order in which they came. A produce request gets its place in the log before
the next one begins, so several of them wait for their answers at once; every other request begins
when all before it have been answered, as clients of this protocol expect.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from ...errors import InvalidRequest, QuorumlogError
from ...runtime import ByteConnection, CallContext
from . import messages
from .api import Answer, Api, Call, Client, Door, FileRange, Part
from .frames import SIZE, FrameReader
from .headers import API_VERSIONS, RequestHeader, read_header, response_header, skip_tags

_LOG: Final = logging.getLogger("quorumlog.kafka")

ANSWER_MS_MAX: Final = 30_000
"""The deadline that requests without one of their own have."""


T = TypeVar("T")
Outcome: TypeAlias = Answer | BaseException
"""What became of a request."""


class Server(Protocol):
    """What a connection needs of the server that accepted it."""

    @property
    def door(self) -> Door: ...
    def api(self, header: RequestHeader) -> Api | None: ...
    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]": ...
    def left(self, connection: "KafkaConnection") -> None: ...


class KafkaConnection:
    """A `ByteProtocol`."""

    def __init__(self, connection: ByteConnection, server: Server, listener: str) -> None:
        self._connection = connection
        self._server = server
        self._frames = FrameReader(server.door.settings.request_bytes_max)
        self._waiting: deque[Call] = deque()  # requests that have not begun
        self._under_way: deque[tuple[Call, asyncio.Task[Outcome]]] = deque()  # begun, in order
        self._is_served = False  # a task of the server works on them
        self._is_over = False
        self.client = Client(peer=connection.peer, local=connection.local, listener=listener)

    # --- ByteProtocol --------------------------------------------------------------------------

    def buffer(self, size_hint: int) -> memoryview:
        """Where the next bytes go."""
        return self._frames.buffer()

    def received(self, count: int) -> None:
        """Take the requests that are complete."""
        try:
            for frame in self._frames.received(count):
                self._take(frame)
        except QuorumlogError as error:
            self._refuse(error)
        if len(self._waiting) >= self._server.door.settings.inflight_max:
            self._connection.pause_reading()

    def sent(self) -> None:
        """Answers have left."""
        if self._is_roomy() and not self._is_over:
            self._connection.resume_reading()

    def closed(self, error: Exception | None) -> None:
        """The connection ended: nobody waits for answers."""
        self._is_over = True
        self._waiting.clear()
        for _, task in self._under_way:
            task.cancel()
        self._server.left(self)

    # --- requests ------------------------------------------------------------------------------

    def _take(self, frame: memoryview) -> None:
        header = read_header(frame)
        api = self._server.api(header)
        if api is None:
            raise InvalidRequest(
                f"request {header.key} of version {header.version} is not offered here; ask which "
                "are, with ApiVersions"
            )
        now_ms = self._server.door.runtime.clock.now_ms()
        begin, version = header.size, header.version
        if api.low <= version <= api.high:
            if version >= api.flexible:
                begin = skip_tags(frame, begin)
            body = (
                messages.decode(api, version, frame[begin:])
                if api.read is None
                else api.read(version, frame[begin:])
            )
        elif api.key == API_VERSIONS:
            body, version = None, 0  # nobody here can read it; it is told so as all can read
        else:
            raise InvalidRequest(f"{api.name} is offered in versions {api.low} to {api.high}")
        call = Call(
            api=api,
            version=version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            body=body,
            client=self.client,
            began_ms=now_ms,
            context=CallContext(deadline_ms=now_ms + ANSWER_MS_MAX, peer=self.client.peer),
        )
        self._waiting.append(call)
        if not self._is_served:
            self._is_served = True
            self._server.spawn(self._serve())

    async def _serve(self) -> None:
        """Answer what has come; ends when there is nothing more."""
        try:
            while (self._waiting or self._under_way) and not self._is_over:
                await self._step()
        finally:
            self._is_served = False

    async def _step(self) -> None:
        """Begin what may begin, and send the next answer."""
        while self._waiting and self._may_begin(self._waiting[0]):
            call = self._waiting.popleft()
            self._under_way.append((call, self._server.spawn(self._handled(call))))
            await asyncio.sleep(0)  # it takes its place
        call, task = self._under_way[0]
        outcome = await task
        self._under_way.popleft()
        if self._is_over:
            return
        if isinstance(outcome, BaseException):
            self._refuse(outcome)
            return
        try:
            self._answer(call, outcome)
        except Exception as error:  # an answer that does not fit its schema
            _LOG.exception("kafka.answer_failed api=%s version=%d", call.api.name, call.version)
            self._refuse(error)
            return
        if self._is_roomy():
            self._connection.resume_reading()

    async def _handled(self, call: Call) -> Outcome:
        """Have a request handled; what its handler raises ends this connection, and no other."""
        try:
            return await call.api.handle(self._server.door, call)
        except QuorumlogError as error:
            return error
        except Exception as error:  # the one place where a broken handler ends; the node goes on
            _LOG.exception("kafka.handler_failed api=%s", call.api.name)
            return error

    def _may_begin(self, call: Call) -> bool:
        if not self._under_way:
            return True
        if len(self._under_way) >= self._server.door.settings.inflight_max:
            return False
        return call.api.begins_in_order and self._under_way[-1][0].api.begins_in_order

    # --- answers -------------------------------------------------------------------------------

    def _answer(self, call: Call, answer: Answer) -> None:
        if answer is None:
            return
        flexible = call.version >= call.api.flexible and call.api.key != API_VERSIONS
        header = response_header(call.correlation_id, flexible=flexible)
        if isinstance(answer, Mapping):
            self._send(header, [messages.encode(call.api, call.version, answer)])
            return
        try:
            self._send(header, answer.parts(0))
        finally:
            answer.release()

    def _send(self, header: bytes, parts: Sequence[Part]) -> None:
        size = len(header)
        for part in parts:
            size += part.size if isinstance(part, FileRange) else memoryview(part).nbytes
        self._connection.write([SIZE.pack(size) + header])
        for part in parts:
            if isinstance(part, FileRange):
                self._connection.send_range(part.file, part.position, part.size)
            else:
                self._connection.write([part])

    def _is_roomy(self) -> bool:
        settings = self._server.door.settings
        return (
            len(self._waiting) < settings.inflight_max
            and self._connection.unsent_bytes() < settings.unsent_bytes_max
        )

    def _refuse(self, error: BaseException) -> None:
        """End the connection: the protocol has no answer for what is no request."""
        _LOG.warning("kafka.refused peer=%s error=%s", self.client.peer, error)
        self._is_over = True
        self._connection.abort()
