"""The active controller: decides one command at a time on the newest image, appends what was
decided to the quorum's log, and answers when it is committed and applied.

It is the state machine on the node's quorum log. Owns the newest, uncommitted image while this node
leads, and the brokers' sessions. Between `decide` and `propose_nowait` nothing is awaited, so that
commands never interleave; waiting for commits is done by as many as like to.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ...errors import (
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidRequest,
    Lost,
    NotController,
    Overloaded,
    StaleBrokerEpoch,
    Stopping,
)
from ...ids import NO_NODE, ClusterId, DirectoryId, NodeId, Offset
from ...proto import controller_pb2 as pb
from ...raftlog.shell import Proposal, RaftNode
from ...runtime import CallContext, Handler, Runtime, Stream
from ...services import (
    CONTROLLER_ALTER_PARTITIONS,
    CONTROLLER_BROKER_SESSION,
    CONTROLLER_RELAY,
)
from ..commands import (
    BrokerStopping,
    Command,
    FenceBroker,
    PartitionsAltered,
    ProducerIdsAllocated,
    RegisterBroker,
    Reply,
    UnfenceBroker,
)
from ..controller import decide
from ..decision import ControllerConfig, Decision
from ..image import EMPTY_IMAGE, MetadataImage, replay_batch
from ..isr_messages import alter_partitions_of, altered_response
from ..sessions import BrokerSessions
from ..translation import command_of, response_of
from .applied import AppliedWaiters
from .publisher import MetadataPublisher

_LOG = logging.getLogger("quorumlog.metadata")

SessionStream = Stream[pb.BrokerSessionResponse, pb.BrokerSessionRequest]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerShellConfig:
    """Times of the controller, in milliseconds."""

    decisions: ControllerConfig = field(default_factory=ControllerConfig)
    session_timeout_ms: int = 3000  # broker.session.timeout.ms
    session_tick_ms: int = 250  # how often silent brokers are looked for
    applied_wait_ms: int = 500  # how long an answer waits for brokers to apply the change


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A committed decision."""

    reply: Reply
    offset: Offset  # of the last record behind the reply; -1: nothing was ever appended
    brokers: tuple[NodeId, ...]  # who must have applied it before it is usable


class ControllerShell:
    """One node's controller role."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        cluster_id: ClusterId,
        publisher: MetadataPublisher,
        config: ControllerShellConfig,
    ) -> None:
        """Give it to RaftNode.open as the state machine, then attach() the node it returns.

        Committed records are handed to the publisher first, whose image is the committed one.
        """
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._publisher = publisher
        self._config = config
        self._topic_ids = runtime.entropy.stream("metadata.topic_ids")
        self._node: RaftNode | None = None
        self._epoch: int | None = None  # of the leadership that was opened; None: not leading
        self._image: MetadataImage = EMPTY_IMAGE  # newest, while leading
        self._last: Proposal | None = None  # newest proposal of this leadership
        self._sessions = BrokerSessions(
            timeout_ms=config.session_timeout_ms,
            tick_ms=config.session_tick_ms,
            now_ms=runtime.clock.now_ms(),
        )
        self._applied = AppliedWaiters(self._sessions.applied_offset)
        self._leadership_listeners: list[Callable[[NodeId | None], None]] = []
        self._leading = asyncio.Event()
        self._closing = asyncio.Event()

    def attach(self, node: RaftNode) -> None:
        """Decide over this node's log from now on; before node.start()."""
        self._node = node

    @property
    def is_active(self) -> bool:
        """Whether commands are decided here."""
        return self._epoch is not None

    @property
    def leader_id(self) -> NodeId:
        """The active controller as far as known, NO_NODE: unknown."""
        leader = None if self._node is None else self._node.leader_id
        return NO_NODE if leader is None else leader

    # --- the quorum's log ----------------------------------------------------------------------

    def committed(self, base_offset: int, epoch: int, values: list[bytes]) -> None:
        """See StateMachine."""
        self._publisher.committed(base_offset, epoch, values)
        committed = self._publisher.committed_image
        if self._epoch is not None and committed.offset == self._image.offset:
            # Equal, but one copy less: both were replayed from the same records.
            self._image = committed

    def leadership(self, leader_id: NodeId | None, epoch: int) -> None:
        """See StateMachine."""
        if self._node is not None and leader_id == self._node.node_id:
            self._epoch = epoch
            self._image = self._publisher.committed_image
            self._sessions.begin_leadership(
                self._image.sorted_brokers(), self._runtime.clock.now_ms()
            )
            self._leading.set()
            _LOG.info("controller.active epoch=%d offset=%d", epoch, self._image.offset)
        elif self._epoch is not None:
            _LOG.info("controller.resigned epoch=%d", self._epoch)
            self._epoch, self._last = None, None
            self._image = self._publisher.committed_image
            self._leading.clear()
        for listener in self._leadership_listeners:
            listener(leader_id)

    def on_leadership(self, listener: Callable[[NodeId | None], None]) -> None:
        """Call with who leads the quorum, None: nobody is known to, whenever that changes."""
        self._leadership_listeners.append(listener)

    def snapshot(self) -> Iterator[list[bytes]]:
        """See StateMachine."""
        return self._publisher.snapshot()

    def begin_restore(self) -> None:
        """See StateMachine."""
        assert self._epoch is None, "a leader is told its state by a snapshot"
        self._publisher.begin_restore()

    def restore(self, values: list[bytes]) -> None:
        """See StateMachine."""
        self._publisher.restore(values)

    def end_restore(self, end_offset: int, epoch: int) -> None:
        """See StateMachine."""
        self._publisher.end_restore(end_offset, epoch)

    # --- commands ------------------------------------------------------------------------------

    async def submit(self, command: Command) -> Outcome:
        """Decide, append and wait for the commit.

        Raises what `decide` raises; NotController, Overloaded, Stopping: nothing was appended;
        Lost: the leadership or the node ended with the outcome unknown.
        """
        outcome, proposal = self._decide(command)
        if proposal is not None:
            await proposal.wait_committed()
        return outcome

    def _decide(self, command: Command) -> tuple[Outcome, Proposal | None]:
        """Decide on the newest image and append; one step of the loop."""
        node = self._active_node()
        decision = decide(self._image, command, self._config.decisions)
        assert isinstance(decision, Decision), "no decision takes several steps yet"
        if decision.records:
            values = [r.SerializeToString(deterministic=True) for r in decision.records]
            proposal = node.propose_nowait(values)
            self._image = replay_batch(
                self._image,
                decision.records,
                base_offset=proposal.base_offset,
                epoch=proposal.epoch,
            )
            assert self._image.offset == proposal.last_offset, "offsets drifted"
            self._last = proposal
        # An answer that changes nothing may still hang on what is not committed yet.
        outcome = Outcome(reply=decision.reply, offset=self._image.offset, brokers=decision.brokers)
        return outcome, self._last

    def _active_node(self) -> RaftNode:
        if self._node is None or self._epoch is None:
            raise NotController("this node is not the active controller", leader_id=self.leader_id)
        return self._node

    # --- what brokers ask ----------------------------------------------------------------------

    def handlers(self) -> dict[str, Handler]:
        """The internal Controller service, for Network.serve."""
        handlers = (
            Handler(CONTROLLER_BROKER_SESSION, self._broker_session),
            Handler(CONTROLLER_RELAY, self._relay),
            Handler(CONTROLLER_ALTER_PARTITIONS, self._alter_partitions),
        )
        return {handler.method.path: handler for handler in handlers}

    async def _relay(self, request: pb.RelayRequest, context: CallContext) -> pb.RelayResponse:
        """Answer once the change is committed and those it concerns have applied it, or a moment
        later, saying that they have not."""
        self._check_cluster(request.cluster_id)
        outcome = await self.submit(command_of(request, self._topic_ids))
        concerned = _concerned(outcome, NodeId(request.broker_id))
        connected = [broker for broker in concerned if self._sessions.is_connected(broker)]
        await self._applied.wait(connected, outcome.offset, self._config.applied_wait_ms)
        applied = all(self._sessions.applied_offset(b) >= outcome.offset for b in concerned)
        return response_of(outcome.reply, offset=outcome.offset, applied=applied)

    async def _alter_partitions(
        self, request: pb.AlterPartitionsRequest, context: CallContext
    ) -> pb.AlterPartitionsResponse:
        """Answer once the changes are committed; each partition stands for itself."""
        self._check_cluster(request.cluster_id)
        outcome = await self.submit(alter_partitions_of(request))
        assert isinstance(outcome.reply, PartitionsAltered)
        return altered_response(request, outcome.reply)

    async def _broker_session(self, stream: SessionStream, context: CallContext) -> None:
        """Register the broker, then answer its heartbeats until the stream ends."""
        first = await stream.receive()
        if first is None:
            return
        if first.WhichOneof("event") != "registration":
            raise InvalidRequest("a broker session begins with its registration")
        broker_id, broker_epoch = await self._register(first.registration)
        number = self._sessions.connect(broker_id, broker_epoch, self._runtime.clock.now_ms())
        try:
            await stream.send(self._session_response(broker_id, broker_epoch, 0))
            while (message := await stream.receive()) is not None:
                response = await self._heartbeat(broker_id, broker_epoch, number, message)
                await stream.send(response)
        finally:
            self._sessions.disconnect(broker_id, number)
            self._applied.moved()
        await self._ended(broker_id, broker_epoch)

    async def _register(self, registration: pb.BrokerRegistration) -> tuple[NodeId, Offset]:
        self._check_cluster(registration.cluster_id)
        self._active_node()
        broker_id = NodeId(registration.broker_id)
        known = self._image.broker(broker_id)
        if (
            known is not None
            and known.incarnation_id != registration.incarnation_id
            and self._sessions.is_connected(broker_id)
        ):
            raise DuplicateBrokerRegistration(
                f"another live process at {known.grpc_address} is registered as broker"
                f" {broker_id}: stop it, or give this one another node id"
            )
        await self.submit(
            RegisterBroker(
                broker_id=broker_id,
                incarnation_id=registration.incarnation_id,
                directory_id=DirectoryId(registration.directory_id),
                grpc_address=registration.grpc_address,
                rack=registration.rack,
                boot_id=registration.boot_id,
            )
        )
        broker = self._image.broker(broker_id)
        if broker is None or broker.incarnation_id != registration.incarnation_id:
            raise StaleBrokerEpoch(f"broker {broker_id} was registered anew meanwhile")
        return broker_id, broker.epoch

    async def _heartbeat(
        self,
        broker_id: NodeId,
        broker_epoch: Offset,
        number: int,
        message: pb.BrokerSessionRequest,
    ) -> pb.BrokerSessionResponse:
        if message.WhichOneof("event") != "heartbeat":
            raise InvalidRequest("after its registration a broker session has heartbeats only")
        self._active_node()
        heartbeat = message.heartbeat
        if not self._sessions.is_current(broker_id, number):
            raise StaleBrokerEpoch(f"broker {broker_id} has a newer session, or was silent")
        self._sessions.heartbeat(
            broker_id,
            number,
            applied_offset=Offset(heartbeat.applied_offset),
            now_ms=self._runtime.clock.now_ms(),
        )
        self._applied.moved()
        broker = self._image.broker(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            raise StaleBrokerEpoch(f"broker {broker_id} is registered anew")
        if heartbeat.want_shutdown and not broker.stopping:
            await self.submit(BrokerStopping(broker_id=broker_id, broker_epoch=broker_epoch))
        elif broker.fenced and not broker.stopping and heartbeat.applied_offset >= broker_epoch:
            await self.submit(UnfenceBroker(broker_id=broker_id, broker_epoch=broker_epoch))
        return self._session_response(broker_id, broker_epoch, heartbeat.sequence)

    def _session_response(
        self, broker_id: NodeId, broker_epoch: Offset, sequence: int
    ) -> pb.BrokerSessionResponse:
        broker = self._image.broker(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            raise StaleBrokerEpoch(f"broker {broker_id} is registered anew")
        return pb.BrokerSessionResponse(
            sequence=sequence,
            broker_epoch=broker_epoch,
            fenced=broker.fenced,
            shutdown_granted=broker.stopping,
        )

    async def _ended(self, broker_id: NodeId, broker_epoch: Offset) -> None:
        """The broker finished its stream: after a controlled shutdown it is gone for good."""
        broker = self._image.broker(broker_id)
        if broker is not None and broker.epoch == broker_epoch and broker.stopping:
            await self._fence(broker_id, broker_epoch)

    # --- silence -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fence brokers that are silent for too long; until close()."""
        tick_s = self._config.session_tick_ms / 1000
        while not self._closing.is_set():
            try:
                async with asyncio.timeout(tick_s if self.is_active else None):
                    await (self._closing if self.is_active else self._leading).wait()
            except TimeoutError:
                for broker_id, broker_epoch in self._sessions.tick(self._runtime.clock.now_ms()):
                    await self._fence(broker_id, broker_epoch)

    def close(self) -> None:
        """End run()."""
        self._closing.set()
        self._leading.set()

    async def _fence(self, broker_id: NodeId, broker_epoch: Offset) -> None:
        try:
            await self.submit(FenceBroker(broker_id=broker_id, broker_epoch=broker_epoch))
        except (NotController, StaleBrokerEpoch, Overloaded, Stopping, Lost) as error:
            _LOG.info("controller.not_fenced broker=%d reason=%s", broker_id, error)
            return
        self._sessions.remove(broker_id, broker_epoch)
        _LOG.info("controller.fenced broker=%d epoch=%d", broker_id, broker_epoch)

    def _check_cluster(self, cluster_id: str) -> None:
        if cluster_id != self._cluster_id:
            raise InconsistentClusterId(
                f"this controller belongs to cluster {self._cluster_id!r}, the caller to"
                f" {cluster_id!r}"
            )


def _concerned(outcome: Outcome, asker: NodeId) -> list[NodeId]:
    """The brokers that an answer waits for, ascending; producer ids are of use before any of them
    knows."""
    if isinstance(outcome.reply, ProducerIdsAllocated):
        return []
    return sorted({*outcome.brokers, asker} - {NO_NODE})
