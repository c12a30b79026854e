"""The broker's side of its session with the active controller: registration, heartbeats with the
applied offset, relayed commands, controlled shutdown.

Owns the stream and the channels to the controllers. The incarnation id is constant for the life of
a process: connecting again with it changes nothing at the controller.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from ...errors import (
    ConnectionFailed,
    DuplicateBrokerRegistration,
    FeatureUpdateFailed,
    InconsistentClusterId,
    NotController,
    OutcomeUnknown,
    QuorumlogError,
    TimedOut,
)
from ...ids import NO_NODE, ClusterId, DirectoryId, NodeId, Offset
from ...proto import controller_pb2 as pb
from ...runtime import Runtime, Scope, Stream
from ...services import CONTROLLER_BROKER_SESSION
from ..codec import decode_isr_results, encode_command, encode_isr_changes, encode_registration
from ..commands import (
    AlterPartitions,
    IsrChange,
    PartitionsAltered,
    RegisterBroker,
    RelayedCommand,
    Submitted,
)
from ..decisions.topics import with_topic_id
from .controller_calls import ControllerCalls, ControllerLocator
from .publisher import MetadataPublisher
from .relay_reply import decode_reply


class MetadataFreshness:
    """The time up to which a broker has all committed metadata, by its own clock."""

    def __init__(self) -> None:
        self.fresh_ms: int | None = None  # everything committed at this time is applied
        # (send time of a heartbeat, committed offset in its response): the first one whose offset
        # is not applied yet, and the last one.
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None

    def on_response(self, sent_ms: int, committed_offset: int) -> None:
        """Record the committed offset in the response to a heartbeat sent at `sent_ms`."""
        self._last = (sent_ms, committed_offset)
        if self._first is None:
            self._first = self._last

    def on_applied(self, offset: int) -> None:
        """Record that the metadata is applied up to an offset (inclusive)."""
        if self._first is not None and self._first[1] <= offset:
            self.fresh_ms, self._first = self._first[0], self._last
            if self._last is not None and self._last[1] <= offset:
                self.fresh_ms, self._first = self._last[0], None


_LOG = logging.getLogger("quorumlog.metadata")

TWIN_TIMEOUTS: Final = 3
"""Session timeouts after which another process with this broker id is certainly alive."""
SHUTDOWN_INTERVAL_MS: Final = 50
"""Heartbeat interval of a broker in controlled shutdown."""

SHUTDOWN_SILENCE_MS: Final = 2_000
"""Time without a heartbeat response after which a controlled shutdown is abandoned."""

_R = TypeVar("_R")
SessionStream = Stream[pb.BrokerSessionRequest, pb.BrokerSessionResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSessionConfig:
    """The identity, addresses and times of a broker's session."""

    cluster_id: ClusterId
    broker_id: NodeId
    directory_id: DirectoryId
    grpc_address: str  # advertised "host:port" for clients
    session_timeout_ms: int  # broker.session.timeout.ms, equal on the controllers
    rack: str = ""
    boot_id: str = ""
    clean_start: bool = False  # the previous process stopped cleanly
    internal_address: str = ""  # advertised "host:port" for other nodes; empty: grpc_address
    features: tuple[tuple[str, int, int], ...] = ()  # name, lowest and highest level, by name
    kafka_listeners: tuple[tuple[str, str], ...] = ()  # name and advertised "host:port"
    heartbeat_interval_ms: int = 500  # broker.heartbeat.interval.ms
    backoff_ms_min: int = 50  # back-off between two attempts to connect
    backoff_ms_max: int = 500


class BrokerSession:
    """One broker's session; run() must run."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        config: BrokerSessionConfig,
        publisher: MetadataPublisher,
        controllers: ControllerLocator,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._publisher = publisher
        # A process can run several nodes, one after another; each is an incarnation.
        self._entropy = runtime.entropy.stream(f"metadata.session.{runtime.clock.now_ms()}")
        self.incarnation_id = self._entropy.token(16)
        # Set while this broker is unfenced and has applied that: it then serves its leaderships.
        self.unfenced = asyncio.Event()
        self._is_unfenced_at_controller = False  # in the last response; False without a session
        self._is_fenced_at_controller = False  # in the last response, also without a session
        self.broker_epoch = Offset(-1)  # of the current registration; -1: never registered
        self._controllers = controllers
        self._calls = ControllerCalls(
            runtime,
            cluster_id=config.cluster_id,
            broker_id=config.broker_id,
            controllers=controllers,
            backoff_ms_min=config.backoff_ms_min,
            backoff_ms_max=config.backoff_ms_max,
        )
        self._asked = NO_NODE  # the controller of the session, or of the last one
        self._wake = asyncio.Event()  # a heartbeat is due
        self._want_shutdown = False
        self._granted = asyncio.Event()
        self._closed = asyncio.Event()
        self._scope: Scope | None = None  # of the current connection
        self._is_registered = False  # on the current connection
        self._sequence = 0
        self._sent_ms: dict[int, int] = {}  # send time of every unanswered heartbeat
        self._answered_ms: int | None = None  # send time of the newest answered heartbeat
        self._freshness = MetadataFreshness()
        publisher.on_applied(self._on_applied)

    @property
    def broker_id(self) -> NodeId:
        """The broker of the session."""
        return self._config.broker_id

    @property
    def controller_id(self) -> NodeId:
        """The controller of the session."""
        return self._asked

    def is_lapsed(self) -> bool:
        """Return True if the controller may have fenced this broker: the last answered heartbeat is
        older than the session timeout, or its response says so. Computed on each call, so that it
        is right after a stall of this process."""
        if self._answered_ms is None or self._is_fenced_at_controller:
            return True
        silent_ms = self._runtime.clock.now_ms() - self._answered_ms
        return silent_ms > self._config.session_timeout_ms

    def is_behind(self, *, for_ms: int) -> bool:
        """Return True if this broker may lack metadata committed more than `for_ms` ago. Another
        broker may then lead its partitions, although its session is alive."""
        fresh_ms = self._freshness.fresh_ms
        return fresh_ms is None or self._runtime.clock.now_ms() - fresh_ms > for_ms

    # --- lifecycle -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a session with the active controller until close() or a granted shutdown.

        Raises InconsistentClusterId, FeatureUpdateFailed for an unsupported release, and
        DuplicateBrokerRegistration once another process with this id is certainly alive. Other
        errors cause a retry at the next controller after a back-off.
        """
        attempt = 0
        twin = _Twin(patience_ms=TWIN_TIMEOUTS * self._config.session_timeout_ms)
        while not self._is_over():
            try:
                registered = await self._connect_once()
                attempt = 0 if registered else attempt + 1
                twin.is_gone()
            except (InconsistentClusterId, FeatureUpdateFailed):
                raise
            except QuorumlogError as error:
                if self._is_over():
                    return
                twin.ended(error, self._runtime.clock.now_ms(), was_registered=self._is_registered)
                hint = error.leader_id if isinstance(error, NotController) else NO_NODE
                self._controllers.failed(self._asked, hint=hint)
                level = logging.INFO if error.retriable else logging.WARNING
                _LOG.log(level, "broker.session_ended id=%d: %s", self._config.broker_id, error)
                attempt = 0 if self.unfenced.is_set() else attempt + 1
            self._set_unfenced(False)
            await self._calls.pause(attempt)

    async def shutdown(self, timeout_ms: int) -> bool:
        """Request a controlled shutdown, which moves the leaderships first. Return True if it was
        granted within `timeout_ms`; close() follows in any case.

        Abandoned after SHUTDOWN_SILENCE_MS without a response: if the whole cluster stops, no
        broker is left to take over.
        """
        self._want_shutdown = True
        self._wake.set()
        deadline_ms = self._runtime.clock.now_ms() + timeout_ms
        while not self._granted.is_set():
            now_ms = self._runtime.clock.now_ms()
            answered_ms = self._answered_ms
            if now_ms >= deadline_ms or answered_ms is None:
                return False
            if now_ms - answered_ms > SHUTDOWN_SILENCE_MS:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(min(deadline_ms - now_ms, 100) / 1000):
                    await self._granted.wait()
        return True

    def leader_changed(self, leader_id: NodeId | None) -> None:
        """End the session and the calls with a controller that does not lead any more."""
        self._calls.leader_changed(leader_id)
        if leader_id not in (None, self._asked) and self._scope is not None:
            self._scope.cancel()

    def close(self) -> None:
        """Stop run() and the current connection."""
        self._closed.set()
        self._calls.close()
        self._wake.set()
        if self._scope is not None:
            self._scope.cancel()

    def _is_over(self) -> bool:
        return self._closed.is_set() or self._granted.is_set()

    # --- one connection ------------------------------------------------------------------------

    async def _connect_once(self) -> bool:
        """Register, then send heartbeats until the stream ends; return True if registered."""
        self._is_registered = False
        try:
            async with self._runtime.tasks.scope("broker.session") as scope:
                self._scope = scope
                scope.spawn(self._talk(scope), name="broker.session.talk")
        finally:
            self._scope = None
            self._sent_ms.clear()
        return self._is_registered

    async def _talk(self, scope: Scope) -> None:
        self._asked, address = self._controllers.choose()
        channel = self._calls.channel(address)
        stream = await channel.stream(CONTROLLER_BROKER_SESSION, timeout_ms=0)
        try:
            await stream.send(pb.BrokerSessionRequest(registration=self._registration()))
            if await self._receive(stream):
                self._is_registered = True
                scope.spawn(self._report(stream), name="broker.session.report")
                await self._listen(stream)
        finally:
            stream.abort("the broker's session is over")
        scope.cancel()

    async def _report(self, stream: SessionStream) -> None:
        """Send a heartbeat after each change of the applied offset, and periodically."""
        while not self._is_over():
            self._wake.clear()
            self._sequence += 1
            self._sent_ms[self._sequence] = self._runtime.clock.now_ms()
            heartbeat = pb.BrokerHeartbeat(
                sequence=self._sequence,
                applied_offset=self._publisher.applied_offset,
                want_shutdown=self._want_shutdown,
            )
            await stream.send(pb.BrokerSessionRequest(heartbeat=heartbeat))
            try:
                async with asyncio.timeout(self._interval_ms() / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _interval_ms(self) -> int:
        interval_ms = self._config.heartbeat_interval_ms
        return min(interval_ms, SHUTDOWN_INTERVAL_MS) if self._want_shutdown else interval_ms

    async def _listen(self, stream: SessionStream) -> None:
        finished = False
        while await self._receive(stream):
            if self._granted.is_set() and not finished:
                finished = True
                await (
                    stream.finish()
                )  # then wait for the controller's end: an abort could overtake it

    async def _receive(self, stream: SessionStream) -> bool:
        """Process one response; return False if the controller ended the stream. Raise
        OutcomeUnknown after a session timeout without a response, as with a broken link."""
        try:
            async with asyncio.timeout(self._config.session_timeout_ms / 1000):
                response = await stream.receive()
        except TimedOut:
            raise
        except TimeoutError:
            raise OutcomeUnknown(f"controller {self.controller_id} does not respond") from None
        if response is None:
            return False
        sent_ms = self._sent_ms.pop(response.sequence, None)
        if sent_ms is not None:
            self._answered_ms = sent_ms
            self._freshness.on_response(sent_ms, response.committed_offset)
            self._freshness.on_applied(self._publisher.applied_offset)
        self.broker_epoch = Offset(response.broker_epoch)
        self._is_fenced_at_controller = response.fenced
        self._set_unfenced(not response.fenced)
        if response.shutdown_granted:
            self._granted.set()
        return True

    def _set_unfenced(self, at_controller: bool) -> None:
        """Record the state at the controller, and set or clear `unfenced`."""
        self._is_unfenced_at_controller = at_controller
        own = self._publisher.image.broker(self._config.broker_id)
        if at_controller and own is not None and own.epoch == self.broker_epoch and not own.fenced:
            self.unfenced.set()
        elif not at_controller:
            self.unfenced.clear()

    def _on_applied(self, offset: Offset) -> None:
        self._freshness.on_applied(offset)
        self._set_unfenced(self._is_unfenced_at_controller)
        self._wake.set()

    def _registration(self) -> pb.BrokerRegistration:
        config = self._config
        message = encode_registration(
            RegisterBroker(
                broker_id=config.broker_id,
                incarnation_id=self.incarnation_id,
                directory_id=config.directory_id,
                grpc_address=config.grpc_address,
                rack=config.rack,
                boot_id=config.boot_id,
                clean_start=config.clean_start,
                internal_address=config.internal_address,
                features=config.features,
                kafka_listeners=config.kafka_listeners,
            )
        )
        message.cluster_id = config.cluster_id
        return message

    # --- commands ------------------------------------------------------------------------------

    async def submit(
        self, command: RelayedCommand[_R], *, timeout_ms: int, authorized_offset: int = 0
    ) -> Submitted[_R]:
        """Submit a command to the active controller.

        `authorized_offset` is that of the metadata on which the client of the command was
        authorized; for a command of the broker itself it has no meaning. Repeats the command if it
        was certainly not executed, and if it is repeatable. A new topic without an id gets one
        here. Raises the controller's typed errors, also AuthorizationOutdated; TimedOut,
        OutcomeUnknown, Stopping.
        """
        command = with_topic_id(command, self._entropy)
        request = encode_command(command)
        request.authorized_offset = authorized_offset
        response = await self._calls.relay(
            request, timeout_ms=timeout_ms, repeatable=command.is_repeatable
        )
        return await decode_reply(command, response)

    async def alter_partitions(
        self, changes: Sequence[IsrChange], *, timeout_ms: int
    ) -> PartitionsAltered:
        """Request ISR changes of partitions that this broker leads, without retries.

        The reply has a result per partition, in order, after their commit. Raises NotController and
        ConnectionFailed if no change was made; OutcomeUnknown and TimedOut if the outcome is
        unknown; StaleBrokerEpoch if the broker has registered again; Overloaded, Stopping.
        """
        if self.broker_epoch < 0:
            raise NotController("the broker is not registered with a controller yet; retry")
        command = AlterPartitions(
            broker_id=self.broker_id, broker_epoch=self.broker_epoch, changes=tuple(changes)
        )
        request = encode_isr_changes(command)
        return decode_isr_results(
            await self._calls.alter_partitions(request, timeout_ms=timeout_ms)
        )


class _Twin:
    """Detection of another live process with this broker id, as opposed to an old session."""

    def __init__(self, *, patience_ms: int) -> None:
        self._patience_ms = patience_ms
        self._since_ms: int | None = None  # first duplicate registration; None: none recently

    def ended(self, error: QuorumlogError, now_ms: int, *, was_registered: bool) -> None:
        """Record the error of a session; raise it if duplicates persist for `patience_ms`."""
        if isinstance(error, DuplicateBrokerRegistration):
            since_ms = self._since_ms = now_ms if self._since_ms is None else self._since_ms
            if now_ms - since_ms > self._patience_ms:
                raise error
        elif was_registered or not isinstance(
            error, NotController | OutcomeUnknown | ConnectionFailed
        ):
            self.is_gone()

    def is_gone(self) -> None:
        """Reset: the controller did not report a duplicate."""
        self._since_ms = None
