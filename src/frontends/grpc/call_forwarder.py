"""Calls that a coordinator answers: any broker forwards them to it once.

The receiver of a forwarded call (`passed_on`) answers itself or returns NOT_COORDINATOR, which is
retriable.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from ...api.validation import ANSWER_MS, NAMES_MAX, left_ms
from ...errors import CoordinatorNotAvailable, InvalidRequest, QuorumlogError
from ...ids import NodeId
from ...metadata.image import MetadataImage
from ...metadata.shell.publisher import MetadataPublisher
from ...proto import errors_pb2
from ...runtime import CallContext, Channel, Method, Runtime
from ...runtime.error_detail import encode_error

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
T = TypeVar("T")

TEXT_BYTES_MAX: Final = 32_767  # of a name: the limit of the Kafka protocol
LIST_MS_MAX: Final = 5_000  # the time that another broker has to list what it coordinates


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
        self._channels: dict[str, Channel] = {}  # to the other brokers

    async def at_coordinator(
        self,
        method: Method[Q, R],
        request: Q,
        context: CallContext,
        name: str,
        here: Callable[[], Awaitable[R]],
    ) -> R:
        """Handle a request here if this broker coordinates the name, otherwise forward it."""
        asked: Any = request
        if asked.passed_on:
            return await here()
        node_id = await self._coordinator_of(name, self.deadline_ms(context))
        if node_id == self.node_id:
            return await here()
        asked.passed_on = True
        timeout_ms = self._passed_on_ms(context)
        return await self._channel(node_id).call(method, request, timeout_ms=timeout_ms)

    async def at_coordinators(
        self,
        field: str,
        names: Sequence[str],
        context: CallContext,
        here: Callable[[str], Awaitable[T]],
        there: Callable[[Channel, Sequence[str], int], Awaitable[Iterable[T]]],
        *,
        passed_on: bool,
    ) -> list[T | QuorumlogError]:
        """Carry out an operation for each name at its coordinator; return the outcomes in order.

        `there(channel, names, timeout_ms)` forwards names to another broker. `field` names them in
        the error of an invalid request.
        """
        if not 1 <= len(names) <= NAMES_MAX:
            raise InvalidRequest(f"{field}: {len(names)} entries; give 1..{NAMES_MAX}")
        for name in names:
            check_text(field, name)
        found: dict[str, T | QuorumlogError] = {}
        elsewhere: dict[NodeId, list[str]] = {}
        for name in dict.fromkeys(names):
            try:
                node_id = self.node_id
                if not passed_on:
                    node_id = await self._coordinator_of(name, self.deadline_ms(context))
                if node_id == self.node_id:
                    found[name] = await here(name)
                else:
                    elsewhere.setdefault(node_id, []).append(name)
            except QuorumlogError as error:
                found[name] = error

        async def ask(node_id: NodeId, those: Sequence[str]) -> None:
            try:
                timeout_ms = self._passed_on_ms(context)
                answers = await there(self._channel(node_id), those, timeout_ms)
                found.update(zip(those, answers, strict=True))
            except QuorumlogError as error:
                found.update(dict.fromkeys(those, error))

        await asyncio.gather(*[ask(*each) for each in elsewhere.items()])
        return [found[name] for name in names]

    async def at_all_brokers(
        self,
        what: str,
        context: CallContext,
        here: Callable[[], T],
        there: Callable[[Channel, int], Awaitable[T]],
    ) -> tuple[list[T], list[errors_pb2.Error]]:
        """Return the answers of all brokers, and the errors of those that failed.

        `there(channel, timeout_ms)` calls another broker; `what` completes "listing its ...".
        """
        timeout_ms = min(LIST_MS_MAX, self._passed_on_ms(context))
        failures: list[errors_pb2.Error] = []

        async def listed(node_id: NodeId) -> list[T]:
            try:
                if node_id == self.node_id:
                    return [here()]
                return [await there(self._channel(node_id), timeout_ms)]
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

    def _channel(self, node_id: NodeId) -> Channel:
        broker = self._image.broker(node_id)
        if broker is None:
            raise CoordinatorNotAvailable(f"broker {node_id}: not registered any more; retry")
        channel = self._channels.get(broker.grpc_address)
        if channel is None:
            channel = self._runtime.network.channel(broker.grpc_address)
            self._channels[broker.grpc_address] = channel
        return channel

    @property
    def _image(self) -> MetadataImage:
        return self._metadata.image

    def _passed_on_ms(self, context: CallContext) -> int:
        """Return the timeout of a forwarded call, so that its error arrives before the deadline."""
        return max(1, left_ms(context.deadline_ms, self._runtime.clock.now_ms()) - ANSWER_MS)


def check_text(field: str, value: str) -> None:
    """Raise InvalidRequest for a text that the Kafka protocol cannot carry."""
    if len(value.encode()) > TEXT_BYTES_MAX:
        raise InvalidRequest(
            f"{field}: {len(value)} characters; the limit is {TEXT_BYTES_MAX} bytes"
        )
