"""Calls that a coordinator answers: any broker forwards them to it once.

The receiver of a forwarded call answers itself or returns NOT_COORDINATOR, which is retriable. It
authorizes the client of the call again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from google.protobuf.message import Message

from ...api.validation import ANSWER_MS, NAMES_MAX, TIMEOUT_MS_MAX, left_ms
from ...broker.shell.broker_calls import BrokerCalls
from ...errors import InvalidRequest, QuorumlogError
from ...ids import NodeId
from ...metadata.acls import host_of
from ...metadata.image import MetadataImage
from ...metadata.shell.publisher import MetadataPublisher
from ...proto import errors_pb2
from ...runtime import CallContext, ClientIdentity, Method, Runtime
from ...runtime.error_detail import encode_error

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
T = TypeVar("T")

TEXT_BYTES_MAX: Final = 32_767  # of a name: the limit of the Kafka protocol
LIST_MS_MAX: Final = 5_000  # the time that another broker has to list what it coordinates


class ForwardedCall(Protocol):
    """Forwards a call to one broker."""

    async def __call__(self, method: Method[Q, R], request: Q) -> R:
        """Return the response of the broker; raise its error."""


class CallForwarder:
    """Forwards the calls of one service to the coordinators."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataPublisher,
        *,
        node_id: NodeId,
        coordinator_of: Callable[[str, int], Awaitable[NodeId]],
    ) -> None:
        """`coordinator_of(name, deadline_ms)` returns the coordinator of a group or transactional
        id."""
        self.node_id = node_id
        self._runtime = runtime
        self._metadata = metadata
        self._coordinator_of = coordinator_of
        self._calls = BrokerCalls(runtime.network, lambda: metadata.image)

    async def at_coordinator(
        self,
        method: Method[Q, R],
        request: Q,
        context: CallContext,
        name: str,
        here: Callable[[], Awaitable[R]],
    ) -> R:
        """Handle a request here if this broker coordinates the name, otherwise forward it."""
        if context.is_forwarded:
            return await here()
        node_id = await self._coordinator_of(name, self.deadline_ms(context))
        context.check_session()  # again, after the wait
        if node_id == self.node_id:
            return await here()
        return await self._forward(node_id, context, method, request)

    async def at_coordinators(
        self,
        field: str,
        names: Sequence[str],
        context: CallContext,
        here: Callable[[str], Awaitable[T]],
        there: Callable[[ForwardedCall, Sequence[str]], Awaitable[Iterable[T]]],
        *,
        check: Callable[[str], None],
        is_here: bool,
    ) -> list[T | QuorumlogError]:
        """Carry out an operation for each name at its coordinator; return the outcomes in order.

        `there(forward, names)` forwards names to another broker. `check` raises the error of a name
        that the client is not authorized for, before its coordinator is looked up. `is_here`: this
        broker answers for all. `field` names them in the error of an invalid request.
        """
        if not 1 <= len(names) <= NAMES_MAX:
            raise InvalidRequest(f"{field}: {len(names)} entries; give 1..{NAMES_MAX}")
        for name in names:
            check_text(field, name)
        found: dict[str, T | QuorumlogError] = {}
        elsewhere: dict[NodeId, list[str]] = {}
        for name in dict.fromkeys(names):
            try:
                check(name)
                node_id = self.node_id
                if not (is_here or context.is_forwarded):
                    node_id = await self._coordinator_of(name, self.deadline_ms(context))
                if node_id == self.node_id:
                    found[name] = await here(name)
                else:
                    elsewhere.setdefault(node_id, []).append(name)
            except QuorumlogError as error:
                found[name] = error

        async def ask(node_id: NodeId, those: Sequence[str]) -> None:
            try:
                answers = await there(partial(self._forward, node_id, context), those)
                found.update(zip(those, answers, strict=True))
            except QuorumlogError as error:
                found.update(dict.fromkeys(those, error))

        await asyncio.gather(*[ask(*each) for each in elsewhere.items()])
        return [found[name] for name in names]

    async def at_all_brokers(
        self,
        what: str,
        method: Method[Q, R],
        request: Q,
        context: CallContext,
        here: Callable[[], Awaitable[R]],
    ) -> tuple[list[R], list[errors_pb2.Error]]:
        """Return the answers of all brokers, and the errors of those that failed. `what` completes
        "listing its ..."."""
        failures: list[errors_pb2.Error] = []

        async def listed(node_id: NodeId) -> list[R]:
            try:
                if node_id == self.node_id:
                    return [await here()]
                answer = await self._forward(node_id, context, method, request, LIST_MS_MAX)
                return [answer]
            except QuorumlogError as error:
                failure = encode_error(error)
                failure.message = f"broker {node_id}: listing its {what} failed: {failure.message}"
                failures.append(failure)
                return []

        brokers = [each.id for each in self._image.sorted_brokers() if not each.fenced]
        answers = await asyncio.gather(*map(listed, brokers))
        return [each for answer in answers for each in answer], failures

    def deadline_ms(self, context: CallContext) -> int:
        """Return the deadline of a call, on the runtime's clock."""
        now_ms = self._runtime.clock.now_ms()
        return now_ms + left_ms(context.deadline_ms, now_ms)

    async def _forward(
        self,
        node_id: NodeId,
        context: CallContext,
        method: Method[Q, R],
        request: Q,
        timeout_ms_max: int = TIMEOUT_MS_MAX,
    ) -> R:
        """Forward a call; its error arrives before the deadline."""
        left = left_ms(context.deadline_ms, self._runtime.clock.now_ms()) - ANSWER_MS
        return await self._calls.call(
            node_id,
            method,
            request,
            timeout_ms=max(1, min(left, timeout_ms_max)),
            on_behalf_of=client_of(context),
        )

    @property
    def _image(self) -> MetadataImage:
        return self._metadata.image


def client_of(context: CallContext) -> ClientIdentity:
    """Return the client of a call, with its host also if it is not authenticated."""
    client = context.client
    if client.host:
        return client
    return client._replace(host=host_of(context.peer.rpartition(":")[0]))


def check_text(field: str, value: str) -> None:
    """Raise InvalidRequest for a text that the Kafka protocol cannot carry."""
    if len(value.encode()) > TEXT_BYTES_MAX:
        raise InvalidRequest(
            f"{field}: {len(value)} characters; the limit is {TEXT_BYTES_MAX} bytes"
        )
