"""The broker's side of its session with the active controller: registers, reports how far it has
applied the metadata, relays changes, and asks leave before it stops.

Owns the stream and the channel to the controllers. One incarnation id a process life: connecting
again with it changes nothing at the controller.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ...errors import (
    DuplicateBrokerRegistration,
    FeatureUpdateFailed,
    InconsistentClusterId,
    Lost,
    NotController,
    QuorumlogError,
)
from ...ids import NO_NODE, ClusterId, DirectoryId, NodeId, Offset
from ...proto import admin_pb2, metadata_records_pb2
from ...proto import controller_pb2 as pb
from ...runtime import Runtime, Scope, Stream
from ...services import CONTROLLER_BROKER_SESSION
from ..knowledge import Knowledge
from .controller_calls import ControllerCalls
from .controllers import Controllers
from .publisher import MetadataPublisher

_LOG = logging.getLogger("quorumlog.metadata")

TWIN_TIMEOUTS: Final = 3
"""Another process under this id that still lives after so many session time-outs is no ghost."""
SHUTDOWN_INTERVAL_MS: Final = 50
"""A broker that waits for leave to stop asks so often."""

DESERTED_MS: Final = 2_000
"""A broker that waits for leave to stop and hears from no controller for so long goes without."""

SessionStream = Stream[pb.BrokerSessionRequest, pb.BrokerSessionResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSessionConfig:
    """Who the broker is."""

    cluster_id: ClusterId
    broker_id: NodeId
    directory_id: DirectoryId
    grpc_address: str  # "host:port" that clients are told
    rack: str = ""
    boot_id: str = ""
    clean_start: bool = False  # the previous life ended with the clean marker
    replica_address: str = ""  # "host:port" that followers are told; empty: grpc_address
    features: tuple[tuple[str, int, int], ...] = ()  # name, lowest and highest level, by name
    kafka_listeners: tuple[tuple[str, str], ...] = ()  # name and "host:port" that clients are told
    heartbeat_interval_ms: int = 500  # broker.heartbeat.interval.ms
    session_timeout_ms: int = 3000  # broker.session.timeout.ms, equal on the controllers
    backoff_ms_min: int = 50  # between two attempts to connect
    backoff_ms_max: int = 500


class BrokerSession:
    """One broker's session; run() must run."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        config: BrokerSessionConfig,
        publisher: MetadataPublisher,
        controllers: Controllers,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._publisher = publisher
        # A process may live through several nodes, one after another: each is an incarnation.
        self._entropy = runtime.entropy.stream(f"metadata.session.{runtime.clock.now_ms()}")
        self.incarnation_id = self._entropy.token(16)
        # Set while the controller counts on this broker and this node has applied that it does:
        # what it leads is then served.
        self.unfenced = asyncio.Event()
        self._is_counted_on = False  # the controller's last word, while there is a session
        self._is_given_up = False  # it was that this broker is fenced, session or not
        self.broker_epoch = Offset(-1)  # of the present registration, -1: never registered
        self._controllers = controllers
        self._calls = ControllerCalls(
            runtime,
            cluster_id=config.cluster_id,
            broker_id=config.broker_id,
            controllers=controllers,
            backoff_ms_min=config.backoff_ms_min,
            backoff_ms_max=config.backoff_ms_max,
        )
        self._asked = NO_NODE  # the controller that the session talks to, or did last
        self._wake = asyncio.Event()  # there is something to report
        self._want_shutdown = False
        self._granted = asyncio.Event()
        self._closed = asyncio.Event()
        self._scope: Scope | None = None  # of the present connection
        self._is_registered = False  # on the present connection
        self._sequence = 0
        self._sent_ms: dict[int, int] = {}  # send time of every unanswered heartbeat
        self._answered_ms: int | None = None  # send time of the newest answered heartbeat
        self._knowledge = Knowledge()
        publisher.on_applied(self._on_applied)

    @property
    def controller_id(self) -> NodeId:
        """The controller that the session talks to."""
        return self._asked

    def is_lapsed(self) -> bool:
        """Whether the controller may have given this broker up: the newest heartbeat that was
        answered was sent longer ago than the session time-out, or the answer was that it is fenced.
        Looked up now, so that it holds after a stall of this process too."""
        if self._answered_ms is None or self._is_given_up:
            return True
        silent_ms = self._runtime.clock.now_ms() - self._answered_ms
        return silent_ms > self._config.session_timeout_ms

    def is_behind(self, *, for_ms: int) -> bool:
        """Whether this broker may lack metadata that were committed longer ago than `for_ms`: also
        of one that the controller hears another node may lead what it does."""
        known_ms = self._knowledge.known_ms
        return known_ms is None or self._runtime.clock.now_ms() - known_ms > for_ms

    # --- life ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a session with the active controller until close() or a granted shutdown.

        Raises InconsistentClusterId, FeatureUpdateFailed for a node of the wrong version, and
        DuplicateBrokerRegistration once it is certain that the other process under this id lives.
        Everything else is tried again, at the next controller, after a back-off.
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
            self._heard(is_counted_on=False)
            await self._calls.pause(attempt)

    async def shutdown(self, timeout_ms: int) -> bool:
        """Ask for leave to stop: leaderships move away first. Return whether it was granted within
        `timeout_ms`; then close() follows either way.

        Without a controller that answers it is given up after two seconds: where everything stops,
        nobody is left to take over.
        """
        self._want_shutdown = True
        self._wake.set()
        deadline_ms = self._runtime.clock.now_ms() + timeout_ms
        while not self._granted.is_set():
            now_ms = self._runtime.clock.now_ms()
            heard_ms = self._answered_ms
            if now_ms >= deadline_ms or heard_ms is None or now_ms - heard_ms > DESERTED_MS:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(min(deadline_ms - now_ms, 100) / 1000):
                    await self._granted.wait()
        return True

    def leader_changed(self, leader_id: NodeId | None) -> None:
        """Another controller leads: a session with the one before is of no use, alive or not, and
        neither is what it was asked for."""
        self._calls.leader_changed(leader_id)
        if leader_id not in (None, self._asked) and self._scope is not None:
            self._scope.cancel()

    def close(self) -> None:
        """End run() and the present connection."""
        self._closed.set()
        self._calls.close()
        self._wake.set()
        if self._scope is not None:
            self._scope.cancel()

    def _is_over(self) -> bool:
        return self._closed.is_set() or self._granted.is_set()

    # --- one connection ------------------------------------------------------------------------

    async def _connect_once(self) -> bool:
        """Register and report until the stream ends; return whether it got that far."""
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
        """Send a heartbeat whenever the applied offset moved, and regularly."""
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
                await stream.finish()  # and wait for the controller's end: an abort may overtake

    async def _receive(self, stream: SessionStream) -> bool:
        """Take one answer in; False when the controller ended the stream. A silent one is lost:
        a cut link without reset looks like that."""
        try:
            async with asyncio.timeout(self._config.session_timeout_ms / 1000):
                response = await stream.receive()
        except TimeoutError:
            raise Lost(f"controller {self.controller_id} is silent") from None
        if response is None:
            return False
        sent_ms = self._sent_ms.pop(response.sequence, None)
        if sent_ms is not None:
            self._answered_ms = sent_ms
            self._knowledge.told(sent_ms, response.committed_offset)
            self._knowledge.applied(self._publisher.applied_offset)
        self.broker_epoch = Offset(response.broker_epoch)
        self._is_given_up = response.fenced
        self._heard(is_counted_on=not response.fenced)
        if response.shutdown_granted:
            self._granted.set()
        return True

    def _heard(self, *, is_counted_on: bool) -> None:
        self._is_counted_on = is_counted_on
        me = self._publisher.image.broker(self._config.broker_id)
        if is_counted_on and me is not None and me.epoch == self.broker_epoch and not me.fenced:
            self.unfenced.set()
        elif not is_counted_on:
            self.unfenced.clear()

    def _on_applied(self, offset: Offset) -> None:
        self._knowledge.applied(offset)
        self._heard(is_counted_on=self._is_counted_on)
        self._wake.set()

    def _registration(self) -> pb.BrokerRegistration:
        config = self._config
        return pb.BrokerRegistration(
            cluster_id=config.cluster_id,
            broker_id=config.broker_id,
            incarnation_id=self.incarnation_id,
            directory_id=config.directory_id,
            grpc_address=config.grpc_address,
            rack=config.rack,
            boot_id=config.boot_id,
            clean_start=config.clean_start,
            replica_address=config.replica_address,
            features=[
                metadata_records_pb2.SupportedFeature(name=name, level_min=low, level_max=high)
                for name, low, high in config.features
            ],
            kafka_listeners=[
                metadata_records_pb2.KafkaListener(name=name, address=address)
                for name, address in config.kafka_listeners
            ],
        )

    # --- changes that clients ask for ----------------------------------------------------------

    async def create_topic(
        self, request: admin_pb2.CreateTopicRequest, *, timeout_ms: int
    ) -> admin_pb2.CreateTopicResponse:
        """Have the active controller create a topic; raises its typed errors, TimedOut, or Lost.

        A request without a topic id gets one here, so that asking again is harmless.
        """
        if not request.topic_id:
            request.topic_id = self._entropy.token(16)
        relayed = pb.RelayRequest(create_topic=request)
        response = await self._calls.relay(relayed, timeout_ms=timeout_ms, repeatable=True)
        return response.create_topic

    async def delete_topic(
        self, request: admin_pb2.DeleteTopicRequest, *, timeout_ms: int
    ) -> admin_pb2.DeleteTopicResponse:
        """Have the active controller delete a topic; raises its typed errors, TimedOut, or
        Lost."""
        relayed = pb.RelayRequest(delete_topic=request)
        response = await self._calls.relay(relayed, timeout_ms=timeout_ms, repeatable=False)
        return response.delete_topic

    async def alter_configs(
        self, request: admin_pb2.AlterConfigsRequest, *, timeout_ms: int
    ) -> admin_pb2.AlterConfigsResponse:
        """Have the active controller change configs of a topic; raises its typed errors, TimedOut,
        or Lost.

        It is asked again when the outcome is unknown: the caller still waits, so the change may
        take effect at any moment until it is answered, also behind another's.
        """
        relayed = pb.RelayRequest(alter_configs=request)
        response = await self._calls.relay(relayed, timeout_ms=timeout_ms, repeatable=True)
        return response.alter_configs

    async def relay(
        self, request: pb.RelayRequest, *, timeout_ms: int, repeatable: bool
    ) -> pb.RelayResponse:
        """Have the active controller carry out the request's command; cluster and broker are filled
        in here.

        What was certainly not done is asked again, at whoever leads by then; with `repeatable`
        also what may have been done. Raises the controller's typed errors, TimedOut, Stopping, and
        Lost: the outcome is unknown, and the command is not repeatable.
        """
        return await self._calls.relay(request, timeout_ms=timeout_ms, repeatable=repeatable)

    async def alter_partitions(
        self, partitions: Sequence[pb.AlterPartition], *, timeout_ms: int
    ) -> pb.AlterPartitionsResponse:
        """Ask the active controller, once, for other in-sync replicas of what this broker leads.

        The answer has a result for each partition, in order, and comes once they are committed.
        Raises NotController and NotSent: nothing was done; Lost and TimedOut: unknown;
        StaleBrokerEpoch: the present registration is another one; Overloaded, Stopping.
        """
        if self.broker_epoch < 0:
            raise NotController("the broker is not registered with any controller yet: repeat")
        request = pb.AlterPartitionsRequest(partitions=partitions)
        return await self._calls.alter_partitions(
            request, broker_epoch=self.broker_epoch, timeout_ms=timeout_ms
        )


class _Twin:
    """Whether another live process has this broker's id, or but a dead one's session is left."""

    def __init__(self, *, patience_ms: int) -> None:
        self._patience_ms = patience_ms
        self._since_ms: int | None = None  # when it was first met; None: not of late

    def ended(self, error: QuorumlogError, now_ms: int, *, was_registered: bool) -> None:
        """Note why a session ended; raises the error once patience is over."""
        if isinstance(error, DuplicateBrokerRegistration):
            since_ms = self._since_ms = now_ms if self._since_ms is None else self._since_ms
            if now_ms - since_ms > self._patience_ms:
                raise error
        elif was_registered or not isinstance(error, NotController | Lost):
            self.is_gone()

    def is_gone(self) -> None:
        """The controller did not name another one."""
        self._since_ms = None
