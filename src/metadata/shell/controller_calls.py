"""Unary calls of a broker to the active controller: its selection, and retries at the current
leader."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from google.protobuf.message import Message

from ...errors import ConnectionFailed, NotController, OutcomeUnknown, Stopping, TimedOut
from ...ids import NO_NODE, ClusterId, NodeId
from ...proto import controller_pb2 as pb
from ...runtime import Channel, Method, Runtime
from ...services import CONTROLLER_ALTER_PARTITIONS, CONTROLLER_RELAY


class ControllerLocator:
    """The addresses of the controllers and the next one to call.

    A hint of a controller about the leader applies to one attempt. Otherwise the leader is that of
    this node's own replica of the quorum's log; without one, controllers are called in turn. After
    a failed call to the leader, every other call goes to the next controller in turn: this node may
    be the last one to receive the new leader.
    """

    def __init__(
        self,
        addresses: Callable[[], Mapping[NodeId, str]],
        *,
        leader: Callable[[], NodeId | None] = lambda: None,
    ) -> None:
        """`addresses` returns "host:port" by node id of the current voters."""
        self._addresses = addresses
        self._leader = leader
        self._hint: NodeId | None = None
        self._turn = NO_NODE
        self._failed: NodeId | None = None  # the last one called, if the call failed

    @classmethod
    def fixed(cls, addresses: Mapping[NodeId, str]) -> "ControllerLocator":
        """Return a locator with constant addresses."""
        return cls(lambda: addresses)

    def choose(self) -> tuple[NodeId, str]:
        """Return the node id and address of the next controller; raise NotController if none is
        known."""
        known = self._addresses()
        leader = self._leader()
        for candidate in (self._hint, None if leader == self._failed else leader, self._turn):
            if candidate is not None and (address := known.get(candidate)):
                return candidate, address
        first = min((node for node, address in known.items() if address), default=None)
        if first is None:
            raise NotController("no controller is known yet; retry")
        return first, known[first]

    def failed(self, node_id: NodeId, *, hint: NodeId = NO_NODE) -> None:
        """Record that a call to a controller failed; `hint` is the leader that it reported."""
        self._failed = node_id
        self._hint = None if hint in (NO_NODE, node_id) else hint
        if node_id == self._leader() and self._turn not in (NO_NODE, node_id):
            return  # it was called out of turn
        ids = sorted(node for node, address in self._addresses().items() if address)
        self._turn = next((node for node in ids if node > node_id), ids[0] if ids else NO_NODE)


Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


class ControllerCalls:
    """The channels to the controllers and the calls over them; one per node."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        cluster_id: ClusterId,
        broker_id: NodeId,
        controllers: ControllerLocator,
        backoff_ms_min: int = 50,
        backoff_ms_max: int = 500,
    ) -> None:
        """`backoff_ms_*` bound the back-off between two attempts."""
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._controllers = controllers
        self._backoff_ms = (backoff_ms_min, backoff_ms_max)
        self._entropy = runtime.entropy.stream(f"metadata.calls.{runtime.clock.now_ms()}")
        self._channels: dict[str, Channel] = {}  # by address of each voter so far
        self._in_flight: dict[asyncio.Timeout, NodeId] = {}  # calls in flight, and their controller
        self._closed = asyncio.Event()

    def channel(self, address: str) -> Channel:
        """Return the channel to a controller."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._runtime.network.channel(address)
        return channel

    def leader_changed(self, leader_id: NodeId | None) -> None:
        """Abandon calls to a controller that does not lead any more, which may hang (R28)."""
        now = asyncio.get_running_loop().time()
        for bound, target in self._in_flight.items():
            if leader_id not in (None, target):
                bound.reschedule(now)

    async def relay(
        self, request: pb.RelayRequest, *, timeout_ms: int, repeatable: bool
    ) -> pb.RelayResponse:
        """Send a command to the active controller. Retry if it was certainly not executed, and if
        it is repeatable. Raise the controller's typed errors, TimedOut, OutcomeUnknown,
        Stopping."""
        request.cluster_id = self._cluster_id
        request.broker_id = self._broker_id
        deadline_ms = self._runtime.clock.now_ms() + timeout_ms
        attempt = 0
        while True:
            left_ms = deadline_ms - self._runtime.clock.now_ms()
            if self._closed.is_set():
                raise Stopping("the broker is stopping")
            if left_ms <= 0:
                raise _unanswered(timeout_ms)
            target, address = self._controllers.choose()
            try:
                return await self._call(target, address, CONTROLLER_RELAY, request, left_ms)
            except NotController as error:
                self._controllers.failed(target, hint=error.leader_id)
            except ConnectionFailed:
                self._controllers.failed(target)
            except TimedOut as error:
                raise _unanswered(timeout_ms) from error
            except OutcomeUnknown:
                self._controllers.failed(target)
                if not repeatable:
                    raise
            attempt += 1
            await self.pause(attempt)

    async def alter_partitions(
        self, request: pb.AlterPartitionsRequest, *, timeout_ms: int
    ) -> pb.AlterPartitionsResponse:
        """Send one request to the active controller; see BrokerSession.alter_partitions."""
        if self._closed.is_set():
            raise Stopping("the broker is stopping")
        request.cluster_id = self._cluster_id
        target, address = self._controllers.choose()
        try:
            return await self._call(
                target, address, CONTROLLER_ALTER_PARTITIONS, request, timeout_ms
            )
        except NotController as error:
            self._controllers.failed(target, hint=error.leader_id)
            raise
        except (OutcomeUnknown, ConnectionFailed):
            self._controllers.failed(target, hint=NO_NODE)
            raise

    async def _call(
        self, target: NodeId, address: str, method: Method[Q, R], request: Q, timeout_ms: int
    ) -> R:
        """Call one controller; raise OutcomeUnknown also if another one is elected before it
        responds."""
        try:
            async with asyncio.timeout(None) as bound:
                self._in_flight[bound] = target
                try:
                    return await self.channel(address).call(method, request, timeout_ms=timeout_ms)
                finally:
                    del self._in_flight[bound]
        except TimedOut:
            raise
        except TimeoutError:
            raise OutcomeUnknown(
                f"controller {target} lost its leadership before it responded"
            ) from None

    async def pause(self, attempt: int) -> None:
        """Back off exponentially before the next attempt, or until close()."""
        shortest, bound = self._backoff_ms
        longest = min(shortest * 2 ** min(attempt, 10), bound)
        delay_ms = longest * self._entropy.uniform(0.5, 1.0)
        try:
            async with asyncio.timeout(delay_ms / 1000):
                await self._closed.wait()
        except TimeoutError:
            return

    def close(self) -> None:
        """Stop retrying."""
        self._closed.set()


def _unanswered(timeout_ms: int) -> TimedOut:
    return TimedOut(
        f"no active controller responded within {timeout_ms} ms; a majority of the voters must be"
        " up; see `quorumlog quorum status`, then retry"
    )
